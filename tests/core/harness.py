"""Drives the parser without the rest of the core: ids to pieces, events to a message, state through bytes.

Pieces are cut from the decoded whole here; the product's detokenizer has tests of its own.
"""

from __future__ import annotations

import codecs
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from schemas.openai import ChatRequest
from schemas.state import ParserState
from tests import shared_data
from tests.core import support
from worker.core.events import TEXT, CallArguments, CallBegin, CallEnd, Content, Event, Piece, Reasoning
from worker.core.model import Model, ParserConfig
from worker.core.parse import Parser
from worker.core.vocabulary import Vocabulary

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ParserState)


def vocabulary(name: str, added: tuple[str, ...] = (), special: tuple[str, ...] = ()) -> Vocabulary:
    """Vocabulary of a tokenizer of the large test data, with tokens appended."""
    shared_data.require()
    return support.vocabulary(shared_data.tokenizer_dir(name), added, special)


def fault_model(case: dict[str, Any], **parsers: Any) -> Model:
    """The served model of a reported fault. parsers: options in place of the case's own."""
    asked = case["parsers"]
    options = {
        "tool_call_parser": asked["tool"],
        "reasoning_parser": asked["reasoning"],
        "enable_auto_tool_choice": asked["enable_auto_tools"],
        "forced_tool_format": asked.get("forced_tool_format", "native"),
    }
    added, special = (tuple(case.get(name) or ()) for name in ("added_tokens", "special_tokens"))
    return support.model(vocabulary(case["tokenizer"], added, special), parsers=options | parsers)


def through_bytes(state: ParserState) -> ParserState:
    return _decoder.decode(_encoder.encode(state))


class Pieces:
    """Smallest detokenizer: runs of ordinary tokens as text, added tokens by themselves."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.started = False
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Sequence[int]) -> list[Piece]:
        pieces: list[Piece] = []
        run = b""
        for id_ in ids:
            if self.vocabulary.strips_leading_space and not self.started and id_ not in self.vocabulary.added:
                self.started = True
                run += self.vocabulary.bytes_of(id_).removeprefix(b" ")
                continue
            if id_ in self.vocabulary.added:
                if text := self.decoder.decode(run):
                    pieces.append((text, TEXT))
                run = b""
                pieces.append((self.vocabulary.decode([id_]), id_))
            else:
                run += self.vocabulary.bytes_of(id_)
        if text := self.decoder.decode(run):
            pieces.append((text, TEXT))
        return pieces


@dataclass
class Call:
    name: str
    text: str = ""
    id: str | None = None
    complete: bool | None = None


@dataclass
class Message:
    """What a client has accumulated."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    largest_state: int = 0
    sizes: list[int] = field(default_factory=list)

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Reasoning(text):
                    assert text
                    self.reasoning += text
                case Content(text):
                    assert text
                    self.content += text
                case CallBegin(index, name, id_):
                    assert index == len(self.calls), "call indexes count up"
                    assert name
                    self.calls.append(Call(name, id=id_))
                case CallArguments(index, text):
                    assert self.calls[index].complete is None
                    assert text
                    self.calls[index].text += text
                case CallEnd(index, complete):
                    assert self.calls[index].complete is None
                    self.calls[index].complete = complete

    def said(self) -> tuple[str, str, list[tuple[str, Any]]]:
        """Content, reasoning, and (name, arguments) of each call that was not cut."""
        calls = [(call.name, strict(call.text)) for call in self.calls if call.complete]
        return self.content, self.reasoning, calls


def strict(text: str) -> Any:
    """JSON value of text; duplicate keys and NaN are errors."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in items}) == len(items), f"duplicate keys in {text}"
        return dict(items)

    def constant(name: str) -> Any:
        raise AssertionError(f"{name} in {text}")

    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)


def run(
    parser: Parser,
    chunks: Sequence[Sequence[int]],
    finish: str,
    prompt: Sequence[int] = (),
    history: int = 0,
) -> Message:
    """Parse ids in chunks, the state passed through bytes at every cut."""
    message = Message()
    pieces = Pieces(parser.vocabulary)
    state = through_bytes(parser.start(prompt, history))
    for ids in chunks:
        events, state = parser.step(state, pieces.feed(ids))
        message.take(events)
        size = len(_encoder.encode(state))
        message.sizes.append(size)
        message.largest_state = max(message.largest_state, size)
        state = through_bytes(state)
    events, state = parser.finish(state, finish)
    message.take(events)
    return message


def cuts(ids: Sequence[int], vocabulary: Vocabulary, seed: str) -> Iterator[tuple[str, list[list[int]]]]:
    """The groupings by which outputs are graded."""
    ids = list(ids)
    yield "whole", [ids]
    special: list[list[int]] = [[]]
    for id_ in ids:
        if id_ in vocabulary.added:
            special += [[id_], []]
        else:
            special[-1].append(id_)
    yield "special", [group for group in special if group]
    yield "single", [[id_] for id_ in ids]
    for number in range(5):
        source = random.Random(f"{seed}-{number}")
        groups, at = [], 0
        while at < len(ids):
            size = source.randint(1, 8)
            groups.append(ids[at : at + size])
            at += size
        yield f"random-{number}", groups


def same_json(one: Any, other: Any) -> bool:
    """Equal as JSON: types strict, but 1 equals 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return type(one) is type(other) and bool(one == other)


def chat_request(**fields: Any) -> ChatRequest:
    return msgspec.convert({"messages": [], **fields}, ChatRequest)


def parser_for(
    vocabulary: Vocabulary,
    tool: str | None,
    reasoning: str | None,
    *,
    model_type: str | None = None,
    forced: str = "native",
    **request: Any,
) -> Parser:
    config = ParserConfig(
        tool_call_parser=tool,
        reasoning_parser=reasoning,
        enable_auto_tool_choice=tool is not None,
        forced_tool_format=forced,  # type: ignore[arg-type]
    )
    model = Model(name="test", vocabulary=vocabulary, model_type=model_type, parsers=config)
    return Parser.for_request(model, chat_request(**request))
