"""What the detokenizer says to the parser, and the parser to the assembler."""

from __future__ import annotations

from msgspec import Struct

TEXT = -1
"""In place of an id: the piece is ordinary text."""

Piece = tuple[str, int]
"""Text and the id of the added token it is, or TEXT for a run of ordinary tokens."""


class Reasoning(Struct, frozen=True, tag=True):
    text: str


class Content(Struct, frozen=True, tag=True):
    text: str


class CallBegin(Struct, frozen=True, tag=True):
    """A call whose name is complete. `id`: what the model wrote as its id; None: to be derived."""

    index: int
    name: str
    id: str | None = None


class CallArguments(Struct, frozen=True, tag=True):
    """The next piece of the arguments' JSON text; all pieces of a complete call add up to one JSON object."""

    index: int
    text: str


class CallEnd(Struct, frozen=True, tag=True):
    """complete: the call's own closer was seen and its arguments are whole."""

    index: int
    complete: bool


Event = Reasoning | Content | CallBegin | CallArguments | CallEnd
