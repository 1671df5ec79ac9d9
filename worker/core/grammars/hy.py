"""HY 3 and 4: GLM's pairs of key and value in a section. Checkpoints add a suffix to every tag.

Source: chat templates of HY-3 and HY-4.
"""

from dataclasses import replace

from worker.core.grammar import Header, Reasoning
from worker.core.grammars import glm

REASONING3 = Reasoning(
    source="chat template of HY-3",
    start="content",
    switches=("reasoning_effort",),
    effort_off=("no_think", "none"),
    suffixed=True,
)
REASONING4 = replace(REASONING3, source="chat template of HY-4", start="reasoning")

TOOLS3 = replace(
    glm.TOOLS,
    source="chat template of HY-3",
    section=("<tool_calls>",),
    section_close="</tool_calls>",
    header=Header(until=("<tool_sep>",), keep=("<arg_key>", "</tool_call>")),
    suffixed=True,
    always_native=False,
)
TOOLS4 = replace(
    TOOLS3,
    source="chat template of HY-4",
    header=Header(until=(), keep=("<arg_key>", "</tool_call>")),
    always_native=True,
)
