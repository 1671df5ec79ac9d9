"""MiniMax M2: invoke tags with text values, reasoning that the template opens. M3: nested elements behind a prefix.

Source: chat templates of MiniMax-M2 and MiniMax-M3.
"""

from worker.core.grammar import QUOTED_KEY, Elements, Header, Params, Reasoning, Tools

REASONING = Reasoning(source="chat template of MiniMax-M2", tool_ends=True)

TOOLS = Tools(
    source="chat template of MiniMax-M2",
    section=("<minimax:tool_call>",),
    section_close="</minimax:tool_call>",
    call=("<invoke name=",),
    close="</invoke>",
    header=Header(until=(">",), pattern=r"""\s*["']?(?P<name>[^"'>]*?)["']?\s*"""),
    arguments=Params(
        open="<parameter name=",
        until=">",
        close="</parameter>",
        pattern=QUOTED_KEY,
    ),
)

APPEND = Reasoning(source="chat template of MiniMax-M2", open=(), inline="<think>")

NS = "]<]minimax[>["

REASONING_M3 = Reasoning(
    source="chat template of MiniMax-M3",
    open=("<mm:think>",),
    close=("</mm:think>",),
    start="content",
    switches=("thinking_mode",),
    on_words=("enabled",),
    spelled=True,
)

TOOLS_M3 = Tools(
    source="chat template of MiniMax-M3",
    section=(f"{NS}<tool_call>",),
    section_close=f"{NS}</tool_call>",
    call=(f"{NS}<invoke name=",),
    close=f"{NS}</invoke>",
    header=Header(until=(">",), pattern=r"""\s*["']?(?P<name>[^"'>]*?)["']?\s*"""),
    arguments=Elements(prefix=NS),
    always_native=True,
    spelled=True,
)
