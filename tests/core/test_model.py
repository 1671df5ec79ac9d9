"""A served model: what its fingerprint covers, and when its parsers run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import support


def test_the_fingerprint_is_of_the_configuration() -> None:
    base = support.model()
    others = [
        support.model(name="other"),
        support.model(support.stripping(), eos_token_id=1),
        support.model(model_type="x"),
        support.model(template_digest="x"),
        support.model(parsers={"stop_scope": "content"}),
        support.model(parsers={"default_chat_template_kwargs": {"enable_thinking": False}}),
    ]
    assert len({base.fingerprint, *(one.fingerprint for one in others)}) == len(others) + 1
    assert base.fingerprint == support.model().fingerprint


@pytest.mark.parametrize(
    ("parsers", "active"),
    [
        pytest.param({}, False, id="none"),
        pytest.param({"reasoning_parser": "qwen3"}, True, id="reasoning"),
        pytest.param({"tool_call_parser": "hermes"}, False, id="S29-tool-parser-without-auto-choice"),
        pytest.param({"tool_call_parser": "hermes", "enable_auto_tool_choice": True}, True, id="S29-tool-parser"),
        pytest.param({"enable_auto_tool_choice": True}, False, id="auto-choice-alone"),
    ],
)
def test_when_a_parser_runs(parsers: dict[str, Any], active: bool) -> None:
    assert support.model(parsers=parsers).parsers.active is active
