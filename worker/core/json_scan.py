"""Incremental JSON: where a value ends, and whether it is JSON at all.

The text is passed on as it was written; only raw control characters inside strings, which models write and JSON
forbids, become escapes. Between the structural characters the scanner runs on compiled regular expressions.
"""

from __future__ import annotations

import re

# Modes: what comes next. The ones from STRING on are inside a string.
VALUE, FIRST_VALUE, FIRST_KEY, KEY, COLON, NEXT, SCALAR, DONE = range(8)
STRING, KEY_STRING = 8, 9
_ESCAPE = 16
"""Added to a string mode: after a backslash; further multiples: hex digits of \\uXXXX still to come, plus one."""

MAX_DEPTH = 256

_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]*+(?:\\["\\/bfnrt][^"\\\x00-\x1f]*+)*+')
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR_RUN = re.compile(r"[0-9A-Za-z+.\-]*")
_SCALAR = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)\Z")
_SCALAR_BEGIN = re.compile(
    r"(?:-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?:\.[0-9]+)?[eE](?:[+-]?[0-9]*)?)?)?"
    r"|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?)\Z"
)
_DIGITS = re.compile(r"([0-9])[0-9]+")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_HEX = frozenset("0123456789abcdefABCDEF")


def escape_control(char: str) -> str:
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


class JsonScan:
    """Scanner of one JSON value. `stack` holds the open brackets.

    `scalar` stands for the number or word being read: of its digits only the first of each run is kept, which decides
    as all of them would about what may follow; so it has at most 7 characters however long the number is.
    `bad`: inside strings or scalars something is not JSON, but where the value ends is still known.
    """

    __slots__ = ("bad", "mode", "scalar", "stack")

    def __init__(self, mode: int = VALUE, stack: str = "", scalar: str = "", bad: bool = False) -> None:
        self.mode = mode
        self.stack = stack
        self.scalar = scalar
        self.bad = bad

    @property
    def done(self) -> bool:
        return self.mode == DONE

    def feed(self, buf: str, pos: int, end: int, out: list[str]) -> int:
        """Scan buf[pos:end], append what belongs to the value to `out`, and return the position after it.

        A return before `end` with `done` unset means that the character there cannot be JSON.
        """
        begin = pos
        while pos < end:
            mode = self.mode
            if mode >= STRING:
                if mode >= _ESCAPE:
                    pos = self._escaped(buf, pos)
                    continue
                run = _STRING_RUN.match(buf, pos, end)
                assert run is not None
                pos = run.end()
                if pos == end:
                    break
                char = buf[pos]
                pos += 1
                if char == '"':
                    self.mode = COLON if mode == KEY_STRING else NEXT if self.stack else DONE
                    if self.mode == DONE:
                        break
                elif char == "\\":
                    self.mode = mode + _ESCAPE
                else:
                    out.append(buf[begin : pos - 1])
                    out.append(escape_control(char))
                    begin = pos
                continue
            if mode == SCALAR:
                run = _SCALAR_RUN.match(buf, pos, end)
                assert run is not None
                self._scalar(run.group())
                pos = run.end()
                if pos < end:
                    self._end_scalar()
                    if self.mode == DONE:
                        break
                continue
            space = _SPACE.match(buf, pos, end)
            assert space is not None
            pos = space.end()
            if pos == end:
                break
            if not self._structural(buf[pos]):
                break
            if self.mode != SCALAR:
                pos += 1
            if self.mode == DONE:
                break
        if pos > begin:
            out.append(buf[begin:pos])
        return pos

    def finish(self) -> None:
        """End of the text: a number or word at the root ends with it."""
        if self.mode == SCALAR and not self.stack:
            self._end_scalar()

    def _scalar(self, text: str) -> None:
        text = self.scalar + text
        if self.bad or not _SCALAR_BEGIN.match(text):
            self.bad = True
            text = ""
        self.scalar = _DIGITS.sub(r"\1", text)

    def _end_scalar(self) -> None:
        if not _SCALAR.match(self.scalar):
            self.bad = True
        self.scalar = ""
        self.mode = NEXT if self.stack else DONE

    def _escaped(self, buf: str, pos: int) -> int:
        mode = self.mode
        base, left = mode % _ESCAPE, mode // _ESCAPE
        char = buf[pos]
        if left == 1:  # the character after the backslash
            if char == "u":
                self.mode = base + 5 * _ESCAPE
            else:
                self.bad = self.bad or char not in '"\\/bfnrt'
                self.mode = base
            return pos + 1
        if char not in _HEX:
            self.bad = True
            self.mode = base
            return pos
        self.mode = base if left == 2 else mode - _ESCAPE
        return pos + 1

    def _structural(self, char: str) -> bool:
        mode = self.mode
        if mode <= FIRST_VALUE:
            if char == '"':
                self.mode = STRING
            elif char in "{[":
                if len(self.stack) >= MAX_DEPTH:
                    return False
                self.stack += char
                self.mode = FIRST_KEY if char == "{" else FIRST_VALUE
            elif char == "]" and mode == FIRST_VALUE:
                self._close()
            elif char == "-" or (char.isascii() and char.isalnum()):
                self.mode = SCALAR
                self.scalar = ""
            else:
                return False
        elif mode in (FIRST_KEY, KEY):
            if char == '"':
                self.mode = KEY_STRING
            elif char == "}" and mode == FIRST_KEY:
                self._close()
            else:
                return False
        elif mode == COLON:
            if char != ":":
                return False
            self.mode = VALUE
        elif not self.stack:
            return False
        elif char == ",":
            self.mode = KEY if self.stack[-1] == "{" else VALUE
        elif char == ("}" if self.stack[-1] == "{" else "]"):
            self._close()
        else:
            return False
        return True

    def _close(self) -> None:
        self.stack = self.stack[:-1]
        self.mode = NEXT if self.stack else DONE
