"""What a token-in / token-out engine sends: one stream event or one whole response.

Field names are the engine's wire names (vLLM 0.33 `/inference/v1/generate`). Unknown fields are ignored, so that a
newer engine can talk to an older worker.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

GENERATE = "/inference/v1/generate"
"""Path of an engine that answers a GenerateRequest."""

MAX_N = 1024
"""Choices of one generate request that a bridge asks an engine for, at most."""

MAX_TOKEN_ID = 2**31 - 1

TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
"""An id a tokenizer may hold: negative and absurd ids are refused before any decode."""

ChoiceIndex = Annotated[int, Meta(ge=0, le=2**31 - 1)]

FinishReason = Annotated[str, Meta(max_length=64)]
"""Known ones are stop, length, abort, error, repetition; an unknown one is passed on, so it has to be short."""

StopReason = int | Annotated[str, Meta(max_length=1024)]
"""Id of the stop token, or the stop string (as long as a request's may be)."""


class Usage(Struct, frozen=True):
    """Token counts of one response, in tokens. Engines may send details; they are not passed on."""

    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


class GenerateLogprob(Struct, frozen=True):
    """One candidate, in either generation of the format.

    Engines of today send the integer `token_id`; older builds send `token` = the string `token_id:<decimal id>`.
    """

    token_id: TokenId | None = None
    token: str | None = None
    logprob: float = -9999.0


class GenerateLogprobEntry(Struct, frozen=True):
    """One generated position: the sampled id and the engine's candidates (sampled first, then by rank)."""

    token_id: TokenId | None = None
    token: str | None = None
    logprob: float = -9999.0
    top_logprobs: list[GenerateLogprob] | None = None


class GenerateLogprobs(Struct, frozen=True):
    content: list[GenerateLogprobEntry] | None = None


class GenerateStreamChoice(Struct, frozen=True):
    """New ids of one choice. `token_ids` is the delta; empty with a `finish_reason` is legal."""

    index: ChoiceIndex
    token_ids: list[TokenId] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: StopReason | None = None
    logprobs: GenerateLogprobs | None = None


class GenerateChunk(Struct, frozen=True):
    """One event of the engine's stream: `choices` may be empty (usage only)."""

    choices: list[GenerateStreamChoice]
    request_id: str | None = None
    output_mode: str = "tokens"
    usage: Usage | None = None
    prompt_token_ids: list[TokenId] | None = None
    metrics: dict[str, Any] | None = None


class GenerateChoice(Struct, frozen=True):
    """A finished choice: all sampled ids, stop token included. A missing `finish_reason` means "stop"."""

    index: ChoiceIndex
    token_ids: list[TokenId] | None = None
    finish_reason: FinishReason | None = "stop"
    stop_reason: StopReason | None = None
    logprobs: GenerateLogprobs | None = None


class GenerateResponse(Struct, frozen=True):
    """The engine's whole answer to one prompt. Its own `usage` is not read: counts are recomputed."""

    choices: list[GenerateChoice]
    request_id: str | None = None
    output_mode: str = "tokens"
    prompt_token_ids: list[TokenId] | None = None
    prompt_logprobs: list[Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None


class GenerateRequest(Struct, frozen=True, omit_defaults=True):
    """What an engine is asked: the prompt as ids and how to sample. The engine gets it as JSON, fields as named here.

    sampling_params: the engine's own names (`max_tokens`, `temperature`, `n`, `stop_token_ids`, …).
    parse_context: what an engine that derenders itself would need; not read here.
    """

    token_ids: list[TokenId]
    sampling_params: dict[str, Any]
    request_id: str | None = None
    model: str | None = None
    return_token_ids: bool | None = None
    output_mode: str = "tokens"
    parse_context: dict[str, Any] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    cache_salt: str | None = None
    priority: int = 0
    kv_transfer_params: dict[str, Any] | None = None
