"""Errors of the core: one class for each party who has to act.

`RequestError` and its children are the caller's to mend and become OpenAI error objects; `GrammarError` is a wrong
declaration and ours to mend.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from schemas.openai import ErrorBody, ErrorInfo

MAX_MESSAGE_CHARS = 500
"""A message may quote what the caller sent, so it is cut."""


def cut(text: str) -> str:
    """The text, at most MAX_MESSAGE_CHARS of it."""
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


class DerenderError(Exception):
    """Base of everything the core raises on purpose."""


class RequestError(DerenderError):
    """The input is wrong: answered with an error object, never retried."""

    code = 400
    type = "BadRequestError"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        message = cut(message)
        super().__init__(message)
        self.message = message
        self.param = None if param is None else cut(param)

    def body(self) -> ErrorBody:
        return ErrorBody(ErrorInfo(message=self.message, type=self.type, param=self.param, code=self.code))


class SchemaError(RequestError):
    """Not JSON, or not of the right shape; `param` is the path of the first failing field."""

    type = "Bad Request"


class StateMismatch(RequestError):
    """A `stream_state` of another version, model, configuration or choice, or one that does not add up."""


class UnknownModel(RequestError):
    code = 404
    type = "NotFoundError"


class ModelUnavailable(RequestError):
    """A served model whose tokenizer cannot be loaded: the operator's to mend, told to the request all the same."""

    code = 503
    type = "ServiceUnavailableError"


class InternalError(RequestError):
    """Our own fault: the step raised what it should not, or stored state cannot be read."""

    code = 500
    type = "InternalServerError"


class IdleTooLong(RequestError):
    """The engine went silent in the middle of a request."""

    code = 504
    type = "TimeoutError"


class ModelNotLoaded(DerenderError):
    """Not an answer: the model has to be loaded first, then the same call works. load: does that."""

    def __init__(self, name: str, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__(f"model {name!r} is not loaded yet")
        self.load = load


class GrammarError(DerenderError):
    """A grammar declaration that cannot work; the message says what to write instead."""
