"""K2 Horizon: pairs of key and value, with or without a type between them, or JSON; three think tags, by effort.

Source: chat template of K2-Horizon. The output itself tells which of the three forms it has.
"""

from worker.core.grammar import Header, Members, Params, Reasoning, Tools

REASONING = Reasoning(
    source="chat template of K2-Horizon",
    open=("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
    close=("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
    effort_off=("none",),
    tool_ends=True,
)

TOOLS = Tools(
    source="chat template of K2-Horizon",
    section=("<ifm|tool_calls>",),
    section_close="</ifm|tool_calls>",
    call=("<ifm|tool_call>",),
    close="</ifm|tool_call>",
    header=Header(until=(), keep=("<ifm|arg_key>", "</ifm|tool_call>")),
    arguments=Params(
        open="<ifm|arg_key>",
        until="</ifm|arg_key>",
        type_open="<ifm|arg_type>",
        type_close="</ifm|arg_type>",
        value_open="<ifm|arg_value>",
        close="</ifm|arg_value>",
        implicit="anywhere",
        restart=False,
    ),
    or_members=Members(),
    always_native=True,
)
