"""What a client sends and reads: the parts of the OpenAI request that derendering needs, and every response shape.

Responses carry every field of the schema, null included; only `tool_calls` is left out when there are none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from schemas.generate import TokenId, Usage

StopStrings = str | Annotated[list[str], Meta(max_length=4)] | None

# --- requests -------------------------------------------------------------------------------------------------------


class FunctionDefinition(Struct, frozen=True):
    name: str
    parameters: dict[str, Any] | None = None


class Tool(Struct, frozen=True):
    function: FunctionDefinition
    type: Literal["function"] = "function"


class Message(Struct, frozen=True):
    """A message of the history: only the number of assistant tool calls is read."""

    role: str | None = None
    tool_calls: list[Raw] | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatRequest(Struct, frozen=True):
    """The fields of a chat completion request that change derendering, or whose validation can fail it."""

    messages: list[Message]
    tools: list[Tool] | None = None
    tool_choice: Any = UNSET
    parallel_tool_calls: bool | None = True
    include_reasoning: bool = True
    skip_special_tokens: bool | None = True
    stop: StopStrings = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    logprob_token_ids: list[TokenId] | None = None
    return_token_ids: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    add_generation_prompt: bool | UnsetType = UNSET
    continue_final_message: bool | UnsetType = UNSET
    documents: list[Any] | None = None
    chat_template: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    prompt_logprobs: int | None = None
    structured_outputs: dict[str, Any] | None = None
    n: int | None = 1


class CompletionRequest(Struct, frozen=True):
    """The fields of a completion request that change derendering, or whose validation can fail it."""

    prompt: Any = None
    prompt_embeds: Any = None
    skip_special_tokens: bool | None = True
    stop: StopStrings = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    logprob_token_ids: list[TokenId] | None = None
    return_token_ids: bool | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1


# --- chat responses -------------------------------------------------------------------------------------------------


class FunctionCall(Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(Struct, frozen=True):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class ChatMessage(Struct, frozen=True):
    content: str | None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None


class TopLogprob(Struct, frozen=True):
    """`bytes` is the UTF-8 of `token`; null for an id without a vocabulary entry."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    content: list[TokenLogprob] | None


class ChatChoice(Struct, frozen=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = "stop"
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    routed_experts: None = None
    weight_versions: None = None


class ChatCompletionResponse(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    service_tier: None = None
    system_fingerprint: None = None
    prompt_logprobs: list[Any] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_text: None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: None = None
    metrics: dict[str, Any] | None = None


class FunctionCallDelta(Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(Struct, frozen=True):
    """`id`, `type` and `function.name` come once per call index; later pieces carry only arguments."""

    index: int
    function: FunctionCallDelta
    id: str | None = None
    type: Literal["function"] | None = None


class FunctionCallPiece(FunctionCallDelta, frozen=True, omit_defaults=True):
    """The same without nulls."""


class ToolCallPiece(ToolCallDelta, frozen=True, omit_defaults=True):
    """The same without nulls, as streams have it: clients that merge deltas take a null for a new value."""


class ChatDelta(Struct, frozen=True):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(Struct, frozen=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    weight_versions: None = None


class ChatCompletionChunk(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | None = None
    system_fingerprint: None = None
    prompt_token_ids: list[int] | None = None
    prompt_text: None = None
    metrics: dict[str, Any] | None = None
    kv_transfer_params: None = None


# --- completion responses -------------------------------------------------------------------------------------------


class CompletionLogprobs(Struct, frozen=True):
    """Four parallel lists, one element a token; `text_offset` counts code points from the start of the choice."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(Struct, frozen=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: None = None
    routed_experts: None = None
    weight_versions: None = None


class CompletionResponse(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    object: Literal["text_completion"] = "text_completion"
    service_tier: None = None
    system_fingerprint: None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: None = None
    metrics: dict[str, Any] | None = None


class CompletionChunkChoice(Struct, frozen=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    weight_versions: None = None


class CompletionChunk(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    object: Literal["text_completion"] = "text_completion"
    usage: Usage | None = None
    system_fingerprint: None = None
    metrics: dict[str, Any] | None = None
    kv_transfer_params: None = None


# --- errors ---------------------------------------------------------------------------------------------------------


class ErrorInfo(Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: int


class ErrorBody(Struct, frozen=True):
    """The OpenAI error object; `code` is the HTTP status that goes with it."""

    error: ErrorInfo
