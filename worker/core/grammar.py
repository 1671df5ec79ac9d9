"""Declarations of output formats: what a family of models writes, as data.

A family is one `Reasoning`, one `Tools`, or one `Messages` (a format that frames everything by message headers). The
engine in `parse.py` runs any of them; a declaration that cannot work is refused when it is defined, and the error says
what to write instead. Literals are plain text: `compiled.py` finds out which of them are single ids of a vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from worker.core.errors import GrammarError

MAX_LITERAL = 60
"""Longest marker, in code points: what may be held back while a marker is incomplete."""


KEY = r"""(?P<key>(?:[^"'>]|\b["']\b)*?)"""
"""For the pattern of a tag: a key, which may have an apostrophe inside a word."""
QUOTED_KEY = rf"""\s*["']?{KEY}["']?\s*"""
"""A tag that is a key alone, with quotes around it or without."""


def _literals(owner: str, field: str, literals: Iterable[str]) -> None:
    if isinstance(literals, str):
        raise GrammarError(f'{owner}.{field}: write a tuple of literals, ("{literals}",), not one string')
    for literal in literals:
        if not literal:
            raise GrammarError(f"{owner}.{field}: an empty literal matches everywhere; leave it out")
        if len(literal) > MAX_LITERAL:
            raise GrammarError(f"{owner}.{field}: {literal!r} has more than {MAX_LITERAL} characters; write less")
        if literal != literal.strip():
            raise GrammarError(f"{owner}.{field}: {literal!r} has outer whitespace; write {literal.strip()!r}")


def apart(owner: str, literals: Iterable[str]) -> None:
    """Markers of one region must not contain each other, or a match would depend on where a chunk ends."""
    unique = [literal for literal in dict.fromkeys(literals) if literal]
    for one in unique:
        for other in unique:
            if one is not other and one in other:
                raise GrammarError(f"{owner}: {one!r} is part of {other!r}; write only one of them, or both in full")


def _pattern(owner: str, field: str, pattern: str, groups: tuple[str, ...]) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise GrammarError(f"{owner}.{field}: {pattern!r} is no regular expression: {error}") from None
    for group in groups:
        if group not in compiled.groupindex:
            raise GrammarError(f"{owner}.{field}: name what it captures, (?P<{group}>…)")


@dataclass(frozen=True)
class Reasoning:
    """Text between two literals.

    open, close: alternatives. Where the vocabulary has one of them as an id, alternatives that are only text are off.
    start: where the output starts when neither the prompt nor a template argument tells.
    switches: template arguments that tell it; any true: in reasoning, all given ones false: in content.
    effort_off: `reasoning_effort` values that mean content.
    ends: further literals that end reasoning (the opener of another part).
    tool_ends: the tool parser's opener ends reasoning.
    reopen: the opener starts reasoning again after content.
    label: header of the span, dropped with the newline after it.
    noise: markup that is dropped outside reasoning.
    wrap: tags around the answer, dropped with the whitespace beside them.
    inline: reasoning stays in the content, and this literal is put before it.
    newlines: the content's `\\n`, two characters, outside LaTeX are newlines.
    on_words: values of a switch that mean true, where it is a word.
    suffixed: checkpoints write `<tag:suffix>` for `<tag>`; the vocabulary tells the suffix.
    spelled: the model writes its markers as tokens or as text, both count.
    anchors: what the assistant's turn begins with in the prompt; (): the tokens that are known to begin turns.
    atoms: tokens that literals are made of, where a literal is not one token.
    """

    source: str
    open: tuple[str, ...] = ("<think>",)
    close: tuple[str, ...] = ("</think>",)
    start: Literal["reasoning", "content"] = "reasoning"
    switches: tuple[str, ...] = ()
    effort_off: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    tool_ends: bool = False
    reopen: bool = False
    label: str = ""
    noise: tuple[str, ...] = ()
    wrap: tuple[str, ...] = ()
    inline: str = ""
    newlines: bool = False
    on_words: tuple[str, ...] = ()
    suffixed: bool = False
    spelled: bool = False
    anchors: tuple[str, ...] = ()
    atoms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("open", "close", "ends", "noise", "wrap", "anchors", "atoms"):
            _literals("Reasoning", field, getattr(self, field))
        if not self.close:
            raise GrammarError('Reasoning.close: write the literal that ends reasoning, such as ("</think>",)')
        if set(self.open) & set(self.close):
            raise GrammarError("Reasoning: open and close share a literal; write what tells them apart")
        if not self.open and self.start == "content":
            raise GrammarError('Reasoning: without open, reasoning is never entered; write start="reasoning"')
        if self.inline and (self.open or self.start == "content"):
            raise GrammarError("Reasoning.inline: nothing is told apart then; leave open and start out")
        apart("Reasoning", (*self.open, *self.close, *self.ends, *self.wrap, *self.noise))

    @property
    def markers(self) -> tuple[str, ...]:
        """Every literal of the grammar, for the vocabulary to look up."""
        return (*self.open, *self.close, *self.ends, *self.noise, *self.wrap, *self.atoms)


@dataclass(frozen=True)
class Header:
    """Text between a call's opener and its arguments.

    until: literals that end it. keep: literals that end it and belong to what follows.
    pattern: what the text must be as a whole; captures `name`, and optionally `id` and `empty` (a call without a body).
    clean: the text is one word; anything else is prose, and the opener is released as text.
    """

    until: tuple[str, ...]
    keep: tuple[str, ...] = ()
    pattern: str = r"\s*(?P<name>\S.*?)\s*"
    clean: bool = False

    def __post_init__(self) -> None:
        if "\n" not in self.until:
            _literals("Header", "until", self.until)
        _literals("Header", "keep", self.keep)
        if not self.until and not self.keep:
            raise GrammarError('Header.until: write the literals that end the header, such as (">",)')
        _pattern("Header", "pattern", self.pattern, ("name",))


@dataclass(frozen=True)
class Json:
    """The arguments are one JSON object, passed on as written. lead: text that may stand before it."""

    lead: str = ""
    id_ends: bool = False
    """A marker's id ends it even in a string (formats whose look-alike text is never the id)."""


@dataclass(frozen=True)
class Members:
    """A JSON object with a member for the name and one for the arguments; array: a list of them.

    id: keys of the call's id, which counts if it stands before the name. keyed: the object's only key is the name, its
    value the arguments. within: key of an inner object that holds name and arguments.
    """

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    array: bool = False
    opened: bool = False
    """The opener included the bracket of the array."""
    known: tuple[str, ...] = ()
    """Keys that may come before the name in output without a marker; another key means that it is no call."""
    id: tuple[str, ...] = ()
    keyed: bool = False
    within: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.keyed and (not self.name or not self.arguments):
            raise GrammarError('Members: write the keys, such as name=("name",), arguments=("arguments",)')
        if set(self.name) & set(self.arguments):
            raise GrammarError("Members: a key cannot hold both the name and the arguments; write different keys")
        if self.opened and not self.array:
            raise GrammarError("Members.opened: only an array has an opening bracket; write array=True")


@dataclass(frozen=True)
class Params:
    """Parameters in tags with text values.

    open … until: the tag with the key (`pattern` captures `key`, and optionally `type`: `true` or `false` for "is a
    string", or a JSON type). value_open: literal between key and value. close: end of a value, which counts only
    where something follows that may follow it.
    trim: what of a value's outer whitespace is markup.
    typing: what tells a value's type; json: a value is JSON if it reads as JSON, else a string.
    untyped: what a parameter without the typing attribute, or without a type in its schema, is.
    type_open, type_close: literals around a JSON type that stands between key and value.
    xml: values are XML text: entities are decoded, CDATA sections are taken as they are.
    implicit: where the call's own closer also ends an open value: never, at the start of a line, anywhere.
    restart: a parameter's opener at the start of a line ends an open value.
    """

    open: str
    until: str
    close: str
    pattern: str = r"\s*(?P<key>\S.*?)\s*"
    value_open: str = ""
    trim: Literal["none", "newline", "strip"] = "none"
    typing: Literal["schema", "attribute", "json"] = "schema"
    untyped: Literal["string", "json"] = "string"
    implicit: Literal["never", "line", "anywhere"] = "line"
    restart: bool = True
    escapes: bool = False
    """Keys and names are written with &amp; and &quot;."""
    json_body: bool = False
    """Instead of parameters the body may be one JSON object."""
    type_open: str = ""
    type_close: str = ""
    xml: bool = False

    def __post_init__(self) -> None:
        _literals("Params", "open", (self.open,))
        _literals("Params", "until", (self.until,))
        _literals("Params", "close", (self.close,))
        _pattern("Params", "pattern", self.pattern, ("key",))
        if self.typing == "attribute" and "type" not in re.compile(self.pattern).groupindex:
            raise GrammarError("Params.pattern: typing by attribute needs it captured, (?P<type>…)")
        if bool(self.type_open) != bool(self.type_close) or (self.type_open and not self.value_open):
            raise GrammarError("Params: type_open and type_close need each other and value_open; write all three")


@dataclass(frozen=True)
class Literals:
    """Gemma's object syntax: bare keys and words, strings between delimiters.

    delimiter: its literal. decoded: a string between delimiters that reads as JSON is that JSON.
    """

    delimiter: str
    decoded: bool = False

    def __post_init__(self) -> None:
        _literals("Literals", "delimiter", (self.delimiter,))


@dataclass(frozen=True)
class Python:
    """A list of Python calls with keyword arguments. brackets: False: calls stand by themselves, on lines."""

    brackets: bool = True


@dataclass(frozen=True)
class Elements:
    """Nested elements, `<key>…</key>`, every tag after a prefix. prefix: its literal."""

    prefix: str

    def __post_init__(self) -> None:
        _literals("Elements", "prefix", (self.prefix,))


Arguments = Json | Members | Params | Literals | Python | Elements


@dataclass(frozen=True)
class Tools:
    """Calls in the output.

    call: openers of a call; close: its own closer, "" where the end of the arguments ends it.
    section: opener alternatives and the closer around a group of calls.
    bare: the call's opener counts outside a section, too.
    strict: an opener after which no call can begin is released as text.
    release: what of it: the opener and what follows, or only what follows.
    header: what stands between opener and arguments; None: the arguments hold the name.
    or_members: after the opener, `[` or `{` begins calls of this shape instead of a header.
    unmarked: without an opener, calls may begin the content.
    separator: literal between unmarked calls.
    gap: whitespace between content and a call: dropped, kept, or exactly this dropped.
    ends_reasoning: the opener ends reasoning whatever the reasoning grammar says.
    tentative: what follows an opener is a call once its name was read, and text until then.
    tail: literals that may follow a call and are dropped there.
    noise: markup that is dropped from content.
    suffixed, spelled: as in `Reasoning`.
    ids: how ids of calls look where the model writes none.
    always_native: a forced choice is written in this syntax whatever the server's option says.
    atoms: tokens that literals are made of, where a literal is not one token.
    """

    source: str
    call: tuple[str, ...]
    arguments: Arguments
    close: str = ""
    section: tuple[str, ...] = ()
    section_close: str = ""
    bare: bool = False
    strict: bool = False
    release: Literal["all", "text"] = "all"
    header: Header | None = None
    or_members: Members | None = None
    unmarked: bool = False
    separator: str = ""
    gap: str = "strip"
    ends_reasoning: bool = False
    ids: Literal["default", "functions", "nine"] = "default"
    always_native: bool = False
    atoms: tuple[str, ...] = ()
    tentative: bool = False
    tail: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()
    suffixed: bool = False
    spelled: bool = False

    def __post_init__(self) -> None:
        for field in ("call", "section", "atoms", "tail", "noise"):
            _literals("Tools", field, getattr(self, field))
        if not self.call and not self.unmarked:
            raise GrammarError("Tools.call: write the literal that opens a call, or unmarked=True")
        if bool(self.section) != bool(self.section_close):
            raise GrammarError("Tools: section and section_close belong together; write both or neither")
        if self.gap not in ("strip", "keep") and self.gap.strip():
            raise GrammarError(f'Tools.gap: {self.gap!r} is not whitespace; write "strip", "keep" or the separator')
        named = isinstance(self.arguments, Members | Python)
        if named and self.header is not None:
            raise GrammarError("Tools.header: these arguments hold the name themselves; leave header out")
        if not named and self.header is None:
            raise GrammarError("Tools.header: the name has to come from somewhere; write Header(until=(…,))")
        if isinstance(self.arguments, Params | Literals | Elements) and not self.close:
            raise GrammarError("Tools.close: values of this kind need the call's own closer; write it")
        if self.unmarked and not named:
            raise GrammarError("Tools.unmarked: only Members or Python can be told from text without an opener")
        if self.tentative and not isinstance(self.arguments, Members):
            raise GrammarError("Tools.tentative: only Members can be told from text after an opener; leave it out")
        outer = (*self.call, *self.section, self.close, self.section_close)
        apart("Tools", outer)
        apart("Tools", (*self.call, *self.section, *self.noise))
        for end in (*self.header.until, *self.header.keep) if self.header else ():
            # the other way round is usual, `>` in a closer, and told by what stands before it
            for literal in outer:
                if literal and literal in end and literal != end:
                    raise GrammarError(f"Tools.header: {literal!r} is part of {end!r}; write what tells them apart")
        if isinstance(self.arguments, Params):
            params = self.arguments
            apart("Params", (params.open, params.close, params.value_open, params.type_open, *outer))

    @property
    def markers(self) -> tuple[str, ...]:
        """Every literal of the grammar, for the vocabulary to look up."""
        found = [*self.call, self.close, *self.section, self.section_close, *self.tail, *self.noise, *self.atoms]
        if self.header:
            found += [*self.header.until, *self.header.keep]
        match self.arguments:
            case Params() as params:
                found += [params.open, params.until, params.close, params.value_open]
                found += [params.type_open, params.type_close]
            case Literals(delimiter=delimiter):
                found.append(delimiter)
            case Elements(prefix=prefix):
                found.append(prefix)
            case Json(lead=lead):
                found.append(lead)
        return tuple(dict.fromkeys(literal for literal in found if len(literal) > 1))


Body = Literal["reasoning", "content", "tools", "dropped"]


@dataclass(frozen=True)
class Messages:
    """Everything is a message with a header that tells what its body is; the prompt has opened the first header.

    header = start role [recipient] [channel name] [recipient] [constrain type] message; ends: what ends a body.
    reasoning, content: channels; other channels are dropped. prefix: of a recipient that is a tool.
    builtin: recipients (and names below them) that are no calls.
    recipients: what bodies are by their recipient ("": none), in place of channels; others are tools'.
    headless: ` to=recipient message` counts inside a body as well.
    kinds: literals that begin a body, and what it is, in place of headers.
    tools: grammar of the bodies that are tools'; None: the body is the arguments, the recipient the name.
    trim: whitespace at the end of reasoning is dropped.
    """

    source: str
    start: str
    ends: tuple[str, ...]
    channel: str = ""
    message: str = ""
    constrain: str = ""
    reasoning: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    prefix: str = "functions."
    builtin: tuple[str, ...] = ()
    recipients: tuple[tuple[str, Body], ...] = ()
    headless: bool = False
    kinds: tuple[tuple[str, Body], ...] = ()
    tools: Tools | None = None
    trim: bool = False

    def __post_init__(self) -> None:
        _literals("Messages", "start", (self.start,))
        for field in ("channel", "message", "constrain"):
            if getattr(self, field):
                _literals("Messages", field, (getattr(self, field),))
        _literals("Messages", "ends", self.ends)
        _literals("Messages", "kinds", tuple(literal for literal, _ in self.kinds))
        if not self.ends:
            raise GrammarError('Messages.ends: write what ends a body, such as ("<|end|>",)')
        if bool(self.message) == bool(self.kinds):
            raise GrammarError("Messages: bodies begin after a header's `message` or after one of `kinds`; write one")
        if self.message and bool(self.channel) == bool(self.recipients):
            raise GrammarError("Messages: a body is told by its `channel` or by its `recipients`; write one")
        if set(self.reasoning) & set(self.content):
            raise GrammarError("Messages: a channel is reasoning or content, not both; write it once")
        named = "tools" in dict((*self.recipients, *self.kinds)).values() or self.recipients
        if named and self.tools is None:
            raise GrammarError("Messages.tools: write the grammar of tools' bodies")

    @property
    def ids(self) -> Literal["default", "functions", "nine"]:
        return self.tools.ids if self.tools else "default"

    @property
    def markers(self) -> tuple[str, ...]:
        return (*self.framing, *(self.tools.markers if self.tools else ()))

    @property
    def framing(self) -> tuple[str, ...]:
        """The literals that frame messages."""
        own = (self.start, self.channel, self.message, self.constrain, *self.ends, *(one for one, _ in self.kinds))
        return tuple(literal for literal in own if literal)


Grammar = Reasoning | Tools | Messages
