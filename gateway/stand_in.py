"""A stand-in for an engine: answers `/inference/v1/generate` from a recording, so that the front doors can be tried.

The prompt of a recorded request gets what the engine said to it (the first time, where it was asked again); any other
prompt gets the next recording in turn. It generates nothing: of the sampling parameters it keeps to `n` and
`max_tokens`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, zip_longest
from typing import Annotated

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import HttpError, json_response, refuse
from gateway.http import EventStream, json_body
from gateway.streams import DONE
from producer.replay import Event
from schemas.generate import (
    GENERATE,
    MAX_N,
    GenerateChoice,
    GenerateChunk,
    GenerateRequest,
    GenerateResponse,
    GenerateStreamChoice,
    Usage,
)

MAX_BODY_BYTES = 64 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_request_decoder = msgspec.json.Decoder(GenerateRequest)
_chunk_decoder = msgspec.json.Decoder(GenerateChunk)


class _Context(msgspec.Struct):
    prompt_token_ids: list[int | list[int]] | None = None  # several prompts: a list for each


_context_decoder = msgspec.json.Decoder(_Context)


class _Sampling(msgspec.Struct):
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_N)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


@dataclass
class Recorded:
    """What an engine said to one prompt, by choice. It may have been cut off: then there is no finish reason."""

    prompt: tuple[int, ...] = ()
    choices: dict[int, GenerateChoice] = field(default_factory=dict)

    def add(self, new: GenerateStreamChoice) -> None:
        known = self.choices.get(new.index)
        ids = [*((known.token_ids if known else None) or ()), *(new.token_ids or ())]
        self.choices[new.index] = GenerateChoice(new.index, ids, new.finish_reason, new.stop_reason)

    def choice(self, index: int, max_tokens: int | None) -> GenerateChoice:
        """As the choice of an index; those that were not recorded are the recorded ones again."""
        recorded = self.choices[sorted(self.choices)[index % len(self.choices)]]
        ids = recorded.token_ids or []
        if max_tokens is not None and len(ids) > max_tokens:
            return GenerateChoice(index, ids[:max_tokens], "length")
        return GenerateChoice(index, ids, recorded.finish_reason or "length", recorded.stop_reason)


def recorded(events: Iterable[Event]) -> list[Recorded]:
    """One for each prompt of each request that has an answer. Raises msgspec.DecodeError."""
    found: dict[tuple[str, int], Recorded] = {}
    contexts: dict[str, Sequence[Sequence[int]]] = {}
    for event in events:
        if event.event == "open":
            ids = _context_decoder.decode(event.context).prompt_token_ids or []
            contexts[event.request_id] = [one for one in ids if isinstance(one, list)] or [
                [one for one in ids if isinstance(one, int)]
            ]
        elif event.event == "chunk":
            number = event.prompt or 0
            prompts = contexts.get(event.request_id, ())
            prompt = tuple(prompts[number]) if number < len(prompts) else ()
            one = found.setdefault((event.request_id, number), Recorded(prompt))
            for choice in _chunk_decoder.decode(event.chunk).choices:
                one.add(choice)
    return [one for one in found.values() if one.choices]


class StandIn:
    """recordings: at least one. pause_s: between two tokens of a choice."""

    def __init__(self, recordings: Sequence[Recorded], *, pause_s: float = 0.0) -> None:
        self._by_prompt: Mapping[tuple[int, ...], Recorded] = {one.prompt: one for one in reversed(recordings)}
        self._others = cycle(recordings)
        self._pause_s = pause_s

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[Route(GENERATE, self.generate, methods=["POST"])], exception_handlers={HttpError: _refused}
        )

    async def generate(self, request: Request) -> Response:
        try:
            asked = _request_decoder.decode(await json_body(request, MAX_BODY_BYTES))
            sampling = msgspec.convert(asked.sampling_params, _Sampling)
        except msgspec.DecodeError as error:
            refuse(400, str(error))
        one = self._by_prompt.get(tuple(asked.token_ids)) or next(self._others)
        choices = [one.choice(index, sampling.max_tokens) for index in range(sampling.n or 1)]
        if asked.stream:
            return EventStream(self._events(asked, choices))
        await asyncio.sleep(self._pause_s * max(len(choice.token_ids or ()) for choice in choices))
        return json_response(_encode(GenerateResponse(choices, asked.request_id)))

    async def _events(self, asked: GenerateRequest, choices: Sequence[GenerateChoice]) -> AsyncIterator[bytes]:
        """A token of every choice in turn, each an event of its own; then the usage, if it was asked for."""
        for turn in zip_longest(*(_pieces(choice) for choice in choices)):
            await asyncio.sleep(self._pause_s)
            for piece in filter(None, turn):
                yield _event(GenerateChunk([piece], asked.request_id))
        if (asked.stream_options or {}).get("include_usage"):
            prompt, said = len(asked.token_ids), sum(len(choice.token_ids or ()) for choice in choices)
            yield _event(GenerateChunk([], asked.request_id, usage=Usage(prompt, prompt + said, said)))
        yield DONE


def _pieces(choice: GenerateChoice) -> list[GenerateStreamChoice]:
    pieces = [GenerateStreamChoice(choice.index, [id_]) for id_ in choice.token_ids or ()]
    last = pieces.pop().token_ids if pieces else []
    return [*pieces, GenerateStreamChoice(choice.index, last, choice.finish_reason, choice.stop_reason)]


def _event(chunk: GenerateChunk) -> bytes:
    return b"data: %b\n\n" % _encode(chunk)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return error.response
