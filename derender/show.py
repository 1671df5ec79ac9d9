"""What a person sees of replies: texts line by line as they come, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

import msgspec

from producer.read import Reader, Reply, ReplyUnavailable

LINE_CHARS = 96


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    index: int
    text: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice] = []


_decoder = msgspec.json.Decoder(_Body)


@dataclass
class Followed:
    """What one request said: text by choice index, number of replies, final status, error."""

    texts: dict[int, str] = field(default_factory=dict)
    replies: int = 0
    done: str | None = None
    error: str | None = None
    raw: list[Reply] = field(default_factory=list)
    """The replies themselves, where they are kept."""


class Printer:
    """Writes `request | text` lines: many requests speak at once, so a line goes out when it is full or ends."""

    def __init__(self, out: TextIO, label: Callable[[str, int], str]) -> None:
        self.out = out
        self.label = label
        self._lines: dict[tuple[str, int], str] = {}

    def add(self, request_id: str, index: int, text: str) -> None:
        line = self._lines.get((request_id, index), "") + text
        *full, line = line.split("\n")
        for part in full:
            self._write(request_id, index, part)
        while len(line) > LINE_CHARS:
            cut = line.rfind(" ", 1, LINE_CHARS) + 1 or LINE_CHARS
            self._write(request_id, index, line[:cut].rstrip())
            line = line[cut:]
        self._lines[request_id, index] = line

    def end(self, request_id: str) -> None:
        for key in [key for key in self._lines if key[0] == request_id]:
            if line := self._lines.pop(key):
                self._write(*key, line)

    def _write(self, request_id: str, index: int, line: str) -> None:
        self.out.write(f"{self.label(request_id, index)} | {line}\n")
        self.out.flush()


def texts(reply: Reply) -> Iterator[tuple[int, str]]:
    """Choice index and visible text of a reply, reasoning included."""
    body = reply.chunk or reply.response
    for choice in _decoder.decode(body).choices if body else ():
        said = choice.delta or choice.message
        text = choice.text or ""
        if said is not None:
            text += (said.reasoning or "") + (said.content or "")
        yield choice.index, text


async def follow(
    reader: Reader,
    request_id: str,
    printer: Printer | None,
    *,
    after: str = "0",
    keep: bool = False,
    on_reply: Callable[[], object] = lambda: None,
) -> Followed:
    """Follow a request to its end; `keep` all replies. An end that was missed is the `error` of the result."""
    followed = Followed()
    try:
        async for reply in reader.follow(request_id, after=after):
            on_reply()
            followed.replies += 1
            if keep:
                followed.raw.append(reply)
            followed.done = reply.done
            if reply.error is not None:
                followed.error = reply.error.decode()
            for index, text in texts(reply):
                followed.texts[index] = followed.texts.get(index, "") + text
                if printer is not None and text:
                    printer.add(request_id, index, text)
    except ReplyUnavailable as error:
        followed.error = str(error)
    if printer is not None:
        printer.end(request_id)
        if followed.error is not None:
            printer.add(request_id, 0, f"! {followed.error}\n")
    return followed


@contextmanager
def progress(total: int, what: str, out: TextIO = sys.stderr) -> Iterator[Callable[[], None]]:
    """A bar while a person looks at `out` and rich is installed; nothing otherwise. Call the result once a step."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda: None
        return
    if not out.isatty():
        yield lambda: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=out), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
