"""A tokenizer's `response_template` as a grammar of the engine (parsers `hf` and `beam`).

The template (transformers, "Response Parsing") lists the fields of a message, how each opens and closes, and how its
text is decoded. What has a bounded streaming form is imported: literal markers, patterns of literals around one named
part, JSON, tags with a key and a value, lists of Python calls. Anything else is refused, and the message says what.

Where whole results differ from transformers on purpose: outer whitespace of content; a field that comes twice is
joined, not replaced; a call that was cut is no call; inside a value only its scanner counts; a call's id counts where
it stands before the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from worker.core.errors import GrammarError
from worker.core.grammar import Arguments, Header, Json, Literals, Members, Params, Python, Reasoning, Tools, apart

SOURCE = "response_template of the tokenizer"
_REASONING = ("thinking", "reasoning", "reasoning_content")
_KNOWN = frozenset(("version", "defaults", "fields", "start_anchor", "start_anchor_pattern"))
_KNOWN_FIELD = frozenset(
    {"open", "open_pattern", "close", "close_pattern", "content", "content_args"}
    | {"repeats", "join", "optional", "transform", "transform_each"}
)
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_SPACES = re.compile(r"(?:\\s|\\n|\\t|\\r| |\n|\[[ \\nrts]+\])[*+?]|\\s")
_GROUP = re.compile(r"\(\?P<(\w+)>((?:[^()\\\[]|\\.|\[(?:[^\]\\]|\\.)*\])*)\)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True)
class Imported:
    """What a template says about reasoning and about calls; None: it has no such field."""

    reasoning: Reasoning | None
    tools: Tools | None


@dataclass(frozen=True)
class Part:
    """A piece of a pattern: literal text, optional whitespace, or a named part with its regular expression."""

    kind: Literal["text", "space", "group"]
    text: str
    name: str = ""


def _refuse(where: str, why: str) -> NoReturn:
    raise GrammarError(f"response_template: {where}: {why}")


def import_template(spec: Any) -> Imported:
    """Grammars of a response template; raises GrammarError that names the field and what cannot be imported."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("fields"), Mapping):
        _refuse("fields", "a mapping of fields is needed")
    if spec.get("version", 1) != 1:
        _refuse("version", f"{spec['version']!r} is not known; 1 is")
    if unknown := sorted(set(spec) - _KNOWN):
        _refuse(unknown[0], "this key is not known")
    anchors = _anchors(spec)
    reasoning: Reasoning | None = None
    tools: Tools | None = None
    noise: tuple[str, ...] = ()
    for name, field in spec["fields"].items():
        where = f"field {name!r}"
        if not isinstance(field, Mapping):
            _refuse(where, "it is no mapping")
        if unknown := sorted(set(field) - _KNOWN_FIELD):
            _refuse(where, f"the key {unknown[0]!r} is not known")
        if name in _REASONING:
            reasoning = _reasoning(where, field)
        elif name == "content":
            noise = _content(where, field)
        elif name == "tool_calls":
            tools = _tools(where, field)
        elif name != "role":
            _refuse(where, "only reasoning, content and tool_calls can be imported; other text has no place")
    if tools:  # what counts in content together
        opens = reasoning.open if reasoning else ()
        apart("response_template", (*opens, *noise, *tools.call, tools.close, *tools.tail))
    return Imported(
        reasoning and replace(reasoning, noise=noise, anchors=anchors), tools and replace(tools, noise=noise)
    )


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    """A mapping that may be left out."""
    if value is not None and not isinstance(value, Mapping):
        _refuse(where, "it is no mapping")
    return value or {}


def _anchors(spec: Mapping[str, Any]) -> tuple[str, ...]:
    if "start_anchor" in spec:
        return _literals("start_anchor", spec["start_anchor"])
    if "start_anchor_pattern" in spec:
        return (_only_text("start_anchor_pattern", spec["start_anchor_pattern"]),)
    _refuse("start_anchor", "it is needed")


def _literals(where: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not values or not all(isinstance(one, str) for one in values):
        _refuse(where, "a literal, or a list of literals, is needed")
    found = tuple(dict.fromkeys(one.strip() for one in values))
    if not all(found):
        _refuse(where, "a marker of whitespace alone cannot be told from text")
    return found


def _only_text(where: str, pattern: Any) -> str:
    parts = [part for part in read_pattern(where, pattern) if part.kind != "space"]
    if len(parts) != 1 or parts[0].kind != "text":
        _refuse(where, f"{pattern!r} is more than one literal with whitespace around it")
    return parts[0].text


def _markers(where: str, field: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Literals of `open` or `close`; a pattern has to be a literal."""
    if name in field:
        return _literals(f"{where}: {name}", field[name])
    if f"{name}_pattern" in field:
        return (_only_text(f"{where}: {name}_pattern", field[f"{name}_pattern"]),)
    return ()


def read_pattern(where: str, pattern: Any) -> list[Part]:
    """The pieces of a regular expression that is literals, optional whitespace and named parts; others are refused."""
    if not isinstance(pattern, str):
        _refuse(where, "a regular expression is needed")
    parts: list[Part] = []
    text = ""
    at = 0
    while at < len(pattern):
        space, group = _SPACES.match(pattern, at), _GROUP.match(pattern, at)
        found = space or group
        if found:
            if text:
                parts.append(Part("text", text))
                text = ""
            parts.append(Part("space", found.group()) if space else Part("group", found[2], found[1]))
            at = found.end()
            continue
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            following = pattern[at + 1]
            if following.isalnum() and following not in _ESCAPES:
                _refuse(where, f"\\{following} in {pattern!r} has no bounded form outside a named part")
            text += _ESCAPES.get(following, following)
            at += 2
        elif char in "^$.|?*+()[]{}\\":
            _refuse(where, f"{char!r} in {pattern!r} has no bounded form outside a named part")
        else:
            text += char
            at += 1
        if at < len(pattern) and pattern[at] in "?*+{":
            _refuse(where, f"{pattern[at]!r} in {pattern!r} repeats a literal")
    if text:
        parts.append(Part("text", text))
    # whitespace at the edges of a literal is optional here: the engine skips it anyway
    return [
        replace(part, text=part.text.strip()) if part.kind == "text" else part
        for part in parts
        if part.kind != "text" or part.text.strip()
    ]


def _reasoning(where: str, field: Mapping[str, Any]) -> Reasoning:
    if field.get("content", "text") != "text":
        _refuse(where, "reasoning has to be decoded as text")
    opens, closes = _markers(where, field, "open"), _markers(where, field, "close")
    if not opens:
        _refuse(where, "reasoning has to be opened by a marker; as the implicit field it would take the content")
    if not closes:
        _refuse(where, "reasoning has to be closed by a marker")
    if "transform" in field:
        _refuse(where, "a transform of reasoning")
    return Reasoning(SOURCE, opens, closes, "content", reopen=True)


def _content(where: str, field: Mapping[str, Any]) -> tuple[str, ...]:
    if field.get("content", "text") != "text" or "transform" in field:
        _refuse(where, "content has to be decoded as text, without a transform")
    if "open" in field or "open_pattern" in field:
        _refuse(where, "content that a marker opens; text outside every field would have to be dropped")
    return _markers(where, field, "close")


# --- calls ------------------------------------------------------------------------------------------------------------


def _path(value: Any) -> tuple[str, ...] | None:
    match = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    return tuple(match[1].split(".")) if match else None


def _named(where: str, field: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...] | None]:
    """Where name, arguments and id come from: paths into captures, or from "content"."""
    each = bool(field.get("transform_each"))
    transform = field.get("transform", "{content}")
    if not each and _path(transform) == ("content",):
        return ("content", "name"), ("content", "arguments"), ("content", "id")
    if not isinstance(transform, Mapping):
        _refuse(where, f"the transform {transform!r} does not tell name and arguments")
    function = transform.get("function", transform)
    root: tuple[str, ...] = ("content",) if each else ()
    id_ = _path(transform.get("id"))
    id_ = (*root, *id_) if id_ else None
    if (whole := _path(function)) is not None:
        return (*root, *whole, "name"), (*root, *whole, "arguments"), id_
    name = _path(function.get("name")) if isinstance(function, Mapping) else None
    arguments = _path(function.get("arguments")) if isinstance(function, Mapping) else None
    if name is None or arguments is None:
        _refuse(where, "the transform has to give name and arguments as placeholders")
    return (*root, *name), (*root, *arguments), id_


def _tools(where: str, field: Mapping[str, Any]) -> Tools:
    name, arguments, id_ = _named(where, field)
    content = field.get("content", "text")
    args = _mapping(f"{where}: content_args", field.get("content_args"))
    closes = _closers(where, field)
    if content == "python-call-list":
        if (name, arguments) != (("content", "name"), ("content", "arguments")):
            _refuse(where, "a list of Python calls has name and arguments of its own")
        return Tools(SOURCE, _opener(where, field), Python(), closes[0], tail=closes[1:])
    if name[0] == "content":
        if content != "json":
            _refuse(where, f"the name is a member of the content, but that is {content!r}, not 'json'")
        shape: Arguments = _members(where, name, arguments, id_, args, bool(field.get("transform_each")))
        return Tools(SOURCE, _opener(where, field), shape, closes[0], tail=closes[1:])
    if len(name) != 1 or arguments != ("content",):
        _refuse(where, "the name has to be captured by open_pattern, and the arguments be the content")
    if id_ is not None and (len(id_) != 1 or id_[0] == "content"):
        _refuse(where, "with a captured name the id has to be captured, too")
    call, header, opens_json = _header(where, field, name[0], id_[0] if id_ else "", closes[0])
    if content == "json":
        delimiters = args.get("string_delims") or []
        if args.get("unquoted_keys") or delimiters:
            match delimiters:
                case [[str() as delimiter, other]] if delimiter == other:
                    shape = Literals(delimiter)
                case _:
                    _refuse(where, "string_delims has to be one pair of the same literal")
        else:
            shape = Json()
        if isinstance(shape, Literals) and not opens_json:
            _refuse(where, "bare keys need the arguments right after the name")
    elif content == "xml-inline":
        shape = _params(where, args)
    else:
        _refuse(where, f"arguments that are {content!r} have no streaming form")
    if not closes[0] and not isinstance(shape, Json):
        _refuse(where, "these arguments need a close")
    return Tools(SOURCE, (call,), shape, closes[0], tail=closes[1:], header=header)


def _opener(where: str, field: Mapping[str, Any]) -> tuple[str, ...]:
    found = _markers(where, field, "open")
    if not found:
        _refuse(where, "calls have to be opened by a marker")
    return found


def _closers(where: str, field: Mapping[str, Any]) -> tuple[str, ...]:
    """The literal that closes a call, and further ones that may follow it; ("",): the arguments' own end."""
    if "close_pattern" not in field:
        return _literals(f"{where}: close", field["close"]) if "close" in field else ("",)
    parts = read_pattern(f"{where}: close_pattern", field["close_pattern"])
    if any(part.kind == "group" for part in parts):
        _refuse(where, "a named part in close_pattern comes after the arguments; the name is needed before them")
    if not (literals := tuple(part.text for part in parts if part.kind == "text")):
        _refuse(f"{where}: close_pattern", "it has no literal")
    return literals


def _members(
    where: str, name: tuple[str, ...], arguments: tuple[str, ...], id_: tuple[str, ...] | None, args: Any, each: bool
) -> Members:
    if args:
        _refuse(where, f"JSON with {sorted(args)[0]!r} that holds the name")
    inner = name[1:-1]
    if len(inner) > 1 or arguments[1:-1] != inner or len(arguments) != len(name):
        _refuse(where, "name and arguments have to be members of one object, at most one level down")
    keys = (id_[-1],) if id_ else ()
    return Members((name[-1],), (arguments[-1],), array=each, id=keys, within=inner)


def _header(where: str, field: Mapping[str, Any], name: str, id_: str, close: str) -> tuple[str, Header, bool]:
    """Opener, header, and whether the arguments follow the name without a literal between."""
    parts = read_pattern(f"{where}: open_pattern", field.get("open_pattern"))
    while parts and parts[-1].kind == "space":
        parts.pop()
    groups = [part.name for part in parts if part.kind == "group"]
    if not parts or parts[0].kind != "text" or name not in groups or (id_ and id_ not in groups):
        _refuse(where, "open_pattern has to be a literal and then the named part")
    last = parts[-1]
    middle = parts[1:-1] if last.kind == "text" else parts[1:]
    pattern = "".join(_piece(part, name, id_) for part in middle)
    if last.kind == "text":
        return parts[0].text, Header(until=(last.text,), pattern=rf"\s*{pattern}\s*"), False
    keep = tuple(dict.fromkeys(literal for literal in ("{", close) if literal))
    return parts[0].text, Header(until=(), keep=keep, pattern=rf"\s*{pattern}\s*"), True


def _piece(part: Part, name: str, id_: str) -> str:
    if part.kind == "group":
        group = {name: "?P<name>", id_: "?P<id>"}.get(part.name, "?:")
        return f"({group}{part.text})"
    return re.escape(part.text) + r"\s*" if part.kind == "text" else r"\s*"


def _params(where: str, args: Mapping[str, Any]) -> Params:
    where = f"{where}: tag_pattern"
    if args.get("merge_duplicates"):
        _refuse(where, "merge_duplicates would have to take back what was sent")
    parts = read_pattern(where, args.get("tag_pattern"))
    solid = [part for part in parts if part.kind != "space"]
    kinds = [part.kind if part.kind == "text" else part.name for part in solid]
    if kinds not in (["text", "key", "text", "value", "text"], ["text", "key", "text", "text", "value", "text"]):
        _refuse(where, "it has to be a tag with `key`, a `value`, and a literal that closes it")
    value = next(number for number, part in enumerate(parts) if part.name == "value")
    around = [part.text for part in (parts[value - 1], parts[value + 1]) if part.kind == "space"]
    parser = _mapping(f"{where}: value_parser", args.get("value_parser") or {"name": "text"})
    decoded = parser.get("name") == "json"
    if parser.get("name", "text") not in ("text", "json"):
        _refuse(where, f"values that are {parser.get('name')!r}")
    return Params(
        open=solid[0].text,
        until=solid[2].text,
        value_open=solid[3].text if len(solid) == 6 else "",
        close=solid[-1].text,
        trim="none" if not around else "newline" if all(one in ("\\n?", "\n?") for one in around) else "strip",
        typing="json" if decoded else "schema",
        implicit="anywhere" if len(solid) == 6 else "line",
        restart=len(solid) != 6,
    )
