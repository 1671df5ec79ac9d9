"""`derender replay`: publish a recorded generation, and show what comes back."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from derender.__main__ import CommandError
from derender.compare import read_run, report, run_of, write_run
from derender.reach import WAIT_S, reaching, say, set_up
from derender.show import Followed, Printer, follow, progress
from derender.words import count
from link.redis import UNREACHABLE, ResponseError
from link.tasks import end
from producer.presence import live_workers
from producer.publish import Producer
from producer.read import MAX_FOLLOWED, Reader
from producer.replay import Event, RecordingError, read_recording, replay, request_ids, unfinished
from schemas import keys
from worker.settings import (
    DEFAULT_REDIS_URL,
    RedisSettings,
    Settings,
    SettingsError,
    add_options,
    env_name,
    flag,
    load,
    option,
)

if TYPE_CHECKING:
    from worker.main import WorkerProcess

DATA = Path(__file__).parent / "data"
DEMO_RECORDING = DATA / "demo.jsonl"
DEMO_TOKENIZER = DATA / "smollm2"


QUIET_S = 2.0
"""Without a reply for so long after the start, it is worth a look whether a worker lives."""


@dataclass(frozen=True)
class ReplaySettings(Settings):
    """Options of a replay; those of the worker count with --embedded, when it runs in this process."""

    speed: float | None = option(None, "1: paced as recorded, 10: ten times as fast; default: no pauses")
    copies: int = option(1, "publish each recorded request so many times, at once")
    cut: int | None = option(None, "publish chunks of so many token ids; 0: all ids of a choice in one")
    max_backlog: int = option(10_000, "wait while a partition has more unprocessed entries than this")
    follow: bool = option(True, "show the texts as they come, and a summary")
    save_replies: str | None = option(None, "write what every request answered to this file, for a later --expect")
    expect: str | None = option(None, "file of --save-replies: compare with that run and show what differs")
    embedded: bool = option(False, "a worker and its Redis inside this process, gone when it ends")
    run_name: str | None = option(None, "first part of the request ids; default: random, so that runs do not meet")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedded and self.redis_url != DEFAULT_REDIS_URL:
            raise SettingsError("--embedded and --redis-url exclude each other: use one of them")
        if self.speed is not None and not self.speed > 0:
            raise SettingsError("--speed has to be more than 0")
        if self.copies < 1:
            raise SettingsError("--copies has to be at least 1")
        if self.cut is not None and self.cut < 0:
            raise SettingsError("--cut has to be at least 0")
        if self.max_backlog < 1:
            raise SettingsError("--max-backlog has to be at least 1")
        if (self.save_replies or self.expect) and not self.follow:
            raise SettingsError("--save-replies and --expect need the replies: leave --no-follow out")
        if (self.save_replies or self.expect) and self.copies > 1:
            raise SettingsError("--save-replies and --expect take one copy of each request")


def _names(settings: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(settings))


NOT_INSIDE = frozenset(("config", "preload", "processes", "log_level"))
"""Options of a worker that its place inside a replay settles: one process, one model, loaded at the start."""

OF_THE_WORKER = _names(Settings) - _names(RedisSettings) - NOT_INSIDE
"""Options that count with --embedded alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", nargs="?", default=str(DEMO_RECORDING), help="JSON lines; default: the demo's")
    add_replay_options(parser)


def add_replay_options(parser: argparse.ArgumentParser, *, without: frozenset[str] = frozenset()) -> None:
    """Options of a replay, then those of its worker. without: fields that the verb sets itself."""
    add_options(parser, ReplaySettings, without=without | OF_THE_WORKER | NOT_INSIDE)
    worker = parser.add_argument_group("the worker of --embedded", "only with --embedded")
    add_options(worker, ReplaySettings, without=_names(ReplaySettings) - OF_THE_WORKER)


def load_replay(options: Mapping[str, Any], environ: Mapping[str, str]) -> ReplaySettings:
    """What was typed wins: of --embedded and a Redis the one that the environment names does not count against it.

    Options of the worker inside may come from the environment, where they are for other verbs too; typed without
    --embedded they would do nothing, so they are refused. Raises SettingsError.
    """
    names = {"embedded": "redis_url", "redis_url": "embedded"}
    beaten = {env_name(other) for name, other in names.items() if options.get(name)}
    settings = load(ReplaySettings, options, {name: value for name, value in environ.items() if name not in beaten})
    typed = [
        flag(name, value is not False) for name, value in options.items() if name in OF_THE_WORKER and value is not None
    ]
    if typed and not settings.embedded:
        raise SettingsError(f"{', '.join(typed)}: only with --embedded; workers on a Redis have options of their own")
    return settings


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load_replay(vars(args), environ)
    events = load_recording(Path(args.recording))
    if endless := unfinished(events):
        which = count(len(endless), "request has", "requests have")
        say(f"{which} no end in the recording: a worker fails such a request after --idle-timeout-s (default: 300)")
    expected = None
    if settings.expect is not None:
        try:
            expected = read_run(Path(settings.expect))
        except (OSError, ValueError) as error:
            raise CommandError(f"cannot read the earlier run: {error}") from None
    if settings.save_replies is not None and not Path(settings.save_replies).parent.is_dir():
        raise CommandError(f"cannot write the replies: there is no folder {Path(settings.save_replies).parent}")
    try:
        outcome = asyncio.run(replay_and_follow(settings, events, sys.stdout))
    except RecordingError as error:
        raise CommandError(str(error)) from None
    answers = run_of(zip(request_ids(events), (followed.raw for followed in outcome.values()), strict=False))
    if settings.save_replies is not None:
        try:
            write_run(Path(settings.save_replies), answers)
        except OSError as error:
            raise CommandError(f"cannot write the replies: {error}") from None
    if expected is not None:
        return 1 if report(expected, answers, sys.stdout) else 0
    return 0 if all(followed.error is None for followed in outcome.values()) else 1


def load_recording(path: Path) -> list[Event]:
    try:
        return read_recording(path)
    except (OSError, RecordingError) as error:
        raise CommandError(f"cannot read the recording: {error}") from None


@asynccontextmanager
async def ends(settings: ReplaySettings) -> AsyncIterator[tuple[Producer, Reader]]:
    """A producer and a reader: on Redis, or with --embedded on a fakeredis with a worker in this process."""
    if settings.embedded:
        async with _embedded(settings) as process:
            partitions, names = process.partitions, process.names
            yield (
                Producer(process.redis, partitions, names=names, max_backlog=settings.max_backlog),
                Reader(process.redis, partitions, names=names, look_after_s=0.5),
            )
        return
    url = settings.redis_url
    with reaching(url, "operator" if settings.follow else "producer"):
        await set_up(url, settings.key_prefix, wait_s=WAIT_S, say=say)
        async with (
            await Producer.connect(url, prefix=settings.key_prefix, max_backlog=settings.max_backlog) as producer,
            await Reader.connect(url, prefix=settings.key_prefix) as reader,
        ):
            yield producer, reader


@asynccontextmanager
async def _embedded(settings: Settings) -> AsyncIterator[WorkerProcess]:
    """A worker and its Redis in this process. Raises CommandError."""
    from worker.main import WorkerProcess
    from worker.streams import embedded
    from worker.tokenizer_cache import TokenizerError, load_models

    redis = embedded()
    try:
        models = load_models(settings)
    except TokenizerError as error:
        raise CommandError(str(error)) from None
    process = WorkerProcess(settings, models, redis=redis)
    task = asyncio.create_task(process.run())
    ready = asyncio.create_task(process.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    try:
        if task.done():
            task.result()
        yield process
    finally:
        ready.cancel()
        process.stop()
        with suppress(asyncio.CancelledError):
            await task


async def _say_if_nobody_works(reader: Reader, answered: asyncio.Event, out: TextIO) -> None:
    """Once, when nothing has come for a while: whoever waits would not know for what."""
    try:
        async with asyncio.timeout(QUIET_S):
            await answered.wait()
    except TimeoutError:
        with suppress(ResponseError, *UNREACHABLE):  # not everyone may look there; and others say that Redis is away
            if not await live_workers(reader.redis, reader.names):
                out.write("no worker lives; start one: derender worker --config FILE, or --tokenizer FOLDER\n")
                out.flush()


async def replay_and_follow(settings: ReplaySettings, events: list[Event], out: TextIO) -> dict[str, Followed]:
    """Publish the recording; with `follow`, show and return what each request said, by its published id."""
    prefix = settings.run_name if settings.run_name is not None else uuid.uuid4().hex[:6] + "-"

    def name(request_id: str, copy: int) -> str:
        return prefix + (request_id if settings.copies == 1 else f"{request_id}-{copy}")

    def label(request_id: str, index: int) -> str:
        return f"{request_id.removeprefix(prefix)} {index}"

    ids = [name(id_, copy) for id_ in request_ids(events) for copy in range(settings.copies)]
    if wrong := next((id_ for id_ in ids if not keys.valid_request_id(id_)), None):
        raise CommandError(f"request id {wrong!r} does not match {keys.REQUEST_ID.pattern}: use another --run-name")
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with ends(settings) as (producer, reader):
        printer = Printer(out, label)
        places = asyncio.Semaphore(MAX_FOLLOWED)

        answered = asyncio.Event()
        opened = {id_: asyncio.Event() for id_ in ids}

        async def watch(id_: str) -> Followed:
            await opened[id_].wait()  # what is not published yet is not unknown
            async with places:
                keep = settings.save_replies is not None or settings.expect is not None
                return await follow(reader, id_, printer, keep=keep, on_reply=answered.set)

        watching = [asyncio.create_task(watch(id_)) for id_ in ids] if settings.follow else []
        alone = asyncio.create_task(_say_if_nobody_works(reader, answered, sys.stderr))
        with progress(len(events) * settings.copies, "replay", sys.stderr) as step:
            await replay(
                producer,
                events,
                speed=settings.speed,
                copies=settings.copies,
                name=name,
                cut=settings.cut,
                on_open=lambda id_: opened[id_].set(),
                on_event=step,
            )
        published_s = loop.time() - start
        outcome = dict(zip(ids, await asyncio.gather(*watching), strict=False))
        await end(alone)
    entries = count(len(events) * settings.copies, "entry", "entries")
    out.write(f"\n{count(len(ids), 'request')}, {entries} published in {published_s:.1f} s\n")
    if settings.follow:
        replies = sum(followed.replies for followed in outcome.values())
        failed = sum(followed.error is not None for followed in outcome.values())
        said = count(replies, "reply", "replies")
        out.write(f"{said} in {loop.time() - start:.1f} s, {count(failed, 'request')} failed\n")
    return outcome
