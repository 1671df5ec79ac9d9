"""Recorded generations, published again: as recorded, faster, or as fast as Redis takes them.

A recording is JSON lines in order of time: `t` (seconds), `event` (open, chunk, and one of done, abort, error),
`request_id`, `context` with open, `chunk` with chunk (the engine's event), `prompt` with a chunk where a completion has
several, `error` with error. See docs/recordings.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from producer.publish import Producer, RequestStream
from schemas import keys
from schemas.generate import GenerateChunk, GenerateLogprobs, GenerateStreamChoice


class Event(Struct, frozen=True):
    """One line of a recording. context, chunk and error stay the JSON that they were."""

    t: float
    event: Literal["open", "chunk", "done", "abort", "error"]
    request_id: str
    context: Raw = Raw(b"")
    chunk: Raw = Raw(b"")
    prompt: int | None = None
    error: Raw = Raw(b"")


class RecordingError(Exception):
    """A file that is no recording; the message names the line."""


_decoder = msgspec.json.Decoder(Event)
_chunk_decoder = msgspec.json.Decoder(GenerateChunk)
_encode = msgspec.json.Encoder().encode


def read_recording(path: Path) -> list[Event]:
    """All events of a recording. Raises RecordingError, OSError."""
    events: list[Event] = []
    opened: set[str] = set()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                events.append(_decoder.decode(line))
            except msgspec.DecodeError as error:
                raise RecordingError(f"{path}, line {number}: {error}") from None
            if (wrong := _out_of_order(events[-1], opened)) is not None:
                raise RecordingError(f"{path}, line {number}: {wrong}")
    return events


def _out_of_order(event: Event, opened: set[str]) -> str | None:
    """Why an event cannot be published; None: it can. opened: requests that are, as of the event before; changed."""
    id_ = event.request_id
    if event.event == "open":
        opened.add(id_)
        if not keys.valid_request_id(id_):
            return f"request id {id_!r} does not match {keys.REQUEST_ID.pattern}"
        return None if bytes(event.context)[:1] == b"{" else f"open of request {id_!r} without a context, a JSON object"
    if id_ not in opened:
        return f"{event.event} of request {id_!r}, which is not open"
    if event.event != "chunk":
        opened.discard(id_)
    content = {"chunk": event.chunk, "error": event.error}.get(event.event)
    if content is not None and not bytes(content):
        return f"{event.event} of request {id_!r} without its {event.event}"
    return None


def request_ids(events: Iterable[Event]) -> list[str]:
    """Ids of the requests, in the order in which they were opened."""
    return [event.request_id for event in events if event.event == "open"]


def unfinished(events: Iterable[Event]) -> list[str]:
    """Ids of the requests without a `done`, `abort` or `error`, in the order in which they were opened."""
    open_: dict[str, None] = {}
    for event in events:
        if event.event == "open":
            open_[event.request_id] = None
        elif event.event != "chunk":
            open_.pop(event.request_id, None)
    return list(open_)


async def replay(
    producer: Producer,
    events: Iterable[Event],
    *,
    speed: float | None = None,
    copies: int = 1,
    name: Callable[[str, int], str] | None = None,
    created: int | None = None,
    cut: int | None = None,
    on_open: Callable[[str], object] | None = None,
    on_event: Callable[[], None] | None = None,
) -> None:
    """Publish a recording.

    speed: 1 as recorded, 10 ten times as fast, None without pauses. copies: each request so many times, at once.
    name: request id of a copy; default: the recorded id, with `-<copy>` where there are several.
    created: unix seconds for the replies; None: when a request is opened. cut: publish chunks of so many ids.
    on_open: called with each id that a request was published under, as soon as it is. on_event: called for each event
    that was published, copies counted.
    """
    name = name or (lambda id_, copy: id_ if copies == 1 else f"{id_}-{copy}")
    loop = asyncio.get_running_loop()
    start = loop.time()
    streams: dict[str, list[RequestStream]] = {}
    last: list[asyncio.Future[None]] = []
    if cut is not None:
        events = recut(events, cut)
    for due_s, event in schedule(events, speed):
        if (pause := start + due_s - loop.time()) > 0:
            await asyncio.sleep(pause)
        match event.event:
            case "open":
                context = bytes(event.context)
                if created is not None:
                    context = _encode({**msgspec.json.decode(context), "created": created})
                opened = [producer.open(name(event.request_id, copy), context) for copy in range(copies)]
                streams[event.request_id] = list(await asyncio.gather(*opened))
                if on_open is not None:
                    for stream in streams[event.request_id]:
                        on_open(stream.request_id)
            case "chunk":
                for stream in streams[event.request_id]:
                    await stream.chunk(bytes(event.chunk), prompt=event.prompt, wait=False)
            case "done" | "abort" | "error":
                fields = {keys.CONTROL: event.event.encode()}
                if event.event == "error":
                    fields[keys.ERROR] = bytes(event.error)
                last += [asyncio.ensure_future(stream.send(fields)) for stream in streams.pop(event.request_id)]
        if on_event is not None:
            for _ in range(copies):
                on_event()
    await asyncio.gather(*last)


def schedule(events: Iterable[Event], speed: float | None) -> Iterator[tuple[float, Event]]:
    """When each event is due, in seconds after the first one; None: at once."""
    first_t: float | None = None
    for event in events:
        first_t = event.t if first_t is None else first_t
        yield 0.0 if speed is None else (event.t - first_t) / speed, event


def recut(events: Iterable[Event], size: int) -> Iterator[Event]:
    """The same requests with `size` ids in each chunk of a choice; 0: all of them in one. Raises RecordingError.

    Finish reason and what else came with the last ids stay with the last chunk; events without choices stay as is.
    """
    waiting: dict[tuple[str, int | None, int], tuple[GenerateChunk, GenerateStreamChoice]] = {}
    for event in events:
        if event.event != "chunk":
            for key in [key for key in waiting if key[0] == event.request_id]:
                chunk, choice = waiting.pop(key)  # it ended without a finish reason
                yield Event(
                    event.t, "chunk", key[0], chunk=Raw(_encode(replace(chunk, choices=[choice]))), prompt=key[1]
                )
            yield event
            continue
        try:
            chunk = _chunk_decoder.decode(event.chunk)
        except msgspec.DecodeError as error:
            raise RecordingError(f"a chunk of request {event.request_id} cannot be cut: {error}") from None
        if not chunk.choices:
            yield event
            continue
        for choice in chunk.choices:
            key = (event.request_id, event.prompt, choice.index)
            if key in waiting:
                first, held = waiting.pop(key)
                chunk = replace(chunk, prompt_token_ids=first.prompt_token_ids or chunk.prompt_token_ids)
                choice = _joined(held, choice)
            ids = choice.token_ids or []
            while size and len(ids) > size:
                head, choice = _split(choice, size)
                yield replace(event, chunk=Raw(_encode(replace(chunk, choices=[head], usage=None, metrics=None))))
                chunk = replace(chunk, prompt_token_ids=None)
                ids = choice.token_ids or []
            if choice.finish_reason is None and (not size or len(ids) < size):
                waiting[key] = (chunk, choice)
            else:
                yield replace(event, chunk=Raw(_encode(replace(chunk, choices=[choice]))))


def _joined(first: GenerateStreamChoice, second: GenerateStreamChoice) -> GenerateStreamChoice:
    logprobs = second.logprobs
    if first.logprobs is not None:
        content = [*(first.logprobs.content or ()), *((logprobs.content if logprobs else None) or ())]
        logprobs = GenerateLogprobs(content)
    return replace(second, token_ids=[*(first.token_ids or ()), *(second.token_ids or ())], logprobs=logprobs)


def _split(choice: GenerateStreamChoice, size: int) -> tuple[GenerateStreamChoice, GenerateStreamChoice]:
    ids, logprobs = choice.token_ids or [], choice.logprobs
    content = logprobs.content if logprobs else None
    head = GenerateLogprobs(content[:size]) if content is not None else logprobs
    tail = GenerateLogprobs(content[size:]) if content is not None else logprobs
    return (
        GenerateStreamChoice(index=choice.index, token_ids=ids[:size], logprobs=head),
        replace(choice, token_ids=ids[size:], logprobs=tail),
    )
