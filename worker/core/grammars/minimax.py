"""MiniMax M2: invoke tags with text values, reasoning that the template opens.

Source: chat template of MiniMax-M2.
"""

from worker.core.grammar import Header, Params, Reasoning, Tools

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
        pattern=r"""\s*["']?(?P<key>[^"'>]*?)["']?\s*""",
    ),
)
