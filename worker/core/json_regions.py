"""Regions of JSON arguments: an object by itself, and objects whose members are the name and the arguments."""

from __future__ import annotations

from worker.core.coerce import dump, json_string
from worker.core.compiled import SYMBOL
from worker.core.grammar import Members
from worker.core.json_scan import DONE, JsonScan
from worker.core.json_scan import VALUE as JSON_VALUE
from worker.core.run import Run
from worker.core.run_constants import (
    AFTER,
    ARRAY,
    BAD,
    BODY_DROPPED,
    CONTENT,
    FRESH,
    GOOD,
    HAS_ARGUMENTS,
    MAX_HEADER,
    MAX_UNDECIDED,
    MAX_VALUE,
    MEMBERS,
    MUTE,
    NESTED,
    OPEN,
    SEEN,
    SPACE,
    UNDECIDED,
    WROTE,
)

# Phases of an object with members.
START, ITEM, FIRST_KEY, NEXT_KEY, IN_KEY, COLON, VALUE, NAME, ARGUMENTS, TEXT, SKIP, NEXT, ID = range(13)


def _over(run: Run) -> bool:
    """The arguments ended, well or not: wait for the call's own closer, where there is one."""
    c = run.c
    if c.messages is not None:
        run.end(bool(run.flags & GOOD))
        run.region = BODY_DROPPED
    elif c.close or (c.section_close and c.tools is not None and c.tools.section):
        run.region = AFTER
        if run.flags & GOOD:
            run.flags |= FRESH
    else:
        run.end(bool(run.flags & GOOD))
        if c.forced:
            run.region = BODY_DROPPED
        else:
            run.to_content()
    return True


def object_(run: Run) -> bool:
    """Arguments that are one JSON object, passed on as written."""
    c = run.c
    buf = run.buf
    if not run.flags & WROTE:
        start = run.pos
        char = run.skip_space()
        if c.lead and char:
            rest = buf[run.pos : run.pos + len(c.lead)]
            if len(rest) < len(c.lead) and c.lead.startswith(rest) and not run.ending:
                return run.wait(start)
            if rest == c.lead:
                run.pos += len(rest)
                char = run.skip_space()
        if not char:
            return run.wait(run.pos if run.over(start, MAX_HEADER) else start)
        if c.forced and not run.name:
            run.name = run.request.forced_name
        if char == "{":
            run.begin()
            run.flags |= WROTE
        elif (empty := _closer(run)) is None:
            return run.wait(start)
        elif empty:
            run.begin()
            run.write("{}")
            run.flags |= GOOD
            return _over(run)
        elif c.forced:
            run.region, run.pos, run.name = CONTENT, start, ""
            return True
        else:
            run.flags = (run.flags | MUTE) & ~GOOD
            return _over(run)
    end = _limit(run) if c.id_ends else len(buf)
    scan = run.scanner()
    out: list[str] = []
    run.pos = scan.feed(buf, run.pos, end, out)
    for part in out:
        run.write(part)
    run.keep_scanner(scan)
    if scan.done:
        if not scan.bad:
            run.flags |= GOOD
        return _over(run)
    if run.pos < len(buf):
        return _over(run)
    run.held = ""
    return False


def _limit(run: Run) -> int:
    """Where a marker's id ends the value, whatever is open in it; the length of the text if none does."""
    buf = run.buf
    closer = None if buf.isascii() else SYMBOL.search(buf, run.pos)
    while closer and closer.group() not in run.c.value_ends:
        closer = SYMBOL.search(buf, closer.end())
    return closer.start() if closer else len(buf)


def _closer(run: Run) -> bool | None:
    """Whether a closer of the call stands here (a body without anything means no arguments); None: maybe."""
    c = run.c
    closers = c.framing.ends if c.framing is not None else (c.close,) if c.close else ()
    rest = run.buf[run.pos : run.pos + MAX_HEADER]
    if any(rest.startswith(closer) for closer in closers):
        return True
    return None if not run.ending and any(closer.startswith(rest) for closer in closers) else False


def members(run: Run) -> bool:
    """A call that is a JSON object, or a list of them."""
    c = run.c
    shape = c.members
    assert shape is not None
    begin = run.pos
    moved = _members(run, shape)
    if run.flags & UNDECIDED and run.region == MEMBERS:
        run.raw += run.buf[begin : run.pos]
        if len(run.raw) > (MAX_VALUE if run.flags & HAS_ARGUMENTS else MAX_UNDECIDED):
            return _release(run, "")
    return moved


def _release(run: Run, rest: str) -> bool:
    """It was no call: what was held is content."""
    held = run.raw + rest
    run.end(False)
    run.region = CONTENT
    run.flags &= ~ARRAY
    if not run.flags & SEEN:
        held = held if held.strip(SPACE) else ""
    run.say_content(run.prose(held))
    return run.pos < len(run.buf)


def _broken(run: Run, begin: int) -> bool:
    """Something that cannot be here: no call, or one that was cut."""
    if run.flags & UNDECIDED:
        return _release(run, run.buf[begin : run.pos])
    run.flags &= ~(GOOD | ARRAY)
    if not run.flags & OPEN:
        run.flags |= MUTE
    return _over(run)


def _members(run: Run, shape: Members) -> bool:
    begin = run.pos
    buf = run.buf
    end = _limit(run) if run.c.messages is not None else len(buf)
    while True:
        phase = run.phase
        if phase in (IN_KEY, NAME, ARGUMENTS, TEXT, SKIP, ID):
            scan = run.scanner()
            out: list[str] = []
            start = run.pos
            run.pos = scan.feed(buf, start, end, out)
            text = buf[start : run.pos]  # as written: what is kept grows with the output, escapes come when it is said
            run.keep_scanner(scan)
            if phase == ARGUMENTS and run.flags & OPEN:
                for part in out:
                    run.write(part)
                if scan.done:
                    _value_done(run, shape)
                    return True
            elif phase in (ARGUMENTS, TEXT):
                run.value += run.literal(text)
                if len(run.value) > MAX_VALUE:
                    run.value = ""
                    run.flags |= BAD if phase == TEXT else MUTE
            elif phase == SKIP:
                run.key = (run.key + text)[:8]  # enough to tell null from anything else
            else:
                run.key += text
                if len(run.key) > MAX_HEADER:
                    run.key = ""
                    run.pos = len(buf) if run.flags & UNDECIDED else run.pos
                    return _broken(run, begin)
            if not scan.done:
                if run.pos < len(buf):
                    return _broken(run, begin)
                return False
            _value_done(run, shape)
            if run.flags & UNDECIDED and run.phase == COLON and shape.known and run.key not in shape.known:
                return _release(run, buf[begin : run.pos])
            continue
        char = run.skip_space()
        if not char:
            return False
        if not _step(run, shape, char):
            return _broken(run, begin)
        if run.region != MEMBERS or (run.phase == START and run.flags & UNDECIDED):
            return True


def _step(run: Run, shape: Members, char: str) -> bool:
    """One structural character between members; False if it cannot be there."""
    phase = run.phase
    if phase == START:
        if char == "[" and shape.array and not run.flags & ARRAY:
            run.flags |= ARRAY
            run.phase = ITEM
        elif char == "{":
            run.phase = FIRST_KEY
        else:
            return False
    elif phase == ITEM:
        if char == "{":
            run.phase = FIRST_KEY
        elif char == "]":
            run.pos += 1
            run.flags &= ~ARRAY
            if run.flags & UNDECIDED:
                run.pos -= 1
                return False
            _over(run)
            return True
        elif char != ",":
            return False
    elif phase in (FIRST_KEY, NEXT_KEY):
        if char == '"':
            run.phase, run.key = IN_KEY, ""
            _scan_from(run)
            return True
        if char != "}" or phase == NEXT_KEY:
            return False
        return _object_done(run)
    elif phase == COLON:
        if char != ":":
            return False
        run.phase = VALUE
    elif phase == VALUE:
        return _value(run, shape, char)
    elif char == ",":
        run.phase = NEXT_KEY
    elif char == "}":
        return _object_done(run)
    else:
        return False
    run.pos += 1
    return True


def _scan_from(run: Run) -> None:
    run.mode, run.stack, run.scalar = JSON_VALUE, "", ""


def _value(run: Run, shape: Members, char: str) -> bool:
    """The value of member `key` begins."""
    key = run.key
    if key in shape.within and char == "{" and not run.flags & NESTED:
        run.flags |= NESTED
        run.phase = FIRST_KEY
        run.pos += 1
        return True
    _scan_from(run)
    if key in shape.name and not run.flags & OPEN and not run.name:
        if char != '"':
            return False
        run.phase, run.key = NAME, ""
    elif key in shape.id and char == '"' and not run.flags & OPEN:
        run.phase, run.key = ID, ""
    elif (key in shape.arguments or shape.keyed) and not run.flags & HAS_ARGUMENTS:
        run.flags |= HAS_ARGUMENTS
        if char == "{":
            run.phase = ARGUMENTS
        elif char == '"':
            run.phase = TEXT
        else:
            run.phase, run.key = SKIP, ""
            run.kind = 1  # arguments that are no object: null means none
    else:
        run.phase, run.key = SKIP, ""
    return True


def _value_done(run: Run, shape: Members) -> None:
    phase = run.phase
    run.mode, run.stack = JSON_VALUE, ""
    if phase == IN_KEY:
        run.key = json_string(run.literal(run.key)) or ""
        run.phase = COLON
        if shape.keyed and not run.flags & OPEN:
            run.name = run.key.strip()
            run.begin()
        return
    run.phase = NEXT
    if phase == NAME:
        name = (json_string(run.literal(run.key)) or "").strip()
        run.key = ""
        run.name = name if len(name) <= MAX_HEADER else ""
        if run.name and run.flags & UNDECIDED:
            run.flags &= ~UNDECIDED
            run.raw = ""
        if not (run.flags & UNDECIDED):
            run.begin()
            if run.value:
                run.write(scan_text(run.value)[1])
                run.value = ""
    elif phase == ID:
        run.id, run.key = json_string(run.literal(run.key)) or "", ""
    elif phase == TEXT:
        string = json_string(run.value)
        run.value = ""
        ok, text = scan_text(string.strip()) if string else (string is not None, "")
        if ok and not text:
            text = "{}"
        elif not ok or text[0] != "{":
            run.flags |= BAD
            text = dump(string) if string is not None else ""
        if run.flags & OPEN:
            run.write(text)
        else:
            run.value = text
    elif phase == SKIP:
        if run.kind:
            run.kind = 0
            if run.key.strip() == "null":
                run.flags &= ~HAS_ARGUMENTS
            else:
                run.flags |= BAD
        run.key = ""


def _object_done(run: Run) -> bool:
    """The brace that closes the call's object, or the object inside it that holds name and arguments."""
    if run.flags & NESTED:
        run.flags &= ~NESTED
        run.phase = NEXT
        run.pos += 1
        return True
    if run.flags & UNDECIDED:
        return False  # no name: it was an answer, and the brace is part of it
    run.pos += 1
    if run.flags & OPEN:
        if not run.flags & HAS_ARGUMENTS:
            run.write("{}")
        if not run.flags & BAD:
            run.flags |= GOOD
    if run.flags & ARRAY:
        run.end(bool(run.flags & GOOD))
        run.flags |= ARRAY
        run.phase = ITEM
        return True
    _over(run)
    return True


def finish_members(run: Run) -> None:
    """End of the output inside an undecided object: text, unless it was cut behind an opener or in the name."""
    if run.flags & UNDECIDED:
        named = run.phase == NAME or (run.phase in (COLON, VALUE) and run.c.members and run.key in run.c.members.name)
        held = run.raw.lstrip(SPACE)
        if run.reason == "length" and (named or any(held.startswith(opener) for opener in run.c.call)):
            return
        _release(run, "")


def scan_text(text: str) -> tuple[bool, str]:
    """Whether text is one JSON value, and the text with control characters escaped."""
    scan = JsonScan()
    out: list[str] = []
    pos = scan.feed(text, 0, len(text), out)
    scan.finish()
    return scan.mode == DONE and not scan.bad and not text[pos:].strip(SPACE), "".join(out)
