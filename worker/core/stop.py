"""Stop tokens and stop strings.

Source: reference behaviour S10 to S13, and beyond it: stop strings are found while streaming, whatever the engine says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from worker.core.events import TEXT, Piece

MAX_STOP_CHARS = 1024
"""Longest stop string, in characters: each chunk of text is compared with all of its beginnings."""


class StopTokens(NamedTuple):
    """Ids that end a choice; `primary` is the tokenizer's own EOS, reported as no stop reason at all."""

    primary: int | None
    others: frozenset[int]
    include: bool


def ends_by_token(
    tokens: StopTokens, ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
) -> bool:
    """Whether the last id is the stop token that ended the choice, and so no text."""
    if finish_reason != "stop" or not ids or isinstance(stop_reason, str):
        return False
    if stop_reason is not None:
        return stop_reason == ids[-1]
    return ids[-1] == tokens.primary or ids[-1] in tokens.others


def feed(
    strings: Sequence[str], held: Sequence[Piece], pieces: Sequence[Piece], *, search: bool, include: bool
) -> tuple[list[Piece], tuple[Piece, ...], str | None]:
    """Look for stop strings in the text of pieces.

    held: pieces that may begin a stop string, from the call before. search: False while the first `min_tokens` ids
    come, whose text may begin a stop string but not end one. include: keep the stop string in the text.
    Returns the pieces to let go, those to hold, and the string that was found: the match that ends first wins, ties go
    to the earlier string of the request.
    """
    if not pieces:
        return [], tuple(held), None
    before = sum(len(text) for text, _ in held)
    both = [*held, *pieces]
    text = both[0][0] if len(both) == 1 else "".join([text for text, _ in both])
    if search:
        best: tuple[int, int, str] | None = None
        for string in strings:
            start = text.find(string, max(0, before - len(string) + 1))
            if start >= 0 and (best is None or start + len(string) < best[0]):
                best = (start + len(string), start, string)
        if best is not None:
            end, start, string = best
            return _split(both, end if include else start)[0], (), string
    keep = _may_begin(strings, text)
    if not keep:
        return both, (), None
    out, rest = _split(both, len(text) - keep, whole_tokens=True)
    return out, tuple(rest), None


def parts(ids: Sequence[int], tokens: int, min_tokens: int) -> list[tuple[Sequence[int], bool]]:
    """Ids before and after `min_tokens` of a choice, and whether a stop string may end in their text.

    tokens: ids of the choice that came before.
    """
    if not ids:
        return [(ids, tokens > min_tokens)]  # text of the flush alone belongs to the last id
    border = min(max(min_tokens - tokens, 0), len(ids))
    return [(ids[:border], False), (ids[border:], True)] if 0 < border < len(ids) else [(ids, not border)]


Begun = tuple[int, int]
"""Number of a stop string, and how many of its characters the text ends with."""


def pack(strings: Sequence[str], held: Sequence[Piece]) -> tuple[tuple[Piece, ...], Begun | None]:
    """Held pieces as the state carries them: text alone is the beginning of a stop string, so two numbers say it."""
    if held and all(id_ == TEXT for _, id_ in held):
        text = "".join([text for text, _ in held])
        for number, string in enumerate(strings):
            if len(text) < len(string) and string.startswith(text):
                return (), (number, len(text))
    return tuple(held), None


def unpack(strings: Sequence[str], held: tuple[Piece, ...], begun: Begun | None) -> tuple[Piece, ...]:
    """The pieces that `pack` was given, adjacent text joined."""
    return held if begun is None else ((strings[begun[0]][: begun[1]], TEXT),)


def _may_begin(strings: Sequence[str], text: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of a stop string."""
    longest = 0
    for string in strings:
        first = string[0]
        at = text.find(first, max(0, len(text) - len(string) + 1))
        while at >= 0 and len(text) - at > longest:
            if string.startswith(text[at:]):
                longest = len(text) - at
                break
            at = text.find(first, at + 1)
    return longest


def _split(pieces: Sequence[Piece], at: int, *, whole_tokens: bool = False) -> tuple[list[Piece], list[Piece]]:
    """Cut pieces at a character. A token's piece is not cut: it goes to the second part whole, or is left out."""
    for number, (text, id_) in enumerate(pieces):
        if at >= len(text):
            at -= len(text)
            continue
        if at == 0 or (id_ != TEXT and whole_tokens):
            return list(pieces[:number]), list(pieces[number:])
        if id_ != TEXT:
            return list(pieces[:number]), list(pieces[number + 1 :])
        return [*pieces[:number], (text[:at], TEXT)], [(text[at:], TEXT), *pieces[number + 1 :]]
    return list(pieces), []
