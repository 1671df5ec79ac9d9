"""InternLM 2.5: an object between two tokens that open an action and one that ends it.

Source: chat template of internlm2_5-7b-chat.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat template of internlm2_5-7b-chat",
    call=("<|action_start|><|plugin|>",),
    close="<|action_end|>",
    arguments=Members(arguments=("parameters", "arguments")),
    atoms=("<|action_start|>", "<|plugin|>"),
)
