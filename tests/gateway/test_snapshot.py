"""Many chunks as one: whatever the cut, a client that appends has the same message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.snapshot import Snapshot


def merged(chunks: list[dict[str, Any]]) -> Any:
    snapshot = Snapshot()
    for chunk in chunks:
        snapshot.add(json.dumps(chunk).encode())
    raw = snapshot.chunk()
    return None if raw is None else json.loads(raw)


def chat(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "r", "created": 1, "model": "m", "choices": list(choices), "usage": None, **more}


def delta(index: int = 0, finish: str | None = None, logprobs: Any = None, **fields: Any) -> dict[str, Any]:
    role = fields.pop("role", None)
    whole = {"role": role, "content": None, "reasoning": None, **fields}
    return {"index": index, "delta": whole, "logprobs": logprobs, "finish_reason": finish, "token_ids": None}


def test_nothing_is_nothing() -> None:
    assert merged([]) is None


def test_a_chat_with_reasoning_calls_and_usage() -> None:
    calls = [
        [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"x":'}}],
        [{"index": 0, "function": {"arguments": "1}"}}, {"index": 1, "id": "b", "function": {"name": "g"}}],
        [{"index": 1, "function": {"arguments": "{}"}}],
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    chunks = [
        chat(delta(role="assistant", reasoning="Th"), prompt_token_ids=[1]),
        chat(delta(reasoning="ink", content="Say")),
        chat(delta(1, role="assistant", content="other")),
        *[chat(delta(tool_calls=call)) for call in calls],
        chat(delta(finish="tool_calls")),
        chat(delta(1, finish="length")),
        chat(usage=usage),
    ]
    whole = delta(
        role="assistant",
        reasoning="Think",
        content="Say",
        finish="tool_calls",
        tool_calls=[
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}},
        ],
    )
    other = delta(1, role="assistant", content="other", finish="length")
    found = merged(chunks)
    assert found == chat(whole, other, usage=usage, prompt_token_ids=[1])
    assert list(found)[:4] == ["id", "created", "model", "choices"]


def completion(text: str, ids: list[int], offset: int, finish: str | None = None) -> dict[str, Any]:
    lists = {"text_offset": [offset], "token_logprobs": [-0.5], "tokens": [text], "top_logprobs": [None]}
    choice = {"index": 0, "text": text, "logprobs": lists, "finish_reason": finish, "token_ids": ids}
    return {"id": "r", "object": "text_completion", "model": "m", "choices": [choice]}


def test_a_completion() -> None:
    (choice,) = merged([completion("a", [1], 0), completion("b", [2, 3], 1, "stop")])["choices"]
    assert choice == {
        "index": 0,
        "text": "ab",
        "logprobs": {
            "text_offset": [0, 1],
            "token_logprobs": [-0.5, -0.5],
            "tokens": ["a", "b"],
            "top_logprobs": [None, None],
        },
        "finish_reason": "stop",
        "token_ids": [1, 2, 3],
    }


@pytest.mark.parametrize("name", ["content", "reasoning"])
@given(parts=st.lists(st.text(max_size=3) | st.none(), min_size=1, max_size=12), cut=st.integers(0, 12))
def test_a_snapshot_and_the_rest_say_what_all_chunks_say(name: str, parts: list[str | None], cut: int) -> None:
    """Wherever a reader joins: the snapshot of what was, then the rest."""
    chunks = [chat(delta(**{name: part})) for part in parts]
    early = merged(chunks[:cut])
    late = merged([*([early] if early else []), *chunks[cut:]])
    assert late == merged(chunks)
    text = late["choices"][0]["delta"][name]
    assert text == ("".join(part or "" for part in parts) if any(part is not None for part in parts) else None)
