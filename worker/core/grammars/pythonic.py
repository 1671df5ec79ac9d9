"""Python call syntax: Llama 3.2, Llama 4, ToolACE.

Source: the models' prompt format pages.
"""

from worker.core.grammar import Python, Tools

PYTHONIC = Tools(source="Llama 3.2 prompt format", call=(), arguments=Python(), unmarked=True, gap="keep")

LLAMA4 = Tools(
    source="Llama 4 prompt format",
    call=("<|python_start|>",),
    close="<|python_end|>",
    arguments=Python(),
    unmarked=True,
    gap="keep",
)
