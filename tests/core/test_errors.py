"""Every error of a derender request, with its status, type, field and message (rows E1 to E23 of docs/contract.md)."""

from __future__ import annotations

import json

import pytest

from schemas.openai import ErrorBody, ErrorInfo
from schemas.state import MAX_STATE_BYTES
from tests.core import support
from tests.core.bodies import (
    LONG,
    SERVED,
    TOOL,
    USER,
    Body,
    FakeParser,
    H,
    asking,
    call,
    chat,
    choice,
    chunk,
    completion,
    entry,
    logprobs,
    prompted,
    response,
    state,
)
from worker.core import errors, prepare
from worker.core.calls import ENDPOINTS, derender_call
from worker.core.errors import GrammarError, RequestError, SchemaError, StateMismatch, UnknownModel
from worker.core.model import Limits
from worker.core.stop import MAX_STOP_CHARS

BAD, SEMANTIC, MISSING = "Bad Request", "BadRequestError", "NotFoundError"


def error(kind: str, param: str | None, message: str, code: int = 400) -> tuple[int, Body]:
    return code, {"error": {"message": message, "type": kind, "param": param, "code": code}}


@pytest.mark.parametrize(
    ("endpoint", "body", "path", "says"),
    [
        pytest.param(
            "chat",
            {},
            "body.generate_response",
            "Object missing required field `generate_response`",
            id="E1-no-response",
        ),
        pytest.param(
            "chat",
            {"stream": True},
            "body.generate_chunk",
            "Object missing required field `generate_chunk`",
            id="E1-no-chunk",
        ),
        pytest.param(
            "completion",
            {},
            "body.generate_responses",
            "Object missing required field `generate_responses`",
            id="E1-no-responses",
        ),
        pytest.param(
            "chat",
            chat({"token_ids": [1]}),
            "body.generate_response.choices.0.index",
            "Object missing required field `index`",
            id="E1-no-index",
        ),
        pytest.param(
            "chat",
            chat(chat_request={}),
            "body.chat_request.messages",
            "Object missing required field `messages`",
            id="E1-no-messages",
        ),
        pytest.param("chat", b"[]", "body", "Expected `object`, got `array`", id="E1-not-an-object"),
        pytest.param("chat", b'{"stream": "yes"}', "body.stream", "Expected `bool`, got `str`", id="E1-stream-word"),
        pytest.param(
            "chat",
            chat(choice(index=2**31)),
            "body.generate_response.choices.0.index",
            "Expected `int` <= 2147483647",
            id="E1-index-too-large",
        ),
        pytest.param(
            "chat",
            json.dumps(chat(choice(**logprobs(entry())))).replace('"logprob": -1', '"logprob": 1e999').encode(),
            "body.generate_response.choices.0.logprobs.content.0.logprob",
            "Number out of range",
            id="E1-float-out-of-range",
        ),
        pytest.param(
            "chat",
            chat(choice(finish_reason="x" * 65)),
            "body.generate_response.choices.0.finish_reason",
            "Expected `str` of length <= 64",
            id="E1-finish-reason-too-long",
        ),
        pytest.param(
            "chat",
            chat(choice(stop_reason="x" * 1025)),
            "body.generate_response.choices.0.stop_reason",
            "Expected `str` of length <= 1024",
            id="E1-stop-reason-too-long",
        ),
        pytest.param(
            "chat",
            asking(stop=["a"] * 5),
            "body.chat_request.stop",
            "Expected `array` of length <= 4",
            id="E1-five-stop-strings",
        ),
        pytest.param(
            "chat",
            chat(choice((-1,))),
            "body.generate_response.choices.0.token_ids.0",
            "Expected `int` >= 0",
            id="E2-negative",
        ),
        pytest.param(
            "chat",
            chunk(choice((1, -1))),
            "body.generate_chunk.choices.0.token_ids.1",
            "Expected `int` >= 0",
            id="E2-negative-in-a-chunk",
        ),
        pytest.param(
            "chat",
            chat(prompt_token_ids=[-1]),
            "body.prompt_token_ids.0",
            "Expected `int` >= 0",
            id="E2-negative-prompt",
        ),
        pytest.param(
            "chat",
            chat(of={"prompt_token_ids": [-1]}),
            "body.generate_response.prompt_token_ids.0",
            "Expected `int` >= 0",
            id="E2-negative-engine-prompt",
        ),
        pytest.param(
            "chat",
            chat(choice((1.5,))),
            "body.generate_response.choices.0.token_ids.0",
            "Expected `int`, got `float`",
            id="E2-fraction",
        ),
        pytest.param(
            "chat",
            chat(choice((2**31,))),
            "body.generate_response.choices.0.token_ids.0",
            "Expected `int` <= 2147483647",
            id="E2-huge",
        ),
        pytest.param(
            "completion",
            completion(prompt_token_ids=[[2**40]]),
            "body.prompt_token_ids.0.0",
            "Expected `int` <= 2147483647",
            id="E23-huge-prompt",
        ),
        pytest.param(
            "chat",
            chat(choice(**logprobs(entry(2**40)))),
            "body.generate_response.choices.0.logprobs.content.0.top_logprobs.0.token_id",
            "Expected `int` <= 2147483647",
            id="E23-huge-logprob",
        ),
        pytest.param(
            "chat",
            chunk(stream_state={}),
            "body.stream_state.version",
            "Object missing required field `version`",
            id="E4-no-version",
        ),
        pytest.param(
            "chat",
            chunk(stream_state=state(prev_tokens=[])),
            "body.stream_state.prev_tokens",
            "Object contains unknown field `prev_tokens`",
            id="E4-foreign-field",
        ),
        pytest.param(
            "chat",
            chunk(stream_state=state(logprob_context=[1] * 5)),
            "body.stream_state.logprob_context",
            "Expected `array` of length <= 4",
            id="E4-context-of-five",
        ),
        pytest.param(
            "completion",
            chunk(stream_state=state(text_offset=-1)),
            "body.stream_state.text_offset",
            "Expected `int` >= 0",
            id="E4-negative-offset",
        ),
        pytest.param("chat", chunk(created=-1), "body.created", "Expected `int` >= 0", id="E1-time"),
        pytest.param("chat", chunk(created=2**60), "body.created", f"Expected `int` <= {2**53}", id="E1-far-time"),
    ],
)
def test_wrong_shape(endpoint: str, body: Body | bytes, path: str, says: str) -> None:
    """E1, E2, E4, E23: the path of the first failing field is named twice, for machines and for people."""
    assert call(body, endpoint=endpoint) == error(BAD, path, f"{path}: {says}")


@pytest.mark.parametrize(
    ("endpoint", "body", "param", "message"),
    [
        pytest.param("chat", b'{"a":', None, "invalid JSON: Input data was truncated", id="E1-not-json"),
        pytest.param(
            "chat", b'{"model": "\xff"}', None, "invalid JSON: Invalid UTF-8 encoded string", id="E1-not-utf8"
        ),
        pytest.param(
            "chat", b'{"model": "\\ud800"}', None, "invalid JSON: Input data was truncated", id="E1-lone-surrogate"
        ),
        pytest.param(
            "chat",
            b'{"prompt_tokens": NaN}',
            None,
            "invalid JSON: JSON is malformed: invalid character (byte 18)",
            id="E1-nan",
        ),
        pytest.param(
            "chat",
            chat(choice(**logprobs({"logprob": -1}))),
            None,
            "a logprob entry needs an integer token_id or a token of the form token_id:<id>",
            id="E1-logprob-without-id",
        ),
        pytest.param(
            "chat/other",
            chat(),
            "body.endpoint",
            f"endpoint 'chat/other': use one of {', '.join(ENDPOINTS)}",
            id="E1-endpoint",
        ),
        pytest.param(
            "chat",
            chat(request_id="a b"),
            "body.request_id",
            "request_id must be 1 to 128 of A-Z a-z 0-9 . _ : / -",
            id="E1-request-id",
        ),
        pytest.param(
            "completion",
            completion(prompt_tokens=[1, 2]),
            "body.prompt_tokens",
            "prompt_tokens has 2 elements for 1 generate_responses",
            id="E3-prompt-tokens",
        ),
        pytest.param(
            "completion",
            completion(prompt_token_ids=[]),
            "body.prompt_token_ids",
            "prompt_token_ids has 0 elements for 1 generate_responses",
            id="E3-prompt-ids",
        ),
    ],
)
def test_not_readable(endpoint: str, body: Body | bytes, param: str | None, message: str) -> None:
    """E1, E3: no JSON, or lists that do not go together."""
    assert call(body, endpoint=endpoint) == error(BAD, param, message)


@pytest.mark.parametrize(
    ("endpoint", "body", "param", "message"),
    [
        pytest.param(
            "chat", asking(tools=[]), "tools", "tools must not be an empty list: leave it out instead", id="E5-no-tools"
        ),
        pytest.param(
            "chat",
            asking(tool_choice="auto"),
            "tool_choice",
            "tool_choice 'auto' needs tools",
            id="E5-choice-without-tools",
        ),
        pytest.param(
            "chat",
            asking(tool_choice={"function": {"name": "f"}}),
            "tool_choice",
            "a named tool_choice needs tools",
            id="E5-named-without-tools",
        ),
        pytest.param(
            "chat",
            asking(tools=[TOOL], tool_choice="any"),
            "tool_choice",
            "tool_choice 'any': use none, auto, required or a named function",
            id="E5-unknown-word",
        ),
        pytest.param(
            "chat",
            asking(tools=[TOOL], tool_choice=3),
            "tool_choice",
            "tool_choice must be a string or an object that names a function",
            id="E5-choice-is-a-number",
        ),
        pytest.param(
            "chat",
            asking(tools=[TOOL], tool_choice={}),
            "tool_choice.function",
            "a named tool_choice needs a function object",
            id="E5-no-function",
        ),
        pytest.param(
            "chat",
            asking(tools=[TOOL], tool_choice={"function": {}}),
            "tool_choice.function.name",
            "a named tool_choice needs the function's name",
            id="E5-no-name",
        ),
        pytest.param(
            "chat",
            asking(tools=[TOOL], tool_choice={"function": {"name": "g"}}),
            "tool_choice",
            "tool_choice names 'g', which is not among the tools",
            id="E5-no-such-tool",
        ),
        pytest.param(
            "chat",
            asking(logprobs=True, top_logprobs=-2),
            "top_logprobs",
            "top_logprobs must be -1 or at least 0",
            id="E5-top-logprobs",
        ),
        pytest.param(
            "chat",
            asking(top_logprobs=1),
            "top_logprobs",
            "top_logprobs needs logprobs to be true",
            id="E5-top-without-logprobs",
        ),
        pytest.param(
            "chat",
            asking(logprob_token_ids=[1]),
            "logprob_token_ids",
            "logprob_token_ids needs logprobs to be true",
            id="E5-ids-without-logprobs",
        ),
        pytest.param(
            "chat",
            asking(stream_options={}),
            "stream_options",
            "stream_options is only allowed with stream: true",
            id="E5-stream-options",
        ),
        pytest.param(
            "chat",
            asking(stream=True, prompt_logprobs=1),
            "prompt_logprobs",
            "prompt_logprobs are not available with stream: true",
            id="E5-prompt-logprobs",
        ),
        pytest.param(
            "chat",
            asking(continue_final_message=True, add_generation_prompt=True),
            "continue_final_message",
            "continue_final_message and add_generation_prompt exclude each other",
            id="E5-two-ends",
        ),
        pytest.param(
            "chat",
            asking(structured_outputs={"json": {}, "regex": "a"}),
            "structured_outputs",
            "structured_outputs takes one of json, regex",
            id="E5-structured",
        ),
        pytest.param(
            "chat",
            asking(stop="x" * (MAX_STOP_CHARS + 1)),
            "stop",
            "stop string of 1025 characters is over the limit of 1024",
            id="E5-long-stop",
        ),
        pytest.param(
            "chat",
            chunk(chat_request=USER | {"tools": []}),
            "tools",
            "tools must not be an empty list: leave it out instead",
            id="E5-in-a-stream",
        ),
        pytest.param(
            "completion",
            completion(completion_request={"prompt": ""}),
            "prompt",
            "prompt must not be empty",
            id="E6-no-prompt",
        ),
        pytest.param(
            "completion", prompted(logprobs=-2), "logprobs", "logprobs must be -1 or at least 0", id="E6-logprobs"
        ),
        pytest.param(
            "completion",
            prompted(logprob_token_ids=[1]),
            "logprob_token_ids",
            "logprob_token_ids needs logprobs",
            id="E6-ids-without-logprobs",
        ),
        pytest.param(
            "completion",
            prompted(stream_options={"include_usage": True}),
            "stream_options",
            "stream_options is only allowed with stream: true",
            id="E6-stream-options",
        ),
        pytest.param("completion", prompted(n=0), "n", "n must be from 1 to 16384", id="E6-n"),
        pytest.param("completion", prompted(n=10**12), "n", "n must be from 1 to 16384", id="E6-huge-n"),
        pytest.param(
            "completion",
            chunk(completion_request={"prompt": []}),
            "prompt",
            "prompt must not be empty",
            id="E6-in-a-stream",
        ),
    ],
)
def test_rules_of_the_openai_request(endpoint: str, body: Body, param: str, message: str) -> None:
    """E5, E6."""
    assert call(body, endpoint=endpoint) == error(SEMANTIC, param, message)


@pytest.mark.parametrize(
    ("endpoint", "body", "message"),
    [
        pytest.param(
            "chat",
            chat(of={"output_mode": "text"}),
            "output_mode 'text' cannot be derendered: only tokens can",
            id="E1-output-mode",
        ),
        pytest.param(
            "chat",
            chunk(of={"output_mode": "text"}),
            "output_mode 'text' cannot be derendered: only tokens can",
            id="E1-output-mode-stream",
        ),
        pytest.param("completion", {"generate_responses": []}, "generate_responses must not be empty", id="E8-empty"),
        pytest.param(
            "completion", completion(*[response()] * 4), "4 responses are over the limit of 3", id="E9-responses"
        ),
        pytest.param("chat", chat(*[choice()] * 4), "response has 4 choices, over the limit of 3", id="E9-choices"),
        pytest.param("chat", chunk(choice(index=3)), "choice index 3 is over the limit of 3 choices", id="E9-index"),
        pytest.param(
            "chat", chat(choice(LONG)), "choice 0 has 17 token ids, over the model's limit of 16", id="E10-long"
        ),
        pytest.param(
            "completion",
            completion(response(choice(LONG, index=2))),
            "choice 2 has 17 token ids, over the model's limit of 16",
            id="E10-long-completion",
        ),
        pytest.param(
            "chat",
            chat(choice(**logprobs(*[entry()] * 17))),
            "logprobs has 17 entries, over the model's limit of 16",
            id="E11-logprobs",
        ),
        pytest.param(
            "chat",
            chunk(choice(**logprobs(*[entry()] * 17))),
            "logprobs has 17 entries, over the model's limit of 16",
            id="E11-logprobs-stream",
        ),
        pytest.param(
            "chat",
            chat(choice(**logprobs(entry(1, 2, 3)))),
            "a position has 3 logprob candidates, over the limit of 2",
            id="E12-candidates",
        ),
        pytest.param(
            "completion",
            chunk(choice(**logprobs(entry(1, 2, 3)))),
            "a position has 3 logprob candidates, over the limit of 2",
            id="E12-candidates-stream",
        ),
        pytest.param(
            "chat",
            chat(of={"prompt_logprobs": [None] * 17}),
            "prompt_logprobs has 17 entries, over the model's limit of 16",
            id="E13-prompt-logprobs",
        ),
        pytest.param(
            "chat",
            chat(prompt_token_ids=[H] * 17),
            "prompt_token_ids has 17 ids, over the model's limit of 16",
            id="E14-prompt",
        ),
        pytest.param(
            "chat",
            chat(of={"prompt_token_ids": [H] * 17}),
            "prompt_token_ids has 17 ids, over the model's limit of 16",
            id="E14-engine-prompt",
        ),
        pytest.param(
            "completion",
            completion(prompt_token_ids=[[H] * 17]),
            "prompt_token_ids has 17 ids, over the model's limit of 16",
            id="E14-completion",
        ),
        pytest.param(
            "completion",
            chunk(prompt_token_ids=[H] * 17),
            "prompt_token_ids has 17 ids, over the model's limit of 16",
            id="E14-stream",
        ),
        pytest.param("chat", chat(choice(None, index=1)), "choice 1 has no token_ids", id="E16-null"),
        pytest.param(
            "completion",
            completion(response(), response(choice(()))),
            "choice 0 of response 1 has no token_ids",
            id="E16-empty",
        ),
        pytest.param(
            "chat", chunk(choice(), choice(index=1)), "a chunk may hold at most one choice, not 2", id="E19-two-choices"
        ),
        pytest.param(
            "completion",
            chunk(choice(), choice(index=1)),
            "a chunk may hold at most one choice, not 2",
            id="E19-completion",
        ),
        pytest.param(
            "chat",
            chunk(choice((H,) * 8), prompt_token_ids=[H] * 9),
            "9 prompt ids, 0 output ids and 8 new ids are over the model's limit of 16",
            id="E20-prompt-and-new",
        ),
        pytest.param(
            "chat",
            chunk(choice((H,) * 8), stream_state=state(tokens=9, logprob_context=[H] * 4)),
            "1 prompt ids, 9 output ids and 8 new ids are over the model's limit of 16",
            id="E20-history",
        ),
        pytest.param(
            "completion",
            chunk(choice(LONG)),
            "0 prompt ids, 0 output ids and 17 new ids are over the model's limit of 16",
            id="E20-completion",
        ),
        pytest.param(
            "chat",
            chunk(stream_state=state(version=0)),
            "stream_state has version 0; this version reads 1",
            id="E4-version",
        ),
        pytest.param(
            "chat",
            chunk(stream_state=state(fingerprint="0" * 16)),
            "stream_state was written for configuration '0000000000000000', but 'm' is served with"
            f" {SERVED.fingerprint}: model, tokenizer, template or parser options differ",
            id="E4-configuration",
        ),
        pytest.param(
            "chat",
            chunk(stream_state=state(index=1)),
            "stream_state belongs to choice 1, but the chunk is of choice 0",
            id="E4-other-choice",
        ),
        pytest.param(
            "chat",
            chunk(stream_state=state(fingerprint="x" * MAX_STATE_BYTES)),
            f"stream_state is over the limit of {MAX_STATE_BYTES} bytes",
            id="E4-too-large",
        ),
    ],
)
def test_bounds_and_states(endpoint: str, body: Body, message: str) -> None:
    """E4, E8 to E14, E16, E19 to E22."""
    assert call(body, endpoint=endpoint) == error(SEMANTIC, None, message)


@pytest.mark.parametrize(
    "body", [chat(model="x"), completion(model="x"), chunk(model="x")], ids=["chat", "completion", "stream"]
)
def test_e7_unknown_model(body: Body) -> None:
    status, answer = call(body, endpoint="completion" if "generate_responses" in body else "chat")
    message = "model 'x' is not served: use 'm'"
    assert (status, answer) == error(MISSING, "model", message, 404)


@pytest.mark.parametrize("fault", [IndexError, KeyError, AssertionError, ValueError, TypeError, OverflowError])
def test_e21_a_parser_that_stumbles_over_a_state(fault: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def step_(self: object, state: object, pieces: object) -> None:
        raise fault("deep inside")

    monkeypatch.setattr(prepare, "Parser", FakeParser)
    monkeypatch.setattr(FakeParser, "step", step_, raising=False)
    served = support.model(parsers={"reasoning_parser": "qwen3"})
    carried = state(fingerprint=served.fingerprint, parser={})
    body = chunk(chat_request=USER, prompt_token_ids=[1], stream_state=carried)
    assert call(body, served) == error(SEMANTIC, None, "stream_state: parser does not add up for this model's parsers")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            chat(), "chat_request is required: this model has a tool or reasoning parser configured", id="E15"
        ),
        pytest.param(
            chunk(), "chat_request is required: this model has a tool or reasoning parser configured", id="E15-stream"
        ),
        pytest.param(
            chunk(chat_request=USER),
            "prompt_token_ids is required: the model's parser has to know where the prompt ends",
            id="E18",
        ),
    ],
)
def test_rules_of_a_parser(body: Body, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "Parser", FakeParser)
    served = support.model(parsers={"reasoning_parser": "qwen3"})
    assert call(body, served) == error(SEMANTIC, None, message)


@pytest.mark.parametrize(
    ("body", "first"),
    [
        pytest.param(
            chat(choice(None), model="x", chat_request=USER | {"tools": []}), "tools must not", id="E5-before-E7"
        ),
        pytest.param(completion(prompt_tokens=[], model="x"), "prompt_tokens has 0", id="E3-before-E7"),
        pytest.param(
            completion(response(choice(LONG)), prompt_token_ids=[[H] * 17]), "choice 0 has 17", id="E10-before-E14"
        ),
        pytest.param(
            completion(response(choice(())), prompt_token_ids=[[H] * 17]), "prompt_token_ids", id="E14-before-E16"
        ),
        pytest.param(chat(choice(LONG), choice(())), "choice 0 has 17", id="E10-before-E16"),
    ],
)
def test_order_of_the_checks(body: Body, first: str) -> None:
    status, answer = call(body, endpoint="completion" if "generate_responses" in body else "chat")
    assert (status, answer["error"]["message"].startswith(first)) == (400, True)


DEEPER = "deeper than 64 levels"


@pytest.mark.parametrize(
    ("body", "how"),
    [
        pytest.param(b'{"x": ' + b"[" * 100_000, "too deeply", id="never-closed"),
        pytest.param(b'{"generate_response": ' + b"[" * 70 + b"]" * 70 + b"}", DEEPER, id="deep"),
        pytest.param(b'{"x": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001, DEEPER, id="deep-in-an-unknown-field"),
        pytest.param(b'{"x": "\\"' + b"[" * 200 + b'", "y": ' + b"[" * 64 + b"]" * 64 + b"}", DEEPER, id="in-a-string"),
    ],
)
def test_deep_json_is_refused(body: bytes, how: str) -> None:
    status, answer = call(body)
    assert (status, answer["error"]["type"]) == (400, BAD)
    assert answer["error"]["message"] == f"JSON is nested {how}"


def test_wide_json_is_not_deep() -> None:
    body = json.dumps(chat(x=[{"a": ["[[[["] * 3}] * 5_000)).encode()
    assert call(body)[0] == 200


def test_large_payloads_are_refused_unread() -> None:
    with pytest.raises(RequestError) as raised:
        derender_call(lambda name: SERVED, b"x" * 101, created=1, limits=Limits(max_payload_bytes=100))
    assert raised.value.message == "payload of 101 bytes is over the limit of 100 bytes"


def test_messages_are_bounded() -> None:
    status, answer = call(asking(tools=[TOOL], tool_choice="x" * 100_000))
    assert (status, len(answer["error"]["message"])) == (400, 500)
    assert answer["error"]["message"].endswith("x…")


@pytest.mark.parametrize(
    ("raised", "code", "type_"),
    [
        pytest.param(RequestError("m", param="p"), 400, SEMANTIC, id="request"),
        pytest.param(SchemaError("m", param="p"), 400, BAD, id="schema"),
        pytest.param(StateMismatch("m", param="p"), 400, SEMANTIC, id="state"),
        pytest.param(UnknownModel("m", param="p"), 404, MISSING, id="model"),
    ],
)
def test_bodies_of_the_error_classes(raised: RequestError, code: int, type_: str) -> None:
    assert raised.body() == ErrorBody(ErrorInfo("m", type_, "p", code))


def test_a_wrong_grammar_is_nobodys_request() -> None:
    assert not issubclass(GrammarError, RequestError)
    assert issubclass(GrammarError, errors.DerenderError)
