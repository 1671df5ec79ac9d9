"""`derender call`: derender JSON lines without Redis, for batch files, debugging and checks from outside.

Each line is one of the four derender requests, and may carry `endpoint`, `request_id` and `created`; each answer is one
line, in the same order: a response, `{"chunk", "stream_state"}`, or an error object.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TextIO

import msgspec

from derender.__main__ import NO_ROOM, CommandError
from derender.words import count
from schemas.openai import ErrorBody, ErrorInfo
from worker.config import load_models_of
from worker.core.calls import ENDPOINTS, Models, derender_call
from worker.core.errors import RequestError, SchemaError
from worker.core.model import Limits
from worker.settings import ModelSettings, SettingsError, add_options, option

logger = logging.getLogger(__name__)

PROGRESS_EVERY_S = 1.0

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class CallSettings(ModelSettings):
    """What is served, and what the lines are."""

    endpoint: str | None = option(
        None, "chat, completion or the path of lines that do not say; default: by their shape"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.endpoint is not None and self.endpoint not in ENDPOINTS:
            raise SettingsError(f"--endpoint {self.endpoint!r}: use one of {', '.join(ENDPOINTS)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", default=["-"], help="files of JSON lines; - is standard input (default)")
    add_options(parser, CallSettings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings, models = load_models_of(CallSettings, vars(args), environ)
    if settings.config is None and settings.tokenizer is None:
        raise SettingsError("--tokenizer is needed: a folder with tokenizer.json, or an id; or --config")
    from worker.tokenizer_cache import ServedModels, TokenizerError

    try:
        served = ServedModels(models)
        if len(models) == 1:
            served.preload()
        errors = answer_files(args.files, sys.stdout.buffer, sys.stderr, served.now, settings.endpoint)
    except TokenizerError as error:
        raise CommandError(str(error)) from None
    return 1 if errors else 0


def answer_files(files: Sequence[str], out: BinaryIO, report: TextIO, models: Models, endpoint: str | None) -> int:
    """Answer every line of the files, in order; how many of the answers are errors.

    Raises CommandError when a file cannot be read, OSError of NO_ROOM when the answers cannot be written.
    """
    progress = Progress(report)
    for name in files:
        try:
            if name == "-":
                answer_lines(sys.stdin.buffer, out, models, endpoint, progress)
            else:
                with open(name, "rb") as lines:
                    answer_lines(lines, out, models, endpoint, progress)
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.errno in NO_ROOM:
                raise  # of the output
            raise CommandError(f"{name}: {error.strerror or error}") from None
    progress.end()
    return progress.errors


def answer_lines(
    source: BinaryIO, out: BinaryIO, models: Models, endpoint: str | None, progress: Progress | None = None
) -> None:
    """One answer for each line, flushed as it is made, so that a program may talk to this one."""
    for line in _lines(source, Limits().max_payload_bytes):
        answer, failed = answer_line(models, line, endpoint, now=time.time)
        out.write(answer + b"\n")
        out.flush()
        if progress is not None:
            progress.step(failed)


def answer_line(models: Models, line: bytes, endpoint: str | None, *, now: Callable[[], float]) -> tuple[bytes, bool]:
    """The answer without its newline, and whether it is an error object."""
    try:
        if not line.strip():
            raise SchemaError("the line is blank")
        return derender_call(models, line, created=int(now()), default_endpoint=endpoint), False
    except RequestError as error:
        return _encode(error.body()), True
    except Exception:  # a fault of ours in one line must not cost the lines after it
        logger.exception("a line could not be answered")
        return _encode(ErrorBody(ErrorInfo("internal error", "InternalServerError", None, 500))), True


def _lines(source: BinaryIO, limit: int) -> Iterator[bytes]:
    """Lines without their end. Of one that is over the limit only as much is kept as shows that it is."""
    while line := source.readline(limit + 2):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = source.readline(limit)
        yield line.rstrip(b"\r\n")


class Progress:
    """Counts answers: about once a second where a person looks, one line at the end in any case."""

    def __init__(self, out: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self.out = out
        self.now = now
        self.started = self.shown = now()
        self.answers = self.errors = 0

    def step(self, failed: bool) -> None:
        self.answers += 1
        self.errors += failed
        if self.out.isatty() and self.now() - self.shown >= PROGRESS_EVERY_S:
            self.shown = self.now()
            self.out.write(f"\r{self}")
            self.out.flush()

    def end(self) -> None:
        start = "\r" if self.out.isatty() else ""
        self.out.write(f"{start}{self} in {self.now() - self.started:.1f} s\n")

    def __str__(self) -> str:
        return f"derender call: {count(self.answers, 'answer')}, {count(self.errors, 'error')}"
