"""Hunyuan A13B: think and answer tags in plain text, a list of calls in a tag.

Source: chat template of Hunyuan-A13B-Instruct. The newlines beside the tags belong to them.
"""

from worker.core.grammar import Members, Reasoning, Tools

REASONING = Reasoning(source="chat template of Hunyuan-A13B-Instruct", start="content", wrap=("<answer>", "</answer>"))

TOOLS = Tools(
    source="chat template of Hunyuan-A13B-Instruct",
    call=("<tool_calls>",),
    close="</tool_calls>",
    arguments=Members(array=True),
)
