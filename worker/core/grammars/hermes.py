"""Hermes: one JSON object in a tag. Also Qwen2.5, QwQ, Qwen3.

Source: chat templates of Hermes 2 Pro and Qwen3.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat template of Qwen3",
    call=("<tool_call>",),
    close="</tool_call>",
    arguments=Members(),
)
