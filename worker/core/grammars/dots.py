"""dots: invoke tags in a block, or one JSON object there.

Source: chat template of dots.llm. Values are typed by the rules that all families share.
"""

from dataclasses import replace

from worker.core.grammar import Members
from worker.core.grammars import minimax

TOOLS = replace(
    minimax.TOOLS,
    source="chat template of dots.llm",
    section=("<dots_function_call>",),
    section_close="</dots_function_call>",
    or_members=Members(),
    always_native=True,
)
