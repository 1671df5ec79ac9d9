"""The four self-contained derender requests: bytes of a body in, bytes of the answer out.

A streaming call carries its own `stream_state`; it is untrusted and refused with a 400 that says what does not add up.
Checks run in the order of the reference (E1 to E23).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct, structs

from schemas.generate import GenerateChunk
from schemas.keys import valid_request_id
from schemas.openai import ChatCompletionChunk, CompletionChunk
from schemas.request import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
    RequestContext,
)
from schemas.state import MAX_STATE_BYTES, StreamState
from worker.core import validate
from worker.core.client_state import check_client_state
from worker.core.errors import RequestError, SchemaError, StateMismatch
from worker.core.model import Limits, Model
from worker.core.prepare import prepare
from worker.core.step import derender, derender_completions, derender_step
from worker.core.versions import current_stream_state

Endpoint = Literal["chat", "completion"]
Models = Callable[[str | None], Model]
"""Finds a served model by name (None or "": the only or default one). Raises UnknownModel."""

T = TypeVar("T")
Batch = DerenderChatRequest | DerenderCompletionRequest
Stream = DerenderChatStreamRequest | DerenderCompletionStreamRequest


class _Peek(Struct):
    """What tells the four bodies apart."""

    stream: bool = False
    endpoint: str | None = None
    request_id: str | None = None
    generate_responses: msgspec.Raw = msgspec.Raw(b"null")
    completion_request: msgspec.Raw = msgspec.Raw(b"null")
    stream_state: msgspec.Raw = msgspec.Raw(b"null")


class _StreamAnswer(Struct, frozen=True):
    chunk: ChatCompletionChunk | CompletionChunk
    stream_state: StreamState


def _lax(type_: type[T]) -> msgspec.json.Decoder[T]:
    # numbers in strings are accepted from clients, as the reference does
    return msgspec.json.Decoder(type_, strict=False)


_peek = _lax(_Peek)
_chat = _lax(DerenderChatRequest)
_completion = _lax(DerenderCompletionRequest)
_chat_stream = _lax(DerenderChatStreamRequest)
_completion_stream = _lax(DerenderCompletionStreamRequest)
_encoder = msgspec.json.Encoder()

ENDPOINTS: dict[str, Endpoint] = {
    "chat": "chat",
    "/v1/chat/completions/derender": "chat",
    "completion": "completion",
    "/v1/completions/derender": "completion",
}


def derender_call(
    models: Models,
    body: bytes,
    *,
    created: int,
    endpoint: str | None = None,
    default_endpoint: str | None = None,
    request_id: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> bytes:
    """Answer one derender request.

    body: JSON of one of the four requests. endpoint: `chat`, `completion` or the HTTP path; None: the body's own
        `endpoint` member, else default_endpoint, else a body with `generate_responses` or `completion_request` is a
        completion.
    created: unix seconds, where neither body nor state say. request_id: where the engine's message has none.
    Returns the JSON of the response, `{"chunk", "stream_state"}` for a stream. Raises RequestError.
    """
    peek = validate.decode(_peek, body, limits)
    kind = _kind(endpoint or peek.endpoint or default_endpoint, peek)
    if peek.request_id is not None and not valid_request_id(peek.request_id):
        raise SchemaError("request_id must be 1 to 128 of A-Z a-z 0-9 . _ : / -", param="body.request_id")
    if len(bytes(peek.stream_state)) > MAX_STATE_BYTES:
        raise StateMismatch(f"stream_state is over the limit of {MAX_STATE_BYTES} bytes")
    fallback_id = request_id or blake2b(body, digest_size=8).hexdigest()
    if not peek.stream:
        batch: Batch
        if kind == "chat":
            batch = validate.decode(_chat, body, limits, deep=False)
        else:
            batch = validate.decode(_completion, body, limits, deep=False)
        return _encoder.encode(_batch(models, batch, created, fallback_id))
    carried = bytes(peek.stream_state)
    if (current := current_stream_state(carried)) is not carried:
        body = _encoder.encode({**msgspec.json.decode(body), "stream_state": msgspec.Raw(current)})
    stream: Stream
    if kind == "chat":
        stream = validate.decode(_chat_stream, body, limits, deep=False)
    else:
        stream = validate.decode(_completion_stream, body, limits, deep=False)
    return _encoder.encode(_stream(models, stream, created, fallback_id))


def _kind(endpoint: str | None, peek: _Peek) -> Endpoint:
    if endpoint is not None:
        if endpoint not in ENDPOINTS:
            raise SchemaError(f"endpoint {endpoint!r}: use one of {', '.join(ENDPOINTS)}", param="body.endpoint")
        return ENDPOINTS[endpoint]
    if bytes(peek.generate_responses) != b"null" or bytes(peek.completion_request) != b"null":
        return "completion"
    return "chat"


def _context(request: Batch | Stream) -> RequestContext:
    """What a request says of itself, by its own rules: these come before the model is looked up (E5 to E7)."""
    chat = completion = None
    if isinstance(request, DerenderChatRequest | DerenderChatStreamRequest):
        kind: Endpoint = "chat"
        chat = request.chat_request
    else:
        kind = "completion"
        completion = request.completion_request
    if chat is not None:
        validate.check_chat(chat)
    if completion is not None:
        validate.check_completion(completion)
    ids = request.prompt_token_ids
    return RequestContext(
        kind=kind,
        chat_request=chat,
        completion_request=completion,
        prompt_token_ids=None if ids is None else [*ids],
        prompt_tokens=request.prompt_tokens,
    )


def _batch(models: Models, request: Batch, created: int, fallback_id: str) -> Struct:
    if request.created is not None:
        created = request.created
    if isinstance(request, DerenderChatRequest):
        context = _context(request)
        model = models(request.model)
        id_ = request.generate_response.request_id or request.request_id or fallback_id
        validate.check_response_size(request.generate_response, model.limits)
        prepared = prepare(model, context, request_id=id_, created=created)
        return derender(prepared, request.generate_response)
    count = len(request.generate_responses)
    for name, values in (("prompt_tokens", request.prompt_tokens), ("prompt_token_ids", request.prompt_token_ids)):
        if values is not None and len(values) != count:
            raise SchemaError(f"{name} has {len(values)} elements for {count} generate_responses", param=f"body.{name}")
    context = _context(request)
    model = models(request.model)
    if not request.generate_responses:
        raise RequestError("generate_responses must not be empty")
    id_ = request.generate_responses[0].request_id or request.request_id or fallback_id
    validate.check_responses(request.generate_responses, model.limits)
    prepared = prepare(model, context, request_id=id_, created=created)
    return derender_completions(prepared, request.generate_responses)


def _stream(models: Models, request: Stream, created: int, fallback_id: str) -> _StreamAnswer:
    state = request.stream_state
    context = _context(request)
    # a stream keeps what its first chunk was told, so that all its chunks agree
    created = request.created if request.created is not None else created
    id_ = request.generate_chunk.request_id or request.request_id
    if state is not None:
        created = state.created if state.created is not None else created
        id_ = id_ or state.id
    id_ = id_ or fallback_id
    prepared = prepare(models(request.model), context, request_id=id_, created=created)
    if state is not None:
        check_client_state(prepared, state)
    try:
        chunk, after = derender_step(prepared, request.generate_chunk, state)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        if state is None or state.parser is None:
            raise
        # E21: a parser's fields mean something to its grammar alone, and no table says which go together
        raise StateMismatch("stream_state: parser does not add up for this model's parsers") from error
    return _StreamAnswer(chunk, structs.replace(after, created=created, id=_carried(request.generate_chunk, id_)))


def _carried(chunk: GenerateChunk, id_: str) -> str | None:
    return None if chunk.request_id else id_
