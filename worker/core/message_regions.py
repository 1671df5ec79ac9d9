"""Formats that frame everything as messages: a header tells what its body is."""

from __future__ import annotations

import re

from worker.core.compiled import SYMBOL, Framing
from worker.core.json_scan import VALUE as JSON_VALUE
from worker.core.run import Run
from worker.core.run_constants import (
    BETWEEN,
    BODY_CONTENT,
    BODY_DROPPED,
    BODY_REASONING,
    JSON,
    MAX_HEADER,
    MAX_RECIPIENT,
    MAX_SPACE,
    MESSAGE_HEADER,
    OPEN,
    SEEN,
    SEEN_REASONING,
    SPACE,
)

_RECIPIENT = re.compile(r"\bto=([^\s<\ud800-\udfff]+)")
_WORD = re.compile(r"\s*([A-Za-z_]+)")


def _framing(run: Run) -> Framing:
    framing = run.c.framing
    assert framing is not None
    return framing


def header(run: Run) -> bool:
    """A message's header, up to the literal that begins the body."""
    framing = _framing(run)
    match = framing.in_header.find(run.buf, run.pos)
    if match is None:
        if run.over(run.pos, MAX_HEADER):
            return _no_header(run, len(run.buf))
        return run.wait(run.pos)
    if match.group() != framing.message:
        return _no_header(run, match.start())
    text = run.buf[run.pos : match.start()]
    run.pos = match.end()
    run.region = body_of(run, text)
    return True


def _no_header(run: Run, stop: int) -> bool:
    """A header that never got its body: its markup is dropped; if it is nothing but text, that is content."""
    text = run.buf[run.pos : stop]
    run.pos = stop
    run.region = BETWEEN if stop < len(run.buf) else BODY_CONTENT
    if not SYMBOL.search(text) and not _RECIPIENT.search(text):
        words = text.strip(SPACE)
        if words and words != "assistant":
            run.say_content(text.removeprefix("assistant"))
    elif run.region == BODY_CONTENT:
        run.region = BODY_DROPPED
    return True


def body_of(run: Run, header: str) -> int:
    """Region of the body that a header announces; a call's name is kept for its first brace."""
    messages, framing = run.c.messages, _framing(run)
    assert messages is not None
    recipient = _RECIPIENT.search(header)
    name = recipient[1] if recipient else ""
    if messages.recipients:
        return framing.recipients.get(name, framing.tool_body)
    if name and name != "assistant":
        if name.startswith(messages.prefix):
            name = name.removeprefix(messages.prefix)
        elif name not in run.request.names:
            return BODY_DROPPED
        if not name or name in messages.builtin:
            return BODY_DROPPED
        run.name, run.mode, run.stack = name, JSON_VALUE, ""
        return JSON
    after = header.rpartition(framing.channel)[2] if framing.channel in header else ""
    word = _WORD.match(after)
    channel = word[1] if word else ""
    if channel in messages.reasoning:
        return BODY_REASONING if run.request.keeps_reasoning else BODY_DROPPED
    if channel in messages.content or (not after and not channel):
        return BODY_CONTENT
    return BODY_DROPPED


def body(run: Run) -> bool:
    """Text of a message, as written; whitespace alone is no text."""
    c = run.c
    if c.messages is None:  # after a forced call: whatever follows is nothing
        run.pos = len(run.buf)
        return False
    match = boundary(run)
    stop = match.start() if match else hold(run)
    if run.region != BODY_DROPPED:
        reasoning = run.region == BODY_REASONING
        assert c.messages is not None
        if reasoning and c.messages.trim:
            # what is held of a longer run of whitespace is the same whether it was read at once or not
            kept = run.pos + len(run.buf[run.pos : stop].rstrip(SPACE))
            stop -= (stop - kept) % (MAX_SPACE + 1)
        text = run.prose(run.buf[run.pos : stop])
        fresh = not run.flags & (SEEN_REASONING if reasoning else SEEN)
        if fresh and not text.strip(SPACE) and len(text) <= MAX_SPACE:
            if match is None:
                run.held = text + run.buf[stop:]
                run.pos = len(run.buf)
                return False
        else:
            (run.say_reasoning if reasoning else run.say_content)(text)
    if match is None:
        return run.wait(stop)
    leave(run, match)
    return True


def boundary(run: Run) -> re.Match[str] | None:
    """Where the body ends."""
    framing = _framing(run)
    match = framing.in_body.find(run.buf, run.pos)
    stop = match.start() if match else len(run.buf)
    return (framing.headless[0].search(run.buf, run.pos, stop) if framing.headless else None) or match


def hold(run: Run) -> int:
    """Where text begins that may become the end of the body; the length of the text if there is none."""
    framing = _framing(run)
    stop = framing.in_body.hold(run.buf, run.pos)
    if framing.headless is None or run.ending:
        return stop
    longest = len(" to=") + MAX_RECIPIENT + len(framing.message)
    begin = framing.headless[1].search(run.buf, max(run.pos, len(run.buf) - longest))
    return min(stop, begin.start()) if begin else stop


def leave(run: Run, match: re.Match[str]) -> None:
    """The body ended: on to the next header."""
    framing = _framing(run)
    header = BETWEEN if framing.kinds else MESSAGE_HEADER
    if match.group() in framing.ends:
        run.pos = match.end()
        run.region = MESSAGE_HEADER if framing.headless else BETWEEN
    elif match.group() == framing.start:
        run.pos = match.end()
        run.region = header
    else:
        run.pos = match.start()
        run.region = header


def between(run: Run) -> bool:
    """After a message: the next header; stray text is content, whitespace is nothing."""
    framing = _framing(run)
    match = framing.between.find(run.buf, run.pos)
    stop = match.start() if match else framing.between.hold(run.buf, run.pos)
    text = run.prose(run.buf[run.pos : stop])
    if text.strip(SPACE) or len(text) > MAX_SPACE:
        run.region = BODY_CONTENT
        return True
    if match is None:
        run.held = text + run.buf[stop:]
        run.pos = len(run.buf)
        return False
    if match.group() == framing.message:  # a body without a header
        run.pos = match.end()
        run.region = BODY_CONTENT
    elif match.group() in framing.kinds:
        run.pos = match.end()
        run.region = framing.kinds[match.group()]
    else:
        leave(run, match)
    return True


def finish_body(run: Run) -> None:
    """End of the output inside a message."""
    if run.region == MESSAGE_HEADER:
        text, run.held = run.held, ""
        run.buf, run.pos = text, 0
        # a header that was cut says nothing; text that never was one does, and only the first message has no role
        channel = _framing(run).channel
        cut = (channel and channel in text) or text.startswith("assistant")
        cut = cut or (run.reason == "length" and "assistant".startswith(text))
        if text and not (cut or " to=".startswith(text)):
            _no_header(run, len(text))
    elif run.region in (BODY_REASONING, BODY_CONTENT):
        text = run.prose(run.held)
        run.held = ""
        if run.region == BODY_REASONING:
            if run.flags & SEEN_REASONING or text.strip(SPACE):
                run.say_reasoning(text)
        elif run.flags & SEEN or text.strip(SPACE):
            run.say_content(text)
    elif run.region == JSON and run.name and not run.flags & OPEN and run.reason != "length":
        run.begin()  # a call with an empty body
        run.write("{}")
        run.end(True)
