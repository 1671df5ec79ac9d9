"""Ids to text in steps: what goes out, what is held, what the state says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from schemas.state import DecodeState
from tests.core import support
from tests.core.support import byte_ids, id_of
from worker.core.detokenize import (
    MAX_HELD_CHARS,
    MAX_UNREAD_IDS,
    SEED_IDS,
    START,
    check,
    decode_pieces,
    decode_text,
    flush,
    seed,
)
from worker.core.errors import StateMismatch
from worker.core.events import TEXT
from worker.core.vocabulary import Vocabulary

BAD = "\ufffd"


def steps(of: Vocabulary, ids: list[int], state: DecodeState = START, *, skip: bool = True) -> list[str]:
    """Text of each id, then of the flush."""
    texts = []
    for id_ in ids:
        text, state = decode_text(of, state, [id_], skip_special=skip)
        texts.append(text)
    return [*texts, flush(of, state)[0]]


@pytest.mark.parametrize(
    ("make", "data", "texts"),
    [
        pytest.param(support.byte_level, "aż".encode(), ["a", "", "ż", ""], id="S2-character-waits"),
        pytest.param(support.byte_level, b"\xf0\x9f", ["", "", BAD], id="Q1-cut-character-is-flushed"),
        pytest.param(support.byte_level, b"\xffa", ["", BAD + "a", ""], id="S2-replacement-waits-for-text"),
        pytest.param(support.byte_level, b"\xff\xff", ["", "", BAD + BAD], id="two-bad-bytes"),
        pytest.param(support.byte_fallback, "aż".encode(), ["a", "", "ż", ""], id="fallback-character-waits"),
        pytest.param(support.byte_fallback, b"\xf0\x9f", ["", "", BAD * 2], id="fallback-one-for-each-byte"),
        pytest.param(
            support.byte_fallback,
            "😀".encode() + b"\xff\x80",
            ["", "", "", "😀", "", "", BAD * 2],
            id="what-was-sent-stays",
        ),
        pytest.param(support.stripping, b" a", ["", "a", ""], id="S6-leading-space-stripped"),
        pytest.param(support.stripping, b"\xff a", ["", "", "", BAD * 3], id="S6-broken-run"),
    ],
)
def test_bytes_one_by_one(make: Callable[[], Vocabulary], data: bytes, texts: list[str]) -> None:
    of = make()
    assert steps(of, byte_ids(of, data)) == texts


@pytest.mark.parametrize(
    ("make", "tokens", "texts"),
    [
        pytest.param(support.byte_level, ["ï¿½"], ["", BAD], id="Q1-genuine-replacement-at-the-end"),
        pytest.param(support.byte_level, ["ï¿½", "hello"], ["", BAD + "hello", ""], id="genuine-replacement-inside"),
        pytest.param(support.byte_level, ["ðŁ", "ĺĢ"], ["", "😀", ""], id="halves"),
        pytest.param(support.byte_level, ["aâ", "hello"], ["", "a" + BAD + "hello", ""], id="an-id-waits-as-a-whole"),
        pytest.param(support.byte_level, ["hello", "</s>", "Ġworld"], ["hello", "", " world", ""], id="S8-special"),
        pytest.param(support.byte_level, ["<mark>"], ["<mark>", ""], id="S8-added-but-not-special"),
        pytest.param(support.byte_fallback, ["▁hello", "▁world"], [" hello", " world", ""], id="keeps-the-space"),
        pytest.param(support.stripping, ["▁hello", "▁world"], ["hello", " world", ""], id="S6-strips-the-space"),
        pytest.param(support.stripping, ["▁", "▁hello"], ["", " hello", ""], id="S6-strips-one-only"),
        pytest.param(
            support.stripping, ["<0xC2>", "▁hello"], ["", BAD + " hello", ""], id="a-bad-byte-is-text-before-it"
        ),
        pytest.param(
            support.stripping, ["<0xC2>", "\ufffd", "ok"], ["", "", BAD * 2 + "ok", ""], id="bad-then-genuine"
        ),
        pytest.param(support.metaspace, ["▁hello", "▁world", "lo"], ["hello", " world", "lo", ""], id="window"),
        pytest.param(support.metaspace, ["▁a", "\ufffd", "b"], ["a", "", BAD + "b", ""], id="window-waits"),
        pytest.param(support.metaspace, ["▁a", "\ufffd"], ["a", "", BAD], id="window-flush"),
        pytest.param(support.word_piece, ["un", "##able", "to"], ["un", "able", " to", ""], id="word-piece"),
    ],
)
def test_tokens_one_by_one(make: Callable[[], Vocabulary], tokens: list[str], texts: list[str]) -> None:
    of = make()
    assert steps(of, [id_of(of, token) for token in tokens]) == texts


def test_special_tokens_stay_when_asked_for() -> None:
    of = support.byte_level()
    assert steps(of, [id_of(of, "<s>"), id_of(of, "hello")], skip=False) == ["<s>", "hello", ""]


@pytest.mark.parametrize("make", support.SMALL.values(), ids=support.SMALL)
def test_an_id_beyond_the_vocabulary_contributes_nothing(make: Callable[[], Vocabulary]) -> None:
    of = make()
    assert decode_text(of, START, [999_999], skip_special=True) == ("", START)


@pytest.mark.parametrize(
    ("prompt", "skip", "first"),
    [
        pytest.param(None, True, "hello", id="S6-no-prompt"),
        pytest.param([], True, "hello", id="S5-empty-prompt"),
        pytest.param(["ok"], True, " hello", id="S5-seeded"),
        pytest.param(["<s>"], True, "hello", id="S5-special-removed-first"),
        pytest.param(["<s>"], False, " hello", id="special-kept"),
        pytest.param(["ok", *["<s>"] * SEED_IDS], True, "hello", id="S5-only-the-last-ids-are-read"),
        pytest.param(["ok", *["<s>"] * (SEED_IDS - 1)], True, " hello", id="S5-the-seventh-is-read"),
    ],
)
def test_seed(prompt: list[str] | None, skip: bool, first: str) -> None:
    of = support.stripping()
    ids = None if prompt is None else [id_of(of, token) for token in prompt]
    assert decode_text(of, seed(of, ids, skip_special=skip), [id_of(of, "▁hello")], skip_special=skip)[0] == first


def test_seed_of_other_decoders() -> None:
    of = support.byte_level()
    assert seed(of, [0, 1], skip_special=True) is START
    window = support.metaspace()
    prompt = [id_of(window, token) for token in ("▁a", "b")]
    state = seed(window, [*prompt, 999_999], skip_special=True)
    assert state == DecodeState(window=tuple(prompt))
    assert decode_text(window, state, [id_of(window, "▁hello")], skip_special=True)[0] == " hello"


def test_a_run_that_never_completes_is_let_go() -> None:
    """The bound of held text: MAX_HELD_CHARS characters, and all of them go out when one more would be held."""
    of = support.byte_level()
    state, said = START, ""
    for count in range(3 * MAX_HELD_CHARS):
        text, state = decode_text(of, state, byte_ids(of, b"\xff"), skip_special=True)
        said += text
        assert len(state.held) == (count + 1) % (MAX_HELD_CHARS + 1)
    assert said + flush(of, state)[0] == BAD * 3 * MAX_HELD_CHARS


def test_a_windowed_run_that_never_completes_is_let_go() -> None:
    of = support.metaspace()
    state, said = START, ""
    for _ in range(3 * MAX_UNREAD_IDS):
        text, state = decode_text(of, state, [id_of(of, "\ufffd")], skip_special=True)
        said += text
        assert len(state.unread) <= MAX_UNREAD_IDS
    text, state = decode_text(of, state, [id_of(of, "b")], skip_special=True)
    assert said + text + flush(of, state)[0] == BAD * 3 * MAX_UNREAD_IDS + "b"


def test_flush_leaves_nothing() -> None:
    of = support.byte_level()
    _, state = decode_text(of, START, byte_ids(of, b"\xff\xf0\x9f"), skip_special=True)
    assert state == DecodeState(pending=b"\xf0\x9f", held=BAD)
    assert flush(of, state) == (BAD * 2, START)
    assert flush(of, START) == ("", START)


@pytest.mark.parametrize(
    ("make", "tokens", "pieces", "state"),
    [
        pytest.param(
            support.byte_level,
            ["hello", "<mark>", "Ġworld"],
            [("hello", TEXT), ("<mark>", "id"), (" world", TEXT)],
            START,
            id="added-token-is-its-own-piece",
        ),
        pytest.param(
            support.byte_level,
            ["ðŁ", "<s>", "ĺĢ"],
            [(BAD, TEXT), ("<s>", "id"), (BAD * 2, TEXT)],
            START,
            id="special-ends-a-character",
        ),
        pytest.param(support.byte_level, ["ðŁ"], [], DecodeState(pending=b"\xf0\x9f"), id="undecided"),
        pytest.param(
            support.stripping,
            ["<s>", "▁hello"],
            [("<s>", "id"), (" hello", TEXT)],
            DecodeState(started=True),
            id="started",
        ),
        pytest.param(support.byte_level, [], [], START, id="nothing"),
    ],
)
def test_pieces(
    make: Callable[[], Vocabulary], tokens: list[str], pieces: list[tuple[str, int | str]], state: DecodeState
) -> None:
    of = make()
    wanted = [(text, of.id_of[text] if id_ == "id" else id_) for text, id_ in pieces]
    assert decode_pieces(of, START, [id_of(of, token) for token in tokens]) == (wanted, state)


@pytest.mark.parametrize(
    ("make", "tokens", "texts"),
    [
        pytest.param(support.byte_fallback, ["▁▁", "▁hello", "▁▁", "ok"], ["  ", " hello", "  ", "ok"], id="kept"),
        pytest.param(support.stripping, ["▁▁", "▁hello", "▁▁", "ok"], [" ", " hello", "  ", "ok"], id="stripping"),
        pytest.param(support.metaspace, ["▁hello", "▁▁", "lo"], ["hello", "  ", "lo"], id="window"),
    ],
)
def test_an_added_token_is_the_text_that_it_decodes_to(
    make: Callable[[], Vocabulary], tokens: list[str], texts: list[str]
) -> None:
    """Gemma's runs of spaces are added tokens that are spelled with `▁`."""
    tokenizer = Tokenizer.from_str(make().tokenizer.to_str())
    tokenizer.add_tokens(["▁▁"])
    of = Vocabulary(tokenizer)
    ids = [id_of(of, token) for token in tokens]
    pieces, _ = decode_pieces(of, START, ids)
    assert [text for text, _ in pieces] == texts
    assert "".join(texts) == tokenizer.decode(ids, skip_special_tokens=False)


def test_pieces_of_a_windowed_decoder() -> None:
    of = support.metaspace()
    ids = [id_of(of, token) for token in ("▁hello", "<mark>", "▁world")]
    pieces, state = decode_pieces(of, START, ids)
    assert pieces == [("hello", TEXT), ("<mark>", ids[1]), (" world", TEXT)]
    assert state == DecodeState(window=tuple(ids))


@pytest.mark.parametrize(
    "state",
    [DecodeState(pending=b"\xe2", held="a"), DecodeState(held="a" + BAD), DecodeState(pending=b"\xe2")],
    ids=["text-and-bytes", "text-that-is-open", "bytes"],
)
def test_a_state_that_ids_lead_to_passes(state: DecodeState) -> None:
    check(support.byte_level(), state)


@pytest.mark.parametrize(
    ("make", "state", "message"),
    [
        pytest.param(support.byte_level, DecodeState(window=(1,)),
                     "decode.window and unread do not go with this tokenizer", id="window"),
        pytest.param(support.byte_level, DecodeState(unread=(1,)),
                     "decode.window and unread do not go with this tokenizer", id="unread"),
        pytest.param(support.byte_level, DecodeState(started=True),
                     "decode.started does not go with this tokenizer", id="started"),
        pytest.param(support.byte_level, DecodeState(broken=True),
                     "decode.broken needs a byte-fallback tokenizer and no pending bytes", id="broken"),
        pytest.param(support.byte_fallback, DecodeState(broken=True, pending=b"\xe2"),
                     "decode.broken needs a byte-fallback tokenizer and no pending bytes", id="both"),
        pytest.param(support.byte_level, DecodeState(pending=b"a"),
                     "decode.pending is not the beginning of one UTF-8 character", id="whole-character"),
        pytest.param(support.byte_level, DecodeState(pending=b"\xff"),
                     "decode.pending is not the beginning of one UTF-8 character", id="no-beginning"),
        pytest.param(support.byte_level, DecodeState(pending=b"\xe2\x82\xac\xe2"),
                     "decode.pending is not the beginning of one UTF-8 character", id="two"),
        pytest.param(support.byte_level, DecodeState(held=BAD * 65),
                     "decode.held has 65 characters, over the limit of 64", id="long"),
        pytest.param(support.byte_level, DecodeState(held="a"),
                     "decode.held is text that nothing holds back", id="decided"),
        pytest.param(support.metaspace, DecodeState(held=BAD),
                     "decode.pending, held, started and broken do not go with this tokenizer", id="table-field"),
        pytest.param(support.metaspace, DecodeState(window=(1,) * 7),
                     "decode.window and unread have 7 and 0 ids, over the limits of 6 and 16", id="wide"),
        pytest.param(support.metaspace, DecodeState(unread=(1,) * 17),
                     "decode.window and unread have 0 and 17 ids, over the limits of 6 and 16", id="far"),
        pytest.param(support.metaspace, DecodeState(window=(99,)),
                     "decode.window and unread hold an id that is not in the vocabulary", id="unknown"),
    ],
)  # fmt: skip
def test_a_state_that_no_ids_lead_to_is_refused(
    make: Callable[[], Vocabulary], state: DecodeState, message: str
) -> None:
    with pytest.raises(StateMismatch) as raised:
        check(make(), state)
    assert raised.value.message == "stream_state: " + message
