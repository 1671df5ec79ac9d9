"""Regions of parameters in tags, whose values are text: where a value ends, and what JSON it becomes.

Inside a value only its closer counts, and only where what follows may follow it; so text that quotes the format stays
text. The closer and what follows are held until that is known.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring
from zlib import crc32

from worker.core.coerce import (
    CONTAINERS,
    NULL,
    STRING,
    UNKNOWN,
    convert,
    json_or_string,
    parameter_types,
)
from worker.core.compiled import SYMBOL
from worker.core.run import Run
from worker.core.run_constants import (
    AFTER,
    FRESH,
    HAS_ARGUMENTS,
    JSON,
    KEY,
    LINE,
    MAX_HEADER,
    MAX_KEYS,
    MAX_SCALAR_VALUE,
    MAX_SPACE,
    MAX_VALUE,
    OPEN,
    PARAMS,
    SKIPPING,
    SPACE,
    STREAMING,
    TO_VALUE,
    VALUE,
    WROTE,
)

BY_JSON = 128
"""In place of a type set: JSON if the text is JSON, else a string (an attribute said "no string")."""
_SPACES = re.compile(r"[ \t\r\n]*")
TEXT, WAIT, CLOSE = range(3)


def params(run: Run) -> bool:
    """Between parameters: the next one, or the end of the call; anything else is dropped."""
    c = run.c
    assert c.params is not None
    if c.params.json_body and not run.flags & (WROTE | HAS_ARGUMENTS):
        start = run.pos
        char = run.skip_space()
        if not char:
            return run.wait(start)
        if char == "{":
            run.region, run.flags = JSON, run.flags | WROTE
            run.mode, run.stack = 0, ""
            return True
        run.flags |= HAS_ARGUMENTS  # looked once
    match = c.in_params.find(run.buf, run.pos)
    if match is None:
        return run.wait(c.in_params.hold(run.buf, run.pos))
    literal = match.group()
    if literal == c.param_open:
        run.pos = match.end()
        run.region = KEY
        return True
    run.pos = match.end() if literal == c.close else match.start()
    _end_call(run)
    if literal != c.close:
        run.region = AFTER
    return True


def _end_call(run: Run) -> None:
    if run.flags & OPEN:
        run.write("}" if run.flags & WROTE else "{}")
    run.end(True)
    run.call_over()


def key(run: Run) -> bool:
    """The tag with a parameter's name."""
    c = run.c
    assert c.params is not None
    match = c.key_end.find(run.buf, run.pos)
    if match is None:
        if len(run.buf) - run.pos > MAX_HEADER:
            run.region = PARAMS
            return True
        return run.wait(run.pos)
    captured = run.literal(run.buf[run.pos : match.start()])
    run.pos = match.end()
    found = c.param_pattern.fullmatch(captured)
    if found is None or match.start() - run.pos > MAX_HEADER:
        run.region = PARAMS
        return True
    name = found["key"].strip()
    if c.params.escapes:
        name = name.replace("&quot;", '"').replace("&amp;", "&")
    run.key = name
    run.kind = _types(run, name, found.groupdict().get("type"))
    run.region = TO_VALUE if c.value_open else VALUE
    _begin_value(run)
    return True


def _types(run: Run, name: str, attribute: str | None) -> int:
    assert run.c.params is not None
    if run.c.params.typing == "attribute":
        if attribute is None:
            return STRING if run.c.params.untyped == "string" else BY_JSON
        return STRING if attribute in ("true", "string") else BY_JSON
    return parameter_types(run.request.schemas.get(run.name), name)


def _begin_value(run: Run) -> None:
    """Write the key; a value whose type is a string streams, the others are collected until they can be typed."""
    digest = crc32(run.key.encode("utf-8", "surrogatepass"))
    run.flags = (run.flags | FRESH) & ~(STREAMING | SKIPPING | LINE)
    run.value = ""
    if digest in run.seen or len(run.seen) >= MAX_KEYS:
        run.flags |= SKIPPING
        return
    run.seen = (*run.seen, digest)
    run.write((", " if run.flags & WROTE else "{") + json.dumps(run.key, ensure_ascii=False) + ": ")
    run.flags |= WROTE
    if run.kind in (UNKNOWN, STRING):
        run.flags |= STREAMING
        run.write('"')


def to_value(run: Run) -> bool:
    """Between a key and its value."""
    c = run.c
    match = c.to_value.find(run.buf, run.pos)
    if match is None:
        return run.wait(c.to_value.hold(run.buf, run.pos))
    if match.group() == c.value_open:
        run.pos = match.end()
        run.region = VALUE
    else:  # a key without a value
        run.pos = match.start()
        _end_value(run)
    return True


def value(run: Run) -> bool:
    """Inside a value."""
    c = run.c
    assert c.params is not None
    buf = run.buf
    pos = run.pos
    if run.flags & FRESH:
        if c.params.trim == "newline":
            if pos == len(buf):
                return run.wait(pos)
            if buf[pos] == "\n":
                pos += 1
            elif buf.startswith("\r\n", pos):
                pos += 2
            run.flags |= LINE
        elif c.params.trim == "strip":
            if not run.skip_space():
                return run.wait(len(buf))
            pos = run.pos
        run.flags &= ~FRESH
    search = pos
    while True:
        match = c.in_value.find(buf, search)
        if match is None:
            stop = c.in_value.hold(buf, search)
            break
        verdict = _decide(run, buf, pos, match)
        if verdict == CLOSE:
            stop = match.start()
            _say(run, buf[pos : _trimmed(c.params.trim, buf, pos, stop)])
            run.pos = match.end() if match.group() == c.param_close else stop
            _end_value(run)
            return True
        if verdict == WAIT:
            stop = match.start()
            break
        search = match.start() + 1
    if c.params.trim == "strip":
        keep = pos + len(buf[pos:stop].rstrip(SPACE))
        if stop - keep <= MAX_SPACE:
            stop = keep
    elif stop > pos and buf[stop - 1] == "\n":
        # a newline may belong to the closer, and tells that what follows stands at the start of a line
        stop -= 1
        if stop > pos and buf[stop - 1] == "\r":
            stop -= 1
    if stop > pos:
        _say(run, buf[pos:stop])
        run.flags &= ~LINE
    return run.wait(stop)


def _trimmed(trim: str, buf: str, pos: int, stop: int) -> int:
    if trim == "newline" and stop > pos and buf[stop - 1] == "\n":
        return stop - 2 if stop - 1 > pos and buf[stop - 2] == "\r" else stop - 1
    if trim == "strip":
        return pos + len(buf[pos:stop].rstrip(SPACE))
    return stop


def _decide(run: Run, buf: str, begin: int, match: re.Match[str]) -> int:
    """Whether a closer inside a value is one."""
    c = run.c
    assert c.params is not None
    literal = match.group()
    at_line = buf[match.start() - 1] == "\n" if match.start() > begin else bool(run.flags & LINE)
    if literal == c.param_open and literal != c.param_close:
        if not at_line:
            return TEXT
        return CLOSE
    if literal == c.param_close:
        followers = c.after_value
    else:
        if c.params.implicit == "line" and not at_line:
            return TEXT
        followers = c.after_close
    space = _SPACES.match(buf, match.end())
    assert space is not None
    after = space.end()
    if after == len(buf):
        if run.ending:  # an output that was cut may have gone on with the value: only its own closer is sure
            return TEXT if run.reason == "length" and literal != c.param_close else CLOSE
        return WAIT if after - match.end() <= MAX_SPACE else TEXT
    rest = buf[after:]
    for follower in followers:
        if rest.startswith(follower):
            return CLOSE
        if follower.startswith(rest) and not run.ending:
            return WAIT
    if SYMBOL.match(rest) and rest[0] >= "\ud900":  # a special token the grammar does not know ends the turn
        return CLOSE
    return TEXT


def _say(run: Run, text: str) -> None:
    """Text of the value, wherever it goes."""
    if not text or run.flags & SKIPPING:
        return
    if run.flags & STREAMING:
        run.write(encode_basestring(run.literal(text))[1:-1])
        return
    run.value += text
    types = run.kind
    size = len(run.value)
    if types & CONTAINERS or types == BY_JSON:
        if size > MAX_VALUE:
            _stream_rest(run)
    elif size > MAX_SCALAR_VALUE or (
        types & STRING and not types & ~(STRING | NULL) and not "null".startswith(run.value.strip().lower())
    ):
        _stream_rest(run)


def _stream_rest(run: Run) -> None:
    """Too long for its type, or surely a string: from here on it streams as one."""
    run.flags |= STREAMING
    run.write('"' + encode_basestring(run.literal(run.value))[1:-1])
    run.value = ""


def _end_value(run: Run) -> None:
    if not run.flags & SKIPPING:
        if run.flags & STREAMING:
            run.write('"')
        elif run.kind == BY_JSON:
            run.write(json_or_string(run.literal(run.value)))
        else:
            run.write(convert(run.literal(run.value), run.kind))
    run.flags &= ~(STREAMING | SKIPPING | FRESH | LINE)
    run.value = run.key = ""
    run.kind = 0
    run.region = PARAMS
