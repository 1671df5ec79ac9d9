"""Laguna: GLM's pairs of key and value, typed by what they look like where no schema says; thinks if told to.

Source: chat template of Laguna.
"""

from dataclasses import replace

from worker.core.grammar import Reasoning
from worker.core.grammars import glm

REASONING = Reasoning(source="chat template of Laguna", start="content", switches=("thinking", "enable_thinking"))
TOOLS = replace(glm.TOOLS, source="chat template of Laguna", arguments=replace(glm.PARAMS, untyped="json"))
