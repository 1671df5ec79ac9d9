"""What a tokenizer's definition says about decoding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer, decoders, models

from tests.core import support
from tests.core.support import byte_ids, id_of
from worker.core.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("make", "kind", "strips"),
    [
        pytest.param(support.smollm2, "byte_level", False, id="smollm2"),
        pytest.param(support.byte_level, "byte_level", False, id="byte-level"),
        pytest.param(support.byte_fallback, "byte_fallback", False, id="byte-fallback"),
        pytest.param(support.stripping, "byte_fallback", True, id="byte-fallback-strip"),
        pytest.param(support.word_piece, "window", False, id="word-piece"),
        pytest.param(support.metaspace, "window", False, id="metaspace"),
    ],
)
def test_kind_of_decoder(make: Callable[[], Vocabulary], kind: str, strips: bool) -> None:
    of = make()
    assert (of.kind, of.strips_leading_space) == (kind, strips)


@pytest.mark.parametrize(
    "decoder",
    [
        pytest.param(None, id="none"),
        pytest.param(decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()]), id="byte-level-and-more"),
        pytest.param(
            decoders.Sequence(
                [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 2, 0)]
            ),
            id="strips-two",
        ),
        pytest.param(
            decoders.Sequence(
                [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip("_", 1, 0)]
            ),
            id="strips-something-else",
        ),
    ],
)
def test_other_decoders_run_in_a_window(decoder: object) -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "▁b": 1}, merges=[]))
    if decoder is not None:
        tokenizer.decoder = decoder
    of = Vocabulary(tokenizer)
    assert of.kind == "window"
    assert of.decode([0, 1]) == tokenizer.decode([0, 1], skip_special_tokens=False)


def test_an_empty_tokenizer_has_no_ids() -> None:
    of = Vocabulary(Tokenizer(models.BPE(vocab={}, merges=[])))
    assert (of.size, of.known(0), of.bytes_of(0), of.decode([0])) == (0, False, b"", "")


@pytest.mark.parametrize(
    ("make", "token", "data", "is_byte"),
    [
        pytest.param(support.byte_level, "Ġworld", b" world", False, id="byte-level-space"),
        pytest.param(support.byte_level, "Ċ", b"\n", False, id="byte-level-newline"),
        pytest.param(support.byte_level, "ðŁ", b"\xf0\x9f", False, id="byte-level-half-character"),
        pytest.param(support.byte_level, "<mark>", b"<mark>", False, id="byte-level-added"),
        pytest.param(support.byte_fallback, "<0xE2>", b"\xe2", True, id="fallback-byte"),
        pytest.param(support.byte_fallback, "<0x0A>", b"\n", True, id="fallback-ascii-byte"),
        pytest.param(support.byte_fallback, "<0xZZ>", b"<0xZZ>", False, id="fallback-looks-like-a-byte"),
        pytest.param(support.byte_fallback, "▁world", b" world", False, id="fallback-space"),
        pytest.param(support.metaspace, "▁world", "▁world".encode(), False, id="window"),
    ],
)
def test_bytes_of_a_token(make: Callable[[], Vocabulary], token: str, data: bytes, is_byte: bool) -> None:
    of = make()
    id_ = id_of(of, token)
    of.drop_caches()
    assert (of.is_byte(id_), of.bytes_of(id_)) == (is_byte, data)


def test_added_and_special_tokens() -> None:
    of = support.byte_level()
    special, mark = [id_of(of, "<s>"), id_of(of, "</s>")], id_of(of, "<mark>")
    assert of.special == frozenset(special)
    assert of.added == {special[0]: "<s>", special[1]: "</s>", mark: "<mark>"}
    assert of.id_of == {text: id_ for id_, text in of.added.items()}
    assert of.size == mark + 1


@pytest.mark.parametrize("id_", [10_000, 2**31 - 1])
@pytest.mark.parametrize("make", support.SMALL.values(), ids=support.SMALL)
def test_an_id_beyond_the_vocabulary_is_nothing(make: Callable[[], Vocabulary], id_: int) -> None:
    of = make()
    assert (of.known(id_), of.bytes_of(id_), of.is_byte(id_), of.decode([id_])) == (False, b"", False, "")


@pytest.mark.parametrize(
    ("make", "data", "text"),
    [
        pytest.param(support.byte_level, "aż😀".encode(), "aż😀", id="byte-level"),
        pytest.param(support.byte_level, b"\xf0\x9f\x98a\xff", "\ufffda\ufffd", id="byte-level-one-a-run"),
        pytest.param(support.byte_fallback, "ż".encode(), "ż", id="fallback"),
        pytest.param(support.byte_fallback, b"\xf0\x9f\x98a", "\ufffd" * 4, id="fallback-whole-run-or-nothing"),
        pytest.param(support.stripping, b" a", " a", id="leading-space-stays"),
    ],
)
def test_decode(make: Callable[[], Vocabulary], data: bytes, text: str) -> None:
    of = make()
    assert of.decode(byte_ids(of, data)) == text


def test_decode_leaves_out_special_tokens_by_their_flag() -> None:
    of = support.byte_level()
    ids = [id_of(of, token) for token in ("<s>", "hello", "<mark>", "</s>")]
    assert of.decode(ids) == "<s>hello<mark></s>"
    assert of.decode(ids, skip_special=True) == "hello<mark>"


def test_fingerprint_follows_the_definition() -> None:
    def made(text: str) -> str:
        return Vocabulary(Tokenizer(models.BPE(vocab={text: 0}, merges=[]))).fingerprint

    assert made("a") == made("a") != made("b")
