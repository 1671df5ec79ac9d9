"""`/v1/chat/completions` and `/v1/completions`: render on a worker, generate at an engine, derender on a worker.

The request is opened and handed to a bridge; what comes back are replies like any other's, so a client that loses its
connection can read on at `/v1/streams/{id}`, where `id` is the one in every chunk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Literal

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.backend import Backend, new_id
from gateway.errors import HttpError, from_reply, json_response, refuse
from gateway.http import EventStream, json_body, unless_gone
from gateway.mailbox import Missed, Waiter
from gateway.streams import DONE, events, from_mailbox
from producer.read import Reply
from schemas.generate import MAX_N, GenerateRequest

_encode = msgspec.json.Encoder().encode
_requests_decoder = msgspec.json.Decoder(GenerateRequest | list[GenerateRequest])


class _Peek(msgspec.Struct):
    """What this side reads of a request. detach: go on when the client has gone away."""

    stream: bool | None = False
    detach: bool | None = False
    n: int | None = None


_peek_decoder = msgspec.json.Decoder(_Peek, strict=False)

Kind = Literal["chat", "completion"]


async def chat(backend: Backend, request: Request) -> Response:
    return await _complete(backend, request, "chat", "/v1/chat/completions/render", new_id("chatcmpl"))


async def completion(backend: Backend, request: Request) -> Response:
    return await _complete(backend, request, "completion", "/v1/completions/render", new_id("cmpl"))


async def _complete(backend: Backend, request: Request, kind: Kind, render: str, request_id: str) -> Response:
    body = await json_body(request, backend.settings.max_body_bytes)
    asked, wrong = _peek(body)
    if asked.n is not None and not 1 <= asked.n <= MAX_N:  # a bridge would say so in words of its own
        refuse(400, f"n must be from 1 to {MAX_N}", param="n")
    rendered = await unless_gone(request.receive, backend.call(render, body, request_id=request_id))
    if wrong:  # it is `detach`: the rest the worker has looked at
        refuse(400, wrong, param="detach")
    work = _Generation(backend, kind, request_id, body, rendered)
    if asked.stream:
        return await work.stream(request, detach=bool(asked.detach))
    return await work.whole(request, detach=bool(asked.detach))


def _peek(body: bytes) -> tuple[_Peek, str]:
    """What is read here, and why it cannot be."""
    try:
        return _peek_decoder.decode(body), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _Peek(), str(error)


class _Generation:
    """One request on its way through bridge and workers."""

    def __init__(self, backend: Backend, kind: Kind, request_id: str, body: bytes, rendered: bytes) -> None:
        self.backend = backend
        self.request_id = request_id
        self.rendered = rendered
        decoded = _requests_decoder.decode(rendered)
        requests = decoded if isinstance(decoded, list) else [decoded]
        ids = [one.token_ids for one in requests]
        counts = [len(one) for one in ids]
        several = len(requests) > 1
        self.model = requests[0].model
        self.context = _encode(
            {
                "kind": kind,
                "model": self.model,
                f"{kind}_request": msgspec.Raw(body),
                "prompt_token_ids": ids if several else ids[0],
                "prompt_tokens": counts if several else counts[0],
                "reply_to": backend.mailbox.name,
            }
        )

    async def _publish(self, *, whole: bool) -> None:
        producer = self.backend.producer
        queue = self.backend.settings.queues.get(self.model or "", "")
        async with self.backend.publishing():
            await self.backend.need_bridge(queue, self.model)
            if not whole:
                await producer.open(self.request_id, self.context)
            context = self.context if whole else None
            await producer.generate(self.request_id, self.rendered, context=context, queue=queue)

    async def _first(self, waiter: Waiter) -> list[Reply]:
        """The first replies; errors that come before any of them are answers with a status."""
        try:
            replies = await self.backend.first(waiter)
        except TimeoutError:
            await self.backend.abort(self.request_id)
            refuse(504, f"no answer within {self.backend.settings.timeout_s:g} s")
        except HttpError:  # no worker: nobody waits for what the engine still says
            await self.backend.abort(self.request_id)
            raise
        except Missed:
            return []
        if replies[0].error is not None:
            raise from_reply(replies[0].error)
        return replies

    async def _begin(self, waiter: Waiter, *, whole: bool) -> list[Reply]:
        await self._publish(whole=whole)
        return await self._first(waiter)

    async def whole(self, request: Request, *, detach: bool) -> Response:
        with self.backend.mailbox.waiter(self.request_id) as waiter:
            try:
                replies = await unless_gone(request.receive, self._begin(waiter, whole=True))
            except ClientDisconnect:
                if not detach:
                    await self.backend.abort(self.request_id)
                raise
        if not replies or replies[0].response is None:
            refuse(500, "the answer was lost")
        return json_response(replies[0].response, headers={"x-request-id": self.request_id})

    async def stream(self, request: Request, *, detach: bool) -> Response:
        async def gone() -> None:
            if not detach:
                await self.backend.abort(self.request_id)

        with ExitStack() as stack:
            waiter = stack.enter_context(self.backend.mailbox.waiter(self.request_id))
            try:
                first = await unless_gone(request.receive, self._begin(waiter, whole=False))
            except ClientDisconnect:
                await gone()
                raise
            kept = stack.pop_all()
        return EventStream(
            events(self.backend, self._replies(waiter, first), end=DONE),
            headers={"x-request-id": self.request_id},
            on_gone=gone,
            on_close=kept.close,
        )

    async def _replies(self, waiter: Waiter, first: list[Reply]) -> AsyncIterator[list[Reply]]:
        if first:
            yield first
            if first[-1].done is not None:
                return
        try:
            async for batch in from_mailbox(self.backend, self.request_id, waiter):
                yield batch
        except TimeoutError:
            await self.backend.abort(self.request_id)
            raise
