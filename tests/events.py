"""Events of an engine, as a producer puts them on a stream."""

from __future__ import annotations

import json
from typing import Any


def chunk(*ids: int, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """JSON of an event with ids of one choice. more: further members of the event."""
    choice = {"index": index, "token_ids": ids, "finish_reason": finish}
    return json.dumps({"choices": [choice], **more}).encode()
