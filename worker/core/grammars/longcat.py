"""LongCat Flash: the Hermes object in tags of its own.

Source: chat template of LongCat-Flash-Chat.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat template of LongCat-Flash-Chat",
    call=("<longcat_tool_call>",),
    close="</longcat_tool_call>",
    arguments=Members(),
)
