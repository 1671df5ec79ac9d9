"""ERNIE 4.5: always thinks, answers between response tags, calls as Hermes does.

Source: chat template of ERNIE-4.5-Thinking.
"""

from dataclasses import replace

from worker.core.grammar import Reasoning
from worker.core.grammars import hermes

_RESPONSE = ("<response>", "</response>")

REASONING = Reasoning(source="chat template of ERNIE-4.5-Thinking", wrap=_RESPONSE)
TOOLS = replace(hermes.TOOLS, source="chat template of ERNIE-4.5-Thinking", noise=_RESPONSE)
