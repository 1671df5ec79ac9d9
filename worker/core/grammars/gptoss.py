"""Harmony, the message format of gpt-oss: reasoning and calls are messages of a channel or to a recipient.

Source: OpenAI's harmony documentation.
"""

from worker.core.grammar import Messages

HARMONY = Messages(
    source="harmony documentation",
    start="<|start|>",
    channel="<|channel|>",
    message="<|message|>",
    constrain="<|constrain|>",
    ends=("<|end|>", "<|call|>", "<|return|>"),
    reasoning=("analysis",),
    content=("final", "commentary"),
)
