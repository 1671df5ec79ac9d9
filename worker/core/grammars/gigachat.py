"""GigaChat 3: a token, or words and a token, then one JSON object.

Source: chat template of GigaChat3-10B. Older checkpoints write the words.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat template of GigaChat3-10B",
    call=("<|function_call|>", "function call<|role_sep|>"),
    noise=("<|message_sep|>",),
    arguments=Members(),
    atoms=("<|role_sep|>",),
)
