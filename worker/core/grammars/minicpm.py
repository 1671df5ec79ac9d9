"""MiniCPM 5: tags with XML values. MiniCPM-V: think tags, and newlines written as two characters.

Source: chat templates of MiniCPM5 and MiniCPM-V-4.5.
"""

from worker.core.grammar import QUOTED_KEY, Header, Params, Reasoning, Tools

REASONING_V = Reasoning(
    source="chat template of MiniCPM-V-4.5", switches=("enable_thinking",), tool_ends=True, newlines=True
)

TOOLS = Tools(
    source="chat template of MiniCPM5",
    call=("<function name=",),
    close="</function>",
    header=Header(until=(">",), pattern=r"""\s*["']?(?P<name>[^"'>]*?)["']?\s*"""),
    arguments=Params(
        open="<param name=",
        until=">",
        close="</param>",
        pattern=QUOTED_KEY,
        trim="strip",
        xml=True,
    ),
)
