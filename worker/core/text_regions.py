"""Regions outside arguments: reasoning, content, and what stands between an opener and the arguments."""

from __future__ import annotations

import re

from worker.core import message_regions
from worker.core.compiled import (
    CALL,
    CLOSE_REASONING,
    FIRST_DROPPED,
    LAST_SYMBOL,
    MATH,
    NEWLINE,
    NOISE,
    OPEN_REASONING,
    PROSE,
    SECTION,
    SWALLOW,
    SYMBOL,
    WRAP,
    TextRegion,
)
from worker.core.grammar import MAX_LITERAL, Elements, Json, Literals, Members, Params, Python
from worker.core.json_regions import ITEM
from worker.core.json_scan import VALUE as JSON_VALUE
from worker.core.param_regions import unescape
from worker.core.run import Run
from worker.core.run_constants import (
    AFTER,
    AFTER_CALL,
    ARRAY,
    BARE,
    BODY_DROPPED,
    CONTENT,
    ELEMENTS,
    FRESH,
    FROM_REASONING,
    GOOD,
    IN_MATH,
    JSON,
    LABEL,
    LITERALS,
    LONG,
    MAX_HEADER,
    MAX_SPACE,
    MEMBERS,
    MUTE,
    OPENED,
    OPENER,
    PARAMS,
    PYTHON,
    REASONING,
    SEEN,
    SEEN_REASONING,
    SPACE,
    STRIP,
    UNDECIDED,
)
from worker.core.run_constants import SECTION as IN_SECTION

_PROSE = re.compile(r"\S+\s+\S")
_IDENTIFIER = re.compile(r"[\w.\-]+\Z")
MAX_CHANCE = 2
"""So many characters may be a marker's beginning by chance: `<`, `</`."""


def _table(run: Run) -> TextRegion:
    """Markers that count here. Some do only before other text: those are looked for where the text begins."""
    c = run.c
    if run.region == REASONING:
        return c.in_reasoning
    table = c.in_content
    if run.flags & AFTER_CALL and c.after_call is not None:
        table = c.after_call
    elif run.flags & OPENER:
        table = c.at_start
    if table is not c.in_content:
        begin = run.pos
        first = _skip_blank(run)
        at, run.pos = run.pos, begin
        if first:
            match = table.markers.find(run.buf, at)
            if not (match and match.start() == at) and table.markers.hold(run.buf, at) != at:
                return c.in_content
    return table


def _skip_blank(run: Run) -> str:
    """The next character that is neither whitespace nor a special token without a meaning, "" if there is none."""
    buf, pos, size = run.buf, run.pos, len(run.buf)
    while pos < size and (buf[pos] in SPACE or FIRST_DROPPED <= buf[pos] <= LAST_SYMBOL):
        pos += 1
    run.pos = pos
    return buf[pos] if pos < size else ""


def text(run: Run) -> bool:
    """Reasoning or content: whitespace that may be a separator is held, markers are found, the rest is said."""
    c = run.c
    buf = run.buf
    if run.flags & STRIP:
        pos, size = run.pos, len(buf)
        while pos < size and buf[pos] in "\r\n":
            pos += 1
        run.pos = pos
        if pos == size:
            return run.wait(pos)
        run.flags &= ~STRIP
    in_reasoning = run.region == REASONING
    if c.unmarked and not in_reasoning:
        moved = _unmarked(run)
        if moved is not None:
            return moved
    pos = run.pos
    table = _table(run)
    match = table.markers.find(buf, pos)
    stop = match.start() if match else table.markers.hold(buf, pos)
    said = run.prose(buf[pos:stop])
    body = said.rstrip(SPACE)
    space = said[len(body) :]
    say = run.say_reasoning if in_reasoning else run.say_content
    if body:
        run.flags &= ~LONG
        say(body)
    if space and (run.flags & LONG or len(space) > MAX_SPACE):
        run.flags |= LONG
        say(space)
        space = ""
    if space and not in_reasoning and c.gap == "keep" and run.flags & SEEN and not run.flags & AFTER_CALL:
        run.say_content(space)  # nothing that may follow takes it away
        space = ""
    if match is None:
        run.held = space + buf[stop:]
        run.pos = len(buf)
        return False
    run.pos = match.end()
    action = table.actions[match.group()]
    if action == CLOSE_REASONING:
        run.region = c.content_region
        run.flags = (run.flags | STRIP) & ~(LONG | OPENER)
    elif action in (NOISE, SWALLOW):
        fresh = not run.flags & (SEEN_REASONING if action == SWALLOW else SEEN)
        if fresh and action == SWALLOW:
            space = ""
        if fresh or run.flags & AFTER_CALL:
            run.flags |= STRIP
        if space:
            run.buf, run.pos = space + buf[run.pos :], 0
            run.flags &= ~STRIP
        if fresh and action == SWALLOW and c.label:
            run.region = LABEL
    elif action == WRAP:
        run.flags |= STRIP
    elif action in (NEWLINE, MATH, PROSE):
        said = "\n" if action == NEWLINE and not run.flags & IN_MATH else match.group()
        run.flags = (
            (run.flags | IN_MATH) if action == MATH else (run.flags & ~IN_MATH) if action == PROSE else run.flags
        )
        run.say_content(space + said if run.flags & SEEN or said.strip() else "")
    elif action == OPEN_REASONING:
        if run.flags & SEEN:
            run.say_content(space)
        run.region = LABEL if c.label else REASONING
        run.flags = (run.flags | STRIP) & ~(LONG | OPENER)
    else:
        _opened(run, action, space, match.group(), in_reasoning)
    return True


def label(run: Run) -> bool:
    """Header of a reasoning span: dropped if it is the declared one."""
    rest = run.buf[run.pos :]
    wanted = run.c.label
    run.region = REASONING
    if rest.startswith(wanted):
        run.pos += len(wanted)
    elif len(rest) < len(wanted) and wanted.startswith(rest):
        if not run.ending:
            run.region = LABEL
            return run.wait(run.pos)
        run.pos += len(rest)  # a header that was cut says nothing
    return run.pos < len(run.buf)


def _unmarked(run: Run) -> bool | None:
    """Whether a call without an opener begins here; None: this is text."""
    tools = run.c.tools
    assert tools is not None
    first = run.calls == 0 and not run.flags & SEEN
    if not first and not (run.flags & AFTER_CALL and tools.separator):
        return None
    start = run.pos
    char = _skip_blank(run)
    if char and not first and char == tools.separator:
        run.pos += 1
        char = _skip_blank(run)
    if run.c.forced and char and char not in run.c.unmarked:
        run.region = BODY_DROPPED  # a forced list that is none: no calls, and no content either
        return True
    rest = run.buf[run.pos : run.pos + MAX_LITERAL]
    other = bool(char) and (char not in run.c.unmarked or any(rest.startswith(opener) for opener in run.c.call))
    if run.pos - start > MAX_SPACE or (run.ending and not char) or other:
        run.pos = start
        return None
    if not run.ending and (not char or any(opener.startswith(rest) for opener in run.c.call)):
        return run.wait(start)
    if isinstance(tools.arguments, Python):
        run.region = PYTHON
    else:
        run.region = MEMBERS
    run.raw = run.buf[start : run.pos] if not first else ""
    if not run.c.forced:
        run.flags |= UNDECIDED
    return True


def _opened(run: Run, action: int, space: str, opener: str, in_reasoning: bool) -> None:
    """After a tool opener: decided at once, or held until what follows shows that it is one."""
    c, tools = run.c, run.c.tools
    assert tools is not None
    run.flags &= ~(FROM_REASONING | BARE | ARRAY)
    if in_reasoning:
        run.flags |= FROM_REASONING
    if action == CALL and tools.section:
        run.flags |= BARE
    run.phase = action
    run.raw = space + opener
    run.kind = len(space)
    undecided = c.undecided_section if action == SECTION else c.undecided_call
    run.region = OPENED
    if not undecided:
        _accept(run)


def _before_call(gap: str, space: str) -> str:
    """What stays of whitespace between content and a call."""
    return space if gap == "keep" else "" if gap == "strip" else space.removesuffix(gap)


def _accept(run: Run) -> None:
    """The opener is one: settle the whitespace before it and go on to the call."""
    c, tools = run.c, run.c.tools
    assert tools is not None
    space = run.raw[: run.kind]
    action = run.phase
    run.phase = 0
    run.raw = ""
    run.kind = 0
    if space and not run.flags & FROM_REASONING and run.flags & SEEN and not run.flags & AFTER_CALL:
        run.say_content(_before_call(tools.gap, space))
    run.flags &= ~(LONG | OPENER | FROM_REASONING)
    run.region = IN_SECTION if action == SECTION else c.call_region
    if action == SECTION and c.or_members is not None:
        run.flags |= FRESH
    if run.region == MEMBERS and c.members is not None and c.members.opened:
        run.flags |= ARRAY
        run.phase = ITEM


def _reject(run: Run) -> bool:
    """The opener was prose: what was held is text of the region it stood in."""
    tools = run.c.tools
    assert tools is not None
    space = run.raw[: run.kind]
    opener = run.raw[len(space) :]
    run.region = REASONING if run.flags & FROM_REASONING else CONTENT
    run.flags &= ~(FROM_REASONING | BARE | STRIP)
    run.phase = 0
    run.raw = ""
    run.kind = 0
    rest = run.buf[run.pos :]
    if tools.release == "all":
        if not run.flags & (SEEN if run.region == CONTENT else SEEN_REASONING):
            space = ""
        (run.say_content if run.region == CONTENT else run.say_reasoning)(space + run.literal(opener))
        run.buf, run.pos = rest, 0
    else:
        run.buf, run.pos = space + rest, 0
    return True


def opened(run: Run) -> bool:
    """After an opener that may be prose."""
    c, tools = run.c, run.c.tools
    assert tools is not None
    start = run.pos
    char = run.skip_space()
    if not char:
        if run.over(start, MAX_SPACE):
            run.pos = start
            return _reject(run)
        return run.wait(start)
    rest = run.buf[run.pos :]
    if run.phase == SECTION:
        for call in c.call:
            if rest.startswith(call):
                _accept(run)
                return True
            if call.startswith(rest):
                return run.wait(start)
        run.pos = start
        return _reject(run)
    if isinstance(tools.arguments, Members):
        if char in c.first_of_members:
            held = run.raw + run.buf[start : run.pos]
            _accept(run)
            if tools.tentative:
                run.raw = held
                run.flags |= UNDECIDED
            return True
        run.pos = start
        return _reject(run)
    if tools.or_members is not None and char in "[{":
        _accept(run)
        run.region = MEMBERS
        return True
    assert c.header is not None
    match = c.header.end.find(rest)
    if match is None:
        hold = c.header.end.hold(rest, 0)
        if _PROSE.match(rest[:hold]) or run.over(start, MAX_HEADER):
            run.pos = start
            return _reject(run)
        return run.wait(start)
    if _PROSE.match(rest[: match.start()]) or match.start() == 0:
        run.pos = start
        return _reject(run)
    _accept(run)
    return True


def section(run: Run) -> bool:
    """Inside a section: calls, and anything else is dropped."""
    c = run.c
    if run.flags & FRESH and c.or_members is not None:  # right after the opener, where JSON may stand instead of calls
        char = run.skip_space()
        if not char:
            return run.wait(run.pos)
        run.flags &= ~FRESH
        if c.members is not None and char in c.first_of_members:
            run.region = MEMBERS
            return True
    if c.messages is not None:
        end = message_regions.boundary(run)
        found = c.in_section.find(run.buf, run.pos)
        if end and (found is None or end.start() <= found.start()):
            message_regions.leave(run, end)
            return True
    match = c.in_section.find(run.buf, run.pos)
    if match is None:
        stop = c.in_section.hold(run.buf, run.pos)
        return run.wait(stop if c.messages is None else min(stop, message_regions.hold(run)))
    run.pos = match.end()
    literal = match.group()
    if literal == c.section_close:
        run.to_content()
    elif literal in c.call:
        run.region = c.call_region
    return True


def header(run: Run) -> bool:
    """The name of a call, up to what ends it."""
    c, markers = run.c, run.c.header
    assert markers is not None
    start = run.pos
    char = run.skip_space()
    if c.or_members is not None and char and char in c.first_of_members:
        run.region = MEMBERS
        return True
    match = markers.end.find(run.buf, run.pos)
    abort = markers.abort.find(run.buf, run.pos)
    if abort and (match is None or abort.start() < match.start()):
        # no name, or no arguments: not a call
        run.pos = abort.start()
        run.flags |= MUTE
        run.region = AFTER
        return True
    if match and not run.ending and markers.abort.hold(run.buf, run.pos) < match.start():
        match = None  # what ends the header stands inside the beginning of what breaks it off
    if match is None:
        if run.over(start, MAX_HEADER):
            run.flags |= MUTE
            run.region = AFTER
            return True
        return run.wait(start)
    captured = run.literal(run.buf[run.pos : match.start()])
    kept = match.group() in markers.keep
    run.pos = match.start() if kept else match.end()
    found = markers.pattern.fullmatch(captured)
    groups = found.groupdict() if found else {}
    name = (groups.get("name") or "").strip()
    if c.params is not None and c.params.grammar.escapes:
        name = unescape(name)
    run.name = name if len(name) <= MAX_HEADER else ""
    id_ = (groups.get("id") or "").strip()
    run.id = id_ if len(id_) <= MAX_HEADER else ""
    if not run.name:
        run.flags |= MUTE
    _begin_arguments(run, kept=kept, empty=bool(groups.get("empty")))
    return True


def _begin_arguments(run: Run, *, kept: bool, empty: bool) -> None:
    """On to the arguments. kept: what ended the header belongs to them; empty: the header says that there are none."""
    arguments = run.c.arguments
    if isinstance(arguments, Json):
        run.region, run.mode, run.stack = JSON, JSON_VALUE, ""
    elif isinstance(arguments, Params):
        run.begin()
        if empty:
            run.write("{}")
            run.end(True)
            run.call_over()
        else:
            run.region = PARAMS
    elif isinstance(arguments, Elements):
        run.begin()
        run.region = ELEMENTS
    elif isinstance(arguments, Literals):
        if kept and run.buf[run.pos] == "{":
            run.begin()
            run.region = LITERALS
        else:  # the closer: a call without braces, if what stands there is a name
            if _IDENTIFIER.match(run.name):
                run.begin()
                run.write("{}")
                run.flags |= GOOD
            else:
                run.flags |= MUTE
            run.region = AFTER


def after(run: Run) -> bool:
    """Between the arguments and the call's own closer; anything else is dropped."""
    c = run.c
    tools = c.tools
    assert tools is not None
    if isinstance(tools.arguments, Members) and not tools.arguments.array and run.flags & FRESH:
        char = run.skip_space()
        if not char:
            return False
        if char == "{":
            run.end(bool(run.flags & GOOD))
            run.region = MEMBERS
            return True
        run.flags &= ~FRESH
    match = c.in_section.find(run.buf, run.pos)
    if match is None:
        return run.wait(c.in_section.hold(run.buf, run.pos))
    literal = match.group()
    run.end(bool(run.flags & GOOD))
    if literal == c.close:
        run.pos = match.end()
        run.call_over()
    elif literal == c.section_close:
        run.pos = match.end()
        run.to_content()
    elif literal in c.boundaries:
        message_regions.leave(run, match)
    else:  # the next opener, where it is read again
        run.pos = match.start()
        if c.section and literal in c.call and not run.flags & BARE:
            run.region = IN_SECTION
        else:
            run.to_content()
            run.flags &= ~STRIP
    return True


def finish_text(run: Run) -> None:
    """End of the output in a text region: what was held is text, unless it is the beginning of a marker.

    Ids that only a marker has make it one. Text that may begin one is taken for it where the output was cut, if it is
    more than the one or two characters that prose ends with, too.
    """
    run.buf, run.pos, run.held = run.held, 0, ""
    said = run.buf
    begin = _table(run).markers.hold(said, 0)
    if SYMBOL.search(said, begin) or (run.reason == "length" and len(said) - begin > MAX_CHANCE):
        space = said[:begin]
        said = _before_call(run.c.gap if run.region == CONTENT else "strip", space)
    if run.region == REASONING:
        if run.flags & SEEN_REASONING or said.strip(SPACE):
            run.say_reasoning(said)
    elif run.flags & SEEN or said.strip(SPACE):
        run.say_content(said)
