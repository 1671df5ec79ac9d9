"""Bodies and connections: what every endpoint does with them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import refuse
from link.tasks import end

T = TypeVar("T")

EVENT_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would hold events back
}


async def json_body(request: Request, limit: int) -> bytes:
    """The body of a JSON request, at most `limit` bytes. Raises HttpError; what it says is the worker's affair."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        refuse(400, f"the media type has to be application/json, not {media_type[:100]!r}")
    too_long = f"the body is longer than {limit} bytes"
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit:
        refuse(413, too_long)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            refuse(413, too_long)
        parts.append(part)
    return b"".join(parts)


async def until_gone(receive: Receive) -> None:
    """Returns when the client has gone away. The body has to be read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises ClientDisconnect, and cancels it, when the client goes away before."""
    working, gone = asyncio.create_task(work), asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait([working, gone], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        await end(working, gone)


class EventStream(Response):
    """Server-sent events. `on_gone` is called when the client goes away before the end, `on_close` in any case.

    Not left to the events themselves: a generator that was never started runs none of its own clean-up.
    """

    def __init__(
        self,
        events: AsyncIterator[bytes],
        *,
        headers: dict[str, str] | None = None,
        on_gone: Callable[[], Awaitable[None]] | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(EVENT_HEADERS | (headers or {}))
        self.events = events
        self.on_gone = on_gone
        self.on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending, gone = asyncio.create_task(self._send(send)), asyncio.create_task(until_gone(receive))
        try:
            await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            elif self.on_gone is not None:
                await self.on_gone()
        finally:
            await end(sending, gone)
            await self.events.aclose()  # type: ignore[attr-defined]
            self.on_close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for event in self.events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def run_server(app: ASGIApp, *, host: str, port: int, log_level: str, grace_s: int) -> None:
    """Serve until SIGTERM or SIGINT; then what is open has `grace_s` to end."""
    import uvicorn

    # uvicorn ends in good order, and then raises the signal again for whoever was there before it
    signal.signal(signal.SIGTERM, lambda *_: None)
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level=log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace_s,
    )
