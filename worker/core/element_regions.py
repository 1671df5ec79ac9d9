"""Region of nested elements: `<key>…</key>` with a prefix before every tag, rewritten as JSON.

A parameter whose schema says string streams. Any other is written when its element closes: whether it is text, an
object or a list is known only then. Of equal keys in one object a list is made; at the top, where the first was
written already, the first stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

from worker.core.coerce import ARRAY, OBJECT, STRING, convert, dump, parameter_types, property_schema, schema_types
from worker.core.compiled import partial
from worker.core.object_writer import is_new, write_end, write_key
from worker.core.run import Run
from worker.core.run_constants import (
    AFTER,
    BAD,
    GOOD,
    MAX_ELEMENTS,
    MAX_HEADER,
    MAX_VALUE,
    MUTE,
    SKIPPING,
    SPACE,
    STREAMING,
)

_TAG = re.compile(r"<(/?)([^<>\s/]{1,256})>")
_SEPARATOR = "\x00"
"""Between the names of open elements; no tag can hold it."""


def elements(run: Run) -> bool:
    """Inside a call: parameters, up to the call's closer. A tag that cannot stand here ends the parameters."""
    c = run.c
    buf = run.buf
    if run.flags & STREAMING and not _string(run):
        return False
    while True:
        begin = buf.find(c.prefix, run.pos)
        if begin < 0:
            stop = partial(buf, run.pos, c.prefix)
            _collect(run, buf[run.pos : stop])
            return run.wait(stop)
        _collect(run, buf[run.pos : begin])
        run.pos = begin
        if buf.startswith(c.close, begin):
            return _end(run, closed=True)
        at = begin + len(c.prefix)
        tag = _TAG.match(buf, at)
        if tag is None:
            rest = buf[at:]
            if not run.over(begin, MAX_HEADER) and ">" not in rest and not run.ending:
                return run.wait(begin)
            run.pos = begin + len(c.prefix)
            return _end(run, closed=False)
        if not _tag(run, tag):
            return _end(run, closed=False)
        run.pos = tag.end()
        if run.flags & STREAMING and not _string(run):
            return False


def _string(run: Run) -> bool:
    """A string is written as it comes: only its own closer ends it. False: it goes on."""
    closer = f"{run.c.prefix}</{run.key}>"
    end = run.buf.find(closer, run.pos)
    stop = end if end >= 0 else partial(run.buf, run.pos, closer)
    run.write(encode_basestring(run.literal(run.buf[run.pos : stop]))[1:-1])
    if end < 0:
        return run.wait(stop)
    run.write('"')
    run.pos = end + len(closer)
    run.flags &= ~STREAMING
    run.key = run.raw = ""
    return True


def _collect(run: Run, text: str) -> None:
    """Text inside an open element; between elements it is nothing. Too much of it spoils the call."""
    if not run.raw or run.flags & (SKIPPING | BAD):
        return
    run.value += text
    if len(run.value) > MAX_VALUE:
        run.value = ""
        run.flags |= BAD


def _tag(run: Run, tag: re.Match[str]) -> bool:
    """One tag; False if it cannot stand here."""
    path = run.raw.split(_SEPARATOR) if run.raw else []
    if tag[1]:
        if not path or path[-1] != tag[2]:
            return False
        path.pop()
        if not path:
            _write(run)
        else:
            _collect(run, run.c.prefix + tag.group())
        run.raw = _SEPARATOR.join(path)
        return True
    if not path:
        _begin(run, tag[2])
    elif len(path) >= MAX_ELEMENTS or len(run.raw) + len(tag[2]) > MAX_VALUE:
        return False
    else:
        _collect(run, run.c.prefix + tag.group())
    run.raw = _SEPARATOR.join((*path, tag[2]))
    return True


def _begin(run: Run, key: str) -> None:
    """A parameter begins: one whose schema says string, and nothing else, streams."""
    run.key, run.value = key, ""
    if not is_new(run, key):
        run.flags |= SKIPPING
        return
    if parameter_types(run.request.schemas.get(run.name), key) == STRING:
        write_key(run, run.literal(key))
        run.write('"')
        run.flags |= STREAMING


def _write(run: Run) -> None:
    if not run.flags & (SKIPPING | BAD):
        parameters = run.request.schemas.get(run.name)
        schema = property_schema(parameters, run.key)
        value = _value(run.literal(run.value), run.literal(run.c.prefix), schema, parameters)
        write_key(run, run.literal(run.key))
        run.write(value)
    run.flags &= ~SKIPPING
    run.key = run.value = ""


def _end(run: Run, closed: bool) -> bool:
    """The call's closer, or something that cannot stand in a call: a closer right after that comes too late."""
    if closed and not run.flags & (MUTE | BAD):
        write_end(run)
        run.flags |= GOOD
    run.raw = run.value = run.key = ""
    run.region = AFTER
    return True


def _value(text: str, prefix: str, schema: Any, root: Any) -> str:
    """JSON text of what stands between an element's tags."""
    types = schema_types(schema, root)
    children, loose = _children(text, prefix)
    if not children:
        if types & (ARRAY | OBJECT) and not text.strip(SPACE):
            return "[]" if types & ARRAY else "{}"
        return convert(text, types)
    if types & ARRAY and not types & OBJECT:
        items = schema.get("items") if isinstance(schema, Mapping) else None
        return "[" + ", ".join(_value(inner, prefix, items, root) for _, inner in children) + "]"
    members: dict[str, list[str]] = {}
    for key, inner in children:
        members.setdefault(key, []).append(_value(inner, prefix, property_schema(schema, key), root))
    if loose.strip(SPACE):
        key = "$text"
        while key in members:
            key = "$" + key
        members[key] = [dump(loose.strip(SPACE))]
    parts = [f"{dump(key)}: {one[0] if len(one) == 1 else '[' + ', '.join(one) + ']'}" for key, one in members.items()]
    return "{" + ", ".join(parts) + "}"


def _children(text: str, prefix: str) -> tuple[list[tuple[str, str]], str]:
    """The elements directly in text, with what they hold, and the text beside them."""
    children: list[tuple[str, str]] = []
    loose: list[str] = []
    pos = start = depth = 0
    name = ""
    while (at := text.find(prefix, pos)) >= 0:
        tag = _TAG.match(text, at + len(prefix))
        if tag is None:
            break
        if not depth:
            loose.append(text[pos:at])
        if not tag[1]:
            if not depth:
                name, start = tag[2], tag.end()
            depth += 1
        else:
            depth -= 1
            if not depth:
                children.append((name, text[start:at]))
        pos = tag.end()
    loose.append(text[pos:])
    return children, "".join(loose)
