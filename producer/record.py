"""Live chunk streams as a recording: what engines publish, while workers work on it.

Workers trim what they have committed, so a recorder has to read as fast as they do. It reads ahead of its own work;
what it misses all the same shows as a gap in the numbers of a request, and such a request is left out.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
from msgspec import Raw

from link.redis import Redis
from link.tasks import end
from schemas import keys
from schemas.keys import Keys

READ_COUNT = 1000
BLOCK_MS = 500

Loss = Literal["gap", "unfinished", "late", "broken"]
"""Why a request is left out: entries were missed; it has not ended; it began before the recording; it is no JSON."""

_encode = msgspec.json.Encoder().encode
_raw_decoder = msgspec.json.Decoder(Raw)
_context_decoder = msgspec.json.Decoder(dict[str, Any])


class _Line(msgspec.Struct, omit_defaults=True):
    """An event as it is written: `producer.replay.Event` without what it does not have."""

    t: float
    event: str
    request_id: str
    context: Raw | None = None
    chunk: Raw | None = None
    prompt: int | None = None
    error: Raw | None = None


class _Id(msgspec.Struct):
    request_id: str


_id_decoder = msgspec.json.Decoder(_Id)


class Recorder:
    """Writes events of complete requests to a file. `run` reads; `stop` ends it; then the file is a recording.

    Contexts are stored as they were published, but with the seconds at which they were opened as `created`, so that
    a replay says the same, and without the name of a `reply_to` stream, which was somebody's at that time.
    """

    def __init__(self, redis: Redis, partitions: int, path: Path, *, names: Keys | None = None) -> None:
        names = names or Keys()
        self.redis = redis
        self.path = path
        self.ready = asyncio.Event()
        """Set when what is published from now on is recorded."""
        self.complete = 0
        self.lost: Counter[Loss] = Counter()
        self._cursors = {names.chunks(partition): b"" for partition in range(partitions)}
        self._seq: dict[str, int | None] = {}  # open requests: number of the last entry, None where they have none
        self._over: set[str] = set()  # nothing of these is recorded (any more)
        self._incomplete: set[str] = set()
        self._start_ms: int | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, on_complete: Callable[[int], None] = lambda _: None) -> None:
        """Record until `stop`. on_complete: called with the number of complete requests. Raises OSError.

        The file is written at the end, in place of one of that name, and only if a request is complete.
        """
        part = self.path.with_name(self.path.name + ".part")
        try:
            with _private(part) as out:
                await self._begin()
                self.ready.set()
                reading = asyncio.ensure_future(self._read())
                stopping = asyncio.ensure_future(self._stopping.wait())
                try:
                    while not self._stopping.is_set():
                        await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
                        if not reading.done():
                            break
                        entries = reading.result()
                        reading = asyncio.ensure_future(self._read())  # before this one's work
                        await asyncio.sleep(0)
                        for id_, fields in entries:
                            self._take(out, id_, fields, on_complete)
                finally:
                    await end(reading, stopping)
                for request_id in list(self._seq):
                    self._lose(request_id, "unfinished")
                if self.complete:
                    self._finish(out)
        finally:
            part.unlink(missing_ok=True)

    async def _begin(self) -> None:
        for stream in self._cursors:
            newest: Any = await self.redis.xrevrange(stream, count=1)
            self._cursors[stream] = newest[0][0] if newest else b"0-0"

    async def _read(self) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
        """New entries of all partitions, in order of time."""
        answer = await self.redis.xread(dict(self._cursors), count=READ_COUNT, block=BLOCK_MS)  # type: ignore[arg-type]
        found: list[tuple[bytes, Mapping[bytes, bytes]]] = []
        for stream, entries in answer or ():
            self._cursors[stream.decode()] = entries[-1][0]
            found += entries
        return sorted(found, key=lambda entry: int(entry[0].partition(b"-")[0]))

    def _take(
        self, out: BinaryIO, id_: bytes, fields: Mapping[bytes, bytes], on_complete: Callable[[int], None]
    ) -> None:
        request_id = fields.get(keys.REQUEST, b"").decode("ascii", "replace")
        time_ms = int(id_.partition(b"-")[0])
        self._start_ms = time_ms if self._start_ms is None else self._start_ms
        seq = fields.get(keys.SEQ)
        number = int(seq) if seq is not None and seq.isdigit() else None
        if keys.OPEN in fields:
            if request_id not in self._seq and number in (None, 0):
                self._seq[request_id] = number
                self._write(out, time_ms, "open", request_id, context=_context(fields[keys.OPEN], time_ms))
            return
        if request_id not in self._seq:
            if request_id not in self._over:
                self._over.add(request_id)
                self.lost["late"] += 1
            return
        last = self._seq[request_id]
        if number is not None and last is not None:
            if number <= last:
                return  # sent twice
            if number > last + 1:
                self._lose(request_id, "gap")
                return
            self._seq[request_id] = number
        try:
            event, more = _event(fields)
        except msgspec.DecodeError:
            self._lose(request_id, "broken")
            return
        if event is None:
            return
        self._write(out, time_ms, event, request_id, **more)
        if event != "chunk":
            del self._seq[request_id]
            self._over.add(request_id)
            self.complete += 1
            on_complete(self.complete)

    def _lose(self, request_id: str, why: Loss) -> None:
        del self._seq[request_id]
        self._over.add(request_id)
        self.lost[why] += 1
        self._incomplete.add(request_id)

    def _write(self, out: BinaryIO, time_ms: int, event: str, request_id: str, **more: Any) -> None:
        seconds = (time_ms - (self._start_ms or time_ms)) / 1000
        out.write(_encode(_Line(seconds, event, request_id, **more)) + b"\n")

    def _finish(self, lines: BinaryIO) -> None:
        """Write what is complete, and give it its name when it is whole."""
        whole = self.path.with_name(self.path.name + ".whole")
        try:
            with _private(whole) as out:
                lines.seek(0)
                for line in lines:
                    if _id_decoder.decode(line).request_id not in self._incomplete:
                        out.write(line)
            whole.replace(self.path)
        finally:
            whole.unlink(missing_ok=True)


def _private(path: Path) -> BinaryIO:
    """A new file for its owner alone: it holds what people wrote and models said. One of that name is removed, as it
    would keep its mode."""
    path.unlink(missing_ok=True)
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")


def _one_line(json: bytes) -> Raw:
    """JSON as it is, on one line. Raises msgspec.DecodeError."""
    return Raw(msgspec.json.format(json, indent=-1) if b"\n" in json else bytes(_raw_decoder.decode(json)))


def _context(raw: bytes, time_ms: int) -> Raw:
    try:
        context = _context_decoder.decode(raw)
    except msgspec.DecodeError:
        return Raw(b"{}")  # a worker refuses it, and a replay of it
    context.pop("reply_to", None)
    context.setdefault("created", time_ms // 1000)
    return Raw(_encode(context))


def _event(fields: Mapping[bytes, bytes]) -> tuple[str | None, dict[str, Any]]:
    """Event and its content; None for an entry that a recording does not hold."""
    chunk = fields.get(keys.CHUNK)
    if chunk is not None and chunk.strip() != b"[DONE]":
        prompt = fields.get(keys.PROMPT)
        more: dict[str, Any] = {} if prompt is None else {"prompt": int(prompt)}
        return "chunk", {**more, "chunk": _one_line(chunk)}
    match keys.CONTROL_DONE if chunk is not None else fields.get(keys.CONTROL):
        case keys.CONTROL_DONE:
            return "done", {}
        case keys.CONTROL_ABORT:
            return "abort", {}
        case keys.CONTROL_ERROR:
            return "error", {"error": _one_line(fields.get(keys.ERROR, b'{"error":null}'))}
    return None, {}
