"""One step of the engine: the state, unpacked, the text at hand, and what is said.

The regions are functions of a `Run`: each reads from `buf` at `pos`, says events, and either moves to another region
(returns True) or needs more text (returns False, with what it could not decide left in `held`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.state import ParserState
from worker.core.compiled import Compiled, from_portable, has_symbols, to_portable
from worker.core.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning
from worker.core.json_scan import JsonScan
from worker.core.run_constants import (
    AFTER_CALL,
    ARRAY,
    BAD,
    BARE,
    BODY_DROPPED,
    CALL_FLAGS,
    CONTENT,
    FIELD_CAPS,
    HELD_CAPS,
    MUTE,
    OPEN,
    OPENER,
    SECTION,
    SEEN,
    SEEN_REASONING,
    SLICE,
    SPACE,
    STRIP,
)


class Run:
    """Mutable only within one step. `ending`: no more text will come."""

    __slots__ = (
        "buf",
        "c",
        "calls",
        "ending",
        "events",
        "flags",
        "held",
        "history",
        "id",
        "key",
        "kind",
        "mode",
        "name",
        "parts",
        "phase",
        "pos",
        "raw",
        "reason",
        "region",
        "request",
        "scalar",
        "seen",
        "stack",
        "value",
    )

    def __init__(self, compiled: Compiled, request: RequestView, state: ParserState) -> None:
        self.c = compiled
        self.request = request
        self.region = state.region
        self.flags = state.flags
        self.buf = ""
        self.pos = 0
        self.held = from_portable(state.held)
        self.calls = state.calls
        self.history = state.history
        self.name = from_portable(state.name)
        self.id = from_portable(state.id)
        self.phase = state.phase
        self.mode = state.mode
        self.stack = state.stack
        self.scalar = from_portable(state.scalar)
        self.key = from_portable(state.key)
        self.kind = state.kind
        self.value = from_portable(state.value)
        self.raw = from_portable(state.raw)
        self.seen = state.seen
        self.events: list[Event] = []
        self.parts: list[str] = []
        self.ending = False
        self.reason = ""

    def state(self) -> ParserState:
        return ParserState(
            self.region,
            self.flags,
            to_portable(self.held),
            self.calls,
            self.history,
            to_portable(self.name),
            to_portable(self.id),
            self.phase,
            self.mode,
            self.stack,
            to_portable(self.scalar),
            to_portable(self.key),
            self.kind,
            to_portable(self.value),
            to_portable(self.raw),
            self.seen,
        )

    # --- reading ----------------------------------------------------------------------------------------------------

    def take(self, text: str) -> None:
        """Text for the regions, behind what was held. Not longer than `room`, but where no cap can be passed."""
        self.buf = self.held + text if self.held else text
        self.held = ""
        self.pos = 0

    def room(self, wanted: int) -> int:
        """How much of the next `wanted` characters the regions may get at once, so that none passes a cap unseen.

        Regions test lengths only when they are called. So each call ends, at the latest, where a length is one over
        its cap; and where held text may join a field and carry it past the cap, each character is a call.
        """
        held = len(self.held)
        room = min(wanted, SLICE)
        if held + len(self.raw) + len(self.key) + len(self.value) + room <= SLICE:
            return room
        for cap in HELD_CAPS:
            if held <= cap:
                room = min(room, cap + 1 - held)
        for size in (len(self.raw), len(self.key), len(self.value)):
            for cap in FIELD_CAPS:
                if size <= cap:
                    room = min(room, max(cap + 1 - size - held, 1))
                    break
        return room

    def give_back(self, taken: int) -> int:
        """Cut the text to what the region at hand may get, at most by what was taken last; how much was cut off."""
        left = len(self.buf) - self.pos
        back = min(left - self.room(left), taken)
        self.buf = self.buf[: len(self.buf) - back]
        return back

    def wait(self, start: int) -> bool:
        """Keep buf[start:] for the next step."""
        self.held = self.buf[start:]
        self.pos = len(self.buf)
        return False

    def over(self, start: int, cap: int) -> bool:
        """Whether buf[start:], where `start` is what would be held, is longer than one of `HELD_CAPS`."""
        return len(self.buf) - start > cap

    def skip_space(self) -> str:
        """The next character that is not whitespace, "" if there is none; `pos` stands at it."""
        buf, pos, size = self.buf, self.pos, len(self.buf)
        while pos < size and buf[pos] in SPACE:
            pos += 1
        self.pos = pos
        return buf[pos] if pos < size else ""

    def scanner(self) -> JsonScan:
        return JsonScan(self.mode, self.stack, self.scalar, bool(self.flags & BAD))

    def keep_scanner(self, scan: JsonScan) -> None:
        self.mode, self.stack, self.scalar = scan.mode, scan.stack, scan.scalar
        if scan.bad:
            self.flags |= BAD

    # --- text -------------------------------------------------------------------------------------------------------

    def prose(self, text: str) -> str:
        """Text as a client reads it outside values: symbols become their text, or nothing."""
        if text.isascii() or not has_symbols(text):
            return text
        return text.translate(self.c.prose)

    def literal(self, text: str) -> str:
        """Text as a client reads it inside values: every symbol is its text."""
        if text.isascii() or not has_symbols(text):
            return text
        return text.translate(self.c.symbols.literal)

    def say_reasoning(self, text: str) -> None:
        if text:
            self.flush()
            self.flags |= SEEN_REASONING
            self.events.append(Reasoning(text))

    def say_content(self, text: str) -> None:
        if text:
            self.flush()
            self.flags = (self.flags | SEEN) & ~(AFTER_CALL | OPENER)
            self.events.append(Content(text))

    # --- calls ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Say the pieces of arguments that were collected in this step as one event."""
        if self.parts:
            text = "".join(self.parts)
            self.parts.clear()
            if text and self.request.keeps_calls:
                self.events.append(CallArguments(self.calls - 1, text))

    def begin(self) -> None:
        """Begin the call whose name is known; one without a name, or muted, is none."""
        if self.flags & MUTE or not self.name:
            self.flags |= MUTE
            return
        self.flush()
        if self.request.keeps_calls:
            self.events.append(CallBegin(self.calls, self.literal(self.name), self.literal(self.id) or None))
        self.calls += 1
        self.flags |= OPEN

    def write(self, text: str) -> None:
        """A piece of the open call's arguments."""
        if self.flags & OPEN:
            self.parts.append(self.literal(text))

    def end(self, complete: bool) -> None:
        """End the open call, if any, and forget everything about its arguments."""
        if self.flags & OPEN:
            self.flush()
            if self.request.keeps_calls:
                self.events.append(CallEnd(self.calls - 1, complete))
        self.flags &= ~CALL_FLAGS
        self.name = self.id = self.stack = self.scalar = self.key = self.value = self.raw = ""
        self.phase = self.mode = self.kind = 0
        self.seen = ()

    def to_content(self) -> None:
        """Back to content after a call or a section."""
        self.region = CONTENT if self.c.messages is None else BODY_DROPPED
        self.flags = (self.flags | STRIP | AFTER_CALL) & ~(ARRAY | BARE)

    def call_over(self) -> None:
        """The call's closer was read: on to the section, or to content."""
        if self.c.section and not self.flags & BARE:
            self.region = SECTION
        else:
            self.to_content()


class RequestView:
    """What the engine knows about a request: what is kept, and the tools' parameter schemas."""

    __slots__ = ("forced_name", "keeps_calls", "keeps_reasoning", "names", "schemas")

    def __init__(
        self, keeps_calls: bool, schemas: Mapping[str, Any], forced_name: str = "", keeps_reasoning: bool = True
    ) -> None:
        self.keeps_calls = keeps_calls
        self.keeps_reasoning = keeps_reasoning
        self.schemas = schemas
        self.names = frozenset(schemas)
        self.forced_name = forced_name
