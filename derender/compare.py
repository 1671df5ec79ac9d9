"""Two runs of the same recording, compared: which request, which reply, which field.

A run is kept as JSON lines, one request a line. What differs between any two runs is left out: `created`, and ids that
are made from the request's published id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from derender.words import count
from gateway.snapshot import Snapshot
from producer.read import Reply

MAX_SHOWN = 50
MAX_TEXT = 80

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Answer = dict[str, Any]
"""One reply: `chunk`, `response` or `error`, and `done` on the last one."""

Run = dict[str, list[Answer]]
"""Recorded request id -> its replies."""


class _Line(msgspec.Struct):
    request_id: str
    replies: list[Answer]


_line_decoder = msgspec.json.Decoder(_Line)


def run_of(replies: Iterable[tuple[str, Sequence[Reply]]]) -> Run:
    """A run, ready to be kept or compared. replies: by recorded request id."""
    return {request_id: list(_answers(request_id, of)) for request_id, of in replies}


def _answers(request_id: str, replies: Sequence[Reply]) -> Iterator[Answer]:
    calls: dict[str, str] = {}
    for reply in replies:
        kind = "chunk" if reply.chunk else "response" if reply.response else "error"
        body = _decode(reply.data)
        if kind != "error":
            body.pop("created", None)
            body["id"] = request_id
            for choice in body.get("choices", ()):
                for call in (choice.get("delta") or choice.get("message") or {}).get("tool_calls") or ():
                    if call.get("id"):
                        call["id"] = calls.setdefault(call["id"], f"call {len(calls)}")
        yield {kind: body} | ({"done": reply.done} if reply.done else {})


def write_run(path: Path, run: Run) -> None:
    with path.open("wb") as out:
        for request_id, replies in run.items():
            out.write(_encode(_Line(request_id, replies)) + b"\n")


def read_run(path: Path) -> Run:
    """Raises OSError, ValueError with the line that is wrong."""
    run: Run = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                decoded = _line_decoder.decode(line)
            except msgspec.DecodeError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            run[decoded.request_id] = decoded.replies
    return run


def report(expected: Run, found: Run, out: TextIO) -> int:
    """Write what differs; returns the number of requests that do."""
    shown = wrong = 0
    for request_id in {**expected, **found}:
        lines = list(differences(expected.get(request_id), found.get(request_id)))
        wrong += bool(lines)
        for line in lines[: max(0, MAX_SHOWN - shown)]:
            out.write(f"{request_id}: {line}\n")
        shown += len(lines)
    if shown > MAX_SHOWN:
        out.write(f"… and {count(shown - MAX_SHOWN, 'more difference')}\n")
    total = len({**expected, **found})
    answer = count(total, "request answers", "requests answer")
    out.write(f"{total - wrong} of {answer} as in the earlier run\n")
    return wrong


def differences(expected: Sequence[Answer] | None, found: Sequence[Answer] | None) -> Iterator[str]:
    """What differs in one request, in words: each field of each reply, then whether it changes the whole message."""
    if expected is None or found is None:
        yield "only in this run" if expected is None else "only in the earlier run"
        return
    if expected == found:
        return
    for number, (before, now) in enumerate(zip(expected, found, strict=False), 1):
        for path, old, new in _fields(before, now):
            yield f"reply {number}, {path}: expected {_shown(old)}, found {_shown(new)}"
    if len(expected) != len(found):
        yield f"{count(len(expected), 'reply', 'replies')} expected, {len(found)} found"
    before, now = _message(expected), _message(found)
    if before is None or now is None:
        return
    changed = list(_fields(before, now))
    if not changed:
        yield "the whole message is the same: only its cut differs"
    for path, old, new in changed:
        yield f"whole message, {path}: expected {_shown(old)}, found {_shown(new)}"


_MISSING = object()


def _fields(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path and both values of every field that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        pairs: Iterable[tuple[str, Any, Any]] = [
            (name, old.get(name, _MISSING), new.get(name, _MISSING)) for name in {**old, **new}
        ]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(str(i), *pair) for i, pair in enumerate(zip(old, new, strict=True))]
    else:
        if old != new or type(old) is not type(new):
            yield path, old, new
        return
    for name, left, right in pairs:
        yield from _fields(left, right, f"{path}.{name}" if path else name)


def _message(replies: Sequence[Mapping[str, Any]]) -> Any:
    """What a client has at the end of a stream; None for whole answers, which are compared as they are."""
    snapshot = Snapshot()
    for reply in replies:
        if "chunk" in reply:
            snapshot.add(_encode(reply["chunk"]))
    merged = snapshot.chunk()
    return None if merged is None else _decode(merged)


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    text = _encode(value).decode()
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
