"""Step-3: invoke tags inside calls inside a section; values are stripped.

Source: chat template of Step-3. `｜` is U+FF5C. The tags around an invoke carry nothing and are dropped with the
section's other text.
"""

from worker.core.grammar import QUOTED_KEY, Header, Params, Reasoning, Tools

REASONING = Reasoning(source="chat template of Step-3")

TOOLS = Tools(
    source="chat template of Step-3",
    section=("<｜tool_calls_begin｜>",),
    section_close="<｜tool_calls_end｜>",
    call=("<steptml:invoke name=",),
    close="</steptml:invoke>",
    header=Header(until=(">",), pattern=r"""\s*["']?(?P<name>[^"'>]*?)["']?\s*"""),
    arguments=Params(
        open="<steptml:parameter name=",
        until=">",
        close="</steptml:parameter>",
        pattern=QUOTED_KEY,
        trim="strip",
    ),
    atoms=("<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_sep｜>"),
)
