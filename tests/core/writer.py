"""Writes messages in a family's format, from its declaration: the counterpart of the parser."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

from worker.core.events import TEXT, Piece
from worker.core.grammar import Elements, Header, Json, Literals, Members, Messages, Params, Python, Reasoning, Tools
from worker.core.vocabulary import Vocabulary

Calls = Sequence[tuple[str, dict[str, Any]]]


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_message(reasoning: Reasoning | None, tools: Tools, thought: str, content: str, calls: Calls) -> str:
    """A turn: reasoning, content, calls. The prompt has opened nothing."""
    out = ""
    if reasoning is not None and thought:
        opener = reasoning.open[0] if reasoning.open else ""
        out += f"{opener}{reasoning.label}{chr(10) if reasoning.label else ''}{thought}{reasoning.close[0]}"
    elif reasoning is not None and (reasoning.start == "reasoning" or reasoning.switches):
        out += reasoning.close[0]
    gap = "" if tools.gap == "keep" else "\n\n"
    return out + content + (gap + write_calls(tools, calls) if calls else "")


def write_calls(tools: Tools, calls: Calls) -> str:
    arguments = tools.arguments
    if isinstance(arguments, Python):
        one = [f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})" for name, args in calls]
        if not arguments.brackets:
            return "\n".join((*tools.call, *one, tools.close))
        written = f"[{', '.join(one)}]"
        return written if tools.unmarked else f"{tools.call[0]}{written}{tools.close}"
    if isinstance(arguments, Members):
        objects = [_object(arguments, name, args) for name, args in calls]
        if arguments.array:
            return f"{tools.call[0]}{'' if arguments.opened else '['}{', '.join(objects)}]{tools.close}"
        if tools.unmarked:
            return "; ".join(objects)
        return "\n".join(f"{tools.call[0]}\n{one}\n{tools.close}" for one in objects)
    written = "".join(_header_and_body(tools, name, args) for name, args in calls)
    if tools.section:
        return f"{tools.section[0]}\n{written}{tools.section_close}"
    return written


def _object(shape: Members, name: str, args: dict[str, Any]) -> str:
    return dumps({name: args} if shape.keyed else {shape.name[0]: name, shape.arguments[0]: args})


def _header_and_body(tools: Tools, name: str, args: dict[str, Any]) -> str:
    header = tools.header
    assert header is not None
    match tools.arguments:
        case Json(lead):
            body = f"{lead}\n{dumps(args)}\n```" if lead.startswith("```") else lead + dumps(args)
        case Params() as params:
            body = "".join(_parameter(params, key, value) for key, value in args.items())
        case Literals(delimiter, decoded):
            body = _literal(args, delimiter) if not decoded else _decoded(args, delimiter)
        case Elements(prefix):
            body = "".join(f"{prefix}<{key}>{_text(value)}{prefix}</{key}>\n" for key, value in args.items())
    return tools.call[0] + _header(tools, header, name) + body + tools.close


def _header(tools: Tools, header: Header, name: str) -> str:
    end = header.until[0] if header.until else ""
    pattern = header.pattern
    if "plamo" in pattern:
        return f"<|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>{end}"
    if pattern.startswith(".*?\\bname="):
        return f' name="{name}"{end}'
    if "functions" in pattern:
        return f"functions.{name}:0{end}"
    if "tool=" in pattern:
        return f' tool="{name}" index="1"{end}'
    if "call" in pattern and not end:
        return f"call:{name}"
    if "sep" in pattern:
        return f"function<｜tool▁sep｜>{name}\n"
    if pattern.startswith("\\s*name="):
        return f' name="{name}"{end}'
    if tools.call[0].endswith("name="):
        return f'"{name}"{end}'
    return name + end


def _parameter(params: Params, key: str, value: Any) -> str:
    text = dumps(value) if params.typing == "json" else _text(value)
    if params.pattern.startswith(".*?\\bname="):
        head = f' name="{key}"'
    elif "&amp;" in params.pattern or params.escapes:
        kind = {str: "string", bool: "boolean", int: "number", dict: "object", list: "array"}.get(type(value), "null")
        head = f' key="{key}" type="{kind}"'
    elif params.typing == "attribute":
        head = f' name="{key}" string="{"true" if isinstance(value, str) else "false"}"'
    elif params.open.endswith("name="):
        head = f'"{key}"'
    else:
        head = key
    around = "\n" if params.trim == "newline" else ""
    return f"{params.open}{head}{params.until}{params.value_open}{around}{text}{around}{params.close}\n"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _decoded(args: dict[str, Any], delimiter: str) -> str:
    return "{" + ",".join(f"{key}:{delimiter}{dumps(value)}{delimiter}" for key, value in args.items()) + "}"


def _literal(value: Any, delimiter: str) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{key}:{_literal(one, delimiter)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ",".join(_literal(one, delimiter) for one in value) + "]"
        case str():
            return delimiter + value + delimiter
        case _:
            return json.dumps(value)


def write_messages(grammar: Messages, thought: str, content: str, calls: Calls) -> str:
    if grammar.tools is not None:
        return _write_bodies(grammar, grammar.tools, thought, content, calls)
    parts = []
    if thought:
        parts.append(f"{grammar.channel}analysis{grammar.message}{thought}{grammar.ends[0]}")
    if content:
        parts.append(f"{grammar.channel}final{grammar.message}{content}{grammar.ends[0]}")
    for name, args in calls:
        head = f"{grammar.channel}commentary to={grammar.prefix}{name} {grammar.constrain}json{grammar.message}"
        parts.append(f"{head}{dumps(args)}{grammar.ends[1]}")
    return f"{grammar.start}assistant".join(parts)


def _write_bodies(grammar: Messages, tools: Tools, thought: str, content: str, calls: Calls) -> str:
    """Messages told by recipient or by kind; the prompt has begun the first one."""
    heads = {what: f" to={name}{grammar.message}" for name, what in grammar.recipients if name}
    heads |= {"tools": f" to=tool{grammar.message}"} if grammar.recipients else {}
    heads |= {what: literal for literal, what in reversed(grammar.kinds)}
    start = grammar.start + ("assistant" if grammar.recipients else "")
    bodies = [(heads["reasoning"], thought)] * bool(thought) + [(heads["content"], content)] * bool(content)
    if isinstance(tools.arguments, Members):
        bodies += [(heads["tools"], _object(tools.arguments, name, args)) for name, args in calls]
    elif calls:
        bodies.append((heads["tools"], write_calls(tools, calls)))
    return start.join(head + body + grammar.ends[0] for head, body in bodies)


def pieces_of(text: str, vocabulary: Vocabulary) -> list[Piece]:
    """Pieces of a text in which every added token's text is that token."""
    literals = sorted((one for one in vocabulary.id_of if one), key=len, reverse=True)
    pieces: list[Piece] = []
    at = 0
    for match in re.finditer("|".join(map(re.escape, literals)), text):
        if match.start() > at:
            pieces.append((text[at : match.start()], TEXT))
        pieces.append((match.group(), vocabulary.id_of[match.group()]))
        at = match.end()
    if at < len(text):
        pieces.append((text[at:], TEXT))
    return pieces


SIZES = (1, 1, 2, 3, 5, 8, 20)


def cut_pieces(pieces: Sequence[Piece], source: random.Random, sizes: Sequence[int] = SIZES) -> list[list[Piece]]:
    """The same pieces in random chunks, text cut anywhere into parts of these sizes."""
    chunks: list[list[Piece]] = [[]]
    for text, id_ in pieces:
        while text:
            size = len(text) if id_ != TEXT else min(len(text), source.choice(sizes))
            chunks[-1].append((text[:size], id_))
            text = text[size:]
            if source.random() < 0.7:
                chunks.append([])
    return chunks
