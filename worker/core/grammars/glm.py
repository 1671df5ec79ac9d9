"""GLM 4.5 to 5: name, then pairs of key and value in tags. Both layouts, with newlines and without, are one grammar.

Source: chat templates of GLM-4.5 and GLM-4.7.
"""

from worker.core.grammar import Header, Params, Reasoning, Tools

REASONING = Reasoning(
    source="chat template of GLM-4.5",
    switches=("thinking", "enable_thinking"),
    tool_ends=True,
    reopen=True,
)

PARAMS = Params(
    open="<arg_key>",
    until="</arg_key>",
    value_open="<arg_value>",
    close="</arg_value>",
    implicit="anywhere",
    restart=False,
)

TOOLS = Tools(
    source="chat template of GLM-4.5",
    call=("<tool_call>",),
    close="</tool_call>",
    always_native=True,
    header=Header(until=("\n",), keep=("<arg_key>", "</tool_call>"), clean=True),
    arguments=PARAMS,
)
