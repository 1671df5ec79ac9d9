"""Region of Python calls: `[name(key=value, …), …]`, rewritten as JSON, one argument at a time."""

from __future__ import annotations

import re

from worker.core.coerce import dump
from worker.core.grammar import Python
from worker.core.json_scan import MAX_DEPTH
from worker.core.object_writer import write_end, write_key
from worker.core.python_values import python_value
from worker.core.run import Run
from worker.core.run_constants import (
    AFTER,
    BAD,
    CONTENT,
    MAX_HEADER,
    MAX_UNDECIDED,
    MAX_VALUE,
    PYTHON,
    SEEN,
    SPACE,
    UNDECIDED,
)

# Phases.
START, NAME, ARGUMENT, VALUE, NEXT_CALL = range(5)
# Modes inside a value: 0 outside strings; else which quote, and whether it is a triple one; plus _ESCAPE.
_ESCAPE = 16
_QUOTES = {1: "'", 2: '"', 3: "'''", 4: '"""'}
_MODES = {quote: mode for mode, quote in _QUOTES.items()}
# Names of tools and parameters may have hyphens, which no Python name has.
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*\Z")
_NAME_BEGIN = re.compile(r"[\w.-]+\Z")
_KEYWORD = re.compile(r"[ \t\r\n]*([^\W\d][\w-]*)[ \t\r\n]*=(?!=)")
_KEYWORD_BEGIN = re.compile(r"[^\W\d][\w-]*[ \t\r\n]*=?\Z")
_VALUE_STOP = re.compile(r"""['"()\[\]{},]""")
_STRING_STOP = {"'": re.compile(r"[\\\n']"), '"': re.compile(r'[\\\n"]')}
_CLOSER = {"(": ")", "[": "]", "{": "}"}


def python(run: Run) -> bool:
    begin = run.pos
    moved = _calls(run)
    if moved is None:  # it cannot be a list of calls
        if run.flags & UNDECIDED:
            return release(run, run.buf[begin : run.pos])
        run.end(False)
        if run.c.close and not run.c.unmarked:
            run.region = AFTER  # an opener began it, so its closer ends it
            return True
        return _leave(run)
    if run.flags & UNDECIDED and run.region == PYTHON:
        run.raw += run.buf[begin : len(run.buf) - len(run.held)]
        if len(run.raw) + len(run.held) > MAX_UNDECIDED:
            run.held = ""
            return release(run, "")
    return moved


def release(run: Run, rest: str = "") -> bool:
    """It was no call: what was held is content."""
    held = run.raw + rest
    run.end(False)
    run.region = CONTENT
    if run.flags & SEEN or held.strip(SPACE):
        run.say_content(run.prose(held))
    return run.pos < len(run.buf)


def finish_undecided(run: Run) -> None:
    """End of the output before it was known whether this is a call: text, unless it was cut after a name and `(`."""
    run.raw += run.held
    if run.reason != "length" or "(" not in run.raw:
        release(run)


def _leave(run: Run) -> bool:
    run.to_content()
    return True


def _calls(run: Run) -> bool | None:
    """Read on; None: what stands at `pos` cannot be part of a list of calls."""
    buf = run.buf
    while True:
        if run.phase == VALUE:
            if not _value(run):
                return False if run.pos == len(buf) else None
            return True
        char = run.skip_space()
        if not char:
            return False
        close = run.c.close
        if close and run.phase in (NAME, NEXT_CALL) and not run.flags & UNDECIDED:
            rest = buf[run.pos : run.pos + len(close)]
            if rest == close:
                return _leave(run)
            if close.startswith(rest) and not run.ending:
                return run.wait(run.pos)
        if run.phase == START and not _brackets(run):
            run.phase = NAME
        elif run.phase == START:
            if char != "[":
                return None
            run.pos += 1
            run.phase = NAME
        elif run.phase == NAME:
            if char == "]" and not run.flags & UNDECIDED:
                run.pos += 1
                return _leave(run)
            stop = buf.find("(", run.pos)
            if stop < 0:
                rest = buf[run.pos :]
                if not _NAME_BEGIN.match(rest.rstrip(SPACE)) or run.over(run.pos, MAX_HEADER):
                    return None
                return run.wait(run.pos)
            name = buf[run.pos : stop].strip(SPACE)
            if not _NAME.match(name) and name not in run.request.names:
                return None
            if run.flags & UNDECIDED:
                verdict = _is_call(buf, stop + 1)
                if verdict is None:
                    return run.wait(run.pos)
                if not verdict:
                    return None
                run.flags &= ~UNDECIDED
                run.raw = ""
            run.pos = stop + 1
            run.name = name
            run.begin()
            run.phase = ARGUMENT
        elif run.phase == ARGUMENT:
            if char == ")":
                run.pos += 1
                write_end(run)
                run.end(not run.flags & BAD)
                run.phase = NEXT_CALL
                continue
            if char == ",":
                run.pos += 1
                continue
            keyword = _KEYWORD.match(buf, run.pos)
            if keyword is None or keyword.end() == len(buf):
                rest = buf[run.pos :]
                if not run.over(run.pos, MAX_HEADER) and _KEYWORD_BEGIN.match(rest):
                    return run.wait(run.pos)
                return None
            run.pos = keyword.end()
            run.key = keyword[1]
            run.value = run.stack = ""
            run.mode = 0
            run.phase = VALUE
        elif char == ",":
            run.pos += 1
            run.phase = NAME
        elif char == "]":
            run.pos += 1
            return _leave(run)
        elif not _brackets(run):
            run.phase = NAME
        else:
            return None


def _brackets(run: Run) -> bool:
    return not isinstance(run.c.arguments, Python) or run.c.arguments.brackets


def _is_call(buf: str, pos: int) -> bool | None:
    """Whether arguments begin at pos; None: not known yet."""
    rest = buf[pos : pos + MAX_HEADER].lstrip(SPACE)
    if not rest:
        return None
    if rest[0] == ")":
        return True
    match = _KEYWORD.match(rest)
    if match:
        return None if match.end() == len(rest) else True
    return None if _KEYWORD_BEGIN.match(rest) else False


def _value(run: Run) -> bool:
    """Collect a value's source up to the comma or parenthesis that ends it; False if that is not here."""
    buf, size, pos = run.buf, len(run.buf), run.pos
    parts: list[str] = []
    stopped = False
    while pos < size and not stopped:
        if run.mode >= _ESCAPE:
            parts.append(buf[pos])
            run.mode -= _ESCAPE
            pos += 1
        elif run.mode:
            pos = _in_string(run, pos, parts)
        else:
            pos, stopped = _outside_strings(run, pos, parts)
    run.pos = pos
    if stopped and (run.stack or buf[pos] not in ",)"):
        return False  # not even a value
    run.value += "".join(parts)
    if len(run.value) > MAX_VALUE:
        run.value = ""
        run.flags |= BAD
    if stopped:
        _write(run)
    return stopped


def _in_string(run: Run, pos: int, parts: list[str]) -> int:
    """Read up to what is special in a string, and that; the position after it."""
    buf = run.buf
    quote = _QUOTES.get(run.mode, "'")
    match = _STRING_STOP[quote[0]].search(buf, pos)
    if match is None:
        parts.append(buf[pos:])
        return len(buf)
    at, char = match.start(), match.group()
    parts.append(buf[pos:at])
    if char == "\\":
        run.mode += _ESCAPE
    elif char == "\n":
        char = char if run.mode > 2 else "\\n"
    elif buf.startswith(quote, at):
        run.mode = 0
        parts.append(quote)
        return at + len(quote)
    elif quote.startswith(buf[at:]) and not run.ending:
        run.held = buf[at:]
        return len(buf)
    parts.append(char)
    return at + 1


def _outside_strings(run: Run, pos: int, parts: list[str]) -> tuple[int, bool]:
    """Read up to what is special outside strings, and that; the position after it.

    True: what stands at the position is no part of the value.
    """
    buf = run.buf
    match = _VALUE_STOP.search(buf, pos)
    if match is None:
        parts.append(buf[pos:])
        return len(buf), False
    at, char = match.start(), match.group()
    parts.append(buf[pos:at])
    if char in "'\"":
        rest = buf[at : at + 3]
        if len(rest) < 3 and not run.ending and (char * 3).startswith(rest):
            run.held = buf[at:]
            return len(buf), False
        quote = char * 3 if rest == char * 3 else char
        run.mode = _MODES[quote]
        parts.append(quote)
        return at + len(quote), False
    if char in "([{":
        if len(run.stack) >= MAX_DEPTH:
            return at, True
        run.stack += char
    elif not run.stack or (char != "," and _CLOSER[run.stack[-1]] != char):
        return at, True
    elif char != ",":
        run.stack = run.stack[:-1]
    parts.append(char)
    return at + 1, False


def _write(run: Run) -> None:
    source = run.literal(run.value)
    run.value = ""
    run.phase = ARGUMENT
    if run.flags & BAD:
        return
    try:
        text = dump(python_value(source))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        run.flags |= BAD
        return
    write_key(run, run.key)
    run.write(text)
    run.key = ""
