"""Replies to many requests of one process: one `reply_to` stream a partition, one task that reads them all.

A request costs no connection and no key of its own here. Replies are numbered 1, 2, 3 …, so whatever is missing or
comes twice is noticed; a waiter that missed something goes on at the request's own reply stream.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gateway.metrics import Metrics
from link.redis import UNREACHABLE, UNREADABLE, Backoff, Redis
from producer.read import Reply, parse
from schemas import keys
from schemas.keys import Keys

logger = logging.getLogger(__name__)

READ_COUNT = 500
BLOCK_MS = 1000
TRIM_EVERY_S = 0.5
MAX_WAITING_REPLIES = 512
"""Replies kept for a client that reads slowly, before it is left to the reply stream."""


class Missed(Exception):
    """What comes after `Waiter.last` is only on the request's reply stream."""


class Waiter:
    """The replies of one request, in order."""

    def __init__(self) -> None:
        self._replies: deque[Reply] = deque()
        self._filled = asyncio.Event()
        self._missed = False
        self.last = 0
        """Number of the last reply that was taken."""
        self._newest = 0

    def put(self, reply: Reply) -> None:
        number = int(reply.id.partition("-")[0])
        if number <= self._newest or self._missed:
            return
        if number != self._newest + 1 or len(self._replies) >= MAX_WAITING_REPLIES:
            self._missed = True
        else:
            self._newest = number
            self._replies.append(reply)
        self._filled.set()

    async def take(self, timeout_s: float) -> list[Reply]:
        """Everything that has come; waits for something. Raises TimeoutError, Missed."""
        if not self._replies and not self._missed:
            self._filled.clear()
            await asyncio.wait_for(self._filled.wait(), timeout_s)
        if not self._replies:
            raise Missed
        replies = list(self._replies)
        self._replies.clear()
        self.last = self._newest
        return replies


class Mailbox:
    """The `reply_to` streams of this process, by a random name. Run `follow` as a task."""

    def __init__(self, redis: Redis, partitions: int, names: Keys, metrics: Metrics) -> None:
        self.redis = redis
        self.metrics = metrics
        self.name = f"gateway-{uuid.uuid4().hex}"
        self._cursors = {names.reply_to(partition, self.name): b"0" for partition in range(partitions)}
        self._waiters: dict[bytes, Waiter] = {}

    @contextmanager
    def waiter(self, request_id: str) -> Iterator[Waiter]:
        """Collect the replies of a request from now on: enter before the request is published."""
        waiter = self._waiters[request_id.encode()] = Waiter()
        self.metrics.waiting.inc()
        try:
            yield waiter
        finally:
            del self._waiters[request_id.encode()]
            self.metrics.waiting.dec()

    async def follow(self) -> None:
        """Read and hand out, until cancelled. Outlives a Redis that is away."""
        backoff, trimmed = Backoff(), 0.0
        clock = asyncio.get_running_loop().time
        while True:
            try:
                await self._read()
                if clock() - trimmed > TRIM_EVERY_S:
                    await self._trim()
                    trimmed = clock()
                if backoff.failures:
                    logger.info("replies: Redis is back")
                    backoff = Backoff()
            except UNREADABLE as error:
                if not backoff.failures:
                    away = "Redis is away" if isinstance(error, UNREACHABLE) else "Redis refuses to read"
                    logger.warning("replies: %s (%s)", away, type(error).__name__)
                await backoff.wait()

    async def close(self) -> None:
        with suppress(*UNREACHABLE):
            for stream in self._cursors:
                await self.redis.delete(stream)

    async def _read(self) -> None:
        answer = await self.redis.xread(dict(self._cursors), count=READ_COUNT, block=BLOCK_MS)  # type: ignore[arg-type]
        for stream, entries in answer or ():
            self._cursors[stream.decode()] = entries[-1][0]
            for _, fields in entries:
                waiter = self._waiters.get(fields.get(keys.REQUEST, b""))
                if waiter is None:
                    self.metrics.unclaimed.inc()
                else:
                    waiter.put(parse(fields[keys.REPLY_ID], fields))

    async def _trim(self) -> None:
        """What was read is not kept: these are copies."""
        async with self.redis.pipeline(transaction=False) as pipe:
            for stream, cursor in self._cursors.items():
                if cursor != b"0":
                    pipe.xtrim(stream, minid=cursor, approximate=False)
            await pipe.execute(raise_on_error=False)
