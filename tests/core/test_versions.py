"""States of the previous version: understood by its function, or refused; never read as what they are not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import state as schema
from schemas.state import RequestState, StreamState
from tests.conftest import DATA
from worker.core import step, versions
from worker.core.calls import derender_call
from worker.core.errors import StateMismatch
from worker.settings import ModelSettings
from worker.tokenizer_cache import load_model

CHOICE = StreamState(version=1, fingerprint="f", index=0, tokens=3)
STATE = RequestState(version=1, digest="d", created=5, active=6, replies=2, choices={0: CHOICE})


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def members(value: Any) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.json.decode(encoded(value))
    return result


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that calls `tokens` of a choice what version 1 called `seen`, and `replies` what it called `sent`."""
    monkeypatch.setattr(schema, "STATE_VERSION", 2)
    monkeypatch.setattr(schema, "REQUEST_STATE_VERSION", 2)
    monkeypatch.setattr(versions, "STREAM_UPGRADES", {1: lambda old: renamed(old, "seen", "tokens")})
    monkeypatch.setattr(versions, "REQUEST_UPGRADES", {1: lambda old: renamed(old, "sent", "replies")})


def renamed(old: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    value = old.pop(before)
    return {**old, "version": 2, after: value}


def previous(state: RequestState) -> dict[str, Any]:
    old = members(state)
    old["sent"] = old.pop("replies")
    for choice in old["choices"].values():
        choice["seen"] = choice.pop("tokens")
    return old


def test_current_version_is_read_as_it_was_written() -> None:
    assert versions.read_request_state(encoded(STATE)) == STATE
    raw = encoded(CHOICE)
    assert versions.current_stream_state(raw) is raw


@pytest.mark.usefixtures("next_version")
def test_previous_version_is_upgraded() -> None:
    choice = msgspec.structs.replace(CHOICE, version=2)
    expected = msgspec.structs.replace(STATE, version=2, choices={0: choice})
    assert versions.read_request_state(encoded(previous(STATE))) == expected
    old = previous(STATE)["choices"]["0"]
    assert versions.current_stream_state(encoded(old)) == encoded(choice)


@pytest.mark.usefixtures("next_version")
def test_old_choice_in_a_current_request_is_upgraded() -> None:
    """What a worker leaves that upgraded a request and has stepped one of its two choices."""
    new = msgspec.structs.replace(STATE, version=2, choices={1: msgspec.structs.replace(CHOICE, version=2)})
    stored = members(new)
    stored["choices"]["0"] = previous(STATE)["choices"]["0"]
    choice = msgspec.structs.replace(CHOICE, version=2)
    assert versions.read_request_state(encoded(stored)).choices == {0: choice, 1: choice}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 0}, "stored state has version 0, this worker reads 1"),
        ({"version": 2}, "stored state has version 2, this worker reads 1"),
        ({"version": None}, "stored state has no version"),
        ({"version": True}, "stored state has no version"),
        ({"colour": 1}, "stored state cannot be read: Object contains unknown field `colour`"),
        ({"choices": {"0": {"version": 0}}}, "stored state of choice 0 has version 0, this worker reads 1"),
        ({"choices": {"0": 7}}, "stored state of choice 0 has no version"),
        ({"choices": 3}, "stored state cannot be read: Expected `object`, got `int` - at `$.choices`"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_everything_else_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StateMismatch) as caught:
        versions.read_request_state(encoded({**members(STATE), **change}))
    assert caught.value.message == message


@pytest.mark.usefixtures("next_version")
def test_after_an_upgrade_two_versions_are_readable_and_no_third() -> None:
    with pytest.raises(StateMismatch) as caught:
        versions.read_request_state(encoded({**members(STATE), "version": 0}))
    assert caught.value.message == "stored state has version 0, this worker reads 1 and 2"


@pytest.mark.parametrize("raw", [b"", b"7", b"\xff", b"[" * 100_000], ids=["empty", "number", "bytes", "deep"])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(StateMismatch, match=r"^stored state cannot be read: "):
        versions.read_request_state(raw)
    assert versions.current_stream_state(raw) is raw


@pytest.mark.usefixtures("next_version")
def test_an_upgrade_that_leaves_a_wrong_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "STREAM_UPGRADES", {1: lambda old: {**old, "version": 2}})
    with pytest.raises(StateMismatch, match="unknown field `seen`"):
        versions.read_request_state(encoded(previous(STATE)))


def test_a_client_s_state_of_the_previous_version_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose client carries the state through an upgrade: the second call answers as without one."""
    model = load_model(ModelSettings(tokenizer=str(DATA / "smollm2")))

    def call(state: Any, *ids: int) -> Any:
        chunk = {"choices": [{"index": 0, "token_ids": ids}]}
        body = {"stream": True, "generate_chunk": chunk, "stream_state": state, "request_id": "r"}
        return msgspec.json.decode(derender_call(lambda _: model, encoded(body), created=1))

    first = call(None, 19556, 28)
    without = call(first["stream_state"], 905, 17)
    monkeypatch.setattr(schema, "STATE_VERSION", 2)
    monkeypatch.setattr(step, "STATE_VERSION", 2)
    with pytest.raises(StateMismatch, match="version 1"):
        call(first["stream_state"], 905, 17)
    monkeypatch.setattr(versions, "STREAM_UPGRADES", {1: lambda old: {**old, "version": 2}})
    upgraded = call(first["stream_state"], 905, 17)
    assert upgraded["chunk"] == without["chunk"]
    assert upgraded["stream_state"]["version"] == 2
