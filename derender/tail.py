"""`derender tail`: follow the reply streams of requests."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from derender.reach import WAIT_S, reaching, say, set_up
from derender.show import Printer, follow
from producer.read import MAX_FOLLOWED, Reader, ReplyUnavailable, valid_entry_id
from schemas import keys
from worker.settings import RedisSettings, SettingsError, add_options, load, option


@dataclass(frozen=True)
class TailSettings(RedisSettings):
    """Options of `tail`."""

    after: str = option("0", "entry id to resume after")
    unknown_after_s: float = option(30.0, "how long to wait for a request without any trace")
    raw: bool = option(False, "print the JSON of each reply in place of the text")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not valid_entry_id(self.after):
            raise SettingsError(f"--after has to be an entry id such as 7-0, not {self.after!r}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request_id", nargs="+", help="requests to follow")
    add_options(parser, TailSettings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(TailSettings, vars(args), environ)
    for request_id in args.request_id:
        if not keys.valid_request_id(request_id):
            raise SettingsError(f"request id {request_id[:200]!r} does not match {keys.REQUEST_ID.pattern}")
    if len(args.request_id) > MAX_FOLLOWED:
        raise SettingsError(f"at most {MAX_FOLLOWED} requests can be followed at once")
    with reaching(settings.redis_url, "reader"):
        return asyncio.run(_tail(settings, args.request_id))


async def _tail(settings: TailSettings, request_ids: list[str]) -> int:
    await set_up(settings.redis_url, settings.key_prefix, wait_s=WAIT_S, say=say)
    reader = await Reader.connect(
        settings.redis_url, prefix=settings.key_prefix, unknown_after_s=settings.unknown_after_s
    )
    async with reader:
        if settings.raw:
            codes = [_raw(reader, id_, settings.after) for id_ in request_ids]
            return max(await asyncio.gather(*codes))
        printer = Printer(sys.stdout, lambda id_, index: f"{id_} {index}")
        outcomes = await asyncio.gather(*(follow(reader, id_, printer, after=settings.after) for id_ in request_ids))
        return 0 if all(outcome.error is None for outcome in outcomes) else 1


async def _raw(reader: Reader, request_id: str, after: str) -> int:
    failed = 0
    try:
        async for reply in reader.follow(request_id, after=after):
            sys.stdout.write(f"{request_id} {reply.id} {reply.data.decode()}\n")
            sys.stdout.flush()
            failed |= reply.error is not None
    except ReplyUnavailable as error:
        sys.stderr.write(f"derender tail: {error}\n")  # the output is JSON for a program
        return 1
    return failed
