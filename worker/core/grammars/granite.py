"""Granite: a list after a tag (3.0, 3.1), an object in tags (4.0), reasoning between two phrases (3.2).

Source: chat templates of Granite 3.0, 3.1, 3.2 and 4.0.
"""

from dataclasses import replace

from worker.core.grammar import Members, Reasoning, Tools
from worker.core.grammars import hermes

REASONING = Reasoning(
    source="chat template of Granite 3.2",
    open=("Here is my thought process:", "Here's my thought process:"),
    close=("Here is my response:", "Here's my response:"),
    start="content",
)

TOOLS = Tools(
    source="chat template of Granite 3.1",
    call=("<|tool_call|>", "<tool_call>"),
    arguments=Members(array=True),
)
TOOLS4 = replace(hermes.TOOLS, source="chat template of Granite 4.0")
TOOLS_20B = Tools(source="model card of Granite-20B-FunctionCalling", call=("<function_call>",), arguments=Members())
