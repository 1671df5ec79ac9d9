"""Where an output starts: inside reasoning, in content, or in the header of a message.

Order: the last marker of the prompt's current turn, then template arguments, then the family's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.state import DecodeState, ParserState
from worker.core import message_regions
from worker.core.compiled import SYMBOL, Compiled
from worker.core.detokenize import decode_pieces, flush
from worker.core.events import TEXT
from worker.core.run import RequestView, Run
from worker.core.run_constants import (
    BETWEEN,
    LABEL,
    MAX_HEADER,
    MESSAGE_HEADER,
    OPENER,
    REASONING,
    STRIP,
)
from worker.core.vocabulary import Vocabulary

TURNS = (
    "<|im_start|>",
    "<|im_assistant|>",
    "<|im_user|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|turn>",
    "<start_of_turn>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<|start_header_id|>",
    "<|header_start|>",
    "<|start_of_role|>",
    "[INST]",
    "[/INST]",
    "<seed:bos>",
    "<|BOT|>",
    "]~b]",
    "<|start|>",
    "<assistant>",
    "<|START_OF_TURN_TOKEN|>",
)
"""Tokens that begin a turn: markers of reasoning before the last of them belong to the history."""

MAX_TAIL = 4096
"""Ids of the prompt that are looked at, where no token begins a turn."""


def current_turn(vocabulary: Vocabulary, ids: Sequence[int]) -> Sequence[int]:
    """The prompt's ids after the last token that begins a turn."""
    turns = {vocabulary.id_of[text] for text in TURNS if text in vocabulary.id_of}
    for index in range(len(ids) - 1, -1, -1):
        if ids[index] in turns:
            return ids[index + 1 :]
    return ids[-MAX_TAIL:]


def read_ids(compiled: Compiled, ids: Sequence[int]) -> str:
    """Ids as the engine's text."""
    vocabulary = compiled.vocabulary
    within = DecodeState(started=vocabulary.strips_leading_space)  # they are the end of a prompt: a space is its own
    pieces, state = decode_pieces(vocabulary, within, ids)
    rest, _ = flush(vocabulary, state)
    return compiled.symbols.read([*pieces, (rest, TEXT)])


def thinking(compiled: Compiled, kwargs: Mapping[str, Any]) -> bool | None:
    """What the template arguments say about reasoning; None: nothing."""
    grammar = compiled.reasoning
    assert grammar is not None
    if kwargs.get("reasoning_effort") in grammar.effort_off:
        return False
    given = [kwargs[key] for key in grammar.switches if kwargs.get(key) is not None]
    words = grammar.on_words
    return any(one in words if words and isinstance(one, str) else one for one in given) if given else None


def start_region(
    compiled: Compiled, view: RequestView, kwargs: Mapping[str, Any], prompt: Sequence[int]
) -> tuple[int, int, str, str]:
    """Region, flags, name of an open call and held text before the first chunk."""
    if compiled.messages is not None:
        return _in_messages(compiled, view, prompt)
    grammar = compiled.reasoning
    content = compiled.content_region
    if grammar is None:
        return content, 0, "", ""
    if grammar.inline:
        return content, 0, "", grammar.inline
    text = _turn(compiled, prompt) if prompt else ""
    opened = max((text.rfind(literal) for literal in compiled.opens), default=-1)
    closed = max((text.rfind(literal) for literal in (*compiled.closes, *compiled.ends)), default=-1)
    if opened > closed:
        inside = text[opened:]
        for literal in compiled.opens:
            inside = inside.removeprefix(literal)
        if compiled.label:
            inside = inside.removeprefix(compiled.label)
        fresh = not inside.strip()
        return (LABEL if compiled.label and not text.endswith("\n") else REASONING), (STRIP if fresh else 0), "", ""
    by_id = any(SYMBOL.search(literal) for literal in compiled.opens)
    if closed >= 0:
        after = text[closed:]
        for literal in (*compiled.closes, *compiled.ends):
            after = after.removeprefix(literal)
        return content, (0 if after.strip() else STRIP) | (OPENER if by_id else 0), "", ""
    told = thinking(compiled, kwargs)
    if told or (told is None and grammar.start == "reasoning"):
        return REASONING, STRIP, "", ""
    return content, OPENER if by_id or told is None else 0, "", ""


def _turn(compiled: Compiled, prompt: Sequence[int]) -> str:
    """The prompt's text in the assistant's turn."""
    assert compiled.reasoning is not None
    tail = prompt[-MAX_TAIL:]
    text = compiled.vocabulary.decode(tail) if compiled.reasoning.anchors else ""
    begin = max((text.rfind(one) + len(one) for one in compiled.reasoning.anchors if one in text), default=-1)
    if begin < 0:
        return read_ids(compiled, current_turn(compiled.vocabulary, prompt))
    behind = len(text[begin:].encode())
    at = len(tail)
    while at and behind > 0:
        at -= 1
        behind -= len(compiled.vocabulary.bytes_of(tail[at]))
    return read_ids(compiled, tail[at:])


def _in_messages(compiled: Compiled, view: RequestView, prompt: Sequence[int]) -> tuple[int, int, str, str]:
    framing = compiled.framing
    assert framing is not None
    text = read_ids(compiled, prompt[-MAX_TAIL:])
    if framing.kinds:
        last = max(framing.between.literals, key=text.rfind)
        opened = last in text and last in framing.kinds
        return (framing.kinds[last] if opened else BETWEEN), 0, "", ""
    begin = text.rfind(framing.start)
    header = text[begin + len(framing.start) :] if begin >= 0 else ""
    if framing.message not in header:
        return MESSAGE_HEADER, 0, "", header.removeprefix("assistant")[:MAX_HEADER]
    header, _, rest = header.partition(framing.message)
    run = Run(compiled, view, ParserState())
    region = message_regions.body_of(run, header)
    if any(end in rest for end in framing.ends):
        return MESSAGE_HEADER, 0, "", ""
    return region, 0, run.name, ""
