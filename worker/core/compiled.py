"""A grammar together with a vocabulary: what the engine searches for.

An added token is one character in the engine's text, a lone surrogate: decoded text never holds one, so a marker that
the vocabulary has as an id cannot be forged by equal text, and one compiled pattern finds markers of both kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

from worker.core.events import TEXT, Piece
from worker.core.grammar import Arguments, Elements, Grammar, Json, Members, Messages, Params, Python, Reasoning, Tools
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

    def read(self, pieces: Sequence[Piece]) -> str:
        """Pieces as the engine's text."""
        if len(pieces) == 1:
            text, id_ = pieces[0]
            return text if id_ == TEXT else self.char_of.get(id_, text)
        get = self.char_of.get
        return "".join([text if id_ == TEXT else get(id_, text) for text, id_ in pieces])


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
        firsts = "".join(re.escape(char) for char in sorted({literal[0] for literal in actions}))
        return cls(Markers(actions), actions, re.compile(rf"[{firsts}\ud800-\udfff]"))

    def at_end(self) -> TextRegion:
        return replace(self, markers=Markers(self.markers.literals, ending=True))


def _alternatives(symbols: Symbols, literals: tuple[str, ...]) -> list[str]:
    """Compiled literals; where one of them has an id, those without are off (they would be look-alikes)."""
    compiled = [symbols.compile(literal) for literal in literals]
    by_id = [literal for literal in compiled if SYMBOL.search(literal)]
    return by_id or compiled


class Compiled:
    """Everything about (reasoning grammar, tool grammar, vocabulary) that does not depend on the request."""

    @cached_property
    def at_end(self) -> Compiled:
        """The same for the end of the output, where a literal that might have become a longer one is itself."""
        twin = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Markers) and value.extended:
                setattr(twin, name, Markers(value.literals, ending=True))
            elif isinstance(value, TextRegion) and value.markers.extended:
                setattr(twin, name, value.at_end())
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
        self.forced = forced
        self.reasoning = reasoning
        self.tools = tools
        self.messages = messages
        active: list[str] = []
        spelled: list[str] = []
        if reasoning:
            (spelled if reasoning.spelled else active).extend(reasoning.markers)
        if messages:
            active += messages.markers
            self.tools = tools = messages.tools
        elif tools:
            (spelled if tools.spelled else active).extend(tools.markers)
        unused: list[str] = []
        for grammar in inert:
            if isinstance(grammar, Tools | Messages):
                unused += grammar.markers
        self.vocabulary = vocabulary
        self.symbols = symbols = Symbols(vocabulary, active, unused, spelled)
        lit = symbols.compile
        self.prose = symbols.framing if messages else symbols.prose
        if messages and messages.tools:  # markup of calls is framing in tools' bodies only
            calls = set(messages.tools.markers) - set(messages.framing)
            self.prose = symbols.framing | {ord(symbols.atoms[one]): one for one in calls if one in symbols.atoms}

        # --- text regions -------------------------------------------------------------------------------------------
        openers: dict[str, int] = {}
        bare: dict[str, int] = {}
        if tools:
            if tools.section:
                openers = dict.fromkeys(_alternatives(symbols, tools.section), SECTION)
            else:
                openers = dict.fromkeys(_alternatives(symbols, tools.call), CALL)
            if tools.bare and tools.section:
                bare = dict.fromkeys(map(lit, tools.call), CALL)
        self.opens: list[str] = []
        self.closes: list[str] = []
        self.ends: list[str] = []
        in_reasoning: dict[str, int] = {}
        in_content: dict[str, int] = {}
        at_start: dict[str, int] = {}
        if reasoning and not reasoning.inline:
            self.opens = _alternatives(symbols, reasoning.open)
            self.closes = _alternatives(symbols, reasoning.close)
            self.ends = [lit(literal) for literal in reasoning.ends]
            in_reasoning |= dict.fromkeys(self.opens, SWALLOW)
            in_reasoning |= dict.fromkeys([*self.closes, *self.ends], CLOSE_REASONING)
            if tools and (reasoning.tool_ends or tools.ends_reasoning):
                in_reasoning |= openers
            in_content |= dict.fromkeys([c for c in self.closes if SYMBOL.search(c)], NOISE)
            in_content |= dict.fromkeys([lit(literal) for literal in (*reasoning.noise, *reasoning.ends)], NOISE)
            in_content |= dict.fromkeys(map(lit, reasoning.wrap), WRAP)
            if reasoning.newlines:
                in_content |= {"\\n": NEWLINE, "\\(": MATH, "\\[": MATH, "\\)": PROSE, "\\]": PROSE}
            opening = dict.fromkeys(self.opens, OPEN_REASONING)
            at_start |= opening
            if reasoning.reopen:
                in_content |= opening
        if tools:
            in_content = dict.fromkeys(map(lit, tools.noise), NOISE) | in_content
        in_content = in_content | openers | bare
        self.in_reasoning = TextRegion.of(in_reasoning)
        self.in_content = TextRegion.of(in_content)
        self.at_start = TextRegion.of(in_content | at_start)
        tail: tuple[str, ...] = tools.tail if tools else ()
        if tools and (bare or isinstance(tools.arguments, Python)):
            tail += (tools.section_close, tools.close)
        after_call = {lit(literal): NOISE for literal in tail if literal}
        self.after_bare = TextRegion.of(in_content | after_call) if after_call else None
        self.label = reasoning.label + "\n" if reasoning and reasoning.label else ""
        self.gap = tools.gap if tools else "strip" if reasoning and reasoning.wrap else "keep"

        # --- calls --------------------------------------------------------------------------------------------------
        self.call = _alternatives(symbols, tools.call) if tools else []
        self.section = _alternatives(symbols, tools.section) if tools else []
        self.close = lit(tools.close) if tools else ""
        self.section_close = lit(tools.section_close) if tools else ""
        self.boundaries: list[str] = []
        if messages:
            self.boundaries = [lit(one) for one in (*messages.ends, messages.start, messages.channel) if one]
            self.boundaries += [lit(literal) for literal, _ in messages.kinds]
        self.in_section = Markers([*self.call, self.section_close, *self.section, self.close, *self.boundaries])
        self.after_call = self.in_section
        header = tools.header if tools else None
        self.header = header
        self.header_pattern = re.compile(header.pattern, re.DOTALL) if header else None
        self.header_end = Markers(map(lit, (*header.until, *header.keep)) if header else ())
        self.header_keep = frozenset(map(lit, header.keep)) if header else frozenset()
        self.header_abort = Markers([c for c in (self.close, self.section_close, *self.call, *self.boundaries) if c])

        arguments = tools.arguments if tools else None
        self.members = arguments if isinstance(arguments, Members) else tools.or_members if tools else None
        named = isinstance(arguments, Members)
        self.call_region = MEMBERS if named else PYTHON if isinstance(arguments, Python) else HEADER
        self.content_region = JSON if forced == "object" else CONTENT
        self.undecided_section = bool(tools and tools.strict)
        self.undecided_call = bool(tools and ((named and tools.call) or tools.or_members or (header and header.clean)))
        self.or_members = tools.or_members if tools else None
        self.first_of_members = "[{" if self.members and self.members.array and not self.members.opened else "{"
        self.unmarked = ""
        if tools and tools.unmarked:
            self.unmarked = "[" if isinstance(arguments, Python) else self.first_of_members
        if forced == "list":
            self.unmarked = "["
        self.value_ends = frozenset(self.call)

        # --- values -------------------------------------------------------------------------------------------------
        self.params = arguments if isinstance(arguments, Params) else None
        if self.params:
            params = self.params
            self.param_open = lit(params.open)
            self.param_until = lit(params.until)
            self.param_close = lit(params.close)
            self.value_open = lit(params.value_open)
            self.param_pattern = re.compile(params.pattern, re.DOTALL)
            outer = [self.close, self.section_close, *self.section, *self.call, *self.boundaries]
            self.in_params = Markers([self.param_open, *outer])
            self.key_end = Markers([self.param_until])
            self.type_open = lit(params.type_open)
            self.type_close = lit(params.type_close)
            self.to_value = Markers([self.value_open, self.close, self.param_open, self.type_open])
            candidates = [self.param_close, CDATA] if params.xml else [self.param_close]
            if params.implicit != "never":
                candidates.append(self.close)
            if params.restart:
                candidates.append(self.param_open)
            self.in_value = Markers(candidates)
            firsts = "".join(re.escape(char) for char in sorted({c[0] for c in candidates}))
            firsts += (" " if params.trim == "strip" else "") + (r"\]&" if params.xml else "")
            self.value_stop = re.compile(rf'[{firsts}\ud800-\udfff\n"\\\x00-\x1f]')
            self.after_value = tuple(c for c in (self.param_open, self.close, self.section_close) if c)
            self.after_close = tuple(c for c in ([self.section_close] if self.section_close else self.call) if c)
            if params.implicit == "anywhere":
                self.after_close = tuple(dict.fromkeys((*self.after_close, *self.call)))
        self.delimiter = lit(getattr(arguments, "delimiter", ""))
        self.lead = lit(arguments.lead) if isinstance(arguments, Json) else ""
        self.prefix = lit(arguments.prefix) if isinstance(arguments, Elements) else ""
        self.decoded = bool(getattr(arguments, "decoded", False))
        self.string_end = Markers([self.delimiter])

        self.regions = self._regions(arguments)

        # --- messages -----------------------------------------------------------------------------------------------
        if messages:
            self.start = lit(messages.start)
            self.channel = lit(messages.channel)
            self.message = lit(messages.message)
            self.constrain = lit(messages.constrain)
            self.body_ends = [lit(literal) for literal in messages.ends]
            self.tool_body = IN_SECTION if self.section else self.call_region
            self.bodies = {
                "reasoning": BODY_REASONING,
                "content": BODY_CONTENT,
                "dropped": BODY_DROPPED,
                "tools": self.tool_body,
            }
            self.recipients = {recipient: self.bodies[what] for recipient, what in messages.recipients}
            self.kinds = {lit(literal): self.bodies[what] for literal, what in messages.kinds}
            self.value_ends = frozenset(self.boundaries)
            self.in_body = Markers(self.boundaries)
            self.in_header = Markers([self.message, self.start, *self.body_ends])
            self.between = Markers([*self.boundaries, self.message])
        self.headless = self.headless_begin = NOTHING
        if messages and messages.headless:
            name = rf"[\w.\-]{{1,{MAX_RECIPIENT}}}"
            begins = "|".join(re.escape(self.message[:n]) for n in range(len(self.message)))
            self.headless = re.compile(rf" to={name}{re.escape(self.message)}")
            self.headless_begin = re.compile(rf"(?: to={name}(?:{begins})| to=| to| t| )\Z")

    def _regions(self, arguments: Arguments | None) -> frozenset[int]:
        """Regions that an output can be in: a state in another one is of another grammar."""
        found = {CONTENT}
        if self.messages is not None:
            found = {MESSAGE_HEADER, BETWEEN, BODY_REASONING, BODY_CONTENT, BODY_DROPPED, JSON}
        if self.reasoning is not None:
            found |= {REASONING, *([LABEL] if self.label else [])}
        if self.forced:
            found |= {BODY_DROPPED, *([JSON] if self.forced == "object" else [])}
        if self.tools is not None:
            found |= {OPENED, IN_SECTION, HEADER, AFTER}
            if isinstance(arguments, Json) or (self.params and self.params.json_body):
                found.add(JSON)
            if self.members is not None:
                found.add(MEMBERS)
            if self.params is not None:
                found |= {PARAMS, KEY, TO_VALUE, VALUE}
            if self.delimiter:
                found.add(LITERALS)
            if isinstance(arguments, Python):
                found.add(PYTHON)
            if self.prefix:
                found.add(ELEMENTS)
        return frozenset(found)
