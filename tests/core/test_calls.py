"""The four self-contained requests: their answers. Their errors: `test_errors.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.bodies import (
    SERVED,
    Body,
    H,
    J,
    call,
    chat,
    choice,
    chunk,
    completion,
    logprobs,
)
from tests.core.golden_runner import CREATED
from worker.core.calls import derender_call

# --- answers ----------------------------------------------------------------------------------------------------------


def texts(answer: Body) -> list[str]:
    return [one.get("text", one.get("message", {}).get("content")) for one in answer["choices"]]


@pytest.mark.parametrize(
    ("endpoint", "body", "object_"),
    [
        pytest.param(None, chat(), "chat.completion", id="chat-by-shape"),
        pytest.param(None, completion(), "text_completion", id="completion-by-shape"),
        pytest.param(None, chunk(completion_request={"prompt": "p"}), "text_completion.chunk", id="stream-by-shape"),
        pytest.param(None, chunk(), "chat.completion.chunk", id="stream-else-chat"),
        pytest.param(None, chunk(endpoint="completion"), "text_completion.chunk", id="body-says"),
        pytest.param("/v1/completions/derender", chunk(endpoint="chat"), "text_completion.chunk", id="path-wins"),
        pytest.param("/v1/chat/completions/derender", chat(), "chat.completion", id="path"),
    ],
)
def test_endpoints(endpoint: str | None, body: Body, object_: str) -> None:
    answer = json.loads(derender_call(lambda name: SERVED, json.dumps(body).encode(), created=1, endpoint=endpoint))
    assert answer.get("object", answer.get("chunk", {}).get("object")) == object_.replace(
        "text_completion.chunk", "text_completion"
    )
    assert ("chunk" in answer) == object_.endswith("chunk")


def test_default_endpoint_yields_to_the_body() -> None:
    def object_of(body: Body) -> str:
        raw = json.dumps(body).encode()
        answer = json.loads(derender_call(lambda name: SERVED, raw, created=1, default_endpoint="completion"))
        return str(answer["chunk"]["object"])

    assert (object_of(chunk()), object_of(chunk(endpoint="chat"))) == ("text_completion", "chat.completion.chunk")


@pytest.mark.parametrize(
    ("body", "id_", "created"),
    [
        pytest.param(chat(), "gen", CREATED, id="engine"),
        pytest.param(chat(of={"request_id": None}, request_id="mine", created=5), "mine", 5, id="body"),
        pytest.param(chat(request_id="mine"), "gen", CREATED, id="engine-wins"),
    ],
)
def test_id_and_created(body: Body, id_: str, created: int) -> None:
    answer = call(body)[1]
    assert (answer["id"], answer["created"]) == (id_, created)


def test_without_any_id_a_retry_gets_the_same() -> None:
    body = chat(of={"request_id": None})
    first, again = call(body)[1], call(body)[1]
    assert (first, len(first["id"])) == (again, 16)
    assert call(body | {"x": 1})[1]["id"] != first["id"]


def test_a_stream_keeps_its_id_and_time() -> None:
    nameless = {"request_id": None}
    _, first = call(chunk(of=nameless, request_id="mine", created=5))
    _, second = call(chunk(choice((H,), finish_reason="length"), of=nameless, stream_state=first["stream_state"]))
    assert [(one["chunk"]["id"], one["chunk"]["created"]) for one in (first, second)] == [("mine", 5)] * 2


def test_unknown_fields_and_numbers_in_strings_are_accepted() -> None:
    body = {"new": {"a": 1}} | chat(choice(["104"], new=1), choice((J,), index="1"), of={"new": 1}, prompt_tokens="3")
    body["generate_response"]["choices"][0]["token_ids"] = [str(H)]
    status, answer = call(body)
    assert (status, texts(answer), answer["usage"]["prompt_tokens"]) == (200, ["h", "i"], 3)


def test_choices_of_the_same_index_keep_it() -> None:
    """A batch may repeat an index; each choice is derendered alone, as the reference does."""
    answer = call(chat(choice(), choice((J,))))[1]
    assert [one["index"] for one in answer["choices"]] == [0, 0]
    assert texts(answer) == ["hi", "i"]


def test_no_choices_is_an_empty_answer() -> None:
    body = {"generate_response": {"request_id": "gen", "choices": []}}
    status, answer = call(body)
    assert (status, answer["choices"], answer["usage"]["total_tokens"]) == (200, [], 0)


def test_both_generations_of_logprobs_agree() -> None:
    def answered(name: str, value: Any) -> Any:
        top = [{name: value(H), "logprob": -1}, {name: value(J), "logprob": -2}]
        return call(chat(choice(**logprobs({name: value(H), "logprob": -1, "top_logprobs": top}))))[1]["choices"]

    assert answered("token_id", int) == answered("token", "token_id:{}".format)


def test_usage_details_of_an_engine_are_not_passed_on() -> None:
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    answer = call(chunk(of={"usage": usage}))[1]["chunk"]["usage"]
    assert answer == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
