"""A bridge: generate requests from Redis to an engine, and what the engine says back into Redis, line by line.

Before the first token everything may be tried again, by this bridge or another one; after it nothing is, for the client
has seen what this call said. A stop string that a worker found, or a client that went away, closes the engine call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import httpx
import msgspec

from gateway.errors import error_body
from gateway.settings import BridgeSettings
from link.redis import UNREACHABLE, Backoff, RedisError
from link.tasks import end
from producer.generate import GenerateQueue, Taken
from producer.presence import Presence
from producer.publish import Producer, PublishError, RequestStream
from schemas import keys
from schemas.generate import GENERATE, MAX_N
from schemas.report import REPORT_EVERY_S

logger = logging.getLogger(__name__)

MAX_DELIVERIES = 5
"""How many bridges may die over a request before it fails."""

RETRY_STATUS = frozenset((429, 500, 502, 503, 504))
BLOCK_MS = 1000
UNSEEN_S = 30.0
"""Pause after a report that Redis refused."""

_encode = msgspec.json.Encoder().encode
_UNPUBLISHED: tuple[type[Exception], ...] = (PublishError, *UNREACHABLE)


class _Params(msgspec.Struct):
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_N)] | None = None


class _Shape(msgspec.Struct):
    """What a bridge reads of a generate request; the engine gets all of it."""

    sampling_params: _Params


_shape_decoder = msgspec.json.Decoder(_Shape | list[_Shape])
_requests_decoder = msgspec.json.Decoder(dict[str, Any] | list[dict[str, Any]])


class _MaybeError(msgspec.Struct):
    error: msgspec.Raw = msgspec.Raw(b"")


_error_decoder = msgspec.json.Decoder(_MaybeError)


_Read = Callable[[httpx.Response], Awaitable[bytes]]


class EngineFailed(Exception):
    """The engine's answer is an error. body: JSON of an error object, for the client; the message is for the log."""

    def __init__(self, reason: str, body: bytes) -> None:
        super().__init__(reason)
        self.body = body


class Superseded(Exception):
    """Another bridge has this request now."""


def _is_error(payload: bytes) -> bool:
    """Whether a line or body is an error object: engines send those with HTTP 200 once a stream has begun."""
    if b'"error"' not in payload:
        return False
    try:
        return bytes(_error_decoder.decode(payload).error) not in (b"", b"null")
    except msgspec.DecodeError:
        return False


class _Call:
    """One request on its way: its engine calls, one for each prompt."""

    def __init__(self, taken: Taken) -> None:
        """Raises msgspec.DecodeError."""
        shapes = _shape_decoder.decode(taken.requests)
        decoded = _requests_decoder.decode(taken.requests)
        self.taken = taken
        self.requests = decoded if isinstance(decoded, list) else [decoded]
        self.beginning = asyncio.Lock()
        self.started = False
        self.gone = False
        self.tasks: list[asyncio.Task[Any]] = []
        self._running = [
            set(range(i * n, i * n + n))
            for i, shape in enumerate(shapes if isinstance(shapes, list) else [shapes])
            for n in [shape.sampling_params.n or 1]
        ]

    def start(self, steps: Sequence[Coroutine[Any, Any, Any]]) -> None:
        self.tasks = [asyncio.create_task(step) for step in steps]
        self._cancel()  # signals may have come before

    def signal(self, index: int | None) -> None:
        """Stop one choice, or everything. An engine call ends when all of its choices are to stop."""
        if index is None:
            self.gone = True
        for running in self._running:
            running.discard(-1 if index is None else index)
        self._cancel()

    def over(self, number: int) -> bool:
        """Whether the engine call of a prompt is to end."""
        return self.gone or not self._running[number]

    def _cancel(self) -> None:
        for number, task in enumerate(self.tasks):
            if self.over(number):
                task.cancel()


class Bridge:
    """Takes requests from one queue to one engine. Call `run`; `stop` from anywhere ends it."""

    def __init__(
        self, producer: Producer, queue: GenerateQueue, client: httpx.AsyncClient, settings: BridgeSettings
    ) -> None:
        self.producer = producer
        self.queue = queue
        self.client = client
        self.settings = settings
        self._engine = client.base_url.netloc.decode("ascii")  # without a password that the URL may have
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._serving: dict[asyncio.Task[None], Taken] = {}
        self._calls: dict[str, _Call] = {}
        self._waiting: dict[tuple[int, bytes], Taken] = {}  # taken, and the engine has said nothing yet
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._presence = Presence(producer.redis, producer.names, settings.queue, queue.consumer)
        self.ready = asyncio.Event()  # takes requests, and has said so

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Bridge until `stop`; then let what runs go on for a while. Outlives a Redis or an engine that is away."""
        await self._persist("prepare", self.queue.prepare)
        await self._persist("signals", lambda: self.queue.signals(block_ms=1))  # from now on
        queue = f"queue {self.settings.queue}" if self.settings.queue else "the default queue"
        logger.info("requests of %s go to the engine at %s", queue, self._engine)
        loops = [asyncio.create_task(loop) for loop in (self._follow_signals(), self._take(), self._keep())]
        present = asyncio.create_task(self._stay_present())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stopping, *loops], return_when=asyncio.FIRST_COMPLETED)
            for loop in loops:
                if loop.done():
                    loop.result()
            await end(loops[1], present)
            with suppress(RedisError, OSError):
                await self._presence.leave()
            if self._serving:
                await asyncio.wait(list(self._serving), timeout=self.settings.grace_s)
        finally:
            running = dict(self._serving)
            await end(stopping, present, *loops, *running)

    # --- loops --------------------------------------------------------------------------------------------------------

    async def _persist(self, what: str, step: Callable[[], Awaitable[Any]]) -> None:
        backoff = Backoff()
        while True:
            try:
                await step()
                break
            except UNREACHABLE as error:
                if not backoff.failures:
                    logger.warning("%s: Redis is away (%s)", what, type(error).__name__)
                await backoff.wait()
        if backoff.failures:
            logger.info("%s: Redis is back", what)

    async def _stay_present(self) -> None:
        while True:
            try:
                await self._presence.beat(len(self._serving))
            except UNREACHABLE:
                pass  # the loops say so
            except RedisError as error:  # as an ACL without these keys: gateways then refuse what they have for us
                logger.warning("gateways cannot see this bridge: %s", error)
                await asyncio.sleep(UNSEEN_S)
            else:
                self.ready.set()
            await asyncio.sleep(REPORT_EVERY_S)

    async def _take(self) -> None:
        while True:
            free = self.settings.concurrency - len(self._serving)
            if free <= 0:
                self._room.clear()
                await self._room.wait()
                continue

            async def step(count: int = max(1, free // self.queue.partitions)) -> None:
                for taken in await self.queue.take(count, block_ms=BLOCK_MS):
                    self._start(taken)

            await self._persist("requests", step)

    async def _keep(self) -> None:
        """Hold what waits for its engine, and take over what other bridges left alone."""

        async def step() -> None:
            await self.queue.keep(list(self._waiting.values()))
            if len(self._serving) < self.settings.concurrency:
                for taken in await self.queue.claim(int(self.settings.claim_after_s * 1000), count=8):
                    self._start(taken)

        while True:
            await self._persist("claims", step)
            await asyncio.sleep(self.settings.claim_after_s / 3)

    async def _follow_signals(self) -> None:
        async def step() -> None:
            for signal in await self.queue.signals(block_ms=BLOCK_MS):
                call = self._calls.get(signal.get(keys.REQUEST, b"").decode("ascii", "replace"))
                if call is not None:
                    index = signal.get(keys.INDEX)
                    call.signal(None if index is None else int(index))

        while True:
            await self._persist("signals", step)

    def _start(self, taken: Taken) -> None:
        if taken.place in self._waiting or taken.request_id in self._calls:
            return
        self._waiting[taken.place] = taken
        task = asyncio.create_task(self._serve(taken))
        self._serving[task] = taken
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        taken = self._serving.pop(task)
        self._waiting.pop(taken.place, None)
        self._calls.pop(taken.request_id, None)
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("request %s: %s", taken.request_id, type(error).__name__)

    # --- one request --------------------------------------------------------------------------------------------------

    async def _serve(self, taken: Taken) -> None:
        try:
            if not taken.request_id or await self.queue.closed(taken):
                await self.queue.settle(taken)
                return
            try:
                call = _Call(taken)
            except msgspec.DecodeError as error:
                await self._fail(taken, None, error_body(400, f"generate request is not valid: {error}"))
                return
            self._calls[taken.request_id] = call
            stream = RequestStream(self.producer, taken.request_id, seq=1)
            try:
                if taken.deliveries > MAX_DELIVERIES:
                    reason = f"{taken.deliveries - 1} bridges gave up on this request"
                    raise EngineFailed(reason, error_body(502, reason))
                if taken.context is None:
                    await self._stream(call, stream)
                else:
                    await self._whole(call, taken.context)
            except EngineFailed as error:
                logger.warning("request %s failed: engine at %s: %s", taken.request_id, self._engine, error)
                await self._fail(taken, call, error.body, stream)
        except Superseded:
            logger.info("request %s: another bridge has it", taken.request_id)
        except UNREACHABLE as error:
            logger.warning("request %s: Redis is away (%s)", taken.request_id, type(error).__name__)
        except PublishError:
            logger.error("request %s: Redis did not take an entry", taken.request_id)
        except asyncio.CancelledError:
            await asyncio.shield(self._leave(taken))
            raise

    async def _stream(self, call: _Call, stream: RequestStream) -> None:
        several = len(call.requests) > 1
        await self._all(
            call,
            [self._stream_one(call, stream, i if several else None, body) for i, body in enumerate(call.requests)],
        )
        await self._begin(call)
        if not call.gone:  # whoever cancelled it has closed it
            await stream.done()

    async def _whole(self, call: _Call, context: bytes) -> None:
        answers = await self._all(call, [self._attempts(call, body, self._read_whole) for body in call.requests])
        if not call.gone:
            response = answers[0] if len(answers) == 1 else b"[" + b",".join(answers) + b"]"
            # Published first: a second response of the same request is dropped, none would be a silence.
            await self.producer.response(call.taken.request_id, context, response)
        await self.queue.settle(call.taken)

    async def _all(self, call: _Call, steps: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run the engine calls of all prompts; a signal may cancel single ones, an error ends all."""
        call.start(steps)
        try:
            done, _ = await asyncio.wait(call.tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if not task.cancelled():
                    task.result()  # raises what it raised
            return [task.result() for task in call.tasks if not task.cancelled()]  # in order of the prompts
        finally:
            await end(*call.tasks)

    async def _begin(self, call: _Call) -> None:
        """Before anything goes out: from now on no other bridge may take this request."""
        async with call.beginning:  # prompts are generated side by side
            if call.started:
                return
            if not await self.queue.settle(call.taken):
                raise Superseded
            call.started = True
            self._waiting.pop(call.taken.place, None)

    async def _stream_one(self, call: _Call, stream: RequestStream, prompt: int | None, body: dict[str, Any]) -> None:
        async def read(response: httpx.Response) -> bytes:
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                data = line[5:].strip().encode()
                if data == b"[DONE]":
                    return b""
                if _is_error(data):
                    raise EngineFailed("an error in its stream", data)
                if not call.started:
                    await self._begin(call)
                if call.over(prompt or 0):  # a cancellation may get lost, see `end`
                    return b""
                await stream.chunk(data, prompt=prompt, wait=False)
            raise httpx.RemoteProtocolError("the stream has no end")

        await self._attempts(call, {**body, "stream": True}, read)

    async def _read_whole(self, response: httpx.Response) -> bytes:
        payload = await response.aread()
        if _is_error(payload):
            raise EngineFailed("an error in place of a response", payload)
        return payload

    async def _attempts(self, call: _Call, body: dict[str, Any], read: _Read) -> bytes:
        """One engine call, again while nothing has come of it."""
        params = dict(body.get("sampling_params") or {})
        if not self.settings.pass_stop:
            params.pop("stop", None)  # found by the worker, which signals it
        content = _encode({**body, "sampling_params": params})
        backoff = Backoff(first_s=0.1, cap_s=5.0)
        while True:
            last = call.started or backoff.failures >= self.settings.retries
            try:
                async with (
                    self._slots,
                    self.client.stream(
                        "POST", GENERATE, content=content, headers={"content-type": "application/json"}
                    ) as response,
                ):
                    if response.status_code == 200:
                        result: bytes = await read(response)
                        return result
                    payload = await response.aread()
                    if response.status_code not in RETRY_STATUS or last:
                        if not _is_error(payload):
                            payload = error_body(502, f"the engine answered with status {response.status_code}")
                        # with the path: it may be a wrong one that --engine brought along
                        where = f"POST {response.request.url.path}"
                        raise EngineFailed(f"status {response.status_code} for {where}", payload)
                    reason = f"status {response.status_code}"
            except httpx.ReadTimeout:
                # Not again: it works on this one, and would on the next.
                message = f"the engine said nothing for {self.settings.engine_timeout_s:g} s"
                raise EngineFailed(
                    f"nothing for {self.settings.engine_timeout_s:g} s", error_body(504, message)
                ) from None
            except httpx.TransportError as error:
                reason = type(error).__name__
                if call.started:
                    message = f"the engine broke off in mid-stream ({reason})"
                    raise EngineFailed(f"{reason} in mid-stream", error_body(502, message)) from None
                if last:
                    raise EngineFailed(reason, error_body(502, f"the engine cannot be reached ({reason})")) from None
            logger.warning("request %s: engine at %s: %s, trying again", call.taken.request_id, self._engine, reason)
            await backoff.wait()

    async def _fail(self, taken: Taken, call: _Call | None, body: bytes, stream: RequestStream | None = None) -> None:
        """Tell the reader. A stream is open already, whole work is opened for it."""
        if call is None or not call.started:
            if not await self.queue.settle(taken):
                raise Superseded
            self._waiting.pop(taken.place, None)
        if taken.context is not None:
            stream = await self.producer.open(taken.request_id, taken.context)
        stream = stream or RequestStream(self.producer, taken.request_id, seq=1)
        await stream.send({keys.CONTROL: keys.CONTROL_ERROR, keys.ERROR: body})

    async def _leave(self, taken: Taken) -> None:
        """This bridge stops: what has not begun is another one's, what has begun ends with an error."""
        call = self._calls.get(taken.request_id)
        try:
            if call is not None and call.started:
                stop = {keys.REQUEST: taken.request_id.encode(), keys.CONTROL: keys.CONTROL_ERROR}
                stop[keys.ERROR] = error_body(503, "the bridge to the engine was stopped")
                await self.producer.put(self.producer.names.chunks(taken.partition), stop)
            else:
                await self.queue.give_back(taken)
        except _UNPUBLISHED:
            logger.warning("request %s: left without a word, Redis is away", taken.request_id)


def engine_client(settings: BridgeSettings) -> httpx.AsyncClient:
    """The client of one engine: a connection for each call at most."""
    headers: Mapping[str, str] = {}
    if settings.engine_api_key is not None:
        headers = {"authorization": f"Bearer {settings.engine_api_key}"}
    return httpx.AsyncClient(
        base_url=settings.engine or "",
        headers=headers,
        timeout=httpx.Timeout(connect=5.0, read=settings.engine_timeout_s, write=30.0, pool=None),
        limits=httpx.Limits(max_connections=settings.concurrency, max_keepalive_connections=32),
    )
