"""Ids to text, one chunk at a time, with the undecided rest as a value.

Text goes out when the character it belongs to is complete. Newly decoded text that ends in U+FFFD is kept until more
text follows or the choice ends, as engines do: the next ids may still complete that character.

Source: reference behaviour S1 to S9; equality with the tokenizer's own decode is a property test.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from os.path import commonprefix

from schemas.state import DecodeState
from worker.core.errors import StateMismatch
from worker.core.events import TEXT, Piece
from worker.core.vocabulary import REPLACEMENT, Vocabulary

SEED_IDS = 7
"""Ids of the prompt's end that seed the decoder, as the engine does."""

MAX_HELD_CHARS = 64
"""A run of ids that never completes a character is let go, as U+FFFD, when so much text is held."""

MAX_UNREAD_IDS = 16
"""The same bound for windowed decoders, in ids."""

STEPWISE_IDS = 8
"""Ids that are decoded one by one when something among them is undecided."""

WINDOW_IDS = 6
"""Ids of context that a windowed decoder is rebuilt from."""

START = DecodeState()


def seed(
    vocabulary: Vocabulary, prompt_ids: Sequence[int] | None, *, skip_special: bool, parsed: bool = False
) -> DecodeState:
    """State before the first id: what the end of the prompt has already settled.

    prompt_ids: any suffix of the prompt; only the last SEED_IDS are read. None or empty: a new sequence begins.
    parsed: a parser follows, and a text that begins right behind a special token (`[/INST]`) begins anew: the leading
        space is the tokenizer's own, as the template writes none. The plain path keeps it, as the reference does (S5).
    """
    if parsed and prompt_ids and prompt_ids[-1] in vocabulary.special and vocabulary.strips_leading_space:
        return START
    tail = [id_ for id_ in (prompt_ids or ())[-SEED_IDS:] if not (skip_special and id_ in vocabulary.special)]
    if vocabulary.kind == "window":
        return DecodeState(window=tuple(id_ for id_ in tail if vocabulary.known(id_))[-WINDOW_IDS:])
    if not vocabulary.strips_leading_space:
        return START
    return DecodeState(started=any(vocabulary.bytes_of(id_) for id_ in tail))


def decode_text(
    vocabulary: Vocabulary, state: DecodeState, ids: Sequence[int], *, skip_special: bool
) -> tuple[str, DecodeState]:
    """Text that `ids` complete, and the next state. An id without a vocabulary entry contributes nothing."""
    if skip_special and not vocabulary.special.isdisjoint(ids):
        ids = [id_ for id_ in ids if id_ not in vocabulary.special]
    text, after = _decode(vocabulary, state, ids)
    if vocabulary.kind == "window" or not (after.pending or after.held or text.endswith(REPLACEMENT)):
        return text, after  # a windowed decoder keeps undecided ids by itself
    if len(ids) > STEPWISE_IDS:  # mostly at the end: most of the halves are decided
        half = len(ids) // 2
        text, state = decode_text(vocabulary, state, ids[:half], skip_special=False)
        rest, state = decode_text(vocabulary, state, ids[half:], skip_special=False)
        return text + rest, state
    # something is undecided: go id by id, since an id's text waits as a whole
    parts: list[str] = []
    for id_ in ids:
        text, state = _decode(vocabulary, state, (id_,))
        held = state.held + text
        if (state.pending or held.endswith(REPLACEMENT)) and len(held) <= MAX_HELD_CHARS:
            state = _replace(state, held=held)
        else:
            parts.append(held)
            state = _replace(state, held="")
    return "".join(parts), state


def decode_pieces(vocabulary: Vocabulary, state: DecodeState, ids: Sequence[int]) -> tuple[list[Piece], DecodeState]:
    """Pieces for the parser: runs of text, and each added token as a piece of its own with its id."""
    added = vocabulary.added
    pieces: list[Piece] = []
    start = 0
    for position, id_ in enumerate(ids):
        if id_ not in added:
            continue
        text, state = _decode(vocabulary, state, ids[start:position])
        rest, state = flush(vocabulary, state)
        if text or rest:
            pieces.append((text + rest, TEXT))
        text, state = _decode(vocabulary, state, (id_,))
        rest, state = flush(vocabulary, state)
        pieces.append((text + rest, id_))
        start = position + 1
    text, state = _decode(vocabulary, state, ids[start:] if start else ids)
    if text:
        pieces.append((text, TEXT))
    return pieces, state


def flush(vocabulary: Vocabulary, state: DecodeState) -> tuple[str, DecodeState]:
    """What is still undecided when the choice ends, as the tokenizer's decode would write it."""
    if state.unread:
        window = vocabulary.decode(state.window)
        text = new_text(window, vocabulary.decode((*state.window, *state.unread)))
        return text, DecodeState(window=(*state.window, *state.unread)[-WINDOW_IDS:])
    if not (state.held or state.pending):
        return "", state
    if vocabulary.kind == "byte_fallback":  # one U+FFFD for each byte; UTF-8 decoding writes one for several
        rest = REPLACEMENT * len(state.pending)
    else:
        rest = state.pending.decode("utf-8", "replace")
    return state.held + rest, _replace(state, held="", pending=b"")


def check(vocabulary: Vocabulary, state: DecodeState) -> None:
    """Refuse a state that no sequence of ids leads to. Raises StateMismatch; only for states from outside."""
    if vocabulary.kind == "window":
        if state.pending or state.held or state.started or state.broken:
            raise StateMismatch("stream_state: decode.pending, held, started and broken do not go with this tokenizer")
        if len(state.window) > WINDOW_IDS or len(state.unread) > MAX_UNREAD_IDS:
            raise StateMismatch(
                f"stream_state: decode.window and unread have {len(state.window)} and {len(state.unread)} ids, over the"
                f" limits of {WINDOW_IDS} and {MAX_UNREAD_IDS}"
            )
        if not all(map(vocabulary.known, (*state.window, *state.unread))):
            raise StateMismatch("stream_state: decode.window and unread hold an id that is not in the vocabulary")
        return
    if state.window or state.unread:
        raise StateMismatch("stream_state: decode.window and unread do not go with this tokenizer")
    if state.started and not vocabulary.strips_leading_space:
        raise StateMismatch("stream_state: decode.started does not go with this tokenizer")
    if state.broken and (vocabulary.kind != "byte_fallback" or state.pending):
        raise StateMismatch("stream_state: decode.broken needs a byte-fallback tokenizer and no pending bytes")
    if not _begins_a_character(state.pending):
        raise StateMismatch("stream_state: decode.pending is not the beginning of one UTF-8 character")
    if len(state.held) > MAX_HELD_CHARS:
        raise StateMismatch(
            f"stream_state: decode.held has {len(state.held)} characters, over the limit of {MAX_HELD_CHARS}"
        )
    if state.held and not (state.pending or state.held.endswith(REPLACEMENT)):
        raise StateMismatch("stream_state: decode.held is text that nothing holds back")


def _begins_a_character(data: bytes) -> bool:
    try:
        return codecs.utf_8_decode(data, "strict", False) == ("", 0)
    except UnicodeDecodeError:
        return False


def _decode(vocabulary: Vocabulary, state: DecodeState, ids: Sequence[int]) -> tuple[str, DecodeState]:
    if not ids:
        return "", state
    if vocabulary.kind == "byte_level":
        data = state.pending + b"".join(map(vocabulary.bytes_of, ids))
        text, used = codecs.utf_8_decode(data, "replace", False)
        if used == len(data):
            return text, _replace(state, pending=b"") if state.pending else state
        return text, _replace(state, pending=data[used:])
    if vocabulary.kind == "byte_fallback":
        return _decode_fallback(vocabulary, state, ids)
    return _decode_window(vocabulary, state, ids)


def _decode_fallback(vocabulary: Vocabulary, state: DecodeState, ids: Iterable[int]) -> tuple[str, DecodeState]:
    """A run of byte tokens is UTF-8 as a whole or not at all: after its first fault each byte is one U+FFFD."""
    pending, broken, started = state.pending, state.broken, state.started
    parts: list[str] = []
    for id_ in ids:
        data = vocabulary.bytes_of(id_)
        if not vocabulary.is_byte(id_):
            if not data:
                continue
            if pending:
                parts.append(REPLACEMENT * len(pending))
                started = True
            pending, broken = b"", False
            text = data.decode("utf-8", "replace")
        elif broken:
            text = REPLACEMENT
        else:
            text, pending, broken = _fallback_byte(pending + data)
        if text and not started:
            started = True
            if vocabulary.strips_leading_space:
                text = text.removeprefix(" ")
        parts.append(text)
    after = _replace(state, pending=pending, broken=broken, started=started and vocabulary.strips_leading_space)
    return "".join(parts), after


def _fallback_byte(data: bytes) -> tuple[str, bytes, bool]:
    try:
        text, used = codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError:
        return REPLACEMENT * len(data), b"", True
    return text, data[used:], False


def _decode_window(vocabulary: Vocabulary, state: DecodeState, ids: Iterable[int]) -> tuple[str, DecodeState]:
    """Any other decoder: what a window of ids says with the unread ones after it, less what it said before.

    Not `DecodeStream`: rebuilt from ids that end in U+FFFD it says them again, and it raises where a decoder changes
    text that went out.
    """
    window, unread = state.window, state.unread
    before = vocabulary.decode(window)
    parts: list[str] = []
    for id_ in ids:
        if not vocabulary.known(id_):
            continue
        unread = (*unread, id_)
        whole = vocabulary.decode((*window, *unread))
        if (whole == before or whole.endswith(REPLACEMENT)) and len(unread) <= MAX_UNREAD_IDS:
            continue
        parts.append(new_text(before, whole))
        window, unread = (*window, *unread)[-WINDOW_IDS:], ()
        before = vocabulary.decode(window)
    return "".join(parts), DecodeState(window=window, unread=unread)


def new_text(before: str, whole: str) -> str:
    """Text of `whole` after what was said `before`; where they part, what differs is said again, not lost."""
    return whole[len(commonprefix([before, whole])) :]  # noqa: RUF071 - of strings, not of paths


def _replace(
    state: DecodeState,
    *,
    pending: bytes | None = None,
    held: str | None = None,
    started: bool | None = None,
    broken: bool | None = None,
) -> DecodeState:
    """`msgspec.structs.replace` for the fields of a table decoder, without its keyword machinery on the hot path."""
    return DecodeState(
        pending=state.pending if pending is None else pending,
        held=state.held if held is None else held,
        started=state.started if started is None else started,
        broken=state.broken if broken is None else broken,
        window=state.window,
        unread=state.unread,
    )
