"""What the endpoints need of Redis: publish a call and await its answer, open a generation, follow reply streams."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from gateway.errors import from_reply, refuse
from gateway.mailbox import Mailbox, Missed, Waiter
from gateway.metrics import Metrics
from gateway.settings import GatewaySettings
from gateway.watch import LOOK_S, Watch
from link.redis import UNREACHABLE, ResponseError, connect
from link.tasks import end
from producer.connection import read_partitions
from producer.presence import live_bridges, live_workers
from producer.publish import BacklogFull, Producer, PublishError
from producer.read import MAX_FOLLOWED, Reader, Reply, parse
from schemas import keys
from schemas.keys import Keys

logger = logging.getLogger(__name__)

RETRY_S = 5.0
"""How long a request waits for a Redis that is away before it is answered with 503."""

PAGE = 256
BRIDGE_WAIT_S = 2.0
BRIDGE_KNOWN_S = 1.0
"""How long a request waits for a bridge, and how long one that was seen is taken to be there."""


class State(NamedTuple):
    """What Redis knows of a request. first, last: numbers of its replies, 0 where there is none."""

    status: str | None
    first: int
    last: int


class Backend:
    """Connections of one gateway process. Use `Backend.open`."""

    def __init__(self, url: str, names: Keys, partitions: int, settings: GatewaySettings, metrics: Metrics) -> None:
        self.url = url
        self.names = names
        self.partitions = partitions
        self.settings = settings
        self.metrics = metrics
        self.redis = connect(url)
        self.producer = Producer(
            connect(url),
            partitions,
            names=names,
            max_backlog=settings.max_backlog,
            when_full="fail",
            retry_s=RETRY_S,
        )
        self.mailbox = Mailbox(self.redis, partitions, names, metrics)
        self.watch = Watch(self.redis, names)
        self._readers: list[_CountedReader] = []
        self._bridged: dict[str, float] = {}  # queue -> until when its bridges need not be asked for again

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, settings: GatewaySettings, metrics: Metrics, *, prefix: str = keys.PREFIX, wait_s: float = 30.0
    ) -> AsyncIterator[Backend]:
        """Connect; wait for a first worker to say how many partitions there are. Raises ConfigError."""
        names, redis = Keys(prefix), connect(url)
        try:
            partitions = await read_partitions(redis, names, wait_s=wait_s)
        finally:
            await redis.aclose()
        backend = cls(url, names, partitions, settings, metrics)
        following = [asyncio.create_task(one.follow()) for one in (backend.mailbox, backend.watch)]
        try:
            yield backend
        finally:
            await end(*following)
            for counted in backend._readers:
                await counted.reader.aclose()
            await backend.mailbox.close()
            await backend.producer.aclose()
            await backend.redis.aclose()

    async def call(self, endpoint: str, body: bytes, *, request_id: str | None = None) -> bytes:
        """Have a worker answer one self-contained request. Raises HttpError."""
        request_id = request_id or new_id("call")
        self.watch.need()
        with self.mailbox.waiter(request_id) as waiter:
            async with self.publishing():
                await self.producer.call(request_id, body, endpoint=endpoint, reply_to=self.mailbox.name)
            try:
                (reply,) = await self.first(waiter)
            except TimeoutError:
                refuse(504, f"no worker answered within {self.settings.timeout_s:g} s")
            except Missed:
                refuse(500, "the answer was lost")
        if reply.response is None:
            raise from_reply(reply.error or b"")
        return reply.response

    async def first(self, waiter: Waiter) -> list[Reply]:
        """What comes first for a request that was published.

        Raises TimeoutError after `--timeout-s`, Missed, and HttpError where no worker is left to answer.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.settings.timeout_s
        while True:
            left = until - loop.time()
            try:
                return await waiter.take(min(left, LOOK_S))
            except TimeoutError:
                if left <= LOOK_S:
                    raise
            self.watch.need()

    async def abort(self, request_id: str) -> None:
        """Nobody waits for this request any more."""
        with suppress(PublishError):
            await self.producer.abort(request_id)

    async def look(self, request_id: str) -> State:
        """What there is of a request now. Raises HttpError."""
        partition = keys.partition_of(request_id, self.partitions)
        stream = self.names.reply(partition, request_id)
        try:
            async with self.redis.pipeline(transaction=True) as pipe:
                pipe.get(self.names.status(partition, request_id))
                pipe.xrange(stream, count=1)
                pipe.xrevrange(stream, count=1)
                status, first, last = await pipe.execute()
        except UNREACHABLE:
            refuse(503, "Redis cannot be reached")
        return State(
            None if status is None else status.decode(),
            int(first[0][0].partition(b"-")[0]) if first else 0,
            int(last[0][0].partition(b"-")[0]) if last else 0,
        )

    async def follow(self, request_id: str, after: int) -> AsyncIterator[Reply]:
        """Replies after number `after`, to the last one. Raises ReplyUnavailable."""
        counted = next((one for one in self._readers if one.streams < MAX_FOLLOWED), None)
        if counted is None:
            counted = _CountedReader(Reader(connect(self.url), self.partitions, names=self.names, look_after_s=5.0))
            self._readers.append(counted)
        counted.streams += 1
        replies = counted.reader.follow(request_id, after=f"{after}-0")
        try:
            async for reply in replies:
                yield reply
        finally:
            await replies.aclose()  # type: ignore[attr-defined]
            counted.streams -= 1

    async def pages(self, request_id: str, last: int) -> AsyncIterator[list[Reply]]:
        """Replies 1 to `last`, some at a time. Raises what UNREACHABLE names."""
        stream = self.names.reply(keys.partition_of(request_id, self.partitions), request_id)
        after = 0
        while after < last:
            entries = await self.redis.xrange(stream, min=f"({after}-0", max=f"{last}-0", count=PAGE)
            if not entries:
                return
            replies = [parse(id_, fields) for id_, fields in entries]
            after = int(replies[-1].id.partition("-")[0])
            yield replies

    async def need_bridge(self, queue: str, model: str | None) -> None:
        """Wait a moment for a bridge that serves a queue, as one that is being started again. Raises HttpError.

        Without one a request would be taken, and be answered by nobody until it times out.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._bridged.get(queue, 0.0):
            return
        until = loop.time() + BRIDGE_WAIT_S
        while queue not in {bridge.queue for bridge in await live_bridges(self.redis, self.names)}:
            if loop.time() >= until:
                options = f" --queue {queue}" if queue else ""
                refuse(503, f"no bridge to an engine of model {model!r} is alive: start one: derender bridge{options}")
            await asyncio.sleep(0.1)
        self._bridged[queue] = loop.time() + BRIDGE_KNOWN_S

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        """Answers for a Redis that takes nothing. Raises HttpError; what Redis said is for the log alone."""
        try:
            yield
        except BacklogFull:
            refuse(503, "the workers are behind: try again later")
        except PublishError as error:
            logger.warning("a request was not taken: %s", error)
            if isinstance(error.__cause__, ResponseError):  # it answered
                refuse(503, "Redis does not take requests now: try again later")
            refuse(503, "Redis cannot be reached")
        except UNREACHABLE:
            refuse(503, "Redis cannot be reached")

    async def workers(self) -> int:
        """Number of live workers. Raises what UNREACHABLE names."""
        return await live_workers(self.redis, self.names)


class _CountedReader:
    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.streams = 0


def new_id(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex}"
