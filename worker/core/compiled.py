"""A grammar together with a vocabulary: what the engine searches for.

An added token is one character in the engine's text, a lone surrogate: decoded text never holds one, so a marker that
the vocabulary has as an id cannot be forged by equal text, and one compiled pattern finds markers of both kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from worker.core.events import TEXT, Piece
from worker.core.grammar import (
    Elements,
    Grammar,
    Header,
    Json,
    Literals,
    Members,
    Messages,
    Params,
    Python,
    Reasoning,
    Tools,
)
from worker.core.run_constants import (
    AFTER,
    BETWEEN,
    BODY_CONTENT,
    BODY_DROPPED,
    BODY_REASONING,
    CONTENT,
    ELEMENTS,
    HEADER,
    JSON,
    KEY,
    LABEL,
    LITERALS,
    MAX_RECIPIENT,
    MEMBERS,
    MESSAGE_HEADER,
    OPENED,
    PARAMS,
    PYTHON,
    REASONING,
    TO_VALUE,
    VALUE,
)
from worker.core.run_constants import SECTION as IN_SECTION
from worker.core.vocabulary import Vocabulary

_NAMED = 0xD800
_DROPPED = 0xD900
_LAST = 0xDFFF
FIRST_DROPPED, LAST_SYMBOL = chr(_DROPPED), chr(_LAST)
"""Symbols of special tokens that no grammar names."""
SYMBOL = re.compile("[\ud800-\udfff]")
_PORTABLE_BASE = 0x4E00 - _NAMED
_TO_PORTABLE = {code: "\ufdd0" + chr(code + _PORTABLE_BASE) for code in range(_NAMED, _LAST + 1)} | {0xFDD0: "\ufdd0 "}
_FROM_PORTABLE = {chr(code + _PORTABLE_BASE): chr(code) for code in range(_NAMED, _LAST + 1)} | {" ": "\ufdd0"}


def has_symbols(text: str) -> bool:
    """By way of the encoder, which is many times faster than a search."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def to_portable(text: str) -> str:
    """Text with symbols as text that UTF-8 can hold."""
    if text.isascii() or not (has_symbols(text) or "\ufdd0" in text):
        return text
    return text.translate(_TO_PORTABLE)


def from_portable(text: str) -> str:
    if text.isascii() or "\ufdd0" not in text:
        return text
    first, *rest = text.split("\ufdd0")
    return first + "".join([_FROM_PORTABLE.get(part[:1], "") + part[1:] for part in rest])


CDATA = "<![CDATA["
NOTHING = re.compile("\ud800(?!)")
"""Never matches; it begins with a character for which the search looks fast, where `(?!)` alone is tried everywhere."""


class Markers:
    """A set of literals: the leftmost match, and where text begins that may still become one.

    A literal that a longer one begins with (``` and ```json) matches only where the text behind it shows that it is not
    the longer one. ending: no more text comes, so it matches at the end too.
    """

    __slots__ = ("_partial", "_reach", "extended", "find", "literals")

    def __init__(self, literals: Iterable[str], *, ending: bool = False) -> None:
        self.literals = tuple(dict.fromkeys(literal for literal in literals if literal))
        by_length = sorted(self.literals, key=len, reverse=True)
        patterns = []
        self.extended = False
        for literal in by_length:
            longer = [other for other in by_length if other != literal and other.startswith(literal)]
            rests = {other[len(literal) : n] for other in longer for n in range(len(literal), len(other))}
            self.extended |= bool(rests)
            undecided = "|".join(map(re.escape, sorted(rests)))
            patterns.append(re.escape(literal) + (rf"(?!(?:{undecided})\Z)" if rests and not ending else ""))
        self.find = (re.compile("|".join(patterns)) if patterns else NOTHING).search
        prefixes = {literal[:n] for literal in by_length for n in range(1, len(literal))}
        self._reach = max(map(len, prefixes), default=0)
        tails = "|".join(map(re.escape, sorted(prefixes, key=len, reverse=True)))
        self._partial = (re.compile(rf"(?:{tails})\Z") if tails else NOTHING).search

    def hold(self, buf: str, pos: int) -> int:
        """Where the longest end of buf[pos:] begins that is a proper beginning of a literal; len(buf) if none."""
        size = len(buf)
        if not self._reach:
            return size
        match = self._partial(buf, max(pos, size - self._reach))
        return match.start() if match else size

    def at_end(self) -> Markers:
        return Markers(self.literals, ending=True) if self.extended else self


def partial(buf: str, pos: int, literal: str) -> int:
    """`Markers.hold` for one literal that is not worth a pattern."""
    longest = min(len(literal) - 1, len(buf) - pos)
    return len(buf) - next((n for n in range(longest, 0, -1) if buf.endswith(literal[:n])), 0)


class Symbols:
    """Which ids are one character of the engine's text.

    active: literals that the running grammars name. inert: literals of a grammar that does not run; they are text.
    spelled: literals that are matched as text; tokens that they are made of read as that text.
    """

    def __init__(
        self, vocabulary: Vocabulary, active: Iterable[str], inert: Iterable[str], spelled: Iterable[str] = ()
    ) -> None:
        self.char_of: dict[int, str] = {}
        self.atoms: dict[str, str] = {}
        names: dict[int, str] = {}
        for literal in dict.fromkeys(active):
            id_ = vocabulary.id_of.get(literal)
            if id_ is not None and len(self.atoms) < _DROPPED - _NAMED:
                self.char_of[id_] = self.atoms[literal] = chr(_NAMED + len(self.atoms))
                names[_NAMED + len(self.atoms) - 1] = vocabulary.decode([id_])
        plain = {vocabulary.id_of.get(literal) for literal in inert}
        for literal in dict.fromkeys(spelled):
            plain |= {id_ for text, id_ in vocabulary.id_of.items() if text and text in literal}
        dropped: dict[int, str] = {}
        for id_ in sorted(vocabulary.special):
            if id_ in self.char_of or id_ in plain:
                continue
            code = _DROPPED + len(dropped)
            if code > _LAST:
                self.char_of[id_] = ""  # more special tokens than symbols: the rest are dropped everywhere
                continue
            self.char_of[id_] = chr(code)
            dropped[code] = vocabulary.decode([id_])
        self.literal = names | dropped
        self.prose = names | dict.fromkeys(dropped, "")
        self.framing = dict.fromkeys(self.literal, "")
        self._by_length = sorted(self.atoms, key=len, reverse=True)

    def compile(self, literal: str) -> str:
        """The literal as it appears in the engine's text."""
        for atom in self._by_length:
            if atom in literal:
                literal = literal.replace(atom, self.atoms[atom])
        return literal

    def compile_all(self, literals: Iterable[str]) -> tuple[str, ...]:
        """Several literals as they appear there; those that a grammar leaves empty are left out."""
        return tuple(self.compile(literal) for literal in literals if literal)

    def read(self, pieces: Sequence[Piece]) -> str:
        """Pieces as the engine's text."""
        if len(pieces) == 1:
            text, id_ = pieces[0]
            return text if id_ == TEXT else self.char_of.get(id_, text)
        get = self.char_of.get
        return "".join([text if id_ == TEXT else get(id_, text) for text, id_ in pieces])


def _first_characters(literals: Iterable[str]) -> str:
    """For a class of a regular expression."""
    return "".join(re.escape(char) for char in sorted({literal[0] for literal in literals}))


# What a marker in text does.
CLOSE_REASONING, OPEN_REASONING, NOISE, SECTION, CALL, SWALLOW, WRAP, NEWLINE, MATH, PROSE = range(10)


@dataclass(frozen=True)
class TextRegion:
    """Markers of a text region and what each does; stop: finds anything but whitespace that is not just text."""

    markers: Markers
    actions: dict[str, int]
    stop: re.Pattern[str]

    @classmethod
    def of(cls, actions: dict[str, int]) -> TextRegion:
        return cls(Markers(actions), actions, re.compile(rf"[{_first_characters(actions)}\ud800-\udfff]"))


def _alternatives(symbols: Symbols, literals: tuple[str, ...]) -> tuple[str, ...]:
    """Compiled literals; where one of them has an id, those without are off (they would be look-alikes)."""
    compiled = symbols.compile_all(literals)
    return tuple(literal for literal in compiled if SYMBOL.search(literal)) or compiled


class CallMarkers(NamedTuple):
    """What begins and ends calls. boundaries: what begins or ends a message, and so whatever is open in one."""

    call: tuple[str, ...]
    close: str
    section: tuple[str, ...]
    section_close: str
    boundaries: tuple[str, ...]

    @classmethod
    def of(cls, symbols: Symbols, tools: Tools | None, messages: Messages | None) -> CallMarkers:
        boundaries: tuple[str, ...] = ()
        if messages:
            kinds = (literal for literal, _ in messages.kinds)
            boundaries = symbols.compile_all((*messages.ends, messages.start, messages.channel, *kinds))
        if tools is None:
            return cls((), "", (), "", boundaries)
        return cls(
            _alternatives(symbols, tools.call),
            symbols.compile(tools.close),
            _alternatives(symbols, tools.section),
            symbols.compile(tools.section_close),
            boundaries,
        )


@dataclass(frozen=True)
class HeaderMarkers:
    """Text between a call's opener and its arguments.

    end: what ends it; keep: those of them that belong to the arguments; abort: what shows that it is no header.
    """

    pattern: re.Pattern[str]
    end: Markers
    keep: frozenset[str]
    abort: Markers

    @classmethod
    def of(cls, symbols: Symbols, header: Header, around: CallMarkers) -> HeaderMarkers:
        keep = symbols.compile_all(header.keep)
        return cls(
            re.compile(header.pattern, re.DOTALL),
            Markers((*symbols.compile_all(header.until), *keep)),
            frozenset(keep),
            Markers((around.close, around.section_close, *around.call, *around.boundaries)),
        )


@dataclass(frozen=True)
class ParamMarkers:
    """Parameters in tags, by the declaration `grammar`.

    key: what a tag's text must be. between: what may follow a parameter. in_value: what may end a value.
    value_stop: finds anything in a value that is not passed on as it is.
    after_value, after_close: what shows that a parameter's closer, or the call's own inside a value, is one.
    """

    grammar: Params
    open: str
    close: str
    value_open: str
    type_open: str
    type_close: str
    key: re.Pattern[str]
    between: Markers
    key_end: Markers
    to_value: Markers
    in_value: Markers
    value_stop: re.Pattern[str]
    after_value: tuple[str, ...]
    after_close: tuple[str, ...]

    @classmethod
    def of(cls, symbols: Symbols, grammar: Params, around: CallMarkers) -> ParamMarkers:
        lit = symbols.compile
        open_, close, value_open, type_open = map(
            lit, (grammar.open, grammar.close, grammar.value_open, grammar.type_open)
        )
        ends = [close]
        if grammar.xml:
            ends.append(CDATA)
        if grammar.implicit != "never":
            ends.append(around.close)
        if grammar.restart:
            ends.append(open_)
        special = _first_characters(ends) + (" " if grammar.trim == "strip" else "") + (r"\]&" if grammar.xml else "")
        after_close = (around.section_close,) if around.section_close else around.call
        if grammar.implicit == "anywhere":
            after_close += around.call
        return cls(
            grammar,
            open_,
            close,
            value_open,
            type_open,
            lit(grammar.type_close),
            key=re.compile(grammar.pattern, re.DOTALL),
            between=Markers(
                (open_, around.close, around.section_close, *around.section, *around.call, *around.boundaries)
            ),
            key_end=Markers((lit(grammar.until),)),
            to_value=Markers((value_open, around.close, open_, type_open)),
            in_value=Markers(ends),
            value_stop=re.compile(rf'[{special}\ud800-\udfff\n"\\\x00-\x1f]'),
            after_value=tuple(one for one in (open_, around.close, around.section_close) if one),
            after_close=tuple(dict.fromkeys(after_close)),
        )


@dataclass(frozen=True)
class Framing:
    """Messages: what frames them, and the region of each body.

    in_body: what ends a body. between: what may follow one. headless: a header inside a body, and its beginning at the
    end of the text; None where there are none.
    """

    start: str
    channel: str
    message: str
    ends: tuple[str, ...]
    recipients: dict[str, int]
    kinds: dict[str, int]
    tool_body: int
    in_body: Markers
    in_header: Markers
    between: Markers
    headless: tuple[re.Pattern[str], re.Pattern[str]] | None

    @classmethod
    def of(cls, symbols: Symbols, messages: Messages, boundaries: tuple[str, ...], tool_body: int) -> Framing:
        lit = symbols.compile
        start, message, ends = lit(messages.start), lit(messages.message), symbols.compile_all(messages.ends)
        bodies = {
            "reasoning": BODY_REASONING,
            "content": BODY_CONTENT,
            "dropped": BODY_DROPPED,
            "tools": tool_body,
        }
        return cls(
            start,
            lit(messages.channel),
            message,
            ends,
            recipients={recipient: bodies[what] for recipient, what in messages.recipients},
            kinds={lit(literal): bodies[what] for literal, what in messages.kinds},
            tool_body=tool_body,
            in_body=Markers(boundaries),
            in_header=Markers((message, start, *ends)),
            between=Markers((*boundaries, message)),
            headless=_headless(message) if messages.headless else None,
        )


def _headless(message: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    name = rf"[\w.\-]{{1,{MAX_RECIPIENT}}}"
    begins = "|".join(re.escape(message[:n]) for n in range(len(message)))
    return (
        re.compile(rf" to={name}{re.escape(message)}"),
        re.compile(rf"(?: to={name}(?:{begins})| to=| to| t| )\Z"),
    )


def _symbols(
    vocabulary: Vocabulary,
    reasoning: Reasoning | None,
    tools: Tools | Messages | None,
    inert: Iterable[Grammar],
) -> Symbols:
    active: list[str] = []
    spelled: list[str] = []
    for grammar in (reasoning, tools):
        if grammar:
            as_text = not isinstance(grammar, Messages) and grammar.spelled
            (spelled if as_text else active).extend(grammar.markers)
    unused = [literal for grammar in inert if not isinstance(grammar, Reasoning) for literal in grammar.markers]
    return Symbols(vocabulary, active, unused, spelled)


def _prose(symbols: Symbols, messages: Messages | None) -> dict[int, str]:
    """What symbols are outside values."""
    if messages is None:
        return symbols.prose
    # markup of calls is framing in tools' bodies only
    calls = set(messages.tools.markers) - set(messages.framing) if messages.tools else ()
    return symbols.framing | {ord(symbols.atoms[one]): one for one in calls if one in symbols.atoms}


def _openers(symbols: Symbols, tools: Tools | None) -> dict[str, int]:
    """What begins calls in reasoning, and in content too."""
    if tools is None:
        return {}
    if tools.section:
        return dict.fromkeys(_alternatives(symbols, tools.section), SECTION)
    return dict.fromkeys(_alternatives(symbols, tools.call), CALL)


def _in_content(symbols: Symbols, spans: Reasoning | None, tools: Tools | None) -> dict[str, int]:
    """Markers of content that do not begin calls. spans: reasoning that has an end."""
    found = dict.fromkeys(symbols.compile_all(tools.noise), NOISE) if tools else {}
    if spans is None:
        return found
    closes = _alternatives(symbols, spans.close)
    found |= dict.fromkeys([close for close in closes if SYMBOL.search(close)], NOISE)
    found |= dict.fromkeys(symbols.compile_all((*spans.noise, *spans.ends)), NOISE)
    found |= dict.fromkeys(symbols.compile_all(spans.wrap), WRAP)
    if spans.newlines:
        found |= {"\\n": NEWLINE, "\\(": MATH, "\\[": MATH, "\\)": PROSE, "\\]": PROSE}
    if spans.reopen:
        found |= dict.fromkeys(_alternatives(symbols, spans.open), OPEN_REASONING)
    return found


def _after_call(symbols: Symbols, tools: Tools | None) -> dict[str, int]:
    """What may stand right behind a call and is dropped there: closers may come once too often."""
    tail = (*tools.tail, tools.section_close, tools.close) if tools else ()
    return dict.fromkeys(symbols.compile_all(tail), NOISE)


def _at_end(part: Any) -> Any:
    if isinstance(part, Markers):
        return part.at_end()
    if isinstance(part, TextRegion | HeaderMarkers | ParamMarkers | Framing):
        return replace(part, **{field.name: _at_end(getattr(part, field.name)) for field in fields(part)})
    return part


class Compiled:
    """Everything about (reasoning grammar, tool grammar, vocabulary) that does not depend on the request."""

    @cached_property
    def at_end(self) -> Compiled:
        """The same for the end of the output, where a literal that might have become a longer one is itself."""
        twin = copy(self)
        for name, value in vars(self).items():
            setattr(twin, name, _at_end(value))
        return twin

    def __init__(
        self,
        vocabulary: Vocabulary,
        reasoning: Reasoning | None,
        tools: Tools | None,
        messages: Messages | None,
        inert: Iterable[Grammar] = (),
        forced: str = "",
    ) -> None:
        """inert: configured grammars that do not run for this request; forced: form of a generic forced call."""
        self.vocabulary = vocabulary
        self.forced = forced
        self.reasoning = reasoning
        self.messages = messages
        self.tools = tools = messages.tools if messages else tools
        self.symbols = symbols = _symbols(vocabulary, reasoning, messages or tools, inert)
        self.prose = _prose(symbols, messages)
        self._compile_text(None if reasoning and reasoning.inline else reasoning, tools)
        around = CallMarkers.of(symbols, tools, messages)
        self.call, self.close, self.section, self.section_close, self.boundaries = around
        self._compile_calls(tools, around)
        self.framing = None
        if messages:
            tool_body = IN_SECTION if self.section else self.call_region
            self.framing = Framing.of(symbols, messages, self.boundaries, tool_body)
        self.value_ends = frozenset(self.boundaries if messages else self.call)
        self.regions = self._regions()

    def _compile_text(self, spans: Reasoning | None, tools: Tools | None) -> None:
        """Text regions. spans: reasoning that has an end."""
        symbols = self.symbols
        self.opens = _alternatives(symbols, spans.open) if spans else ()
        self.closes = _alternatives(symbols, spans.close) if spans else ()
        self.ends = symbols.compile_all(spans.ends) if spans else ()
        self.label = self.reasoning.label + "\n" if self.reasoning and self.reasoning.label else ""
        self.gap = tools.gap if tools else "strip" if self.reasoning and self.reasoning.wrap else "keep"
        openers = _openers(symbols, tools)
        in_reasoning = dict.fromkeys(self.opens, SWALLOW) | dict.fromkeys((*self.closes, *self.ends), CLOSE_REASONING)
        if spans and tools and (spans.tool_ends or tools.ends_reasoning):
            in_reasoning |= openers
        bare = dict.fromkeys(symbols.compile_all(tools.call), CALL) if tools and tools.section and tools.bare else {}
        in_content = _in_content(symbols, spans, tools) | openers | bare
        after_call = _after_call(symbols, tools)
        self.in_reasoning = TextRegion.of(in_reasoning)
        self.in_content = TextRegion.of(in_content)
        self.at_start = TextRegion.of(in_content | dict.fromkeys(self.opens, OPEN_REASONING))
        self.after_call = TextRegion.of(in_content | after_call) if after_call else None

    def _compile_calls(self, tools: Tools | None, around: CallMarkers) -> None:
        """Calls and their arguments."""
        symbols = self.symbols
        self.arguments = arguments = tools.arguments if tools else None
        self.in_section = Markers(
            (*around.call, around.section_close, *around.section, around.close, *around.boundaries)
        )
        header = tools.header if tools else None
        self.header = HeaderMarkers.of(symbols, header, around) if header else None
        self.or_members = tools.or_members if tools else None
        named = isinstance(arguments, Members)
        self.members = arguments if isinstance(arguments, Members) else self.or_members
        self.first_of_members = "[{" if self.members and self.members.array and not self.members.opened else "{"
        self.call_region = MEMBERS if named else PYTHON if isinstance(arguments, Python) else HEADER
        self.content_region = JSON if self.forced == "object" else CONTENT
        self.undecided_section = bool(tools and tools.strict)
        self.undecided_call = bool((named and around.call) or self.or_members or (header and header.clean))
        self.unmarked = ""
        if tools and tools.unmarked:
            self.unmarked = "[" if isinstance(arguments, Python) else self.first_of_members
        if self.forced == "list":
            self.unmarked = "["
        self.params = ParamMarkers.of(symbols, arguments, around) if isinstance(arguments, Params) else None
        self.lead = symbols.compile(arguments.lead) if isinstance(arguments, Json) else ""
        self.id_ends = not isinstance(arguments, Json) or arguments.id_ends
        self.delimiter = symbols.compile(arguments.delimiter) if isinstance(arguments, Literals) else ""
        self.decoded = isinstance(arguments, Literals) and arguments.decoded
        self.string_end = Markers((self.delimiter,))
        self.prefix = symbols.compile(arguments.prefix) if isinstance(arguments, Elements) else ""

    def _regions(self) -> frozenset[int]:
        """Regions that an output can be in: a state in another one is of another grammar."""
        found = {CONTENT}
        if self.messages is not None:
            found = {MESSAGE_HEADER, BETWEEN, BODY_REASONING, BODY_CONTENT, BODY_DROPPED, JSON}
        if self.reasoning is not None:
            found |= {REASONING, *([LABEL] if self.label else [])}
        if self.forced:
            found |= {BODY_DROPPED, *([JSON] if self.forced == "object" else [])}
        if self.tools is None:
            return frozenset(found)
        found |= {IN_SECTION, AFTER}
        if self.undecided_section or self.undecided_call:
            found.add(OPENED)
        if self.header is not None:
            found.add(HEADER)
        if self.members is not None:
            found.add(MEMBERS)
        match self.arguments:
            case Json():
                found.add(JSON)
            case Params(json_body=json_body):
                found |= {PARAMS, KEY, TO_VALUE, VALUE, *([JSON] if json_body else [])}
            case Literals():
                found.add(LITERALS)
            case Python():
                found.add(PYTHON)
            case Elements():
                found.add(ELEMENTS)
        return frozenset(found)
