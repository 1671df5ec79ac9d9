"""LFM2: a list of Python calls between two tokens.

Source: chat template of LFM2-1.2B.
"""

from worker.core.grammar import Python, Tools

TOOLS = Tools(
    source="chat template of LFM2-1.2B",
    call=("<|tool_call_start|>",),
    close="<|tool_call_end|>",
    arguments=Python(),
)
