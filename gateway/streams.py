"""Replies as server-sent events: live ones, and `GET /v1/streams/{request_id}` for readers that come (back) later.

The id of an event is the entry id of its reply, so `Last-Event-ID` says exactly what a reader has. Whatever cannot be
delivered is said: with a status where nothing was sent yet, with an error event after that. Never a silent wait.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from gateway.backend import Backend, State
from gateway.errors import error_body, refuse
from gateway.http import EventStream
from gateway.mailbox import Missed, Waiter
from gateway.snapshot import Snapshot
from link.redis import UNREACHABLE
from link.tasks import end
from producer.read import Reply, ReplyUnavailable
from schemas import keys

HEARTBEAT = b": heartbeat\n"
"""A line of its own: a blank line after it would end an event, and clients that saw an id read an empty one."""
DONE = b"data: [DONE]\n\n"
"""How a stream of the OpenAI API ends."""

TERMINAL = b"event: done\n" + DONE
"""The same as an event of its own, for an `EventSource` that has to be told to close."""

RETRY = b"retry: 1000\n\n"
"""How long an `EventSource` waits before it connects again, in ms."""

_EVENT_ID = re.compile(r"(\d{1,15})(?:-0)?")

Replies = AsyncIterator[list[Reply]]
"""Replies in order, as many as there are at a time; an empty list says that nothing came for a while."""


def event(reply: Reply) -> bytes:
    return b"id: %b\ndata: %b\n\n" % (reply.id.encode(), reply.data)


async def events(backend: Backend, replies: Replies, *, end: bytes) -> AsyncIterator[bytes]:
    """Events of replies, up to the last one and the end. What stops them early is an event too."""
    sent = backend.metrics.events
    backend.metrics.streams.inc()
    try:
        async for batch in replies:
            if not batch:
                yield HEARTBEAT
                continue
            sent.inc(len(batch))
            text = b"".join(map(event, batch))
            if batch[-1].done is not None:
                yield text + end
                return
            yield text
        yield end
    except ReplyUnavailable as error:
        yield b"data: %b\n\n" % error_body(410, str(error)) + end
    except TimeoutError:
        yield b"data: %b\n\n" % error_body(504, f"nothing came for {backend.settings.timeout_s:g} s") + end
    finally:
        backend.metrics.streams.dec()
        await replies.aclose()  # type: ignore[attr-defined]


async def from_mailbox(backend: Backend, request_id: str, waiter: Waiter) -> Replies:
    """Replies of a request of this process. Raises TimeoutError after too long a silence."""
    heartbeat_s = backend.settings.heartbeat_s
    silent_s = 0.0
    while True:
        try:
            batch = await waiter.take(heartbeat_s)
        except TimeoutError:
            silent_s += heartbeat_s
            if silent_s >= backend.settings.timeout_s:
                raise
            yield []
            continue
        except Missed:
            break
        silent_s = 0.0
        yield batch
        if batch[-1].done is not None:
            return
    async for batch in from_stream(backend, request_id, waiter.last):
        yield batch


async def from_stream(backend: Backend, request_id: str, after: int) -> Replies:
    """Replies of any request after number `after`. Raises ReplyUnavailable."""
    replies = backend.follow(request_id, after)
    waiting: asyncio.Task[Reply | None] | None = None

    async def following() -> Reply | None:
        return await anext(replies, None)

    try:
        while True:
            waiting = waiting or asyncio.create_task(following())
            await asyncio.wait([waiting], timeout=backend.settings.heartbeat_s)
            if not waiting.done():
                yield []
                continue
            reply, waiting = waiting.result(), None
            if reply is None:
                return
            yield [reply]
    finally:
        if waiting is not None:
            await end(waiting)
        await replies.aclose()  # type: ignore[attr-defined]


def request_id_of(request: Request) -> str:
    """The id in the path. Raises HttpError."""
    request_id = str(request.path_params["request_id"])
    if not keys.valid_request_id(request_id):
        refuse(400, "a request id has 1 to 128 of A-Z a-z 0-9 . _ : / -")
    return request_id


async def known(backend: Backend, request_id: str) -> State:
    """What there is of a request. Raises HttpError where nothing is left: 404, or 410 while its outcome is known."""
    state = await backend.look(request_id)
    if state.status is None and not state.last:
        refuse(404, f"request {request_id} is not known, or its stream was forgotten")
    if state.status in keys.CLOSED and not state.last:
        refuse(410, f"request {request_id} is {state.status}, and its stream has expired")
    return state


async def resume(backend: Backend, request: Request) -> Response:
    """`GET /v1/streams/{request_id}`.

    `Last-Event-ID` (or `?after=`): only what comes after it. `?from=snapshot`: one event with the message so far, then
    the rest. 204: the stream has ended, and there is nothing after it. 404: not known (or forgotten). 410: what was
    asked for has expired, or never was: an `EventSource` stops at this too.
    """
    request_id = request_id_of(request)
    start = request.query_params.get("from", "start")
    if start not in ("start", "snapshot"):
        refuse(400, "from has to be start or snapshot", param="from")
    after = _last_seen(request)
    if after is not None:
        start = "start"
    after = after or 0
    state = await known(backend, request_id)
    if state.first > after + 1 and state.last > after:
        gone = state.first - after - 1
        which = f"event {after + 1}" if gone == 1 else f"events {after + 1} to {state.first - 1}"
        refuse(410, f"{which} of request {request_id} {'has' if gone == 1 else 'have'} expired")
    # An open stream may be behind its reader, as after a failover that lost writes: workers then make the lost replies
    # again, and the reader goes on behind its own last one. Should it end before that, `events` says so.
    if state.status != keys.STATUS_OPEN and after > state.last:
        outcome = state.status or "over"
        refuse(410, f"request {request_id} has no event {after}-0: it is {outcome}, and ended with {state.last}-0")
    if state.status != keys.STATUS_OPEN and after == state.last:
        return Response(status_code=204)
    replies = from_stream(backend, request_id, after)
    if start == "snapshot":
        replies = _from_snapshot(backend, request_id, state.last)
    return EventStream(_with_retry(events(backend, replies, end=TERMINAL)), headers={"x-request-id": request_id})


def _last_seen(request: Request) -> int | None:
    """Number of the last event that a reader has, by its header or else its query. Raises HttpError."""
    header, query = request.headers.get("last-event-id"), request.query_params.get("after")
    seen = header or query
    if not seen:
        return None
    match = _EVENT_ID.fullmatch(seen)
    if match is None:
        what, param = ("Last-Event-ID", None) if header else ("after", "after")
        refuse(400, f"{what} has to be the id of an event of this stream, such as 7-0", param=param)
    return int(match[1])


async def _with_retry(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield RETRY
    try:
        async for part in source:
            yield part
    finally:
        await source.aclose()  # type: ignore[attr-defined]


async def _from_snapshot(backend: Backend, request_id: str, last: int) -> Replies:
    """The replies up to number `last` as one, then the rest."""
    snapshot = Snapshot()
    said: list[Reply] = []  # the merged chunks, then a response or an error, which is no chunk
    try:
        async for page in backend.pages(request_id, last):
            for reply in page:
                if reply.chunk is None:
                    said.append(reply)
                else:
                    snapshot.add(reply.chunk)
                    said = [reply]
    except UNREACHABLE:
        raise ReplyUnavailable("Redis cannot be reached") from None
    if (merged := snapshot.chunk()) is not None:
        said[0] = replace(said[0], chunk=merged)
    if said:
        yield said
    if not said or said[-1].done is None:
        async for batch in from_stream(backend, request_id, last):
            yield batch
