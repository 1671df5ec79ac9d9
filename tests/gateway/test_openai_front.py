"""The official `openai` client against gateway, bridge, test engine and worker."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest

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
