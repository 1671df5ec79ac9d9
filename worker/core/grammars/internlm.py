"""InternLM 2.5: two tokens, then one JSON object.

Source: chat template of InternLM2.5-7B-Chat.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat template of InternLM2.5-7B-Chat",
    call=("<|action_start|><|plugin|>",),
    close="<|action_end|>",
    arguments=Members(),
    atoms=("<|action_start|>", "<|plugin|>"),
)
