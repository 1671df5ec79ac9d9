"""Ids to strings, byte repair, the candidate cut, the two shapes (S16 to S23)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from schemas.generate import GenerateLogprob, GenerateLogprobs
from schemas.openai import ChatLogprobs, CompletionLogprobs
from tests.core import support
from tests.core.support import byte_ids, id_of
from worker.core.errors import SchemaError
from worker.core.logprobs import FLOOR, chat_logprobs, completion_logprobs, resolve, token_id
from worker.core.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("fields", "id_"),
    [
        pytest.param({"token_id": 5}, 5, id="integer"),
        pytest.param({"token": "token_id:7"}, 7, id="placeholder"),
        pytest.param({"token_id": 5, "token": "token_id:7"}, 5, id="integer-wins"),
        pytest.param({"token": "token_id:2147483647"}, 2**31 - 1, id="largest"),
    ],
)
def test_token_id(fields: dict[str, Any], id_: int) -> None:
    assert token_id(GenerateLogprob(**fields)) == id_


@pytest.mark.parametrize(
    "token",
    [
        "hello",
        "token_id:",
        "token_id:-1",
        "token_id:2147483648",
        "token_id:99999999999",
        "token_id:٣",
        " token_id:1",
        None,
    ],
)
def test_an_entry_without_an_id_is_refused(token: str | None) -> None:
    with pytest.raises(SchemaError) as raised:
        token_id(GenerateLogprob(token=token))
    assert raised.value.message == "a logprob entry needs an integer token_id or a token of the form token_id:<id>"


@pytest.mark.parametrize(
    ("make", "context", "token", "text"),
    [
        pytest.param(support.byte_level, [], "Ġworld", " world", id="S16-own-text"),
        pytest.param(support.byte_level, [], "<s>", "<s>", id="S16-special"),
        pytest.param(support.stripping, [], "▁hello", " hello", id="S16-leading-space-stays"),
        pytest.param(support.byte_level, ["ðŁ"], "ĺĢ", "😀", id="S17-last-piece-carries-the-character"),
        pytest.param(support.byte_level, [], "ðŁ", "", id="S17-first-piece-is-empty"),
        pytest.param(support.byte_level, ["hello", "ðŁ"], "ĺĢ", "😀", id="S17-text-before-is-not-repeated"),
        pytest.param(support.byte_level, [], "ï¿½", "", id="S19-genuine-replacement"),
        pytest.param(support.byte_level, ["hello"], "ĺĢ", "", id="S17-nothing-helps"),
        pytest.param(support.byte_fallback, ["<0xC5>"], "<0xBC>", "ż", id="S17-fallback"),
        pytest.param(support.byte_level, ["aâ", "Ĥ"], "¬", "a€", id="S17-an-incomplete-id-is-no-text-before"),
    ],
)
def test_resolve(make: Callable[[], Vocabulary], context: list[str], token: str, text: str) -> None:
    of = make()
    ids = [id_of(of, one) for one in context]
    assert resolve(of, id_of(of, token), ids) == (text, list(text.encode()))


def test_four_bytes_need_a_context_of_three() -> None:
    of = support.byte_level()
    ids = byte_ids(of, "😀".encode())
    assert resolve(of, ids[3], ids[:3]) == ("😀", list("😀".encode()))


def test_an_id_beyond_the_vocabulary_has_no_bytes() -> None:
    assert resolve(support.byte_level(), 999_999, []) == ("", None)


def entries(*rows: tuple[int, list[int]]) -> GenerateLogprobs:
    content = [
        {"token_id": id_, "logprob": -1.0, "top_logprobs": [{"token_id": one, "logprob": -2.0} for one in top]}
        for id_, top in rows
    ]
    return msgspec.convert({"content": content}, GenerateLogprobs)


def top_texts(result: ChatLogprobs) -> list[list[str]]:
    return [[one.token for one in entry.top_logprobs] for entry in result.content or ()]


@pytest.mark.parametrize(
    ("keep", "texts"),
    [
        pytest.param(None, ["hello", " world", "<s>"], id="all"),
        pytest.param(2, ["hello", " world"], id="two-in-given-order"),
        pytest.param(0, [], id="none"),
    ],
)
def test_chat_candidates(keep: int | None, texts: list[str]) -> None:
    of = support.byte_level()
    top = [id_of(of, token) for token in ("hello", "Ġworld", "<s>")]
    assert top_texts(chat_logprobs(of, entries((top[0], top)), (), keep)) == [texts]


def test_context_runs_through_a_chunk_and_from_the_chunk_before() -> None:
    of = support.byte_level()
    first, last = id_of(of, "ðŁ"), id_of(of, "ĺĢ")
    hello = id_of(of, "hello")
    result = chat_logprobs(of, entries((last, [last]), (first, []), (last, [hello, last])), [first], None)
    assert [entry.token for entry in result.content or ()] == ["😀", "", "😀"]
    assert top_texts(result) == [["😀"], [], ["hello", "😀"]]


def test_null_content() -> None:
    of = support.byte_level()
    assert chat_logprobs(of, GenerateLogprobs(None), (), None) == ChatLogprobs(None)
    assert completion_logprobs(of, GenerateLogprobs(None), (), None, 5) == (CompletionLogprobs([], [], [], []), 5)


def test_completion_lists_and_offsets() -> None:
    """S22, S23: offsets count code points of the reported strings, from the offset of the chunk before."""
    of = support.byte_level()
    first, last, world = id_of(of, "ðŁ"), id_of(of, "ĺĢ"), id_of(of, "Ġworld")
    result, offset = completion_logprobs(of, entries((first, []), (last, [last, world]), (world, [world])), (), 1, 10)
    assert result == CompletionLogprobs(
        text_offset=[10, 10, 11],
        token_logprobs=[-1.0, -1.0, -1.0],
        tokens=["", "😀", " world"],
        top_logprobs=[None, {"😀": -2.0}, {" world": -2.0}],
    )
    assert offset == 17


def test_equal_texts_collapse_to_the_last() -> None:
    of = support.byte_level()
    content = [
        {"token_id": 1, "top_logprobs": [{"token_id": 999_999, "logprob": -1}, {"token_id": 888_888, "logprob": -2}]}
    ]
    result, _ = completion_logprobs(of, msgspec.convert({"content": content}, GenerateLogprobs), (), None, 0)
    assert result.top_logprobs == [{"": -2.0}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_json_cannot_say_is_floored(value: float) -> None:
    of = support.byte_level()
    candidate = GenerateLogprob(token_id=1, logprob=value)
    logprobs = msgspec.convert({"content": [{"token_id": 1}]}, GenerateLogprobs)
    assert logprobs.content is not None
    logprobs = GenerateLogprobs([msgspec.structs.replace(logprobs.content[0], logprob=value, top_logprobs=[candidate])])
    chat = chat_logprobs(of, logprobs, (), None).content
    assert chat is not None
    assert (chat[0].logprob, chat[0].top_logprobs[0].logprob) == (FLOOR, FLOOR)
    completion, _ = completion_logprobs(of, logprobs, (), None, 0)
    assert completion.token_logprobs == [FLOOR]
    assert list((completion.top_logprobs[0] or {}).values()) == [FLOOR]


def test_a_missing_logprob_is_the_floor() -> None:
    assert GenerateLogprob(token_id=1).logprob == FLOOR
