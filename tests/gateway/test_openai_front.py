"""The official `openai` client against gateway, bridge, test engine and worker."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.engine import Generation
from tests.gateway.conftest import MODEL, Stack

pytestmark = [pytest.mark.redis]

MESSAGES = [{"role": "user", "content": "What is 2+2?"}]


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stack.gateway}/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def test_whole_chat(stack: Stack, client: openai.OpenAI) -> None:
    stack.says("It is 4, as Søren says. 🎉")
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=64)
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("It is 4, as Søren says. 🎉", "stop")
    assert answer.usage is not None
    prompt = stack.engine.requests[-1]["token_ids"]
    said = len(stack.ids("It is 4, as Søren says. 🎉"))
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), said)
    assert answer.model == MODEL
    assert answer.id.startswith("chatcmpl-")


def test_streamed_chat_with_usage(stack: Stack, client: openai.OpenAI) -> None:
    stack.says("It is 4, as Søren says. 🎉")
    stream = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "It is 4, as Søren says. 🎉"
    assert [c.choices[0].delta.role for c in chunks if c.choices and c.choices[0].delta.role] == ["assistant"]
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert [c.usage.completion_tokens for c in chunks if c.usage] == [len(stack.ids("It is 4, as Søren says. 🎉"))]
    assert {c.id for c in chunks} == {chunks[0].id}


def test_two_choices_streamed_and_whole(stack: Stack, client: openai.OpenAI) -> None:
    stack.says("The first one.", "And a second, longer one.")
    texts = {0: "", 1: ""}
    for chunk in client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {0: "The first one.", 1: "And a second, longer one."}
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2)
    assert {choice.index: choice.message.content for choice in answer.choices} == texts


def test_a_stop_string_is_found_here_and_closes_the_engine_call(stack: Stack, client: openai.OpenAI) -> None:
    """The engine refuses `stop`, so it never hears of it; the worker cuts the text and the call is closed."""
    stack.says("One, two, three" + ", more" * 500, pause_s=0.005)
    stack.engine.closed.clear()
    stream = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stop=["three"], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "One, two, "
    last = next(c.choices[0] for c in chunks if c.choices and c.choices[0].finish_reason)
    assert (last.finish_reason, last.model_extra) == (
        "stop",
        {"stop_reason": "three", "token_ids": None, "weight_versions": None},
    )
    assert "stop" not in stack.engine.requests[-1]["sampling_params"]
    assert stack.engine.closed == [f"generate-tokens-{chunks[0].id}"]
    assert [c.usage is not None for c in chunks].count(True) == 1


def test_a_stop_string_cuts_a_whole_answer(stack: Stack, client: openai.OpenAI) -> None:
    stack.says("One, two, three, four")
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, stop="three")
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("One, two, ", "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(stack: Stack, client: openai.OpenAI, stream: bool) -> None:
    stack.says("a 🎉")
    asked = {"model": MODEL, "messages": MESSAGES, "logprobs": True, "top_logprobs": 1}
    if stream:
        chunks = client.chat.completions.create(**asked, stream=True)
        entries = [e for c in chunks for choice in c.choices if choice.logprobs for e in choice.logprobs.content or ()]
    else:
        entries = client.chat.completions.create(**asked).choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == "a 🎉<|im_end|>"
    assert {(entry.logprob, len(entry.top_logprobs)) for entry in entries} == {(0.0, 1)}
    assert stack.engine.requests[-1]["sampling_params"]["logprobs"] == 1


def test_completions_whole_and_streamed(stack: Stack, client: openai.OpenAI) -> None:
    stack.says(" and so on")
    whole = client.completions.create(model=MODEL, prompt="Once upon a time", logprobs=0)
    chunks = list(client.completions.create(model=MODEL, prompt="Once upon a time", stream=True))
    assert whole.choices[0].text == "".join(c.choices[0].text for c in chunks) == " and so on"
    assert whole.choices[0].logprobs.tokens == [" and", " so", " on", "<|im_end|>"]
    assert whole.id.startswith("cmpl-")
    assert stack.engine.requests[-1]["sampling_params"] == {"max_tokens": 16}


def test_several_prompts(stack: Stack, client: openai.OpenAI) -> None:
    """Each prompt is an engine call of its own; choices are numbered through, and usage is the sum."""
    prompts = ["ab", "cd"]
    first = stack.ids("ab", eos=False)
    said = {True: [stack.ids(" one"), stack.ids(" two")], False: [stack.ids(" three"), stack.ids(" four")]}
    stack.engine.script = lambda body: Generation(said[body["token_ids"] == first])
    expected = {0: " one", 1: " two", 2: " three", 3: " four"}
    whole = client.completions.create(model=MODEL, prompt=prompts, n=2)
    assert {choice.index: choice.text for choice in whole.choices} == expected
    texts = dict.fromkeys(expected, "")
    usages = []
    for chunk in client.completions.create(
        model=MODEL, prompt=prompts, n=2, stream=True, stream_options={"include_usage": True}
    ):
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == expected
    assert [usage.model_dump() for usage in usages] == [whole.usage.model_dump()]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_closes_the_engine_call(stack: Stack, stream: bool) -> None:
    stack.says("word " * 2000, pause_s=0.01)
    stack.engine.closed.clear()
    body = {"model": MODEL, "messages": MESSAGES, "stream": stream}
    before = len(stack.engine.requests)
    with httpx.Client(timeout=20) as client:
        if stream:
            with client.stream("POST", f"{stack.gateway}/v1/chat/completions", json=body) as answer:
                next(answer.iter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post(f"{stack.gateway}/v1/chat/completions", json=body, timeout=1.0)
    stack.wait(lambda: len(stack.engine.closed) == 1)
    assert len(stack.engine.requests) == before + 1
    assert stack.engine.finished[-1:] != stack.engine.closed


def test_a_client_that_detaches_may_go_away(stack: Stack) -> None:
    stack.says("word " * 50, pause_s=0.01)
    body = {"model": MODEL, "messages": MESSAGES, "stream": True, "detach": True}
    with httpx.Client(timeout=20) as client:
        with client.stream("POST", f"{stack.gateway}/v1/chat/completions", json=body) as answer:
            request_id = answer.headers["x-request-id"]
            next(answer.iter_lines())
        rest = client.get(f"{stack.gateway}/v1/streams/{request_id}").text
    assert rest.endswith("event: done\ndata: [DONE]\n\n")
    assert stack.engine.finished[-1] == f"generate-tokens-{request_id}"


def test_errors_before_the_first_token_have_a_status(stack: Stack, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="'nobody' is not served here"):
        client.chat.completions.create(model="nobody", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError, match="top_logprobs needs logprobs"):
        client.chat.completions.create(model=MODEL, messages=MESSAGES, top_logprobs=2)
    with pytest.raises(openai.BadRequestError, match="Expected `bool"):
        client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"detach": "maybe"})
    refusal = {"error": {"message": "too busy", "type": "TooBusy", "param": None, "code": 429}}
    for stream in (False, True):
        stack.says("x", refuse=(422, {**refusal, "error": {**refusal["error"], "code": 422}}))
        with pytest.raises(openai.UnprocessableEntityError, match="too busy"):
            client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream)


@pytest.mark.parametrize("n", [0, -1, 1025, 20_000, "0"], ids=str)
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_a_number_of_choices_out_of_bounds(stack: Stack, kind: str, n: int | str) -> None:
    """Said in words of the client's request, before a bridge sees it."""
    path, asked = {
        "chat": ("/v1/chat/completions", {"messages": MESSAGES}),
        "completion": ("/v1/completions", {"prompt": "x"}),
    }[kind]
    before = len(stack.engine.requests)
    for stream in (False, True):
        answer = httpx.post(f"{stack.gateway}{path}", json={**asked, "n": n, "stream": stream}, timeout=20)
        error = {"message": "n must be from 1 to 1024", "type": "Bad Request", "param": "n", "code": 400}
        assert (answer.status_code, answer.json()) == (400, {"error": error})
    assert len(stack.engine.requests) == before


def test_what_is_no_json_the_worker_says(stack: Stack) -> None:
    headers = {"content-type": "application/json"}
    for body in (b"{", b'{"n": "x"}', b"\xff", b"[" * 5000):
        answer = httpx.post(f"{stack.gateway}/v1/chat/completions", content=body, headers=headers, timeout=20)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "Bad Request"), body[:20]


def test_a_busy_engine_is_asked_again(stack: Stack, client: openai.OpenAI) -> None:
    answers = iter([(503, {"error": {"message": "starting"}}), None])
    stack.engine.script = lambda _: Generation([stack.ids("ready")], refuse=next(answers))
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert answer.choices[0].message.content == "ready"


def test_an_error_in_mid_stream_reaches_the_client(stack: Stack, client: openai.OpenAI) -> None:
    stack.says("one two three four", error_after=2)
    chunks = iter(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    said = "".join(next(chunks).choices[0].delta.content or "" for _ in range(2))
    with pytest.raises(openai.APIError, match="the engine died"):
        next(chunks)
    assert said == "one two"


def test_an_engine_that_breaks_off_in_mid_stream_is_not_asked_again(stack: Stack, client: openai.OpenAI) -> None:
    stack.says("one two three four", break_after=2)
    before = len(stack.engine.requests)
    with pytest.raises(openai.APIError, match="broke off in mid-stream"):
        list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    assert len(stack.engine.requests) == before + 1


def test_models(stack: Stack, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL, "other-name"]
    stack.says("yes")
    assert client.chat.completions.create(model="other-name", messages=MESSAGES).choices[0].message.content == "yes"
