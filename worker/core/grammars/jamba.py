"""Jamba 1.5: a list of objects in a tag.

Source: chat template of Jamba-1.5.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat template of Jamba-1.5",
    call=("<tool_calls>",),
    close="</tool_calls>",
    arguments=Members(array=True),
)
