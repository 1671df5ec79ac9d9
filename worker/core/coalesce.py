"""Consecutive chunks of one choice become one: an option for backlogs. Pure.

A stream may be cut anywhere, so the merged chunk says what its parts would have said one after the other, in one reply
with the state of the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from schemas import keys
from schemas.generate import GenerateChunk, GenerateLogprobs, GenerateStreamChoice
from worker.core.session import Entry

_FIELDS = frozenset((keys.REQUEST, keys.SEQ, keys.CHUNK, keys.PROMPT))
_decoder = msgspec.json.Decoder(GenerateChunk)
_encode = msgspec.json.Encoder().encode

NextSeq = Callable[[bytes], int | None]
"""Number that the next entry of an open request has to have; None: the request is not open, or does not number."""


class _Run:
    """Entries of one request that may become one."""

    def __init__(self, seq: int | None) -> None:
        self.seq = seq
        self.entries: list[Entry] = []
        self.chunks: list[GenerateChunk] = []

    def take(self, entry: Entry, chunk: GenerateChunk) -> bool:
        """Whether the entry continues the run; then it is part of it."""
        seq = entry.fields.get(keys.SEQ)
        if seq != (None if self.seq is None else b"%d" % (self.seq + len(self.entries))):
            return False
        if self.chunks:
            last, choice = self.chunks[-1].choices[0], chunk.choices[0]
            if (
                last.finish_reason is not None
                or last.index != choice.index
                or (last.logprobs is None) != (choice.logprobs is None)
                or entry.fields.get(keys.PROMPT) != self.entries[-1].fields.get(keys.PROMPT)
            ):
                return False
        self.entries.append(entry)
        self.chunks.append(chunk)
        return True

    def merged(self) -> Entry:
        if len(self.entries) == 1:
            return self.entries[0]
        choices = [chunk.choices[0] for chunk in self.chunks]
        logprobs = None
        if choices[0].logprobs is not None:
            content = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content or ()]
            logprobs = GenerateLogprobs(content)
        choice = GenerateStreamChoice(
            index=choices[0].index,
            token_ids=[id_ for choice in choices for id_ in choice.token_ids or ()],
            finish_reason=choices[-1].finish_reason,
            stop_reason=choices[-1].stop_reason,
            logprobs=logprobs,
        )
        last = self.entries[-1]
        chunk = GenerateChunk([choice], request_id=self.chunks[0].request_id)
        fields = {**last.fields, keys.CHUNK: _encode(chunk)}
        return Entry(last.id, fields, tuple(self.entries))


def coalesce(entries: Sequence[Entry], next_seq: NextSeq) -> list[Entry]:
    """The same entries, with runs of chunks of one choice as one entry each (`Entry.parts` are what it stands for).

    The order within each request stays; of different requests it may change, so the whole list is committed or nothing.
    What is not a plain chunk (an open, a control, usage, several choices, a gap in the numbers) stays as it is.
    """
    slots: list[Entry | _Run] = []
    runs: dict[bytes, _Run | None] = {}  # the last run of a request; None: it may not be continued
    taken: dict[bytes, int] = {}
    for entry in entries:
        id_ = entry.fields.get(keys.REQUEST, b"")
        seen = taken[id_] = taken.get(id_, 0) + 1
        chunk = _plain_chunk(entry)
        run = runs.get(id_)
        if chunk is not None and run is not None and run.take(entry, chunk):
            continue
        if chunk is not None:
            first = next_seq(id_)
            run = _Run(None if first is None else first + seen - 1)
            if run.take(entry, chunk):
                runs[id_] = run
                slots.append(run)
                continue
        runs[id_] = None
        slots.append(entry)
    return [slot.merged() if isinstance(slot, _Run) else slot for slot in slots]


def _plain_chunk(entry: Entry) -> GenerateChunk | None:
    """The chunk of an entry that has nothing beside one choice's ids."""
    payload = entry.fields.get(keys.CHUNK)
    if payload is None or not _FIELDS.issuperset(entry.fields):
        return None
    try:
        chunk = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # the fold says what is wrong with it
    plain = chunk.usage is None and chunk.metrics is None and chunk.prompt_token_ids is None
    return chunk if plain and len(chunk.choices) == 1 and chunk.output_mode == "tokens" else None
