"""The step with a parser: which calls go out, how a choice ends, what is hidden, what `content` is without any.

Every output is derendered whole, and as a stream of single ids in both call modes.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from schemas.generate import GenerateResponse
from tests.core import support
from tests.core.golden_runner import Sum, accumulate, whole
from worker.core.errors import RequestError
from worker.core.prepare import PreparedRequest
from worker.core.step import derender
from worker.core.vocabulary import Vocabulary

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"a": {}}}}}
    for name in ("f", "g")
]
F = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
G = '<tool_call>\n{"name": "g", "arguments": {"a": 2}}\n</tool_call>'
CUT = '<tool_call>\n{"name": "f", "arguments": {"a": '
LIST = '[{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {"a": 2}}]'
NAMED = {"type": "function", "function": {"name": "f"}}
CALL_F, CALL_G = ("f", '{"a": 1}'), ("g", '{"a": 2}')
BOTH = [CALL_F, CALL_G]


def vocabulary() -> Vocabulary:
    return support.smollm2(("<think>", "</think>", "<tool_call>", "</tool_call>"))


def encode(text: str) -> list[int]:
    return list(vocabulary().tokenizer.encode(text, add_special_tokens=False).ids)


def request(
    mode: str = "eager", forced: str = "native", parsers: dict[str, Any] | None = None, **chat: Any
) -> PreparedRequest:
    options = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3", "enable_auto_tool_choice": True}
    options |= {"tool_call_streaming": mode, "forced_tool_format": forced} | (parsers or {})
    served = support.model(vocabulary(), parsers=options, eos_token_id=2)
    fields = {"messages": [{"role": "user", "content": "go"}], "tools": TOOLS} | chat
    return support.request(
        served, chat_request=fields, prompt_token_ids=encode("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    )


def answer(prepared: PreparedRequest, text: str, finish: str = "stop", **choice: Any) -> Any:
    """The whole response, as a client reads it."""
    body = {"choices": [{"index": 0, "token_ids": encode(text), "finish_reason": finish} | choice]}
    response = msgspec.convert(body, GenerateResponse)
    return json.loads(msgspec.json.encode(derender(prepared, response)))


def stream(prepared: PreparedRequest, text: str, finish: str = "stop") -> Sum:
    ids = encode(text)
    chunks = [
        support.chunk([id_], None if at else finish) for at, id_ in zip(range(len(ids) - 1, -1, -1), ids, strict=True)
    ]
    replies, _ = support.run(prepared, chunks)
    return accumulate(json.loads(msgspec.json.encode(reply)) for reply in replies)[0]


def calls(one: Sum) -> list[tuple[str, str]]:
    return [(call["name"], call["arguments"]) for call in one.calls]


Row = tuple[dict[str, Any], str, str, list[tuple[str, str]], str, str]
"""Request, output, the engine's finish reason; calls, content, finish reason."""

RESULTS: dict[str, Row] = {
    "auto": ({}, F, "stop", [CALL_F], "", "tool_calls"),
    "auto-text": ({}, "Hi.", "stop", [], "Hi.", "stop"),
    "auto-length-after-a-call": ({}, F, "length", [CALL_F], "", "length"),
    "auto-abort": ({}, F, "abort", [CALL_F], "", "abort"),
    "two-calls": ({}, f"Look: {F}\n{G}", "stop", BOTH, "Look:", "tool_calls"),
    "parallel-false": ({"parallel_tool_calls": False}, F + G, "stop", [CALL_F], "", "tool_calls"),
    "parallel-false-text-after": ({"parallel_tool_calls": False}, F + G + "x", "stop", [CALL_F], "x", "tool_calls"),
    "parallel-null": ({"parallel_tool_calls": None}, F + G, "stop", BOTH, "", "tool_calls"),
    "none": ({"tool_choice": "none"}, f"Look: {F}", "stop", [], "Look:", "stop"),
    "null-choice": ({"tool_choice": None}, f"Look: {F}", "stop", [], "Look:", "stop"),
    "no-tools": ({"tools": None}, F, "stop", [], F, "stop"),
    "required-native": ({"tool_choice": "required"}, F + G, "stop", BOTH, "", "tool_calls"),
    "required-native-json": ({"tool_choice": "required"}, LIST, "stop", [], LIST, "stop"),
    "required-json": ({"tool_choice": "required", "forced": "json"}, LIST, "stop", BOTH, "", "tool_calls"),
    "required-json-parallel-false": (
        {"tool_choice": "required", "forced": "json", "parallel_tool_calls": False},
        LIST, "stop", [CALL_F], "", "tool_calls",
    ),
    "named-native": ({"tool_choice": NAMED}, F, "stop", [CALL_F], "", "stop"),
    "named-json": ({"tool_choice": NAMED, "forced": "json"}, '{"a": 1}', "stop", [CALL_F], "", "stop"),
    "named-json-length": ({"tool_choice": NAMED, "forced": "json"}, '{"a": 1}', "length", [CALL_F], "", "length"),
    "named-json-no-object": ({"tool_choice": NAMED, "forced": "json"}, "Hi.", "stop", [], "Hi.", "stop"),
    "required-without-auto": (
        {"tool_choice": "required", "parsers": {"enable_auto_tool_choice": False}},
        F, "stop", [CALL_F], "", "tool_calls",
    ),
    "auto-without-auto": ({"parsers": {"enable_auto_tool_choice": False}}, F, "stop", [], F, "stop"),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["eager", "complete"])
@pytest.mark.parametrize(("fields", "output", "engine", "expected", "content", "finish"), RESULTS.values(), ids=RESULTS)
def test_calls_and_ends(
    fields: dict[str, Any], output: str, engine: str, expected: list[Any], content: str, finish: str, mode: str
) -> None:
    prepared = request(mode, **fields)
    result = whole(answer(prepared, output, engine))[0]
    assert (calls(result), result.text, result.finish_reason) == (expected, content, finish)
    streamed = stream(prepared, output, engine)
    assert (calls(streamed), streamed.text, streamed.finish_reason) == (expected, content, finish)


BROKEN: dict[str, tuple[str, str, list[tuple[str, str]], str]] = {
    "cut-by-length": (CUT, "length", [("f", '{"a": ')], "length"),
    "never-closed": (CUT, "stop", [("f", '{"a": ')], "stop"),
    "after-a-whole-one": (F + CUT, "stop", [CALL_F, ("f", '{"a": ')], "tool_calls"),
    "cut-after-a-whole-one": (F + CUT, "length", [CALL_F, ("f", '{"a": ')], "length"),
}
"""Output, the engine's finish reason; calls that an eager stream shows, and how every form of it ends."""


@pytest.mark.parametrize(("output", "engine", "shown", "finish"), BROKEN.values(), ids=BROKEN)
def test_a_call_that_did_not_end_makes_no_tool_calls(
    output: str, engine: str, shown: list[tuple[str, str]], finish: str
) -> None:
    """An eager stream has shown it, but ends as the whole result does, which has no such call."""
    sure = [one for one in shown if one[1].endswith("}")]
    result = whole(answer(request(), output, engine))[0]
    assert (calls(result), result.finish_reason) == (sure, finish)
    complete = stream(request("complete"), output, engine)
    assert (calls(complete), complete.finish_reason) == (sure, finish)
    eager = stream(request(), output, engine)
    assert (calls(eager), eager.finish_reason) == (shown, finish)


@pytest.mark.parametrize(
    ("fields", "output", "content"),
    [
        pytest.param({}, "Hi.", "Hi.", id="text"),
        pytest.param({}, "", None, id="nothing"),
        pytest.param({}, " \n", None, id="whitespace"),
        pytest.param({}, F, None, id="a-call"),
        pytest.param({}, "<think>\nhm</think>\n", None, id="only-reasoning"),
        pytest.param({"tool_choice": "none"}, F, None, id="none"),
        pytest.param({"tool_choice": "required"}, F, "", id="required"),
        pytest.param({"tool_choice": NAMED}, F, "", id="named"),
        pytest.param({"tool_choice": "required", "forced": "json"}, LIST, "", id="required-json"),
        pytest.param({"tool_choice": NAMED, "forced": "json"}, '{"a": 1}', "", id="named-json"),
        pytest.param({"tool_choice": NAMED, "forced": "json"}, " ", "", id="named-json-blank"),
    ],
)
def test_content_where_there_is_none(fields: dict[str, Any], output: str, content: str | None) -> None:
    """null, but "" where a call was forced (S35)."""
    body = answer(request(**fields), output + "<|im_end|>")
    assert body["choices"][0]["message"]["content"] == content


LOGPROBS = {"logprobs": True, "top_logprobs": 1, "return_token_ids": True}


def with_logprobs(text: str) -> tuple[list[int], dict[str, Any]]:
    ids = encode(text)
    entries = [{"token_id": id_, "logprob": -1.0, "top_logprobs": [{"token_id": id_, "logprob": -1.0}]} for id_ in ids]
    return ids, {"content": entries}


@pytest.mark.parametrize("mode", ["eager", "complete"])
@pytest.mark.parametrize("shown", [True, False], ids=["shown", "hidden"])
def test_logprobs_and_ids_of_parsed_outputs(mode: str, shown: bool) -> None:
    """One entry for each id, markup included, whole and streamed; all hidden with the reasoning (S30)."""
    prepared = request(mode, include_reasoning=shown, **LOGPROBS)
    ids, logprobs = with_logprobs(f"<think>\nhm\n</think>\n\nHi. {F}")
    texts = [vocabulary().tokenizer.decode([id_], skip_special_tokens=False) for id_ in ids]
    body = {"choices": [{"index": 0, "token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}]}
    result = whole(json.loads(msgspec.json.encode(derender(prepared, msgspec.convert(body, GenerateResponse)))))[0]
    entries = logprobs["content"]
    chunks = [
        support.chunk([id_], "stop" if at == len(ids) - 1 else None, logprobs=[entries[at]])
        for at, id_ in enumerate(ids)
    ]
    replies, _ = support.run(prepared, chunks)
    streamed = accumulate(json.loads(msgspec.json.encode(reply)) for reply in replies)[0]
    for one in (result, streamed):
        assert (one.text, calls(one), one.finish_reason) == ("Hi.", [CALL_F], "tool_calls")
        assert one.reasoning == ("hm" if shown else "")
        assert one.token_ids == (ids if shown else [])
        assert [entry["token"] for entry in one.logprobs] == (texts if shown else [])
    assert result.logprobs == streamed.logprobs


def test_hidden_reasoning_hides_metadata_of_outputs_without_any() -> None:
    """Also where nothing was thought: else its absence would tell."""
    ids, logprobs = with_logprobs("Hi.")
    body = {"choices": [{"index": 0, "token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}]}
    response = msgspec.convert(body, GenerateResponse)
    for served, expected in (
        ({}, (None, None)),
        ({"reasoning_parser": None, "enable_auto_tool_choice": False}, (1, 1)),
    ):
        prepared = request(include_reasoning=False, parsers=served, **LOGPROBS)
        choice = json.loads(msgspec.json.encode(derender(prepared, response)))["choices"][0]
        found = (choice.get("logprobs"), choice.get("token_ids"))
        assert tuple(None if one is None else 1 for one in found) == expected


@pytest.mark.parametrize("output", ["so \n", "so \nEND"], ids=["end", "stop string"])
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_what_the_parser_holds_back_is_said_at_the_end(output: str, finish: str) -> None:
    """Whitespace that a call would have dropped, had one come."""
    prepared = request(stop=["END"])
    assert stream(prepared, output, finish).text == "so \n"
    assert whole(answer(prepared, output, finish))[0].text == "so \n"


def test_ids_of_calls_are_the_same_in_every_run() -> None:
    output = f"Look: {F}\n{G}"
    found = [whole(answer(request(), output))[0], stream(request(), output), stream(request("complete"), output)]
    ids = [[call["id"] for call in one.calls] for one in found]
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids[0])) == 2


@pytest.mark.parametrize(
    ("context", "message"),
    [
        pytest.param({"prompt_token_ids": [1]},
                     "chat_request is required: this model has a tool or reasoning parser configured",
                     id="chat_request"),
        pytest.param({"chat_request": {"messages": []}},
                     "prompt_token_ids is required: the model's parser has to know where the prompt ends", id="prompt"),
    ],
)  # fmt: skip
def test_what_a_parser_needs_is_asked_for(context: dict[str, Any], message: str) -> None:
    """Rather a 400 than markup in the content."""
    served = request().model
    with pytest.raises(RequestError) as raised:
        support.run(support.request(served, **context), [support.chunk([1])])
    assert str(raised.value) == message
