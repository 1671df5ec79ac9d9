"""Replies as an async iterator, from any entry id; one connection follows many requests.

A reader never hangs on an end that it missed: when a stream is silent, the status key says whether more can come.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from link.redis import UNREACHABLE, UNREADABLE, Backoff, NoPermissionError, Redis, ResponseError
from link.tasks import end
from producer.connection import connect_to_partitions
from schemas import keys
from schemas.keys import Keys

logger = logging.getLogger(__name__)

MAX_FOLLOWED = 200
"""Streams on one connection. More of them on one connection cost little; more connections cost much."""

READ_COUNT = 64

QUEUED_READS = 8
"""Answers that wait for a slow follower; then its stream is not read until it has taken one."""

_ENTRY_ID = re.compile(r"[0-9]{1,19}(-[0-9]{1,19})?")
"""What Redis takes (64 bits), but for the largest, which no stream of ours comes near."""


class ReplyUnavailable(Exception):
    """No (more) replies can come: the request is unknown, or its replies have expired."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One entry of a reply stream. chunk or response: JSON, may go out as an SSE `data:` line; error: the same.

    id: entry id, to resume after it. done: final status, on the last entry only.
    """

    id: str
    chunk: bytes | None = None
    response: bytes | None = None
    error: bytes | None = None
    index: int | None = None
    stream_state: bytes | None = None
    done: str | None = None

    @property
    def data(self) -> bytes:
        """The JSON that the client gets."""
        return self.chunk or self.response or self.error or b""


def parse(id_: bytes, fields: dict[bytes, bytes]) -> Reply:
    index, done = fields.get(keys.INDEX), fields.get(keys.DONE)
    return Reply(
        id=id_.decode(),
        chunk=fields.get(keys.CHUNK),
        response=fields.get(keys.RESPONSE),
        error=fields.get(keys.ERROR),
        index=None if index is None else int(index),
        stream_state=fields.get(keys.STREAM_STATE),
        done=None if done is None else done.decode(),
    )


class _Followed:
    def __init__(self, after: str) -> None:
        self.last = after.encode()
        self.queue: asyncio.Queue[list[tuple[bytes, dict[bytes, bytes]]]] = asyncio.Queue()

    @property
    def full(self) -> bool:
        return self.queue.qsize() >= QUEUED_READS


class Reader:
    """Follows reply streams over one connection. Use as `async with`.

    unknown_after_s: how long an id without any trace is waited for (a worker may be behind).
    look_after_s: after how long a silence the status key is looked at.
    """

    def __init__(
        self,
        redis: Redis,
        partitions: int,
        *,
        names: Keys | None = None,
        unknown_after_s: float = 30.0,
        look_after_s: float = 1.0,
        block_ms: int = 1000,
    ) -> None:
        self.redis = redis
        self.partitions = partitions
        self.names = names or Keys()
        self.unknown_after_s = unknown_after_s
        self.look_after_s = look_after_s
        self.block_ms = block_ms
        self._followed: dict[bytes, list[_Followed]] = {}
        self._pump: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._backoff = Backoff()

    @classmethod
    async def connect(cls, url: str, *, prefix: str = keys.PREFIX, wait_s: float = 10.0, **options: Any) -> Reader:
        names = Keys(prefix)
        redis, partitions = await connect_to_partitions(url, names, wait_s=wait_s)
        return cls(redis, partitions, names=names, **options)

    async def __aenter__(self) -> Reader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._pump is not None:
            await end(self._pump)
        await self.redis.aclose()

    async def follow(self, request_id: str, *, after: str = "0") -> AsyncIterator[Reply]:
        """Replies of a request after an entry id, to the last one.

        Raises ReplyUnavailable: the request is not known (for `unknown_after_s`), or what is missing has expired.
        NoPermissionError: this user may not read. ValueError: an impossible request id or entry id. RuntimeError: more
        than MAX_FOLLOWED streams.
        """
        if not keys.valid_request_id(request_id):
            raise ValueError(f"request id {request_id[:200]!r} does not match {keys.REQUEST_ID.pattern}")
        if not valid_entry_id(after):  # one impossible id would end the reading of all other streams
            raise ValueError(f"entry id {after[:200]!r} is not <number> or <number>-<number>")
        partition = keys.partition_of(request_id, self.partitions)
        key = self.names.reply(partition, request_id).encode()
        followed = _Followed(after)
        self._add(key, followed)
        waited_s, seen, delivered = 0.0, after not in ("0", "0-0"), False
        try:
            while True:
                try:
                    # Not wait_for: in Python 3.11 it may swallow the cancellation of whoever follows.
                    async with asyncio.timeout(self.look_after_s):
                        full = followed.full
                        entries = await followed.queue.get()
                        if full:
                            self._changed.set()
                except TimeoutError:
                    waited_s += self.look_after_s
                    if await self._ended(request_id, key, followed, seen=seen, delivered=delivered, waited_s=waited_s):
                        return
                    if self._pump is not None and self._pump.done():
                        self._pump.result()  # raises what ended it, as a command that is not permitted
                    continue
                waited_s, seen, delivered = 0.0, True, True
                for id_, fields in entries:
                    reply = parse(id_, fields)
                    yield reply
                    if reply.done is not None:
                        return
        finally:
            self._remove(key, followed)

    async def status(self, request_id: str) -> str | None:
        """What the status key says; None: expired or unknown."""
        partition = keys.partition_of(request_id, self.partitions)
        value = await self.redis.get(self.names.status(partition, request_id))
        return None if value is None else str(value.decode())

    async def _ended(
        self, request_id: str, key: bytes, followed: _Followed, *, seen: bool, delivered: bool, waited_s: float
    ) -> bool:
        """After a silence: True when all replies were delivered. Raises ReplyUnavailable when no more can come.

        seen: the caller names an entry that it had, or got one here; delivered: it got one here.
        """
        try:
            partition = keys.partition_of(request_id, self.partitions)
            # As of one moment: a worker may open the request, or end it, between two questions.
            async with self.redis.pipeline(transaction=True) as pipe:
                pipe.get(self.names.status(partition, request_id))
                pipe.xrange(key, min=b"(" + _full(followed.last), count=1)
                pipe.xrange(key, min=_full(followed.last), max=_full(followed.last))
                pipe.exists(key)
                raw, rest, last, exists = await pipe.execute()
            status = None if raw is None else str(raw.decode())
        except UNREACHABLE:
            return False  # the pump says so and waits
        if rest or not followed.queue.empty():
            return False
        if status in keys.CLOSED:
            if exists:
                if seen and not last:
                    where = followed.last.decode()
                    raise ReplyUnavailable(f"request {request_id} is {status}, and its stream ended before {where}")
                return True  # the caller had seen the last entry before
            raise ReplyUnavailable(f"request {request_id} is {status}, but its replies have expired")
        if status is None and (delivered or exists):
            raise ReplyUnavailable(f"request {request_id}: status and replies have expired")
        if status is None and (seen or waited_s >= self.unknown_after_s):
            raise ReplyUnavailable(f"request {request_id} is unknown, or has expired")
        return False

    # --- one connection for all ---------------------------------------------------------------------------------------

    def _add(self, key: bytes, followed: _Followed) -> None:
        if sum(map(len, self._followed.values())) >= MAX_FOLLOWED:
            raise RuntimeError(f"a reader follows at most {MAX_FOLLOWED} streams; use another one")
        self._followed.setdefault(key, []).append(followed)
        self._changed.set()
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())

    def _remove(self, key: bytes, followed: _Followed) -> None:
        others = self._followed.get(key, [])
        if followed in others:
            others.remove(followed)
        if not others:
            self._followed.pop(key, None)

    async def _run(self) -> None:
        while True:
            if not self._followed:
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._read()
            except UNREADABLE as error:
                # Refused: one of the keys is no stream, or not ours to read. Whoever follows it hears of that when it
                # looks, and leaves; a missing permission is said there alone.
                if not self._backoff.failures and not isinstance(error, NoPermissionError):
                    away = "Redis is away" if isinstance(error, UNREACHABLE) else "Redis refuses to read"
                    logger.warning("%s (%s)", away, type(error).__name__)
                await self._backoff.wait()

    async def _read(self) -> None:
        """Read what is there, then wait for more until something comes or another stream is followed."""
        async with self.redis.client() as blocking:
            unblock = await self._unblocker(blocking)
            while self._followed:
                self._changed.clear()
                cursors = {
                    key: min((f.last for f in fs if not f.full), key=_number)
                    for key, fs in self._followed.items()
                    if not all(f.full for f in fs)
                }
                if not cursors:
                    await self._changed.wait()
                    continue
                read = asyncio.ensure_future(
                    blocking.xread(cursors, count=READ_COUNT, block=self.block_ms if unblock else 20)  # type: ignore[arg-type]
                )
                changed = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait([read, changed], return_when=asyncio.FIRST_COMPLETED)
                    # Again until it hits: the read may not have reached the server yet.
                    while unblock is not None and not read.done() and not await self.redis.client_unblock(unblock):
                        await asyncio.wait([read], timeout=0.001)
                    answer = await read
                finally:
                    changed.cancel()
                    await end(read)  # the connection goes back to the pool without a read on it
                if self._backoff.failures:
                    logger.info("Redis is back")
                    self._backoff.failures = 0
                for key, entries in answer or ():
                    for followed in self._followed.get(key, ()):
                        if followed.full:
                            continue
                        if _number(followed.last) < _number(cursors[key]):
                            continue  # came during this read, and is further back: the next one is for it too
                        fresh = [entry for entry in entries if _number(entry[0]) > _number(followed.last)]
                        if fresh:
                            followed.last = fresh[-1][0]
                            followed.queue.put_nowait(fresh)

    async def _unblocker(self, blocking: Redis) -> int | None:
        """Id of the reading connection, if its reads may be ended from another one; None: reads have to be short."""
        try:
            id_ = int(await blocking.client_id())
            await self.redis.client_unblock(id_)
        except ResponseError:
            return None
        return id_


def valid_entry_id(id_: str) -> bool:
    return _ENTRY_ID.fullmatch(id_) is not None


def _full(id_: bytes) -> bytes:
    return id_ if b"-" in id_ else id_ + b"-0"


def _number(id_: bytes) -> tuple[int, int]:
    first, _, second = id_.partition(b"-")
    return int(first), int(second or 0)
