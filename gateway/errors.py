"""Errors as HTTP answers: the OpenAI error object, whose `code` is the status."""

from __future__ import annotations

from typing import NoReturn

import msgspec
from starlette.responses import Response

from schemas.openai import ErrorBody, ErrorInfo

_encode = msgspec.json.Encoder().encode


class _Code(msgspec.Struct):
    code: int = 500


class _Body(msgspec.Struct):
    error: _Code


_decoder = msgspec.json.Decoder(_Body)

_TYPES = {
    400: "Bad Request",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    410: "GoneError",
    413: "PayloadTooLargeError",
    503: "ServiceUnavailableError",
    504: "TimeoutError",
}


class HttpError(Exception):
    """An answer other than the one that was asked for. body: JSON of an error object; code: its status."""

    def __init__(self, code: int, body: bytes) -> None:
        super().__init__(code)
        self.code = code
        self.body = body

    @property
    def response(self) -> Response:
        headers = {"retry-after": "1"} if self.code == 503 else None
        return json_response(self.body, self.code, headers)


def error_body(code: int, message: str, *, param: str | None = None) -> bytes:
    kind = _TYPES.get(code, "InternalServerError")
    return _encode(ErrorBody(ErrorInfo(message=message, type=kind, param=param, code=code)))


def refuse(code: int, message: str, *, param: str | None = None) -> NoReturn:
    raise HttpError(code, error_body(code, message, param=param))


def from_reply(body: bytes) -> HttpError:
    """An error that a worker or an engine said; codes that are no HTTP errors become 500."""
    try:
        code = _decoder.decode(body).error.code
    except msgspec.DecodeError:
        code = 500
    return HttpError(code if 400 <= code <= 599 else 500, body)


def json_response(body: bytes, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, code, headers, media_type="application/json")
