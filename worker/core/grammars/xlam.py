"""xLAM: a list of objects, by itself or after one of several openers. All of it is text.

Source: chat templates of xLAM-1 and xLAM-2. What follows an opener is a call once its name was read.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat templates of xLAM-1 and xLAM-2",
    call=("[TOOL_CALLS]", "<tool_call>", "```json"),
    tail=("</tool_call>", "```"),
    arguments=Members(array=True, known=("name", "id", "type", "arguments", "parameters")),
    unmarked=True,
    tentative=True,
    spelled=True,
)
