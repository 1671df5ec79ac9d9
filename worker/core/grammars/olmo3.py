"""OLMo 3: Python calls on lines between two tags, think tags; all of it plain text.

Source: chat templates of Olmo-3-7B-Instruct and Olmo-3-7B-Think.
"""

from worker.core.grammar import Python, Reasoning, Tools

REASONING = Reasoning(source="chat template of Olmo-3-7B-Think")

TOOLS = Tools(
    source="chat template of Olmo-3-7B-Instruct",
    call=("<function_calls>",),
    close="</function_calls>",
    arguments=Python(brackets=False),
)
