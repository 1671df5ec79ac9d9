"""PLaMo 3: a section of requests, each with a name and JSON between tags of several tokens.

Source: chat template of PLaMo-3.
"""

from worker.core.grammar import Header, Json, Reasoning, Tools

REASONING = Reasoning(
    source="chat template of PLaMo-3",
    open=("<|plamo:begin_think:plamo|>",),
    close=("<|plamo:end_think:plamo|>",),
    switches=("enable_thinking",),
    tool_ends=True,
    reopen=True,
)

TOOLS = Tools(
    source="chat template of PLaMo-3",
    section=("<|plamo:begin_tool_requests:plamo|>",),
    section_close="<|plamo:end_tool_requests:plamo|>",
    call=("<|plamo:begin_tool_request:plamo|>",),
    close="<|plamo:end_tool_request:plamo|>",
    gap="keep",
    always_native=True,
    header=Header(
        until=("<|plamo:begin_tool_arguments:plamo|>",),
        pattern=r"\s*<\|plamo:begin_tool_name:plamo\|>\s*(?P<name>\S.*?)\s*<\|plamo:end_tool_name:plamo\|>\s*",
    ),
    arguments=Json(lead="<|plamo:constrain|>json<|plamo:msg|>"),
)
