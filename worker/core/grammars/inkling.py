"""Inkling: a token says what the next body is.

Source: chat template of Inkling.
"""

from worker.core.grammar import Members, Messages, Tools

MESSAGES = Messages(
    source="chat template of Inkling",
    start="<|message_model|>",
    ends=("<|end_message|>", "<|content_model_end_sampling|>"),
    kinds=(
        ("<|content_thinking|>", "reasoning"),
        ("<|content_text|>", "content"),
        ("<|content_invoke_tool_json|>", "tools"),
        ("<|content_invoke_tool_text|>", "content"),
        ("<|content_tool_error|>", "content"),
    ),
    tools=Tools(
        source="chat template of Inkling",
        call=("<|content_invoke_tool_json|>",),
        arguments=Members(arguments=("args", "arguments", "parameters")),
    ),
    trim=True,
)
