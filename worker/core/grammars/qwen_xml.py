"""Qwen3-Coder and Qwen3.5: parameters in tags, values as text.

Source: chat template of Qwen3-Coder. The outer opener is sometimes missing; a value stands on lines of its own.
"""

from dataclasses import replace

from worker.core.grammar import Header, Params, Tools

PARAMS = Params(open="<parameter=", until=">", close="</parameter>", trim="newline")

TOOLS = Tools(
    source="chat template of Qwen3-Coder",
    section=("<tool_call>",),
    section_close="</tool_call>",
    call=("<function=",),
    close="</function>",
    bare=True,
    strict=True,
    header=Header(until=(">",)),
    arguments=PARAMS,
)

MIMO = replace(TOOLS, source="chat template of MiMo-V2", arguments=replace(PARAMS, trim="none"))
STEP5 = replace(TOOLS, source="chat template of Step-5", gap="keep")
