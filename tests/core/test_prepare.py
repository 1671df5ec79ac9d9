"""Requests made ready for their steps: what is refused, and what is read out of them."""

from __future__ import annotations

import pytest

from tests.core import support
from worker.core.errors import RequestError


def test_a_request_may_expect_a_configuration() -> None:
    wanted = support.model().fingerprint
    assert support.request(support.model(), "chat", fingerprint=wanted).model.fingerprint == wanted
    with pytest.raises(RequestError) as raised:
        support.request(support.model(), "chat", fingerprint="x")
    assert raised.value.message == (
        f"the request expects configuration x, but this worker serves 'm' with {wanted}: tokenizer, template or parser"
        " options differ"
    )


def test_prompts_of_both_shapes_at_once_are_refused() -> None:
    with pytest.raises(RequestError) as raised:
        support.request(support.model(), "completion", prompt_token_ids=[1, [2]])
    assert (raised.value.message, raised.value.param) == (
        "prompt_token_ids mixes ids and lists of ids",
        "prompt_token_ids",
    )


def test_calls_of_the_history_are_counted() -> None:
    messages = [
        {"role": "assistant", "tool_calls": [{}, {}]},
        {"role": "user", "tool_calls": [{}]},
        {"role": "assistant", "tool_calls": None},
        {"role": "assistant", "tool_calls": [{}]},
    ]
    assert support.request(support.model(), "chat", chat_request={"messages": messages}).history_calls == 3
