"""One step of the engine: the state, unpacked, the text at hand, and what is said.

The regions are functions of a `Run`: each reads from `buf` at `pos`, says events, and either moves to another region
(returns True) or needs more text (returns False, with what it could not decide left in `held`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.state import ParserState
from worker.core.compiled import SYMBOL, Compiled, from_portable, to_portable
from worker.core.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning
from worker.core.json_scan import JsonScan
from worker.core.run_constants import (
    AFTER_CALL,
    ARRAY,
    BAD,
    BARE,
    CALL_FLAGS,
    CONTENT,
    MUTE,
    OPEN,
    OPENER,
    SECTION,
    SEEN,
    SEEN_REASONING,
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

    def __init__(self, compiled: Compiled, request: RequestView, state: ParserState, text: str) -> None:
        self.c = compiled
        self.request = request
        self.region = state.region
        self.flags = state.flags
        self.buf = from_portable(state.held) + text if state.held else text
        self.pos = 0
        self.held = ""
        self.calls = state.calls
        self.history = state.history
        self.name = state.name
        self.id = state.id
        self.phase = state.phase
        self.mode = state.mode
        self.stack = state.stack
        self.scalar = state.scalar
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
            self.name,
            self.id,
            self.phase,
            self.mode,
            self.stack,
            self.scalar,
            to_portable(self.key),
            self.kind,
            to_portable(self.value),
            to_portable(self.raw),
            self.seen,
        )

    # --- reading ----------------------------------------------------------------------------------------------------

    def wait(self, start: int) -> bool:
        """Keep buf[start:] for the next step."""
        self.held = self.buf[start:]
        self.pos = len(self.buf)
        return False

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
        if text.isascii() or not SYMBOL.search(text):
            return text
        return text.translate(self.c.prose)

    def literal(self, text: str) -> str:
        """Text as a client reads it inside values: every symbol is its text."""
        if text.isascii() or not SYMBOL.search(text):
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
            self.events.append(CallBegin(self.calls, self.name, self.id or None))
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
        self.region = CONTENT
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
