"""Regions of arguments that are no JSON: Gemma's objects and Python calls, rewritten as JSON while they come."""

from __future__ import annotations

import re
from json.encoder import encode_basestring

from worker.core.coerce import dump, json_or_string, number_text
from worker.core.json_scan import MAX_DEPTH
from worker.core.run import Run
from worker.core.run_constants import AFTER, GOOD, MAX_HEADER, MAX_VALUE

KEY, KEY_TEXT, COLON, VALUE, STRING, BARE, NEXT, FIRST_VALUE, KEY_STRING = range(9)
_BARE_STOP = re.compile(r"[,}\]]")
_KEY_STOP = re.compile(r"[:,}{\[\]]")


def literals(run: Run) -> bool:
    """Gemma's object: bare keys, strings between delimiters, words by what they look like."""
    c = run.c
    delimiter = c.delimiter
    buf = run.buf
    size = len(buf)
    if not run.stack:
        run.pos += 1  # the brace that the header stopped at
        run.stack = "{"
        run.write("{")
        run.phase = KEY
        run.mode = 0
    while True:
        phase = run.phase
        if phase in (STRING, KEY_STRING):
            stop = buf.find(delimiter, run.pos)
            found = stop >= 0
            if not found:
                stop = c.string_end.hold(buf, run.pos)
            text = buf[run.pos : stop]
            run.pos = stop
            if phase == STRING and c.decoded:
                run.value += text
                if len(run.value) > MAX_VALUE:
                    run.value = ""
                    return _broken(run)
            elif phase == STRING:
                run.write(encode_basestring(run.literal(text))[1:-1])
            else:
                run.key = (run.key + run.literal(text))[:MAX_HEADER]
            if not found:
                return run.wait(stop)
            run.pos += len(delimiter)
            if phase == STRING:
                run.write(json_or_string(run.literal(run.value)) if c.decoded else '"')
                run.value = ""
                run.phase = NEXT
                return True
            run.phase = COLON
            continue
        if phase in (KEY_TEXT, BARE):
            match = (_KEY_STOP if phase == KEY_TEXT else _BARE_STOP).search(buf, run.pos)
            stop = match.start() if match else size
            closer = buf.find(c.close, run.pos, stop)
            if closer >= 0:
                run.pos = closer
                return _broken(run)
            if match is None:
                if run.over(run.pos, MAX_HEADER):
                    return _broken(run)
                return run.wait(run.pos)
            text = run.literal(buf[run.pos : stop])
            run.pos = stop
            if phase == KEY_TEXT:
                if buf[stop] != ":" or not text.strip():
                    return _broken(run)
                run.key = text.strip()[:MAX_HEADER]
                run.phase = COLON
            else:
                run.write(_bare(text.strip()))
                run.phase = NEXT
            continue
        char = run.skip_space()
        if not char:
            return run.wait(run.pos)
        begins = buf.startswith(delimiter, run.pos)
        if not begins and delimiter.startswith(buf[run.pos :]) and not run.ending:
            return run.wait(run.pos)
        if not _structural(run, char, begins):
            return _broken(run)
        if not run.stack:
            run.flags |= GOOD
            run.region = AFTER
            return True


def _structural(run: Run, char: str, begins: bool) -> bool:
    phase = run.phase
    comma = ", " if run.mode else ""
    if phase == KEY:
        if char == "}":
            return _close(run, char)
        if char == ",":
            run.pos += 1
        elif begins:
            run.pos += len(run.c.delimiter)
            run.key = ""
            run.phase = KEY_STRING
        else:
            run.phase = KEY_TEXT
        return True
    if phase == COLON:
        if char != ":":
            return False
        run.pos += 1
        run.write(f"{comma}{dump(run.key)}: ")
        run.key = ""
        run.phase = VALUE
        return True
    if phase in (VALUE, FIRST_VALUE):
        if char == "]" and run.stack[-1] == "[":
            return _close(run, char)
        if char in ",}]":
            return False
        if phase == FIRST_VALUE and comma:
            run.write(comma)
        run.mode = 1
        if begins:
            run.pos += len(run.c.delimiter)
            if not run.c.decoded:
                run.write('"')
            run.phase = STRING
        elif char in "{[":
            if len(run.stack) >= MAX_DEPTH:
                return False
            run.pos += 1
            run.stack += char
            run.write(char)
            run.phase = KEY if char == "{" else FIRST_VALUE
            run.mode = 0
        else:
            run.phase = BARE
        return True
    if char == ",":
        run.pos += 1
        run.mode = 1
        run.phase = KEY if run.stack[-1] == "{" else FIRST_VALUE
        return True
    return _close(run, char)


def _close(run: Run, char: str) -> bool:
    if char != ("}" if run.stack[-1] == "{" else "]"):
        return False
    run.pos += 1
    run.stack = run.stack[:-1]
    run.write(char)
    run.phase = NEXT
    run.mode = 1
    return True


def _broken(run: Run) -> bool:
    run.flags &= ~GOOD
    run.region = AFTER
    return True


def _bare(text: str) -> str:
    """A bare word by its form: true, false, null, a number; else a string."""
    lowered = text.lower()
    if lowered in ("true", "false", "null"):
        return lowered
    if text == "None":
        return "null"
    number = number_text(text)
    return number if number is not None else dump(text)
