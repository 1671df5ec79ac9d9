"""From an engine's side into Redis: one XADD for each event, many requests in one pipeline.

Entries of a request are numbered (`seq`), so a pipeline whose answer was lost is simply sent again: workers drop what
they have seen and report what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from link.redis import AWAY_ANSWERS, UNREACHABLE, Backoff, Redis, RedisError
from producer.connection import connect_to_partitions
from schemas import keys
from schemas.generate import GenerateChunk, GenerateResponse
from schemas.keys import Keys
from schemas.openai import ErrorBody
from schemas.request import RequestContext

logger = logging.getLogger(__name__)

PIPELINE_ENTRIES = 256
BUFFERED_ENTRIES = 4096
"""Entries that wait for a pipeline; whoever adds more waits."""

_encode = msgspec.json.Encoder().encode

Fields = dict[bytes, bytes]


class PublishError(Exception):
    """Redis did not take an entry; the message is its reason, the cause what the client raised. The request cannot go
    on: open another one."""


class BacklogFull(PublishError):
    """A partition has more unprocessed entries than the producer allows; nothing was sent."""


class _Waiting(NamedTuple):
    key: str
    fields: Fields
    done: asyncio.Future[bytes]


class Producer:
    """Publishes requests over one connection. Use as `async with`.

    max_backlog: bound on unprocessed entries of each input stream; None: no bound. when_full: wait for the workers, or
        raise BacklogFull.
    retry_s: how long entries are kept for a Redis that is away, before PublishError.
    """

    def __init__(
        self,
        redis: Redis,
        partitions: int,
        *,
        names: Keys | None = None,
        max_backlog: int | None = 10_000,
        when_full: Literal["wait", "fail"] = "wait",
        retry_s: float = 60.0,
    ) -> None:
        self.redis = redis
        self.partitions = partitions
        self.names = names or Keys()
        self.max_backlog = max_backlog
        self.when_full = when_full
        self.retry_s = retry_s
        self._buffer: deque[_Waiting] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._closing = False
        self._flusher: asyncio.Task[None] | None = None
        self._gates: dict[str, _Gate] = {}

    @classmethod
    async def connect(cls, url: str, *, prefix: str = keys.PREFIX, wait_s: float = 10.0, **options: Any) -> Producer:
        """Connect and read the number of partitions; wait for a first worker to set it. Raises ConfigError."""
        names = Keys(prefix)
        redis, partitions = await connect_to_partitions(url, names, wait_s=wait_s)
        return cls(redis, partitions, names=names, **options)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Send what is buffered and close the connection."""
        self._closing = True
        self._filled.set()
        if self._flusher is not None:
            await self._flusher
        await self.redis.aclose()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def open(self, request_id: str, context: RequestContext | bytes) -> RequestStream:
        """Open a request. context: the value, or its JSON as it is to be stored.

        Raises ValueError for an id that key names cannot hold, BacklogFull, PublishError.
        """
        stream = RequestStream(self, self._checked(request_id))
        await stream.send({keys.OPEN: context if isinstance(context, bytes) else _encode(context)})
        return stream

    async def response(
        self, request_id: str, context: RequestContext | bytes, response: GenerateResponse | bytes
    ) -> None:
        """Publish a complete generate response with its context: answered by one reply."""
        await self._bulk(
            request_id,
            {
                keys.OPEN: context if isinstance(context, bytes) else _encode(context),
                keys.RESPONSE: response if isinstance(response, bytes) else _encode(response),
            },
        )

    async def call(
        self, request_id: str, body: bytes, *, endpoint: str | None = None, reply_to: str | None = None
    ) -> None:
        """Publish a self-contained request: answered by one reply.

        endpoint: HTTP path that the body belongs to; None: one of the four derender requests, its members tell which.
        reply_to: name of the stream that gets the answer alone; None: the answer is a reply stream of its own.
        """
        fields = {keys.CALL: body}
        if endpoint is not None:
            fields[keys.ENDPOINT] = endpoint.encode()
        if reply_to is not None:
            fields[keys.ANSWER_TO] = reply_to.encode()
        await self._bulk(request_id, fields)

    async def generate(
        self, request_id: str, requests: bytes, *, context: bytes | None = None, queue: str = ""
    ) -> None:
        """Hand generate requests to a bridge, which publishes what its engine says.

        requests: JSON of one request, or a list with one for each prompt. context: of whole work, which is opened by
        its response; None: the request was opened, entry 1 is the bridge's. queue: which bridges.
        """
        partition = keys.partition_of(self._checked(request_id), self.partitions)
        key = self.names.generate(partition, queue)
        await self.room(key)
        fields = {keys.REQUEST: request_id.encode(), keys.GENERATE: requests}
        if context is not None:
            fields[keys.OPEN] = context
        await self.put(key, fields)

    async def abort(self, request_id: str) -> None:
        """The client of a request went away: end it, and tell the engine's side. For others than its producer."""
        partition = keys.partition_of(self._checked(request_id), self.partitions)
        fields = {keys.REQUEST: request_id.encode(), keys.CONTROL: keys.CONTROL_ABORT}
        await self.put(self.names.chunks(partition), fields)

    async def _bulk(self, request_id: str, fields: Fields) -> None:
        partition = keys.partition_of(self._checked(request_id), self.partitions)
        key = self.names.bulk(partition)
        await self.room(key)
        await self.put(key, {keys.REQUEST: request_id.encode(), **fields})

    @staticmethod
    def _checked(request_id: str) -> str:
        if not keys.valid_request_id(request_id):
            raise ValueError(f"request id {request_id[:200]!r} does not match {keys.REQUEST_ID.pattern}")
        return request_id

    # --- entries ------------------------------------------------------------------------------------------------------

    async def room(self, key: str) -> None:
        """Wait until an input stream and our buffer have room. Raises BacklogFull."""
        while len(self._buffer) >= BUFFERED_ENTRIES:
            self._drained.clear()
            await self._drained.wait()
        if self.max_backlog is not None:
            gate = self._gates.get(key)
            if gate is None:
                gate = self._gates[key] = _Gate(self.redis, key, self.max_backlog)
            await gate.enter(wait=self.when_full == "wait")

    def put(self, key: str, fields: Fields) -> asyncio.Future[bytes]:
        """Add an entry to the next pipeline; the future gives its entry id."""
        if self._closing:
            raise RuntimeError("the producer is closed")
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush())
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._buffer.append(_Waiting(key, fields, done))
        if (gate := self._gates.get(key)) is not None:
            gate.sent(done)
        self._filled.set()
        return done

    async def _flush(self) -> None:
        while self._buffer or not self._closing:
            if not self._buffer:
                self._filled.clear()
                await self._filled.wait()
                continue
            batch = [self._buffer.popleft() for _ in range(min(PIPELINE_ENTRIES, len(self._buffer)))]
            self._drained.set()
            for waiting, answer in zip(batch, await self._send(batch), strict=True):
                if waiting.done.done():
                    continue  # whoever waited was cancelled
                if isinstance(answer, Exception):
                    failure = PublishError(f"{waiting.key}: {answer}")
                    failure.__cause__ = answer
                    waiting.done.set_exception(failure)
                    waiting.done.exception()  # seen: the stream that owns it raises it
                else:
                    waiting.done.set_result(answer)

    async def _send(self, batch: list[_Waiting]) -> list[Any]:
        """One pipeline, again until Redis answers it; seq makes the repetition harmless."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.retry_s
        backoff = Backoff()
        while True:
            try:
                async with self.redis.pipeline(transaction=False) as pipe:
                    for waiting in batch:
                        pipe.xadd(waiting.key, waiting.fields)  # type: ignore[arg-type]
                    answers: list[Any] = await pipe.execute(raise_on_error=False)
                away = next((a for a in answers if isinstance(a, AWAY_ANSWERS)), None)
                if away is not None:
                    raise away
                if backoff.failures:
                    logger.info("Redis is back")
                return answers
            except UNREACHABLE as error:
                if not backoff.failures:
                    logger.warning("Redis is away (%s)", type(error).__name__)
                if loop.time() >= until:
                    return [error] * len(batch)
                await backoff.wait()
            except RedisError as error:  # as a value that is none of Redis': whoever sent it hears of it, others go on
                return [error] * len(batch)


class RequestStream:
    """The entries of one open request, numbered. seq: number of the next one."""

    def __init__(self, producer: Producer, request_id: str, *, seq: int = 0) -> None:
        self.producer = producer
        self.request_id = request_id
        self.partition = keys.partition_of(request_id, producer.partitions)
        self._key = producer.names.chunks(self.partition)
        self._seq = seq
        self._failure: BaseException | None = None

    async def chunk(self, chunk: GenerateChunk | bytes, *, prompt: int | None = None, wait: bool = True) -> None:
        """Publish one event: the JSON of the engine's `data:` line as it came, or the value.

        prompt: of a completion with several prompts. wait: return when Redis has it; else when it is in the buffer, and
            a failure is raised by a later call.
        """
        fields = {keys.CHUNK: chunk if isinstance(chunk, bytes) else _encode(chunk)}
        if prompt is not None:
            fields[keys.PROMPT] = b"%d" % prompt
        await self.send(fields, wait=wait)

    async def done(self) -> None:
        """The engine's stream has ended."""
        await self.send({keys.CONTROL: keys.CONTROL_DONE})

    async def abort(self) -> None:
        """The client went away or the engine gave up: unfinished choices finish with "abort"."""
        await self.send({keys.CONTROL: keys.CONTROL_ABORT})

    async def error(self, error: ErrorBody) -> None:
        """The engine failed: the reader gets this error."""
        await self.send({keys.CONTROL: keys.CONTROL_ERROR, keys.ERROR: _encode(error)})

    async def send(self, fields: Fields, *, wait: bool = True) -> None:
        await self.producer.room(self._key)
        if self._failure is not None:
            raise self._failure
        numbered = {keys.REQUEST: self.request_id.encode(), keys.SEQ: b"%d" % self._seq, **fields}
        done = self.producer.put(self._key, numbered)
        self._seq += 1
        if wait:
            await done
        else:
            done.add_done_callback(self._note)

    def _note(self, done: asyncio.Future[bytes]) -> None:
        if not done.cancelled() and self._failure is None:
            self._failure = done.exception()


class _Gate:
    """Keeps an input stream below its bound. Workers trim what they have committed, so its length is the backlog."""

    def __init__(self, redis: Redis, key: str, bound: int) -> None:
        self.redis = redis
        self.key = key
        self.bound = bound
        self._left = 0  # entries that may be added before the length is looked at again
        self._unanswered = 0  # entries of ours that the length may not count yet
        self._lock = asyncio.Lock()

    async def enter(self, *, wait: bool) -> None:
        if self._left > 0:
            self._left -= 1
            return
        async with self._lock:
            pause = 0.005
            while self._left <= 0:
                length = 0
                with suppress(*UNREACHABLE):  # the pipeline waits for Redis, this need not
                    length = await self.redis.xlen(self.key)
                # Looked at four times on the way to the bound: other producers fill the same stream.
                self._left = min(self.bound - length - self._unanswered, max(1, self.bound // 4))
                if self._left > 0:
                    break
                if not wait:
                    raise BacklogFull(f"{self.key} has {length} unprocessed entries, the bound is {self.bound}")
                await asyncio.sleep(pause)
                pause = min(0.2, pause * 2)
            self._left -= 1

    def sent(self, done: asyncio.Future[bytes]) -> None:
        self._unanswered += 1
        done.add_done_callback(self._answered)

    def _answered(self, _: asyncio.Future[bytes]) -> None:
        self._unanswered -= 1
