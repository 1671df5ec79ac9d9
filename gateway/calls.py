"""Endpoints that a worker answers in one go: the HTTP feature's two `derender`, the two `render`, the list of models.

The body goes to a worker as it is, and the answer comes back as it is; its checks are the worker's too.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gateway.backend import Backend, new_id
from gateway.errors import json_response
from gateway.http import json_body, unless_gone

POSTED = (
    "/v1/chat/completions/derender",
    "/v1/completions/derender",
    "/v1/chat/completions/render",
    "/v1/completions/render",
)


async def forward(backend: Backend, request: Request) -> Response:
    body = await json_body(request, backend.settings.max_body_bytes)
    endpoint = request.url.path
    request_id = new_id("chatcmpl" if endpoint.startswith("/v1/chat/") else "cmpl")
    return json_response(await unless_gone(request.receive, backend.call(endpoint, body, request_id=request_id)))


async def models(backend: Backend, request: Request) -> Response:
    return json_response(await backend.call("/v1/models", b"{}"))
