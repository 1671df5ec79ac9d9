"""Seed-OSS: the syntax of Qwen3-Coder with tags of its own.

Source: chat template of Seed-OSS-36B-Instruct.
"""

from dataclasses import replace

from worker.core.grammar import Reasoning
from worker.core.grammars import qwen_xml

REASONING = Reasoning(
    source="chat template of Seed-OSS",
    open=("<seed:think>",),
    close=("</seed:think>",),
    switches=("enable_thinking",),
    tool_ends=True,
)

TOOLS = replace(
    qwen_xml.TOOLS,
    source="chat template of Seed-OSS",
    section=("<seed:tool_call>",),
    section_close="</seed:tool_call>",
)
