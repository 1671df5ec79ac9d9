"""Mistral, every tokenizer generation: a list of objects (before v11), or name, `[ARGS]` and JSON.

Source: mistral-common. The control tokens are ids; equal text is text. Magistral of June 2025 thinks in plain tags.
"""

from worker.core.grammar import Header, Json, Members, Reasoning, Tools

REASONING = Reasoning(
    source="mistral-common",
    open=("[THINK]", "<think>"),
    close=("[/THINK]", "</think>"),
    start="content",
    reopen=True,
)

TOOLS = Tools(
    source="mistral-common",
    call=("[TOOL_CALLS]",),
    gap="keep",
    always_native=True,
    ids="nine",
    header=Header(
        until=("[ARGS]",),
        keep=("{",),
        pattern=r"\s*(?P<name>[^\s\[]+)\s*(?:\[CALL_ID\]\s*(?P<id>\w*)\s*)?",
        clean=True,
    ),
    arguments=Json(id_ends=True),
    or_members=Members(array=True),
    atoms=("[CALL_ID]",),
)
