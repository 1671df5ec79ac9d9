"""The value of the `open` hash: pinned, so that a change of the stored form is seen in review."""

from __future__ import annotations

import msgspec
import pytest

from schemas.state import REQUEST_STATE_VERSION, RequestState, StreamState

EXAMPLE = RequestState(
    version=REQUEST_STATE_VERSION,
    digest="0123456789abcdef",
    created=1700000000,
    active=1700000000123,
    prompts=2,
    n=1,
    replies=7,
    seq=9,
    usage_due=True,
    reply_to="gw",
    choices={1: StreamState(version=1, fingerprint="f", index=1, tokens=3)},
    prompt_tokens=11,
)
STORED = (
    b'{"version":1,"digest":"0123456789abcdef","created":1700000000,"active":1700000000123,"prompts":2,"replies":7,'
    b'"seq":9,"usage_due":true,"reply_to":"gw","choices":{"1":{"version":1,"fingerprint":"f","index":1,"tokens":3}},'
    b'"prompt_tokens":11}'
)


def test_stored_form_is_pinned() -> None:
    assert msgspec.json.encode(EXAMPLE) == STORED
    assert msgspec.json.decode(STORED, type=RequestState) == EXAMPLE


@pytest.mark.parametrize(
    "stored",
    [STORED[:-1] + b',"new":1}', STORED.replace(b'"active":1700000000123', b'"active":-1'), b"{}"],
    ids=["unknown field", "negative time", "empty"],
)
def test_what_does_not_add_up_is_refused(stored: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(stored, type=RequestState)
