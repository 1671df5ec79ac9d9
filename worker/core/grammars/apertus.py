"""Apertus: a list of objects whose only key is the name of the tool.

Source: chat template of Apertus-8B-Instruct.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat template of Apertus-8B-Instruct",
    call=("<|tools_prefix|>",),
    close="<|tools_suffix|>",
    gap="keep",
    arguments=Members(name=(), arguments=(), array=True, keyed=True),
)
