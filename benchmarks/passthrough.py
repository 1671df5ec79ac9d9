"""The yardstick: a session that derenders nothing. Loop, batches, scripts and keys stay those of the real worker.

Each event is copied undecoded into its reply, beside a constant state of the size that the real one has; only the end
of a stream is looked for, by a search in the bytes.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from schemas import keys
from schemas.state import RequestState
from worker.core.prepare import PreparedRequest
from worker.core.session import Entry, Open, Outcome, Reply, Session

STATE_BYTES = 150
"""Size of a choice's encoded state on the plain path; of a request's it is REQUEST_BYTES."""

REQUEST_BYTES = 300
END = b'"finish_reason":"'

_CHOICE = b'{"pad":"' + b"x" * (STATE_BYTES - 10) + b'"}'
_ACTIVE = b'{"active":%d,"pad":"' % (2**52)  # never idle
_REQUEST = cast(RequestState, msgspec.Raw(_ACTIVE + b"x" * (REQUEST_BYTES - len(_ACTIVE) - 2) + b'"}'))
"""Encoded by copying, as every other state is encoded once per batch."""


class Passthrough(Session):
    """Folds entries into copies of themselves. Counts replies, as a reply's entry id needs its number."""

    def __init__(self) -> None:
        self._replies: dict[bytes, int] = {}

    def fold(self, entry: Entry, opened: Open | None, status: str | None) -> Outcome:
        fields = entry.fields
        id_ = fields[keys.REQUEST]
        if keys.RESPONSE in fields:
            reply = Reply(1, {keys.RESPONSE: fields[keys.RESPONSE], keys.DONE: b"finished"})
            return Outcome(replies=[reply], closed=keys.STATUS_FINISHED)
        if keys.OPEN in fields:
            self._replies[id_] = 0
            return Outcome(open=_open(), opened=fields[keys.OPEN])
        number = self._replies[id_] = self._replies[id_] + 1
        payload = fields[keys.CHUNK]
        reply = Reply(number, {keys.CHUNK: payload, keys.INDEX: b"0", keys.STREAM_STATE: _CHOICE})
        if END in payload:
            reply.fields[keys.DONE] = b"finished"
            del self._replies[id_]
            return Outcome(replies=[reply], closed=keys.STATUS_FINISHED)
        return Outcome(open=_open(), replies=[reply])


def _open() -> Open:
    return Open(_REQUEST, cast(PreparedRequest, cast(Any, None)))
