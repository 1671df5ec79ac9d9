"""What is carried from one chunk to the next: `StreamState`, one small value per choice.

Unknown fields are refused: state that another version wrote is understood on purpose or not at all.
New fields go to the end, with a default; a change of meaning raises `STATE_VERSION`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from schemas.generate import FinishReason, TokenId

STATE_VERSION = 1
MAX_STATE_BYTES = 256 * 1024
"""Encoded size that is refused unread: several times the largest legal state (all caps full)."""

MAX_PLAIN_STATE_BYTES = 1024
"""No state without a parser is larger, encoded as JSON. The worst one holds MAX_HELD_CHARS characters of 6 bytes each
(control characters, escaped), a carried `id` of 128 and numbers of full length: 846 bytes; a stop string costs two
numbers."""

Offset = Annotated[int, Meta(ge=0, le=2**53)]
"""A count or a time that any JSON reader keeps exact; its length is bounded, and so is the state's."""


class DecodeState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Detokenizer: what the ids so far left undecided.

    pending: bytes of a character that is not complete yet.
    held: decoded text that ends in U+FFFD, kept until the next text shows that it stays one.
    started: some text was decoded, so a decoder that strips one leading space has done so.
    broken: inside a byte-fallback run that is no UTF-8: each further byte of it is one U+FFFD.
    window, unread: ids to rebuild a windowed decoder from, and ids it has not said yet (only for tokenizers without a
        byte table).
    """

    pending: bytes = b""
    held: str = ""
    started: bool = False
    broken: bool = False
    window: tuple[TokenId, ...] = ()
    unread: tuple[TokenId, ...] = ()


class ParserState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parsing engine, between two chunks: see docs/parsing.md for each field's bound.

    region, flags: where the output is, and what was seen so far (bits of `worker/core/run.py`).
    held: text that is not decided yet, such as the beginning of a marker.
    calls: calls begun; history: calls of earlier turns, for ids that count on.
    name, id: of a call whose begin was not said yet.
    phase, mode, stack, scalar: scanners inside arguments; key: member or parameter being read; kind: its types.
    value: a value that has to be complete before it can be typed, or arguments that came before their name.
    raw: output that may be a call or text, as it was written; the names of open elements.
    seen: 4-byte hashes of the parameters of the open call.
    """

    region: Annotated[int, Meta(ge=0, lt=21)] = 0
    flags: Annotated[int, Meta(ge=0, lt=2**23)] = 0
    held: str = ""
    calls: Offset = 0
    history: Offset = 0
    name: str = ""
    id: str = ""
    phase: Annotated[int, Meta(ge=0, lt=16)] = 0
    mode: Annotated[int, Meta(ge=0, lt=128)] = 0
    stack: Annotated[str, Meta(max_length=256, pattern=r"^[{\[(]*$")] = ""
    scalar: Annotated[str, Meta(max_length=7)] = ""
    key: str = ""
    kind: Annotated[int, Meta(ge=0, lt=256)] = 0
    value: str = ""
    raw: str = ""
    seen: Annotated[tuple[int, ...], Meta(max_length=64)] = ()


class HeldCall(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A call that waits for its closer (`complete` streaming)."""

    name: str
    id: str | None = None
    arguments: str = ""


class StreamState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """State of one choice between two chunks.

    version: `STATE_VERSION` of the writer.
    fingerprint: model, tokenizer, template and parser configuration that wrote it.
    index: the choice it belongs to; None until a chunk with a choice came.
    tokens: ids of this choice so far, the stop token and what came after a found stop string included.
    finish: "" while open, else the finish reason that was reported (later chunks are counted and dropped).
    stopped: it was us who finished it, at a stop string, before the engine did.
    stop_held: pieces (text, id or -1) that may begin a stop string, where added tokens are among them.
    stop_begun: without such tokens, the same in short: number of the stop string and how many of its characters came.
    logprob_context: last sampled ids (at most 4), to repair characters that tokens split.
    text_offset: next `text_offset` of completion logprobs, in code points.
    prompt: length of the prompt ids that came with the first chunk, for the model's length limit.
    calls: calls that went out so far. call_done: one of them was complete. call_open: the current call is going out.
    call_held: the call that waits for its closer.
    created, id: of the first chunk, so that all chunks of a client-carried stream agree.
    """

    version: int
    fingerprint: str
    index: Offset | None = None
    tokens: Offset = 0
    role_sent: bool = False
    finish: FinishReason = ""
    stopped: bool = False
    decode: DecodeState | None = None
    stop_held: tuple[tuple[str, int], ...] = ()
    logprob_context: Annotated[tuple[TokenId, ...], Meta(max_length=4)] = ()
    text_offset: Offset = 0
    parser: ParserState | None = None
    prompt: Offset = 0
    calls: Offset = 0
    call_done: bool = False
    call_open: bool = False
    call_held: HeldCall | None = None
    created: Offset | None = None
    id: Annotated[str, Meta(max_length=128)] | None = None
    stop_begun: tuple[Offset, Offset] | None = None


REQUEST_STATE_VERSION = 1


class RequestState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """State of a whole open request: the value of the `open` hash, and all that a takeover needs beside the context.

    version: `REQUEST_STATE_VERSION` of the writer.
    digest: of the context as it was opened; another `open` with another digest is refused.
    created: unix seconds that every reply carries.
    active: ms part of the id of the last entry that was taken in, so Redis' own time.
    prompts, n: prompts of the request and choices for each; a choice's flat index is prompt * n + index.
    replies: number of the last reply (its entry id is `<replies>-0`).
    seq: last sequence number seen; None: the producer does not number.
    usage_due: the client asked for a usage chunk at the end, and it has not been sent.
    reply_to: name of the second reply stream.
    prompt_tokens: of all prompts together, for a usage chunk of our own; None: not known.
    choices: flat choice index -> state of that choice.
    """

    version: int
    digest: str
    created: int
    active: Offset
    prompts: Annotated[int, Meta(ge=1)] = 1
    n: Annotated[int, Meta(ge=1)] = 1
    replies: Offset = 0
    seq: Offset | None = None
    usage_due: bool = False
    reply_to: str | None = None
    choices: dict[int, StreamState] = {}
    prompt_tokens: Offset | None = None
