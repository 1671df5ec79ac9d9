"""The step on the plain path: what goes out with each chunk, and what the state carries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas.generate import GenerateChunk, GenerateResponse, Usage
from schemas.openai import ChatDelta
from schemas.state import STATE_VERSION, DecodeState, StreamState
from tests.core import support
from tests.core.bodies import choice, entry, response
from tests.core.support import byte_ids, chunk, id_of, run, text_of, through_bytes
from worker.core.errors import RequestError, StateMismatch
from worker.core.prepare import PreparedRequest
from worker.core.step import derender, derender_completions, derender_step
from worker.core.vocabulary import REPLACEMENT

OF = support.byte_level()
END, START_TOKEN, MARK = (id_of(OF, token) for token in ("</s>", "<s>", "<mark>"))
HELLO, WORLD = id_of(OF, "hello"), id_of(OF, "Ġworld")
MODEL_EOS = id_of(OF, "Ġ")


def ids(text: str) -> list[int]:
    return byte_ids(OF, text.encode())


def served(**fields: Any) -> Any:
    return support.model(OF, **({"eos_token_id": END, "model_eos_ids": frozenset({END, MODEL_EOS})} | fields))


def chat(**asked: Any) -> PreparedRequest:
    return support.request(served(), "chat", chat_request={"messages": []} | asked)


def completion(**asked: Any) -> PreparedRequest:
    return support.request(served(), "completion", completion_request={"prompt": "p"} | asked)


def one(answer: Any) -> Any:
    assert len(answer.choices) == 1
    return answer.choices[0]


# --- shape of a stream ------------------------------------------------------------------------------------------------


def test_a_chat_stream() -> None:
    """S24, S25, S27: the role once, a choice for each chunk, null content while there is no text."""
    chunks = [chunk(), chunk([HELLO]), chunk(None), chunk(ids("ż")[:1]), chunk(ids("ż")[1:]), chunk([], "length")]
    answers, state = run(chat(), chunks)
    assert [one(answer).delta for answer in answers] == [
        ChatDelta(role="assistant"),
        ChatDelta(content="hello"),
        ChatDelta(),
        ChatDelta(),
        ChatDelta(content="ż"),
        ChatDelta(),
    ]
    assert [one(answer).finish_reason for answer in answers] == [None] * 5 + ["length"]
    assert state == StreamState(
        version=STATE_VERSION,
        fingerprint=served().fingerprint,
        index=0,
        tokens=3,
        role_sent=True,
        finish="length",
        logprob_context=(HELLO, *ids("ż")),
    )


def test_a_completion_stream() -> None:
    answers, state = run(completion(), [chunk(), chunk([HELLO]), chunk([WORLD], "length")])
    assert [one(answer).text for answer in answers] == ["", "hello", " world"]
    assert {type(answer).__name__ for answer in answers} == {"CompletionChunk"}
    assert state is not None
    assert state.text_offset == 11


def test_an_event_without_a_choice() -> None:
    """S24, S26: no choice out, no role, the state as it was; usage with the request's own prompt count."""
    request = support.request(served(), "chat", prompt_tokens=5)
    usage = GenerateChunk(choices=[], usage=Usage(prompt_tokens=3, completion_tokens=2, total_tokens=99))
    answer, state = derender_step(request, usage, None)
    assert (answer.choices, answer.usage) == ([], Usage(prompt_tokens=5, completion_tokens=2, total_tokens=7))
    assert state == StreamState(version=STATE_VERSION, fingerprint=request.model.fingerprint)
    answer, after = derender_step(request, chunk([HELLO]), state)
    assert one(answer).delta == ChatDelta(role="assistant", content="hello")
    assert derender_step(request, usage, after)[1] is after


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param({}, Usage(0, 0, 0), id="missing-counts"),
        pytest.param({"completion_tokens": None, "prompt_tokens": 3}, Usage(3, 3, 0), id="null-count"),
        pytest.param({"prompt_tokens": 1, "total_tokens": 7, "completion_tokens": 2}, Usage(1, 3, 2), id="total-again"),
    ],
)
def test_usage_on_any_chunk(usage: dict[str, Any], expected: Usage) -> None:
    answer, _ = derender_step(chat(), chunk([HELLO], usage=msgspec.convert(usage, Usage)), None)
    assert answer.usage == expected


def test_a_first_event_without_a_choice_may_bring_the_prompt() -> None:
    """S26: engines send the prompt's ids once, with the first event."""
    of = support.stripping()
    request = support.request(support.model(of), "chat")
    hello = id_of(of, "▁hello")
    _, state = derender_step(request, GenerateChunk(choices=[], prompt_token_ids=[hello]), None)
    assert state.decode == DecodeState(started=True)
    answer, _ = derender_step(request, chunk([hello]), through_bytes(state))
    assert one(answer).delta.content == " hello"


@pytest.mark.parametrize(
    ("of_request", "of_engine", "text"),
    [
        pytest.param(None, None, "hello", id="none"),
        pytest.param(None, [3], " hello", id="S5-engine"),
        pytest.param([3], None, " hello", id="S5-request"),
        pytest.param([], [3], "hello", id="S5-an-empty-list-counts"),
    ],
)
def test_source_of_the_seed(of_request: list[int] | None, of_engine: list[int] | None, text: str) -> None:
    of = support.stripping()
    request = support.request(support.model(of), "chat", prompt_token_ids=of_request)
    hello = id_of(of, "▁hello")
    answers, _ = run(request, [chunk([hello], prompt_token_ids=of_engine), chunk([], "length")])
    assert text_of(answers) == text
    whole = msgspec.convert(response(choice([hello]), prompt_token_ids=of_engine), GenerateResponse)
    assert derender(request, whole).choices[0].message.content == text  # type: ignore[union-attr]


def test_every_prompt_seeds_its_own_choices() -> None:
    """S7, S42: one running index over all prompts."""
    of = support.stripping()
    hello = id_of(of, "▁hello")
    request = support.request(
        support.model(of),
        "completion",
        prompt_token_ids=[[hello], None],
        completion_request={"prompt": ["a", "b"], "n": 2},
    )
    parts = [msgspec.convert(response(choice([hello]), choice([hello], 1)), GenerateResponse)] * 2
    answer = derender_completions(request, parts)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, " hello"), (1, " hello"), (2, "hello"), (3, "hello"),
    ]  # fmt: skip
    streamed = [
        derender_step(request, chunk([hello], index=index), None, prompt=prompt)
        for prompt in (0, 1)
        for index in (0, 1)
    ]
    assert [(one(part).index, one(part).text) for part, _ in streamed] == [
        (0, " hello"),
        (1, " hello"),
        (2, "hello"),
        (3, "hello"),
    ]


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "last", "finish", "reason", "text", "said"),
    [
        pytest.param({}, END, "stop", None, "hello", None, id="S12-primary-eos"),
        pytest.param({}, END, "stop", END, "hello", END, id="S10-engine-names-it"),
        pytest.param({}, MODEL_EOS, "stop", None, "hello", MODEL_EOS, id="S12-eos-of-the-model"),
        pytest.param({"ignore_eos": True}, MODEL_EOS, "stop", None, "hello ", None, id="S10-ignore-eos"),
        pytest.param({"stop_token_ids": [WORLD]}, WORLD, "stop", None, "hello", WORLD, id="S10-of-the-request"),
        pytest.param(
            {"stop_token_ids": [WORLD], "ignore_eos": True}, WORLD, "stop", None, "hello", WORLD, id="S10-both"
        ),
        pytest.param(
            {"stop_token_ids": [WORLD], "include_stop_str_in_output": True},
            WORLD, "stop", None, "hello world", WORLD, id="S11-included",
        ),
        pytest.param({"include_stop_str_in_output": True}, END, "stop", None, "hello", None, id="S11-special-vanishes"),
        pytest.param(
            {"include_stop_str_in_output": True, "skip_special_tokens": False},
            END, "stop", None, "hello</s>", None, id="S11-special-shown",
        ),
        pytest.param({"skip_special_tokens": False}, END, "stop", None, "hello", None, id="S11-left-out"),
        pytest.param({"skip_special_tokens": False}, END, "length", None, "hello</s>", None, id="S10-length"),
        pytest.param({}, WORLD, "stop", None, "hello world", None, id="S10-no-stop-token"),
        pytest.param({}, WORLD, "stop", "zz", "hello world", "zz", id="S13-string-that-is-not-there"),
        pytest.param({}, WORLD, "abort", None, "hello world", None, id="abort"),
    ],
)  # fmt: skip
def test_stop_tokens(asked: dict[str, Any], last: int, finish: str, reason: Any, text: str, said: Any) -> None:
    for request in (chat(**asked), completion(**asked)):
        answers, _ = run(request, [chunk([HELLO]), chunk([last], finish, stop_reason=reason)])
        assert (text_of(answers), one(answers[-1]).finish_reason, one(answers[-1]).stop_reason) == (text, finish, said)


@pytest.mark.parametrize(
    ("asked", "parts", "texts", "finish", "stopped"),
    [
        pytest.param({"stop": "lo w"}, ["hello world", "!"], ["hel"], ("stop", "lo w"), True, id="in-a-chunk"),
        pytest.param(
            {"stop": ["xx", "lo w"]},
            ["hel", "lo", " w", "x"],
            ["he", "l", ""],
            ("stop", "lo w"),
            True,
            id="over-chunks",
        ),
        pytest.param({"stop": "lo w"}, ["hello", " x"], ["hel", "lo x"], ("length", None), False, id="disproved"),
        pytest.param({"stop": "lo w"}, ["hello"], ["hello"], ("length", None), False, id="released-at-the-end"),
        pytest.param({"stop": "lo w"}, ["a", "lo w"], ["a", ""], ("stop", "lo w"), False, id="in-the-last-chunk"),
        pytest.param(
            {"stop": "lo", "include_stop_str_in_output": True},
            ["hello w", "x"],
            ["hello"],
            ("stop", "lo"),
            True,
            id="included",
        ),
        pytest.param({"stop": ""}, ["hello"], ["hello"], ("length", None), False, id="empty-string"),
        pytest.param({"stop": ["", "o"]}, ["hello"], ["hell"], ("stop", "o"), False, id="empty-string-ignored"),
        pytest.param(
            {"stop": "l", "min_tokens": 4}, ["hel", "lol"], ["hel", "lo"], ("stop", "l"), False, id="min-tokens"
        ),
        pytest.param(
            {"stop": "ll", "min_tokens": 3}, ["he", "llo"], ["he", ""], ("stop", "ll"), False, id="min-tokens-may-begin"
        ),
        pytest.param(
            {"stop": "l", "min_tokens": 9}, ["hel", "lo"], ["hel", "lo"], ("length", None), False, id="min-tokens-all"
        ),
    ],
)
def test_stop_strings(
    asked: dict[str, Any], parts: list[str], texts: list[str], finish: tuple[str, str | None], stopped: bool
) -> None:
    """Found while streaming; what comes after is counted and brings no choice; whole responses say the same."""
    chunks = [chunk(ids(part), "length" if part is parts[-1] else None) for part in parts]
    answers, state = run(completion(**asked), chunks)
    spoken = [answer.choices[0] for answer in answers if answer.choices]
    assert [choice.text for choice in spoken] == texts  # type: ignore[union-attr]
    assert (spoken[-1].finish_reason, spoken[-1].stop_reason) == finish
    assert state is not None
    assert (state.stopped, state.finish, state.tokens) == (stopped, finish[0], len("".join(parts)))
    whole = msgspec.convert(response(choice(ids("".join(parts)), finish_reason="length")), GenerateResponse)
    answer = derender(completion(**asked), whole)
    assert [(choice.text, choice.finish_reason, choice.stop_reason) for choice in answer.choices] == [  # type: ignore[union-attr]
        ("".join(texts), *finish)
    ]


def test_a_reported_string_is_cut_from_a_whole_response() -> None:
    """S13: the engine found a string that the request does not name."""
    whole = msgspec.convert(
        response(choice(ids("hello END x"), finish_reason="stop", stop_reason="END")), GenerateResponse
    )
    answer = derender(chat(), whole)
    assert answer.choices[0].message.content == "hello "  # type: ignore[union-attr]
    assert answer.choices[0].stop_reason == "END"


@pytest.mark.parametrize(
    ("text", "asked", "finish", "reasoning", "content", "found"),
    [
        pytest.param("<think>aEND</think>bENDc", {}, "length", "aEND", "b", "END", id="reasoning-is-not-searched"),
        pytest.param("aENDbENDc", {"min_tokens": 4}, "length", "", "aENDb", "END", id="not-before-min-tokens"),
        pytest.param("aEN<tool_c", {}, "stop", "", "aEN<tool_c", None, id="two-that-hold"),
        pytest.param("aEN<tool_c", {}, "length", "", "aEN", None, id="two-that-hold-cut-in-a-marker"),
        pytest.param("aEN<tool_c", {"stop": "N<tool_c"}, "stop", "", "aE", "N<tool_c", id="held-to-the-end"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_stop_strings_in_content_alone(
    text: str, asked: dict[str, Any], finish: str, reasoning: str, content: str, found: str | None, size: int
) -> None:
    """`--stop-scope content`: the same wherever chunks end."""
    parsers = {
        "reasoning_parser": "qwen3",
        "tool_call_parser": "hermes",
        "enable_auto_tool_choice": True,
        "stop_scope": "content",
    }
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = support.request(
        served(parsers=parsers),
        "chat",
        chat_request={"messages": [], "tools": tools, "stop": "END"} | asked,
        prompt_token_ids=ids("</think>" if not reasoning else "\n"),
    )
    all_ids = ids(text)
    chunks = [chunk(all_ids[at : at + size]) for at in range(0, len(all_ids), size)]
    answers, state = run(request, [*chunks, chunk([], finish)])
    deltas = [one(answer).delta for answer in answers if answer.choices]
    assert "".join(delta.reasoning or "" for delta in deltas) == reasoning
    assert "".join(delta.content or "" for delta in deltas) == content
    last = [one(answer) for answer in answers if answer.choices][-1]
    assert (last.finish_reason, last.stop_reason) == ("stop" if found else finish, found)
    assert state is not None
    assert state.tokens == len(all_ids)


def test_chunks_after_the_end_are_counted() -> None:
    request = completion(stop="o")
    answers, state = run(request, [chunk(ids("no")), chunk(ids("ise")), chunk([END], "stop")])
    assert [len(answer.choices) for answer in answers] == [1, 0, 0]
    assert state is not None
    assert (state.tokens, state.finish, state.stopped, state.logprob_context) == (6, "stop", True, tuple(ids("no")))


def test_pending_text_is_flushed() -> None:
    """Q1: what no id completed goes out with the finish reason, streamed or whole."""
    cut = ids("ż")[:1]
    answers, _ = run(chat(), [chunk(cut), chunk([], "length")])
    assert [one(answer).delta.content for answer in answers] == [None, REPLACEMENT]
    whole = msgspec.convert(response(choice(cut, finish_reason="length")), GenerateResponse)
    assert derender(chat(), whole).choices[0].message.content == REPLACEMENT  # type: ignore[union-attr]


def test_an_empty_finish_reason_is_none() -> None:
    """S28: some engines write it in every chunk; the character that is pending must not be let go."""
    first, second = (ids("ż")[:1], ids("ż")[1:])
    answers, state = run(chat(stop="hello there"), [chunk(first, ""), chunk([*second, HELLO], ""), chunk([], "length")])
    assert [(one(answer).delta.content, one(answer).finish_reason) for answer in answers] == [
        (None, None),
        ("ż", None),
        ("hello", "length"),
    ]
    assert state is not None
    assert state.finish == "length"


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        pytest.param({}, "stop", id="S14-missing-means-stop"),
        pytest.param({"finish_reason": "repetition"}, "repetition", id="S28-passed-through"),
        pytest.param({"finish_reason": None}, "stop", id="S14-null-of-a-chat"),
    ],
)
def test_finish_of_a_whole_response(fields: dict[str, Any], finish: str) -> None:
    whole = msgspec.convert(response(choice([HELLO, END], **fields)), GenerateResponse)
    assert derender(chat(), whole).choices[0].finish_reason == finish


def test_a_null_finish_of_a_completion_stays_null() -> None:
    whole = msgspec.convert(response(choice([HELLO, MARK], finish_reason=None)), GenerateResponse)
    answer = derender(completion(), whole)
    assert (answer.choices[0].finish_reason, answer.choices[0].text) == (None, "hello<mark>")  # type: ignore[union-attr]


# --- metadata ---------------------------------------------------------------------------------------------------------


def with_logprobs(*sampled: int) -> list[dict[str, Any]]:
    return [
        {"token_id": id_, "logprob": -1.0, "top_logprobs": entry(id_, HELLO, WORLD)["top_logprobs"]} for id_ in sampled
    ]


@pytest.mark.parametrize(
    ("kind", "asked", "count"),
    [
        pytest.param("chat", {}, 3, id="S21-chat-not-asked"),
        pytest.param("chat", {"logprobs": True}, 0, id="S21-chat-none"),
        pytest.param("chat", {"logprobs": True, "top_logprobs": 2}, 2, id="S21-chat-two"),
        pytest.param("chat", {"logprobs": True, "top_logprobs": -1}, 3, id="S21-chat-all"),
        pytest.param("chat", {"logprobs": True, "logprob_token_ids": [1]}, 3, id="S21-chat-ids"),
        pytest.param("chat", None, 3, id="S21-no-chat-request"),
        pytest.param("completion", {}, 3, id="S21-completion-not-asked"),
        pytest.param("completion", {"logprobs": 0}, 1, id="S21-completion-sampled-only"),
        pytest.param("completion", {"logprobs": 1}, 2, id="S21-completion-one-more"),
        pytest.param("completion", {"logprobs": -1}, 3, id="S21-completion-all"),
        pytest.param("completion", {"logprobs": 0, "logprob_token_ids": [1]}, 3, id="S21-completion-ids"),
        pytest.param("completion", None, 3, id="S21-no-completion-request"),
    ],
)
def test_candidate_cut(kind: str, asked: dict[str, Any] | None, count: int) -> None:
    base = {"messages": []} if kind == "chat" else {"prompt": "p"}
    context = {} if asked is None else {f"{kind}_request": base | asked}
    request = support.request(served(limits={"max_logprobs": -1}), kind, **context)
    answer, _ = derender_step(request, chunk([END], logprobs=with_logprobs(END)), None)
    logprobs = one(answer).logprobs
    top = logprobs.content[0].top_logprobs if kind == "chat" else logprobs.top_logprobs[0]
    assert len(top) == count


def test_logprobs_follow_the_engine_alone() -> None:
    """S20: no flag suppresses them, none makes them; S18: context over chunks."""
    asked = chat(logprobs=True, top_logprobs=0)
    euro = ids("€")
    parts = [
        chunk(euro[:1], logprobs=with_logprobs(euro[0])),
        chunk(euro[1:], "length", logprobs=with_logprobs(*euro[1:])),
    ]
    for request in (chat(), asked):
        answers, _ = run(request, parts)
        tokens = [entry.token for answer in answers for entry in one(answer).logprobs.content]
        assert tokens == ["", "", "€"]
    answers, _ = run(asked, [chunk([HELLO], "length")])
    assert one(answers[0]).logprobs is None


def test_text_offset_with_and_without_logprobs() -> None:
    """S23: a chunk without logprobs moves it by its text; with them by the reported strings, the stop token's too."""
    parts = [
        chunk([HELLO]),
        chunk([WORLD], logprobs=with_logprobs(WORLD)),
        chunk([HELLO, END], "stop", logprobs=with_logprobs(HELLO, END)),
    ]
    answers, state = run(completion(), parts)
    assert [one(answer).logprobs and one(answer).logprobs.text_offset for answer in answers] == [None, [5], [11, 16]]
    assert state is not None
    assert state.text_offset == 20


@pytest.mark.parametrize("asked", [True, False, None])
def test_return_token_ids(asked: bool | None) -> None:
    """S40: ids of each chunk, the stop token included; prompt ids from the engine's message only."""
    shown = bool(asked)
    first = chunk([HELLO], prompt_token_ids=[1, 2])
    for make in (chat, completion):
        answers, _ = run(make(return_token_ids=asked), [first, chunk([END], "stop")])
        assert [one(answer).token_ids for answer in answers] == ([[HELLO], [END]] if shown else [None, None])
        places: Any = answers[0] if make is chat else one(answers[0])
        assert places.prompt_token_ids == ([1, 2] if shown else None)
    whole = msgspec.convert(response(choice([HELLO, END]), prompt_token_ids=[1, 2]), GenerateResponse)
    answer: Any = derender(chat(return_token_ids=asked), whole)
    assert (answer.choices[0].token_ids, answer.prompt_token_ids) == (([HELLO, END], [1, 2]) if shown else (None, None))
    answer = derender(completion(return_token_ids=asked), whole)
    assert (answer.choices[0].token_ids, answer.choices[0].prompt_token_ids) == (
        ([HELLO, END], [1, 2]) if shown else (None, None)
    )


def test_what_a_chat_copies() -> None:
    """S44, S45, G1."""
    copied = {"kv_transfer_params": {"a": 1}, "metrics": {"queue_time_ms": 2.0}, "prompt_logprobs": [None, {"5": {}}]}
    answer: Any = derender(chat(), msgspec.convert(response(choice([HELLO]), **copied), GenerateResponse))
    assert {name: getattr(answer, name) for name in copied} == copied
    streamed, _ = derender_step(chat(), chunk([HELLO], metrics={"queue_time_ms": 2.0}), None)
    assert streamed.metrics == {"queue_time_ms": 2.0}


@pytest.mark.parametrize(
    ("parameters", "metrics", "expected"),
    [
        pytest.param([{"a": 1}], [{"m": 1}], ({"a": 1}, {"m": 1}), id="one"),
        pytest.param([{"a": 1}, {"a": 1}], [{"m": 1}, {"m": 1}], ({"a": 1}, None), id="S44-equal"),
        pytest.param([{"a": 1}, {"a": 2}], [None, None], (None, None), id="S44-different"),
        pytest.param([{"a": 1}, None], [None, None], (None, None), id="S44-one-null"),
    ],
)
def test_what_completions_merge(parameters: list[Any], metrics: list[Any], expected: tuple[Any, Any]) -> None:
    parts = [
        msgspec.convert(response(choice([HELLO]), kv_transfer_params=one, metrics=two), GenerateResponse)
        for one, two in zip(parameters, metrics, strict=True)
    ]
    answer = derender_completions(completion(), parts)
    assert (answer.kv_transfer_params, answer.metrics) == expected


def test_usage_of_whole_responses() -> None:
    """S43: counted again, summed over prompts and choices; the stop token counts."""
    part = msgspec.convert(response(choice([HELLO, END]), choice([HELLO], 1)), GenerateResponse)
    request = support.request(served(), "completion", prompt_tokens=[3, 4])
    assert derender_completions(request, [part, part]).usage == Usage(7, 13, 6)
    assert derender(support.request(served(), "chat"), part).usage == Usage(0, 3, 3)


# --- states -----------------------------------------------------------------------------------------------------------


def test_equal_arguments_give_equal_results() -> None:
    request = chat(stop=["END"])
    first = derender_step(request, chunk(ids("a EN")), None)
    assert first == derender_step(request, chunk(ids("a EN")), None)
    assert first[1].stop_begun == (0, 2)
    assert derender_step(request, chunk(ids("D")), first[1]) == derender_step(
        request, chunk(ids("D")), through_bytes(first[1])
    )


@pytest.mark.parametrize(
    ("state", "raised", "message"),
    [
        pytest.param({"version": 2}, StateMismatch, "stream_state has version 2; this version reads 1", id="version"),
        pytest.param(
            {"index": 1}, StateMismatch, "stream_state belongs to choice 1, but the chunk is of choice 0", id="index"
        ),
    ],
)
def test_a_state_of_something_else(state: dict[str, Any], raised: type[RequestError], message: str) -> None:
    request = chat()
    base = {"version": STATE_VERSION, "fingerprint": request.model.fingerprint}
    with pytest.raises(raised) as caught:
        derender_step(request, chunk([HELLO]), StreamState(**(base | state)))
    assert caught.value.message == message


def test_completions_never_run_a_parser() -> None:
    request = support.request(served(parsers={"reasoning_parser": "qwen3"}), "completion")
    assert (request.parser, derender_step(request, chunk([MARK]), None)[0].choices[0].text) == (None, "<mark>")  # type: ignore[union-attr]
