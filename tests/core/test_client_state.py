"""A state from a client: each field that contradicts the others is refused, with a message that names it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from schemas.state import DecodeState, HeldCall, ParserState, StreamState
from tests.core import support
from tests.core.bodies import FakeParser
from tests.core.support import id_of
from worker.core import client_state, prepare
from worker.core.assemble import MAX_HELD_CALL
from worker.core.client_state import check_client_state
from worker.core.errors import StateMismatch
from worker.core.events import TEXT
from worker.core.prepare import PreparedRequest

MESSAGES: dict[str, Any] = {"messages": [], "stop": ["END", "xyz"]}
BYTES = support.byte_level()
MARK = id_of(BYTES, "<mark>")


def request(kind: str = "chat") -> PreparedRequest:
    served = support.model(limits={"max_model_len": 100})
    return support.request(served, kind, **{f"{kind}_request": MESSAGES | {"prompt": "p"}})


def state(of: PreparedRequest, **fields: Any) -> StreamState:
    base: dict[str, Any] = {"index": 0, "tokens": 2, "role_sent": True, "logprob_context": (1, 2)}
    return StreamState(version=1, fingerprint=of.model.fingerprint, **(base | fields))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="as-it-was-written"),
        pytest.param(
            {"index": None, "tokens": 0, "role_sent": False, "logprob_context": (), "prompt": 7}, id="prompt-only"
        ),
        pytest.param({"tokens": 0, "logprob_context": ()}, id="role-only"),
        pytest.param({"finish": "stop", "stopped": True, "tokens": 90}, id="stopped-and-counting-on"),
        pytest.param({"finish": "length", "tokens": 90}, id="finished"),
        pytest.param({"decode": DecodeState(pending=b"\xe2", held="a")}, id="half-a-character"),
        pytest.param({"stop_begun": (0, 2)}, id="begun"),
        pytest.param({"id": "req-1", "created": 5}, id="carried"),
    ],
)
def test_honest_states_pass(fields: dict[str, Any]) -> None:
    of = request()
    check_client_state(of, state(of, **fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"index": None}, "fields of a choice are set, but no index", id="no-index"),
        pytest.param({"role_sent": False}, "index is set, but role_sent is not", id="no-role"),
        pytest.param({"prompt": 101}, "prompt is 101, over the model's limit of 100", id="prompt"),
        pytest.param({"tokens": 1}, "logprob_context has 2 ids after 1 tokens", id="context-too-long"),
        pytest.param({"tokens": 3}, "logprob_context has 2 ids after 3 tokens", id="context-too-short"),
        pytest.param({"text_offset": 1}, "text_offset is set, but only completions count it", id="offset-of-a-chat"),
        pytest.param(
            {"tokens": 0, "logprob_context": (), "decode": DecodeState(pending=b"\xe2")},
            "decode holds text, but tokens is 0",
            id="text-of-nothing",
        ),
        pytest.param(
            {"finish": "stop", "decode": DecodeState(pending=b"\xe2")},
            "finish is 'stop', but something is still held",
            id="held-after-the-end",
        ),
        pytest.param({"stopped": True}, "stopped is set, but finish is not stop", id="stopped-while-open"),
        pytest.param(
            {"stopped": True, "finish": "length"}, "stopped is set, but finish is not stop", id="stopped-length"
        ),
        pytest.param(
            {"stop_begun": (2, 1)}, "stop_begun is no beginning of a stop string of this request", id="no-string"
        ),
        pytest.param({"stop_begun": (0, 3)}, "stop_begun is no beginning of a stop string of this request", id="whole"),
        pytest.param({"stop_begun": (0, 0)}, "stop_begun is no beginning of a stop string of this request", id="none"),
        pytest.param(
            {"stop_begun": (0, 1), "stop_held": (("E", TEXT),)},
            "stop_begun is no beginning of a stop string of this request",
            id="both-forms",
        ),
        pytest.param(
            {"stop_held": (("E", TEXT),)},
            "stop_held is set, but this request holds no tokens for a stop string",
            id="pieces-without-a-parser",
        ),
        pytest.param(
            {"decode": DecodeState(pending=b"\xff")},
            "decode.pending is not the beginning of one UTF-8 character",
            id="decode",
        ),
        pytest.param({"id": "a b"}, "id is none that this server gives", id="id"),
    ],
)
def test_what_does_not_add_up(fields: dict[str, Any], message: str) -> None:
    of = request()
    with pytest.raises(StateMismatch) as raised:
        check_client_state(of, state(of, **fields))
    assert raised.value.message == "stream_state: " + message


@pytest.mark.parametrize(
    "fields",
    [{"parser": ParserState()}, {"calls": 1}, {"call_done": True}, {"call_open": True}, {"call_held": HeldCall("f")}],
    ids=str,
)
def test_a_parsers_fields_need_a_parser(fields: dict[str, Any]) -> None:
    of = request()
    with pytest.raises(StateMismatch) as raised:
        check_client_state(of, state(of, **fields))
    assert raised.value.message == "stream_state holds a parser's state, but this request runs no parser"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"calls": 3}, "3 calls after 2 tokens", id="calls"),
        pytest.param({"call_open": True}, "call_open is set, but calls is 0", id="open"),
        pytest.param(
            {"call_held": HeldCall("f", None, "x" * (MAX_HELD_CALL + 1))},
            f"call_held has {MAX_HELD_CALL + 1} characters, over the limit of {MAX_HELD_CALL}",
            id="held",
        ),
        pytest.param(
            {"stop_held": (("E", MARK),)}, "stop_held has a text that is not the one of its id", id="forged-token"
        ),
        pytest.param(
            {"stop_held": (("x" * 10, TEXT),)},
            "stop_held has 10 characters, but 9 at most and no empty ones",
            id="too-much",
        ),
        pytest.param(
            {"stop_held": (("<mark>", MARK), ("", TEXT))},
            "stop_held has 6 characters, but 9 at most and no empty ones",
            id="empty-piece",
        ),
    ],
)
def test_with_a_parser(fields: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "Parser", FakeParser)
    of = support.request(support.model(parsers={"reasoning_parser": "qwen3"}), "chat", chat_request=MESSAGES)
    check_client_state(of, state(of, stop_held=(("<mark>", MARK),), calls=1, call_open=True))
    with pytest.raises(StateMismatch) as raised:
        check_client_state(of, state(of, **fields))
    assert raised.value.message == "stream_state: " + message


def test_every_field_is_looked_at() -> None:
    """A field that is added to the state needs a rule here, or a reason to be free."""
    free = {"version", "fingerprint"}  # `check_state`
    source = inspect.getsource(client_state)
    unchecked = {name for name in StreamState.__struct_fields__ if f"state.{name}" not in source} - free
    assert unchecked == {"created"}  # any number of seconds will do: it is only said again
