"""What the inspector asks a worker, and what it is told: a generation, token by token."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from schemas.generate import GenerateChunk
from schemas.openai import ChatDelta
from schemas.request import RequestContext

INSPECT = "/v1/inspect"
"""Endpoint of the call, and path on the gateway."""

MAX_TOKENS = 4096
"""Token ids of one trace: each costs two steps, and live tokens wait meanwhile."""

Kind = Literal["reasoning", "content", "marker", "name", "argument", "stop", "dropped"]
"""What became of a piece of text: `marker` was consumed and said to nobody, `name` is a tool's, `stop` was cut off at
the end, `dropped` came after it or in a part that nobody is shown."""


class ParserChoice(Struct, frozen=True):
    """Parser options in place of the served model's own. Names as for `derender worker`."""

    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    enable_auto_tool_choice: bool = False
    default_chat_template_kwargs: dict[str, Any] = {}
    tool_call_streaming: Literal["eager", "complete"] = "eager"
    forced_tool_format: Literal["native", "json"] = "native"
    stop_scope: Literal["output", "content"] = "output"


class InspectRequest(Struct, frozen=True):
    """chunks: the engine's events, those of other choices and prompts included. parsers: None: the model's own."""

    context: RequestContext
    chunks: list[GenerateChunk]
    index: Annotated[int, Meta(ge=0)] = 0
    prompt: Annotated[int, Meta(ge=0)] = 0
    parsers: ParserChoice | None = None


class TokenTrace(Struct, frozen=True):
    """One token id. token: how the vocabulary writes it. pieces: (kind, text) of what it added to the output.

    chunk: number of the engine's event that brought it. region: what the parser was in after it. held: text that was
    not decided after it. delta: what a client would be sent for it alone. state_bytes: encoded state after it.
    """

    id: int
    token: str
    special: bool
    chunk: int
    pieces: tuple[tuple[Kind, str], ...]
    region: str
    held: str
    delta: ChatDelta
    state_bytes: int


class ChunkTrace(Struct, frozen=True):
    """One event of the engine, as it came: number of its ids, what the client was sent, and the state after it."""

    tokens: int
    delta: ChatDelta
    finish_reason: str | None
    stop_reason: int | str | None
    state_bytes: int


class CallTrace(Struct, frozen=True):
    name: str
    arguments: str


class InspectAnswer(Struct, frozen=True):
    """fingerprint: of the configuration that was used. content, reasoning, calls: all deltas together."""

    model: str
    fingerprint: str
    parsers: ParserChoice
    tokens: list[TokenTrace]
    chunks: list[ChunkTrace]
    content: str
    reasoning: str
    calls: list[CallTrace]
    finish_reason: str | None
