"""`derender record`: store live chunk streams as a recording, until it is interrupted or has enough."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from derender.__main__ import CommandError
from derender.reach import reaching
from derender.words import count
from link.redis import connect
from producer.connection import read_partitions
from producer.record import Recorder
from schemas.keys import Keys
from worker.settings import RedisSettings, SettingsError, add_options, load, option


@dataclass(frozen=True)
class RecordSettings(RedisSettings):
    """Options of `record`."""

    seconds: float | None = option(None, "end after so many seconds; default: when it is interrupted")
    requests: int | None = option(None, "end after so many complete requests")
    overwrite: bool = option(False, "replace the file where there is one; it is kept when nothing was recorded")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seconds is not None and not self.seconds > 0:
            raise SettingsError("--seconds has to be more than 0")
        if self.requests is not None and self.requests < 1:
            raise SettingsError("--requests has to be at least 1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", help="file to write: JSON lines, for its owner alone")
    add_options(parser, RecordSettings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(RecordSettings, vars(args), environ)
    path = Path(args.recording)
    if path.exists() and not (settings.overwrite and path.is_file()):
        advice = "name another file, or give --overwrite" if path.is_file() else "it is no file that could be replaced"
        raise CommandError(f"{path} exists: {advice}")
    # Where Redis goes away, what was recorded before is gone with its file: a recording with a hole would look whole.
    with reaching(settings.redis_url, "operator"):
        recorder = asyncio.run(_record(settings, path))
    lost = ", ".join(f"{number} {why}" for why, number in sorted(recorder.lost.items()))
    sys.stdout.write(f"{count(recorder.complete, 'request')} recorded; left out: {lost or 'none'}\n")
    if not recorder.complete:
        raise CommandError(f"nothing to keep: {path} is {'as it was' if path.exists() else 'not written'}")
    return 0


async def _record(settings: RecordSettings, path: Path) -> Recorder:
    redis, names = connect(settings.redis_url), Keys(settings.key_prefix)
    try:
        recorder = Recorder(redis, await read_partitions(redis, names), path, names=names)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, recorder.stop)
        if settings.seconds is not None:
            loop.call_later(settings.seconds, recorder.stop)

        def enough(complete: int) -> None:
            if settings.requests is not None and complete >= settings.requests:
                recorder.stop()

        await recorder.run(enough)
    finally:
        await redis.aclose()
    return recorder
