"""The gateway as an ASGI application: which path is answered by what."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from gateway import calls, inspect, openai_front, streams
from gateway.backend import Backend
from gateway.errors import HttpError, error_body, json_response
from gateway.http import run_server
from gateway.metrics import CONTENT_TYPE, Metrics
from gateway.settings import GatewaySettings
from link.redis import UNREACHABLE
from schemas.inspect import INSPECT
from schemas.keys import PREFIX

logger = logging.getLogger(__name__)

Handler = Callable[[Backend, Request], Awaitable[Response]]

CLIENT_GONE = 499
"""What is counted for a client that went away before its answer; nobody reads it."""


def create_app(url: str, settings: GatewaySettings, *, prefix: str = PREFIX, wait_s: float = 30.0) -> Starlette:
    """The gateway for one Redis. Connects when it is started, and waits then for a first worker."""
    metrics = Metrics()
    state: dict[str, Backend] = {}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with Backend.open(url, settings, metrics, prefix=prefix, wait_s=wait_s) as backend:
            state["backend"] = backend
            yield

    def route(path: str, handler: Handler, method: str) -> Route:
        async def endpoint(request: Request) -> Response:
            begin = perf_counter()
            try:
                response = await handler(state["backend"], request)
            except HttpError as error:
                response = error.response
            except ClientDisconnect:
                response = Response(status_code=CLIENT_GONE)
            metrics.requests.labels(path, response.status_code).inc()
            metrics.seconds.labels(path).observe(perf_counter() - begin)
            return response

        return Route(path, endpoint, methods=[method])

    async def show_metrics(request: Request) -> Response:
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origin,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "last-event-id"],
        expose_headers=["x-request-id"],
    )
    inspector = [
        route("/v1/parsers", inspect.parsers, "GET"),
        route(INSPECT, inspect.trace, "POST"),
        route(INSPECT + "/{request_id:path}", inspect.live, "GET"),
        Route("/inspector", inspect.to_page),
        Route("/inspector/{name:path}", inspect.page),
    ]
    return Starlette(
        routes=[
            *(route(path, calls.forward, "POST") for path in calls.POSTED),
            route("/v1/models", calls.models, "GET"),
            route("/v1/chat/completions", openai_front.chat, "POST"),
            route("/v1/completions", openai_front.completion, "POST"),
            route("/v1/streams/{request_id:path}", streams.resume, "GET"),
            route("/health", _health, "GET"),
            Route("/metrics", show_metrics),
            *(inspector if settings.inspector else ()),
        ],
        middleware=[cors] if settings.cors_origin else [],
        exception_handlers={HTTPException: _http_exception, Exception: _unexpected},
        lifespan=lifespan,
    )


async def _health(backend: Backend, request: Request) -> Response:
    """200 while requests can be answered: Redis is there and a worker lives."""
    try:
        workers = await backend.workers()
    except UNREACHABLE:
        return json_response(b'{"status":"redis cannot be reached"}', 503)
    answer = {"status": "ok" if workers else "no worker is alive", "workers": workers}
    return json_response(json.dumps(answer).encode(), 200 if workers else 503)


async def _http_exception(request: Request, error: Exception) -> Response:
    code, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    message = {
        404: f"there is no {request.url.path}: docs/gateway.md has the paths",
        405: f"{request.url.path} does not take {request.method}",
    }
    return json_response(error_body(code, message.get(code, "the request was refused")), code, dict(headers or {}))


async def _unexpected(request: Request, error: Exception) -> Response:
    # The type alone: messages may quote what a request said.
    logger.error("%s: %s", request.url.path, type(error).__name__)
    return json_response(error_body(500, "internal error"), 500)


def serve(url: str, settings: GatewaySettings, *, prefix: str, log_level: str) -> None:
    """Run until SIGTERM or SIGINT."""
    app = create_app(url, settings, prefix=prefix)
    run_server(app, host=settings.host, port=settings.port, log_level=log_level, grace_s=5)
