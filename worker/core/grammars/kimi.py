"""Kimi K2 (a section of calls with ids and JSON) and Kimi K3 (tags of three control tokens).

Source: chat templates of Kimi-K2-Instruct and Kimi-K3.
"""

from worker.core.grammar import Header, Json, Params, Reasoning, Tools

REASONING_K2 = Reasoning(
    source="chat template of Kimi-K2-Thinking", switches=("thinking", "enable_thinking"), tool_ends=True
)

TOOLS_K2 = Tools(
    source="chat template of Kimi-K2-Instruct",
    section=("<|tool_calls_section_begin|>",),
    section_close="<|tool_calls_section_end|>",
    call=("<|tool_call_begin|>",),
    close="<|tool_call_end|>",
    gap="keep",
    ids="functions",
    header=Header(
        until=("<|tool_call_argument_begin|>",),
        pattern=r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s:]*[^\s:\d][^\s:]*)(?::\d+)?)\s*",
    ),
    arguments=Json(),
)

_ATOMS = ("<|open|>", "<|close|>", "<|sep|>")

REASONING_K3 = Reasoning(
    source="chat template of Kimi-K3",
    open=("<|open|>think<|sep|>",),
    close=("<|close|>think<|sep|>",),
    ends=("<|open|>response<|sep|>",),
    noise=("<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    switches=("thinking", "enable_thinking"),
    tool_ends=True,
    atoms=_ATOMS,
)

TOOLS_K3 = Tools(
    source="chat template of Kimi-K3",
    section=("<|open|>tools<|sep|>",),
    section_close="<|close|>tools<|sep|>",
    call=("<|open|>call",),
    close="<|close|>call<|sep|>",
    gap="keep",
    always_native=True,
    ids="functions",
    header=Header(until=("<|sep|>",), pattern=r'.*?\btool="(?P<name>[^"]*)".*'),
    arguments=Params(
        open="<|open|>argument",
        until="<|sep|>",
        close="<|close|>argument<|sep|>",
        pattern=r'.*?\bkey="(?P<key>[^"]*)"(?:.*?\btype="(?P<type>[^"]*)")?.*',
        typing="attribute",
        escapes=True,
    ),
    atoms=_ATOMS,
)
