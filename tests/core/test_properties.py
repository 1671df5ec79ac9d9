"""What holds for any ids, any cut, on every tokenizer: the state goes through bytes wherever a stream is cut.

`pytest --hypothesis-profile=long tests/core/test_properties.py` searches longer than a plain run does.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.generate import GenerateChoice, GenerateChunk, GenerateResponse
from schemas.state import MAX_PLAIN_STATE_BYTES, STATE_VERSION, DecodeState, ParserState, StreamState
from tests.core import golden_runner, support
from worker.core import stop
from worker.core.client_state import check_client_state
from worker.core.detokenize import (
    MAX_HELD_CHARS,
    MAX_UNREAD_IDS,
    START,
    WINDOW_IDS,
    check,
    decode_pieces,
    decode_text,
    flush,
)
from worker.core.prepare import PreparedRequest
from worker.core.step import derender
from worker.core.vocabulary import REPLACEMENT, Vocabulary

PUBLISHED = ("deepseek_v3", "deepseek_v4", "gemma3", "gptoss", "llama2", "llama3_1", "qwen3")

TOKENIZERS = [
    *(pytest.param(name, id=name) for name in (*support.SMALL, "smollm2")),
    *(pytest.param(name, id=name, marks=pytest.mark.shared) for name in PUBLISHED),
]
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)

TEXTS = (
    "Hello, world",
    " two  spaces\n\n",
    "żółć éà",
    "日本語テスト",
    "👩‍👩‍👧 🇨🇭",
    "नमस्ते",
    "\ufffd?",
    "def f(x):\n\treturn x",
    "العربية",
)
MAX_ID = 2**31 - 1


def vocabulary(name: str) -> Vocabulary:
    if name in support.SMALL:
        return support.SMALL[name]()
    return support.smollm2() if name == "smollm2" else golden_runner.vocabulary(name)


@cache
def undecided(name: str) -> tuple[int, ...]:
    """Ids that do not decode to whole characters, those that hold U+FFFD included (at most 3,000)."""
    of = vocabulary(name)
    found = [
        id_ for id_ in range(of.size) if of.is_byte(id_) or REPLACEMENT in of.bytes_of(id_).decode("utf-8", "replace")
    ]
    return tuple(found[:3_000]) or (0,)


@cache
def id_lists(name: str) -> st.SearchStrategy[list[int]]:
    """Runs of ids of every kind: any, undecided bytes, special and added ones, beyond the vocabulary, of real text."""
    of = vocabulary(name)
    encoded = [of.tokenizer.encode(text, add_special_tokens=False).ids or [0] for text in TEXTS]
    one = st.one_of(
        st.integers(0, of.size - 1),
        st.sampled_from(undecided(name)),
        st.sampled_from(sorted(of.added) or [0]),
        st.integers(of.size, of.size + 9),
        st.just(MAX_ID),
    )
    runs = st.one_of(
        st.lists(one, min_size=1, max_size=4),
        st.sampled_from(encoded),
        st.lists(st.sampled_from(undecided(name)), min_size=1, max_size=8),
    )
    return st.lists(runs, min_size=1, max_size=8).map(lambda parts: [id_ for part in parts for id_ in part])


def cut(draw: Callable[..., Any], ids: list[int]) -> list[list[int]]:
    """The ids in chunks, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=len(ids))))
    return [ids[start:end] for start, end in zip([0, *places], [*places, len(ids)], strict=True)]


def logprobs_of(ids: list[int], candidates: list[int]) -> list[dict[str, Any]]:
    top = [{"token_id": id_, "logprob": -2.0} for id_ in candidates]
    return [
        {"token_id": id_, "logprob": -float(id_ % 7), "top_logprobs": [{"token_id": id_, "logprob": -1.0}, *top]}
        for id_ in ids
    ]


def chunks_of(parts: list[list[int]], finish: str, candidates: list[int] | None) -> list[GenerateChunk]:
    return [
        support.chunk(
            part,
            finish if number == len(parts) - 1 else None,
            **({} if candidates is None else {"logprobs": logprobs_of(part, candidates)}),
        )
        for number, part in enumerate(parts)
    ]


def prepared(name: str, kind: str, asked: dict[str, Any], prompt: list[int]) -> PreparedRequest:
    base = {"messages": [], "logprobs": True, "top_logprobs": 2} if kind == "chat" else {"prompt": "p"}
    of = vocabulary(name)
    served = support.model(of, eos_token_id=min(of.special, default=None), limits={"max_logprobs": -1})
    return support.request(served, kind, **{f"{kind}_request": base | asked, "prompt_token_ids": prompt})


def summed(request: PreparedRequest, parts: list[GenerateChunk], after: Callable[[StreamState], None]) -> Any:
    answers, state = support.run(request, parts, after)
    plain = [msgspec.to_builtins(answer) for answer in answers]
    assert state is not None
    return golden_runner.accumulate(plain), state


@every_tokenizer
@given(data=st.data())
def test_any_cut_says_the_same(name: str, data: st.DataObject) -> None:
    """Text, logprobs, offsets, finish and stop reason and the last state do not depend on the cut; nor on the caches;
    a whole response is the same again; every state is small and would be taken back from a client."""
    of = vocabulary(name)
    ids = data.draw(id_lists(name), label="ids")
    parts = cut(data.draw, ids)
    said = of.decode(ids, skip_special=True)
    strings = st.one_of(
        st.sampled_from(["\n\n", REPLACEMENT, "o", "\x00", "zzz"]),
        st.integers(0, max(len(said) - 3, 0)).map(lambda at: said[at : at + 3] or "x"),
    )
    asked = {
        "skip_special_tokens": data.draw(st.booleans()),
        "stop": data.draw(st.lists(strings, max_size=3)),
        "min_tokens": data.draw(st.integers(0, 6)),
        "include_stop_str_in_output": data.draw(st.booleans()),
        "ignore_eos": data.draw(st.booleans()),
    }
    kind = data.draw(st.sampled_from(["chat", "completion"]))
    candidates = data.draw(st.none() | st.lists(st.sampled_from(undecided(name)), max_size=2))
    if kind == "completion" and candidates is None:
        candidates = []  # offsets of tokens without logprobs follow the text that is out, and so the cut
    finish = data.draw(st.sampled_from(["stop", "length", "abort"]))
    if finish == "stop" and not parts[-1]:
        finish = "length"  # only a chunk that brings the stop token and the reason together can leave the token out
    prompt = data.draw(st.just([]) | id_lists(name))
    request = prepared(name, kind, asked, prompt)

    drops = data.draw(st.integers(1, 5))

    def check_state(state: StreamState) -> None:
        encoded = msgspec.json.encode(state)
        assert len(encoded) <= MAX_PLAIN_STATE_BYTES
        check_client_state(request, state)
        if len(encoded) % drops == 0:
            of.drop_caches()

    whole, last = summed(request, chunks_of([ids], finish, candidates), lambda _: None)
    uncut = deepcopy(whole)
    found, state = summed(request, chunks_of(parts, finish, candidates), check_state)
    if last.finish == "stop" and last.stopped is False and state.stopped:
        # the string was found before the engine's last chunk: what came after it is counted, and not shown
        for index, one in found.items():
            uncut[index].logprobs = uncut[index].logprobs[: len(one.logprobs)]
    assert found == uncut
    assert (state.tokens, state.finish) == (last.tokens, last.finish) == (len(ids), uncut[0].finish_reason)
    choice = msgspec.convert(msgspec.to_builtins(chunks_of([ids], finish, candidates)[0].choices[0]), GenerateChoice)
    response = msgspec.to_builtins(derender(request, GenerateResponse(choices=[choice])))
    assert golden_runner.whole(response) == whole


def text_in_parts(of: Vocabulary, parts: list[list[int]], *, skip_special: bool) -> str:
    state, texts = START, []
    for part in parts:
        text, state = decode_text(of, state, part, skip_special=skip_special)
        texts.append(text)
        state = msgspec.json.decode(msgspec.json.encode(state), type=DecodeState)
        check(of, state)
    return "".join(texts) + flush(of, state)[0]


def sent_before_the_fault(of: Vocabulary, ids: list[int]) -> str:
    """What a stream of a byte-fallback tokenizer can say: whole characters, then U+FFFD for each byte of a bad run."""
    text, run = "", b""
    for id_ in [*ids, None]:
        if id_ is not None and of.is_byte(id_):
            run += of.bytes_of(id_)
            continue
        if id_ is not None and not of.known(id_):
            continue
        try:
            text += run.decode()
        except UnicodeDecodeError as error:
            text += run[: error.start].decode() + REPLACEMENT * (len(run) - error.start)
        run = b""
        text += "" if id_ is None else of.bytes_of(id_).decode()
    return text.removeprefix(" ") if of.strips_leading_space else text


@every_tokenizer
@given(data=st.data())
def test_text_is_the_tokenizers_decode(name: str, data: st.DataObject) -> None:
    """Where a run of byte tokens breaks, what was sent stays sent; everywhere else it is the tokenizer's own decode."""
    of = vocabulary(name)
    ids = data.draw(id_lists(name), label="ids")
    skip = data.draw(st.booleans(), label="skip")
    said = text_in_parts(of, cut(data.draw, ids), skip_special=skip)
    shown = [id_ for id_ in ids if of.known(id_) and not (skip and id_ in of.special)]
    decoded = of.tokenizer.decode(shown, skip_special_tokens=False)
    whole = of.decode(shown)
    assert (whole.removeprefix(" ") if of.strips_leading_space else whole) == decoded
    if of.kind == "byte_fallback":
        decoded = sent_before_the_fault(of, shown)
    if not (of.kind == "window" and len(undecided_tail(of, shown)) > MAX_UNREAD_IDS):
        assert said == decoded


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name.id not in support.SMALL])
@given(data=st.data())
def test_pieces_are_the_tokenizers_decode(name: str, data: st.DataObject) -> None:
    """What a parser reads is all that the tokenizer decodes, added tokens included."""
    of = vocabulary(name)
    ids: list[int] = []
    for part in data.draw(st.lists(st.sampled_from(TEXTS) | st.sampled_from(sorted(of.added)), max_size=8)):
        ids += [part] if isinstance(part, int) else of.tokenizer.encode(part, add_special_tokens=False).ids
    state, said = START, ""
    for part in cut(data.draw, ids):
        pieces, state = decode_pieces(of, msgspec.json.decode(msgspec.json.encode(state), type=DecodeState), part)
        said += "".join(text for text, _ in pieces)
    assert said + flush(of, state)[0] == of.tokenizer.decode(ids, skip_special_tokens=False)


def undecided_tail(of: Vocabulary, ids: list[int]) -> list[int]:
    """The longest run of ids that end in U+FFFD: a windowed decoder lets go of longer ones."""
    longest: list[int] = []
    run: list[int] = []
    for id_ in ids:
        run = [*run, id_] if of.decode((id_,)).endswith(REPLACEMENT) else []
        longest = max(longest, run, key=len)
    return longest


def largest_states(request: PreparedRequest) -> list[StreamState]:
    """Each field at its bound, for every kind of decoder."""
    number = 2**53
    worst = {
        "version": STATE_VERSION,
        "fingerprint": request.model.fingerprint,
        "index": request.model.limits.max_sequences - 1,
        "tokens": number,
        "role_sent": True,
        "logprob_context": (MAX_ID,) * 4,
        "text_offset": number,
        "prompt": number,
        "created": number,
        "id": "r" * 128,
        "stop_begun": (3, stop.MAX_STOP_CHARS - 1),
    }
    table = DecodeState(pending=b"\xf0\x9f\x98", held="\x01" * MAX_HELD_CHARS, started=True)
    window = DecodeState(window=(MAX_ID,) * WINDOW_IDS, unread=(MAX_ID,) * MAX_UNREAD_IDS)
    return [StreamState(**worst, decode=decode) for decode in (table, window)]


def test_the_largest_state_fits() -> None:
    """The worst case of a state without a parser, which no real vocabulary reaches: 64 held control characters."""
    asked = {"prompt": "p", "stop": [letter * stop.MAX_STOP_CHARS for letter in "abcd"]}
    request = support.request(support.model(support.stripping()), "completion", completion_request=asked)
    table, window = largest_states(request)
    check_client_state(request, table)
    sizes = [len(msgspec.json.encode(state)) for state in (table, window)]
    assert max(sizes) <= MAX_PLAIN_STATE_BYTES
    assert max(sizes) == 846


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**63),
    st.text(max_size=5),
    st.sampled_from(["stop", "\ufffd", "gA==", "8J+Y", "AAAAAAAA", "x" * 3_000]),
    st.lists(st.integers(-1, 300), max_size=6),
    st.just([[0, 1]]),
    st.fixed_dictionaries(
        {},
        optional={
            "pending": st.sampled_from(["", "gA==", "8J+Y", "8A==", "!!"]),
            "held": st.sampled_from(["\ufffd", "a", "\ufffd" * 65, "\x00" * 64]),
            "started": st.booleans(),
            "broken": st.booleans(),
            "window": st.lists(st.integers(-1, 2**31), max_size=8),
            "unread": st.lists(st.integers(0, 300), max_size=20),
            "grammar": st.just("x"),
            "name": st.just("f"),
            "other": st.just(1),
        },
    ),
)


@pytest.mark.parametrize("name", support.SMALL)
@given(data=st.data())
def test_a_forged_state_is_refused_or_harmless(name: str, data: st.DataObject) -> None:
    """Any field of a state set to anything: a 400 that says why, or an answer; never another exception."""
    of = vocabulary(name)
    served = support.model(of, eos_token_id=min(of.special), limits={"max_model_len": 100})
    kind = data.draw(st.sampled_from(["chat", "completion"]))
    body: dict[str, Any] = {
        "stream": True,
        f"{kind}_request": {"messages": [], "prompt": "p", "stop": ["ab\ufffd", "xyz"]},
        "prompt_token_ids": [1, 2],
        "generate_chunk": {"request_id": "r", "choices": [{"index": 0, "token_ids": data.draw(id_lists(name))[:20]}]},
    }
    status, answer = golden_runner.call(served, kind, body)
    assert status == 200
    state = answer["stream_state"]
    for field in data.draw(st.lists(st.sampled_from(StreamState.__struct_fields__), min_size=1, max_size=3)):
        state[field] = data.draw(VALUES, label=field)
    body["generate_chunk"]["choices"][0]["finish_reason"] = data.draw(st.sampled_from([None, "stop"]))
    status, answer = golden_runner.call(served, kind, body | {"stream_state": state})
    if status != 200:
        assert status == 400
        assert "stream_state" in answer["error"]["message"] or "model's limit" in answer["error"]["message"]
        return
    assert len(msgspec.json.encode(answer["stream_state"])) <= MAX_PLAIN_STATE_BYTES
    status, again = golden_runner.call(served, kind, body | {"stream_state": answer["stream_state"]})
    assert status == 200 or "model's limit" in again["error"]["message"], again


PARSED = [
    "<think>so ",
    "be it</think>fine ",
    '<tool_call>\n{"name": "f", "arg',
    'uments": {"a": [1, "x',
    '"]}}\n</tool_call> on',
]
PARSER_VALUES = st.one_of(
    st.sampled_from([None, -1, 0, 1, 2, 7, 255, 2**31, 2**62, "", "x", "{", '"', "{[{", "<tool_call>", "a" * 300, []]),
    st.lists(st.integers(-1, 2**33), max_size=3),
)


@given(data=st.data())
def test_a_forged_parser_state_is_refused_or_harmless(data: st.DataObject) -> None:
    """The same for the fields of a parser, whose meaning its grammar alone knows."""
    of = support.smollm2()
    parsers = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3", "enable_auto_tool_choice": True}
    served = support.model(of, parsers=parsers)
    body: dict[str, Any] = {
        "stream": True,
        "chat_request": {"messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]},
        "prompt_token_ids": [1, 2],
    }
    parts = [of.tokenizer.encode(text, add_special_tokens=False).ids for text in PARSED]
    state: Any = None
    for number in range(data.draw(st.integers(1, len(parts) - 1))):
        chunk = {"request_id": "r", "choices": [{"index": 0, "token_ids": parts[number]}]}
        status, answer = golden_runner.call(served, "chat", body | {"generate_chunk": chunk, "stream_state": state})
        assert status == 200, answer
        state = answer["stream_state"]
    fields = state.setdefault("parser", {})
    for name in data.draw(st.lists(st.sampled_from(ParserState.__struct_fields__), min_size=1, max_size=3)):
        fields[name] = data.draw(PARSER_VALUES, label=name)
    chunk = {"request_id": "r", "choices": [{"index": 0, "token_ids": parts[-1], "finish_reason": "stop"}]}
    status, answer = golden_runner.call(served, "chat", body | {"generate_chunk": chunk, "stream_state": state})
    assert status == 200 or (status == 400 and "stream_state" in answer["error"]["message"]), answer


@every_tokenizer
@given(data=st.data())
def test_logprob_strings_are_whole_characters(name: str, data: st.DataObject) -> None:
    """No reported token ends in U+FFFD, and `bytes` are the UTF-8 of the token."""
    of = vocabulary(name)
    ids = [id_ for id_ in data.draw(id_lists(name)) if of.known(id_)]
    request = prepared(name, "chat", {}, [])
    answers, _ = support.run(request, chunks_of([ids], "length", [0]))
    for entry in golden_runner.accumulate(map(msgspec.to_builtins, answers))[0].logprobs:
        for one in (entry, *entry["top_logprobs"]):
            assert not one["token"].endswith(REPLACEMENT)
            assert bytes(one["bytes"]) == one["token"].encode()
