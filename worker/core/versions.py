"""Stored states of this version and of the one before, so that a rolling upgrade finishes open streams. Pure.

Raising `STATE_VERSION` or `REQUEST_STATE_VERSION` needs one function here, from the members that the previous version
wrote to those of the new one. A state of any other version is refused with an error that names both numbers; none is
ever read as what it is not, because members that are unknown are refused and the version is always compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from schemas import state as schema
from schemas.state import RequestState, StreamState
from worker.core.errors import StateMismatch

T = TypeVar("T")

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Members of a state as its JSON says them -> those of the next version, `version` included."""

STREAM_UPGRADES: Mapping[int, Upgrade] = {}
"""By the version that wrote the state. Only `STATE_VERSION - 1` is looked up: drop what is older."""

REQUEST_UPGRADES: Mapping[int, Upgrade] = {}
"""The same for `RequestState`; its choices are upgraded by the table above."""

_encode = msgspec.json.Encoder().encode
_request_decoder = msgspec.json.Decoder(RequestState)
_stream_decoder = msgspec.json.Decoder(StreamState)
_object_decoder = msgspec.json.Decoder(dict[str, Any])


class _Version(msgspec.Struct):
    version: Any = None


_version_decoder = msgspec.json.Decoder(_Version)


def read_request_state(raw: bytes) -> RequestState:
    """The state of an open request as it was stored. Raises StateMismatch."""
    try:
        state = _request_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        state = None  # perhaps one of another version
    if (
        state is not None
        and state.version == schema.REQUEST_STATE_VERSION
        and all(choice.version == schema.STATE_VERSION for choice in state.choices.values())
    ):
        return state
    members = _members(raw, "stored state")
    members = _upgraded(members, schema.REQUEST_STATE_VERSION, REQUEST_UPGRADES, "stored state")
    choices = members.get("choices")
    if isinstance(choices, dict):
        members["choices"] = {
            index: _upgraded(choice, schema.STATE_VERSION, STREAM_UPGRADES, f"stored state of choice {index}")
            for index, choice in choices.items()
        }
    return _decoded(_request_decoder, members, "stored state")


def current_stream_state(raw: bytes) -> bytes:
    """JSON of a client-carried state, upgraded where the previous version wrote it. Raises StateMismatch."""
    try:
        version = _version_decoder.decode(raw).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw  # no object: whoever decodes it says what is wrong
    if version != schema.STATE_VERSION - 1 or version not in STREAM_UPGRADES:
        return raw
    members = _upgraded(_members(raw, "stream_state"), schema.STATE_VERSION, STREAM_UPGRADES, "stream_state")
    return _encode(_decoded(_stream_decoder, members, "stream_state"))


def _members(raw: bytes, what: str) -> dict[str, Any]:
    try:
        return _object_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StateMismatch(f"{what} cannot be read: {error}") from None


def _upgraded(members: Any, current: int, upgrades: Mapping[int, Upgrade], what: str) -> dict[str, Any]:
    version = members.get("version") if isinstance(members, dict) else None
    if type(version) is not int:
        raise StateMismatch(f"{what} has no version")
    if version == current:
        return dict(members)
    upgrade = upgrades.get(version)
    if version != current - 1 or upgrade is None:
        raise StateMismatch(f"{what} has version {version}, this worker reads {_readable(current, upgrades)}")
    return upgrade(dict(members))


def _readable(current: int, upgrades: Mapping[int, Upgrade]) -> str:
    return f"{current - 1} and {current}" if current - 1 in upgrades else str(current)


def _decoded(decoder: msgspec.json.Decoder[T], members: dict[str, Any], what: str) -> T:
    try:
        return decoder.decode(_encode(members))
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateMismatch(f"{what} cannot be read: {error}") from None
