"""What a request is: the context of a stream, and the four self-contained derender requests."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.generate import GenerateChunk, GenerateResponse, TokenId
from schemas.openai import ChatRequest, CompletionRequest
from schemas.state import Offset, StreamState

Count = Annotated[int, Meta(ge=0, le=2**40)]
"""Bounded so that the sum over all prompts of a request fits its stored state."""


class RequestContext(Struct, frozen=True, omit_defaults=True):
    """Everything about a request that stays the same for all of its chunks; published once, with `open`.

    prompt_token_ids: ids of the rendered prompt (a tail is enough without parsers); for a completion with several
        prompts one list per prompt. None: not known.
    prompt_tokens: number of prompt tokens, for `usage`; a list where there are several prompts.
    created: unix seconds; None: the seconds of the `open` entry's id.
    reply_to: name of a second stream that also gets every reply.
    fingerprint: what the producer expects `Model.fingerprint` to be; None: no expectation.
    """

    kind: Literal["chat", "completion"]
    model: str | None = None
    chat_request: ChatRequest | None = None
    completion_request: CompletionRequest | None = None
    prompt_token_ids: list[TokenId | list[TokenId] | None] | None = None
    prompt_tokens: Count | list[Count] | None = None
    created: Offset | None = None
    reply_to: str | None = None
    fingerprint: str | None = None


class DerenderChatRequest(Struct, frozen=True):
    """`POST /v1/chat/completions/derender`, batch."""

    generate_response: GenerateResponse
    stream: Literal[False] = False
    model: str | None = None
    prompt_tokens: Count | None = None
    prompt_token_ids: list[TokenId] | None = None
    chat_request: ChatRequest | None = None
    request_id: str | None = None
    created: Offset | None = None


class DerenderCompletionRequest(Struct, frozen=True):
    """`POST /v1/completions/derender`, batch: one generate response per prompt."""

    generate_responses: list[GenerateResponse]
    stream: Literal[False] = False
    model: str | None = None
    prompt_tokens: list[Count] | None = None
    prompt_token_ids: list[list[TokenId] | None] | None = None
    completion_request: CompletionRequest | None = None
    request_id: str | None = None
    created: Offset | None = None


class DerenderChatStreamRequest(Struct, frozen=True):
    """`POST /v1/chat/completions/derender`, `stream: true`: one chunk and the state of the call before."""

    stream: Literal[True]
    generate_chunk: GenerateChunk
    model: str | None = None
    stream_state: StreamState | None = None
    prompt_tokens: Count | None = None
    prompt_token_ids: list[TokenId] | None = None
    chat_request: ChatRequest | None = None
    request_id: str | None = None
    created: Offset | None = None


class DerenderCompletionStreamRequest(Struct, frozen=True):
    """`POST /v1/completions/derender`, `stream: true`."""

    stream: Literal[True]
    generate_chunk: GenerateChunk
    model: str | None = None
    stream_state: StreamState | None = None
    prompt_tokens: Count | None = None
    prompt_token_ids: list[TokenId] | None = None
    completion_request: CompletionRequest | None = None
    request_id: str | None = None
    created: Offset | None = None
