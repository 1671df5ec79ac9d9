"""Decoding of JSON from outside, and paths of errors. The rules themselves: `test_errors.py`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas.openai import ChatRequest, CompletionRequest
from tests.core.bodies import TOOL
from worker.core import validate
from worker.core.errors import SchemaError
from worker.core.model import Limits


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    number: int


class Outer(msgspec.Struct):
    one: Inner | None = None
    many: list[list[Inner]] = []
    named: dict[str, Inner] = {}


_decoder = msgspec.json.Decoder(Outer)


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        pytest.param(b"3", "body", "body: Expected `object`, got `int`", id="root"),
        pytest.param(
            b'{"one": {"number": "x"}}', "body.one.number", "body.one.number: Expected `int`, got `str`", id="field"
        ),
        pytest.param(
            b'{"many": [[], [{"number": 1}, {}]]}',
            "body.many.1.1.number",
            "body.many.1.1.number: Object missing required field `number`",
            id="missing-in-a-list",
        ),
        pytest.param(
            b'{"one": {"number": 1, "x": 2}}',
            "body.one.x",
            "body.one.x: Object contains unknown field `x`",
            id="unknown",
        ),
        pytest.param(
            b'{"named": {"k": 3}}',
            "body.named....",
            "body.named....: Expected `object`, got `int`",
            id="any-key-of-a-map",
        ),
    ],
)
def test_paths(data: bytes, path: str, message: str) -> None:
    with pytest.raises(SchemaError) as raised:
        validate.decode(_decoder, data, Limits())
    assert (raised.value.param, raised.value.message) == (path, message)


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + closing * depth


@pytest.mark.parametrize(
    ("data", "deep"),
    [
        pytest.param(nested(4), False, id="at-the-limit"),
        pytest.param(nested(5), True, id="over-it"),
        pytest.param(b'{"a":' * 4 + b"1" + b"}" * 4, False, id="objects-at-the-limit"),
        pytest.param(b'{"a":[' * 2 + b'{"b":1}' + b"]}" * 2, True, id="mixed-over-it"),
        pytest.param(b"[" + b"[[[]]]," * 50 + b"[]]", False, id="wide"),
        pytest.param(b'["' + b"[" * 50 + b'"]', False, id="in-a-string"),
        pytest.param(b'["\\"' + b"[" * 50 + b'"]', False, id="after-an-escaped-quote"),
        pytest.param(b'["\\\\", ' + nested(4) + b"]", True, id="after-an-escaped-backslash"),
        pytest.param(b"[" * 50, False, id="unbalanced-is-for-the-decoder"),
    ],
)
def test_depth(data: bytes, deep: bool) -> None:
    if not deep:
        validate.check_depth(data, 4)
        return
    with pytest.raises(SchemaError) as raised:
        validate.check_depth(data, 4)
    assert raised.value.message == "JSON is nested deeper than 4 levels"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="nothing-asked"),
        pytest.param({"tool_choice": None}, id="null-choice-without-tools"),
        pytest.param({"tool_choice": "none"}, id="none-without-tools"),
        pytest.param({"tools": [TOOL], "tool_choice": "required"}, id="required"),
        pytest.param({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, id="named"),
        pytest.param({"logprobs": True, "top_logprobs": -1}, id="all-candidates"),
        pytest.param({"top_logprobs": None}, id="null-is-zero"),
        pytest.param({"stream": True, "stream_options": {}}, id="stream-options"),
        pytest.param({"prompt_logprobs": 1}, id="prompt-logprobs"),
        pytest.param({"continue_final_message": True, "add_generation_prompt": False}, id="one-end"),
        pytest.param({"structured_outputs": {"json": {}, "regex": None}}, id="one-kind"),
        pytest.param({"stop": ["a", ""]}, id="stop"),
    ],
)
def test_chat_requests_that_pass(fields: dict[str, Any]) -> None:
    validate.check_chat(msgspec.convert({"messages": []} | fields, ChatRequest))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"prompt": "p"}, id="text"),
        pytest.param({"prompt": [[1, 2]]}, id="ids"),
        pytest.param({"prompt_embeds": "x"}, id="embeds"),
        pytest.param({"prompt": "p", "logprobs": -1}, id="all-candidates"),
        pytest.param({"prompt": "p", "n": 16_384}, id="n"),
    ],
)
def test_completion_requests_that_pass(fields: dict[str, Any]) -> None:
    validate.check_completion(msgspec.convert(fields, CompletionRequest))
