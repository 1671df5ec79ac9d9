"""Tools through the `openai` client: a model with reasoning and tool parsers, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.conftest import RedisServer
from tests.gateway.conftest import MODEL, Stack, stack_of
from worker.core.model import ParserConfig

pytestmark = [pytest.mark.redis]

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]
MESSAGES: list[Any] = [{"role": "user", "content": "How is the weather in Zürich and in Oslo?"}]
SAID = (
    "<think>\nTwo cities.\n</think>\n\nI look.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich", "days": 2}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
)


@pytest.fixture(scope="module")
def stack(own_redis: RedisServer) -> Iterator[Stack]:
    parsers = ParserConfig(tool_call_parser="hermes", reasoning_parser="qwen3", enable_auto_tool_choice=True)
    with stack_of(own_redis, parsers=parsers) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stack.gateway}/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def calls(found: list[Any]) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in found]


EXPECTED = [("weather", {"city": "Zürich", "days": 2}), ("weather", {"city": "Oslo"})]


def test_whole(stack: Stack, client: openai.OpenAI) -> None:
    stack.says(SAID)
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert (choice.message.model_extra or {})["reasoning"].strip() == "Two cities."
    assert (choice.message.content or "").strip() == "I look."
    assert calls(choice.message.tool_calls or []) == EXPECTED
    assert len({call.id for call in choice.message.tool_calls or []}) == 2


def test_streamed_through_the_client_s_own_accumulator(stack: Stack, client: openai.OpenAI) -> None:
    """The client's stream helper puts the deltas together; the sum is the whole message."""
    stack.says(SAID)
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, tools=TOOLS) as stream:
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    assert (choice.message.content or "").strip() == "I look."
    assert calls(choice.message.tool_calls or []) == EXPECTED


def test_the_answers_of_tools_are_rendered(stack: Stack, client: openai.OpenAI) -> None:
    """A second turn: earlier calls and their results go through the chat template."""
    stack.says("<think></think>Sunny.")
    turns = [
        *MESSAGES,
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    ]
    answer = client.chat.completions.create(model=MODEL, messages=turns, tools=TOOLS)
    assert answer.choices[0].message.content == "Sunny."
    prompt = stack.models.default.vocabulary.decode(stack.engine.requests[-1]["token_ids"])
    assert prompt.endswith("<|im_start|>tool\nsun<|im_end|>\n<|im_start|>assistant\n")
