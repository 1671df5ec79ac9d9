"""The inspector: its page, and what it asks for.

The traces themselves are a worker's answer to a call (`schemas/inspect.py`); this is the page, and what Redis still has
of a request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from gateway.backend import Backend
from gateway.errors import json_response, refuse
from gateway.http import json_body, unless_gone
from gateway.streams import known, request_id_of
from link.redis import UNREACHABLE
from schemas import keys
from schemas.inspect import INSPECT

FOLDER = Path(__file__).parent / "inspector"
FILES = {"": "index.html"} | {name: name for name in ("style.css", "inspector.js", "samples.js")}
MAX_REPLIES = 5000

HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
}
"""Nothing comes from anywhere else, and no other site may frame the page."""

_encode = msgspec.json.Encoder().encode


async def page(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        raise HTTPException(404)
    return FileResponse(FOLDER / FILES[name], headers=HEADERS)


async def to_page(request: Request) -> Response:
    """The page's own paths are relative, so it needs the slash; it works behind a path prefix of a proxy too."""
    return RedirectResponse("inspector/")


async def trace(backend: Backend, request: Request) -> Response:
    body = await json_body(request, backend.settings.max_body_bytes)
    return json_response(await unless_gone(request.receive, backend.call(INSPECT, body)))


async def parsers(backend: Backend, request: Request) -> Response:
    """The parser names that workers know."""
    return json_response(await backend.call("/v1/parsers", b"{}"))


async def live(backend: Backend, request: Request) -> Response:
    """What there is of a request: its context while it is open, its first MAX_REPLIES replies, and how many it has."""
    request_id = request_id_of(request)
    partition = keys.partition_of(request_id, backend.partitions)
    state = await known(backend, request_id)
    try:
        context = await backend.redis.get(backend.names.request(partition, request_id))
        entries = await backend.redis.xrange(backend.names.reply(partition, request_id), count=MAX_REPLIES)
    except UNREACHABLE:
        refuse(503, "Redis cannot be reached")
    answer = {
        "request_id": request_id,
        "status": state.status,
        "last": state.last,
        "context": msgspec.Raw(context) if context else None,
        "replies": [_reply(id_, fields) for id_, fields in entries],
    }
    return json_response(_encode(answer))


def _reply(id_: bytes, fields: dict[bytes, bytes]) -> dict[str, Any]:
    body = fields.get(keys.CHUNK) or fields.get(keys.RESPONSE)
    error = fields.get(keys.ERROR)
    return {
        "id": id_.decode(),
        "chunk": msgspec.Raw(body) if body else None,
        "error": msgspec.Raw(error) if error else None,
        "state_bytes": len(fields.get(keys.STREAM_STATE, b"")) or None,
    }
