"""Regions of parameters in tags, whose values are text: where a value ends, and what JSON it becomes.

Inside a value only its closer counts, and only where what follows may follow it; so text that quotes the format stays
text. The closer and what follows are held until that is known.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring

from worker.core.coerce import (
    CONTAINERS,
    NULL,
    STRING,
    UNKNOWN,
    convert,
    json_or_string,
    parameter_types,
    schema_types,
)
from worker.core.compiled import CDATA, FIRST_DROPPED, SYMBOL, ParamMarkers, partial
from worker.core.json_scan import VALUE as JSON_VALUE
from worker.core.object_writer import is_new, write_end, write_key
from worker.core.run import Run
from worker.core.run_constants import (
    AFTER,
    FRESH,
    HAS_ARGUMENTS,
    JSON,
    KEY,
    LINE,
    MAX_HEADER,
    MAX_SCALAR_VALUE,
    MAX_SPACE,
    MAX_VALUE,
    OPEN,
    PARAMS,
    RAW,
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
_CDATA_END = "]]>"
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ENTITY = re.compile(r"&(#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-z]{2,4});")
_ENTITY_BEGIN = re.compile(r"&(?:#[0-9]{0,7}|#[xX][0-9a-fA-F]{0,6}|[a-z]{0,4})\Z")
MAX_ENTITY = 9


def _markers(run: Run) -> ParamMarkers:
    markers = run.c.params
    assert markers is not None
    return markers


def params(run: Run) -> bool:
    """Between parameters: the next one, or the end of the call; anything else is dropped."""
    c, markers = run.c, _markers(run)
    if markers.grammar.json_body and not run.flags & (WROTE | HAS_ARGUMENTS):
        char = run.skip_space()
        if not char:
            return False
        if char == "{":
            run.region, run.flags = JSON, run.flags | WROTE
            run.mode, run.stack = JSON_VALUE, ""
            return True
        run.flags |= HAS_ARGUMENTS  # looked once
    match = markers.between.find(run.buf, run.pos)
    if match is None:
        return run.wait(markers.between.hold(run.buf, run.pos))
    literal = match.group()
    if literal == markers.open:
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
        write_end(run)
    run.end(True)
    run.call_over()


def key(run: Run) -> bool:
    """The tag with a parameter's name."""
    markers = _markers(run)
    match = markers.key_end.find(run.buf, run.pos)
    if match is None:
        if run.over(run.pos, MAX_HEADER):
            run.region = PARAMS
            return True
        return run.wait(run.pos)
    captured = run.literal(run.buf[run.pos : match.start()])
    run.pos = match.end()
    found = markers.key.fullmatch(captured)
    name = found["key"].strip() if found else ""
    if found is None or len(name) > MAX_HEADER:
        run.region = PARAMS
        return True
    if markers.grammar.escapes:
        name = unescape(name)
    run.key = name
    run.kind = _types(run, name, found.groupdict().get("type"))
    run.region = TO_VALUE if markers.value_open else VALUE
    if not markers.type_open:
        _begin_value(run)
    return True


def unescape(text: str) -> str:
    """A key or a name as the model means it, where the family escapes them."""
    return text.replace("&quot;", '"').replace("&amp;", "&")


def _types(run: Run, name: str, attribute: str | None) -> int:
    grammar = _markers(run).grammar
    if grammar.typing == "attribute":
        if attribute is None:
            return STRING if grammar.untyped == "string" else BY_JSON
        return STRING if attribute in ("true", "string") else BY_JSON
    if grammar.typing == "json":
        return BY_JSON
    types = parameter_types(run.request.schemas.get(run.name), name)
    return BY_JSON if types == UNKNOWN and grammar.untyped == "json" else types


def _begin_value(run: Run) -> None:
    """Write the key; a value whose type is a string streams, the others are collected until they can be typed."""
    key, run.key, run.value = run.key, "", ""
    run.flags = (run.flags | FRESH) & ~(STREAMING | SKIPPING | LINE)
    if not is_new(run, key):
        run.flags |= SKIPPING
        return
    write_key(run, key)
    if run.kind in (UNKNOWN, STRING):
        run.flags |= STREAMING
        run.write('"')


def to_value(run: Run) -> bool:
    """Between a key and its value."""
    markers = _markers(run)
    match = markers.to_value.find(run.buf, run.pos)
    if match is None:
        return run.wait(markers.to_value.hold(run.buf, run.pos))
    if markers.type_open:
        if match.group() == markers.type_open:
            end = run.buf.find(markers.type_close, match.end())
            if end < 0 and not run.over(match.start(), MAX_HEADER):
                return run.wait(match.start())
            if end >= 0:
                run.kind = schema_types({"type": run.literal(run.buf[match.end() : end]).strip()})
            run.pos = end + len(markers.type_close) if end >= 0 else match.end()
            return True
        _begin_value(run)
    if match.group() == markers.value_open:
        run.pos = match.end()
        run.region = VALUE
    else:  # a key without a value
        run.pos = match.start()
        _end_value(run)
    return True


def value(run: Run) -> bool:
    """Inside a value."""
    markers = _markers(run)
    trim, xml = markers.grammar.trim, markers.grammar.xml
    buf = run.buf
    pos = run.pos
    if run.flags & RAW:
        return _verbatim(run)
    if run.flags & FRESH:
        if trim == "newline":
            if pos == len(buf):
                return run.wait(pos)
            if buf[pos] == "\n":
                pos += 1
            run.flags |= LINE
        elif trim == "strip":
            if not run.skip_space():
                return run.wait(len(buf))
            pos = run.pos
        run.flags &= ~FRESH
    search = pos
    while True:
        match = markers.in_value.find(buf, search)
        if match is None:
            stop = markers.in_value.hold(buf, search)
            break
        if match.group() == CDATA:
            _say(run, _text(buf[pos : match.start()], xml))
            run.pos = match.end()
            run.flags |= RAW
            return True
        verdict = _decide(run, markers, pos, match)
        if verdict == CLOSE:
            stop = match.start()
            _say(run, _text(buf[pos : _trimmed(trim, buf, pos, stop)], xml))
            run.pos = match.end() if match.group() == markers.close else stop
            _end_value(run)
            return True
        if verdict == WAIT:
            stop = match.start()
            break
        search = match.start() + 1
    if xml:
        entity = _ENTITY_BEGIN.search(buf, max(pos, stop - MAX_ENTITY), stop)
        stop = entity.start() if entity else stop
    if trim == "strip":
        stop = _stripped(buf, pos, stop)
    elif stop > pos and buf[stop - 1] == "\n":
        # a newline may belong to the closer, and tells that what follows stands at the start of a line
        stop -= 1
    if stop > pos:
        _say(run, _text(buf[pos:stop], xml))
        run.flags &= ~LINE
    return run.wait(stop)


def _verbatim(run: Run) -> bool:
    """Inside a CDATA section of a value."""
    buf = run.buf
    end = buf.find(_CDATA_END, run.pos)
    if end < 0:
        end = partial(buf, run.pos, _CDATA_END)
        _say(run, buf[run.pos : end])
        return run.wait(end)
    _say(run, buf[run.pos : end])
    run.pos = end + len(_CDATA_END)
    run.flags &= ~RAW
    return True


def _text(text: str, xml: bool) -> str:
    """Text of a value with its entities decoded, where the family writes XML."""
    return _ENTITY.sub(_character, text) if xml and "&" in text else text


def _character(match: re.Match[str]) -> str:
    name = match[1]
    if not name.startswith("#"):
        return _ENTITIES.get(name, match.group())
    code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else match.group()


def _trimmed(trim: str, buf: str, pos: int, stop: int) -> int:
    if trim == "newline" and stop > pos and buf[stop - 1] == "\n":
        return stop - 1
    if trim == "strip":
        return _stripped(buf, pos, stop)
    return stop


def _stripped(buf: str, pos: int, stop: int) -> int:
    """Where the whitespace before `stop` begins that may belong to the closer.

    A longer run than MAX_SPACE is text, in portions of one size: how much of it is held does not depend on the cut.
    """
    keep = pos + len(buf[pos:stop].rstrip(SPACE))
    return stop - (stop - keep) % (MAX_SPACE + 1)


def _decide(run: Run, markers: ParamMarkers, begin: int, match: re.Match[str]) -> int:
    """Whether a closer inside a value, which begins at `begin`, is one."""
    buf = run.buf
    literal = match.group()
    at_line = buf[match.start() - 1] == "\n" if match.start() > begin else bool(run.flags & LINE)
    if literal == markers.open and literal != markers.close:
        return CLOSE if at_line else TEXT
    if literal == markers.close:
        followers = markers.after_value
    else:
        if markers.grammar.implicit == "line" and not at_line:
            return TEXT
        followers = markers.after_close
    space = _SPACES.match(buf, match.end())
    assert space is not None
    after = space.end()
    if after - match.end() > MAX_SPACE:
        return TEXT
    if after == len(buf):
        if run.ending:  # an output that was cut may have gone on with the value: only its own closer is sure
            return TEXT if run.reason == "length" and literal != markers.close else CLOSE
        return WAIT
    rest = buf[after:]
    for follower in followers:
        if rest.startswith(follower):
            return CLOSE
        if follower.startswith(rest) and not run.ending:
            return WAIT
    if SYMBOL.match(rest) and rest[0] >= FIRST_DROPPED:  # ends the turn
        return CLOSE
    return TEXT


def _say(run: Run, text: str) -> None:
    """Text of the value, wherever it goes."""
    if not text or run.flags & SKIPPING:
        return
    if run.flags & STREAMING:
        run.write(encode_basestring(run.literal(text))[1:-1])
        return
    run.value += run.literal(text)
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
    run.write('"' + encode_basestring(run.value)[1:-1])
    run.value = ""


def _end_value(run: Run) -> None:
    if not run.flags & SKIPPING:
        if run.flags & STREAMING:
            run.write('"')
        elif run.kind == BY_JSON:
            run.write(json_or_string(run.value))
        else:
            run.write(convert(run.value, run.kind))
    run.flags &= ~(STREAMING | SKIPPING | FRESH | LINE)
    run.value = run.key = ""
    run.kind = 0
    run.region = PARAMS
