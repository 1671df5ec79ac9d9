"""Phi-4-mini: a list right after a word.

Source: chat template of Phi-4-mini-instruct.
"""

from worker.core.grammar import Members, Tools

TOOLS = Tools(
    source="chat template of Phi-4-mini-instruct",
    call=("functools[",),
    arguments=Members(array=True, opened=True),
)
