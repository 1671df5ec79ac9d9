"""`derender dead`: look at the entries that could not be processed, and put whole work back.

Whole work is one entry, so putting it back is publishing it once more. An entry of a stream is one of many, and workers
would refuse it alone: its request has ended with an error, or was never opened.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from derender.__main__ import CommandError
from derender.reach import reaching
from link.redis import Redis
from producer.connection import connect_to_partitions
from schemas import keys
from schemas.keys import Keys
from worker.settings import RedisSettings, SettingsError, add_options, load, option

PAGE = 500
KINDS = (keys.RESPONSE, keys.CALL, keys.OPEN, keys.CHUNK, keys.CONTROL)


@dataclass(frozen=True)
class DeadSettings(RedisSettings):
    """Options of `dead`."""

    limit: int = option(100, "list at most so many, the newest of each partition first")
    of: str | None = option(None, "list only those of this request id")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 1:
            raise SettingsError("--limit has to be at least 1")


class Letter(NamedTuple):
    """A dead letter. name: `<partition>/<entry id>`, as the commands take it."""

    partition: int
    id: str
    fields: dict[bytes, bytes]

    @property
    def name(self) -> str:
        return f"{self.partition}/{self.id}"

    @property
    def request_id(self) -> str:
        return self.text(keys.REQUEST)

    @property
    def lane(self) -> str:
        return self.text(keys.STREAM_NAME)

    @property
    def entry(self) -> dict[bytes, bytes]:
        """The entry as it was published, or what was kept of it."""
        return {name: value for name, value in self.fields.items() if name not in keys.LETTER}

    def text(self, field: bytes) -> str:
        return self.fields.get(field, b"").decode("utf-8", "backslashreplace")

    def line(self) -> str:
        """One line without any prompt or output."""
        when = datetime.fromtimestamp(int(self.id.partition("-")[0]) / 1000, UTC).isoformat("T", "seconds")
        kind = next((kind.decode() for kind in KINDS if kind in self.fields), "-")
        size = sum(map(len, self.entry.values())) + int(self.fields.get(keys.CUT, b"0"))
        reason = self.text(keys.REASON).replace("\n", " ")
        return f"{self.name}  {when}  {self.lane:<6}  {kind:<8}  {size:>9} B  {self.request_id[:128]!r}  {reason}"

    def shown(self) -> str:
        """All of it as JSON: this may hold prompts and outputs."""
        pairs = {name.decode("utf-8", "backslashreplace"): self.text(name) for name in self.fields}
        return json.dumps({"dead_letter": self.name, **pairs}, ensure_ascii=False, indent=2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="list", choices=("list", "show", "requeue"), help="default: list")
    parser.add_argument("letter", nargs="*", help="<partition>/<entry id>, as `list` prints it")
    add_options(parser, DeadSettings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(DeadSettings, vars(args), environ)
    if args.action == "list" and args.letter:
        raise SettingsError("list takes no letter")
    if args.action != "list" and not args.letter:
        raise SettingsError(f"{args.action} takes letters, as list prints them")
    return asyncio.run(_run(settings, args.action, args.letter))


@asynccontextmanager
async def _connected(settings: DeadSettings) -> AsyncIterator[tuple[Redis, int]]:
    with reaching(settings.redis_url, "operator"):
        redis, partitions = await connect_to_partitions(settings.redis_url, Keys(settings.key_prefix), wait_s=0)
        try:
            yield redis, partitions
        finally:
            await redis.aclose()


async def _run(settings: DeadSettings, action: str, names: list[str]) -> int:
    key_names = Keys(settings.key_prefix)
    async with _connected(settings) as (redis, partitions):
        if action == "list":
            async for letter in letters(redis, key_names, partitions, limit=settings.limit, of=settings.of):
                sys.stdout.write(letter.line() + "\n")
            return 0
        found = [await find(redis, key_names, partitions, name) for name in names]
        for letter in found:
            if action == "show":
                sys.stdout.write(letter.shown() + "\n")
            else:
                stream = await requeue(redis, key_names, partitions, letter)
                sys.stdout.write(f"{letter.name}: {letter.request_id} is back in {stream}\n")
    return 0


async def letters(
    redis: Redis, names: Keys, partitions: int, *, limit: int, of: str | None = None
) -> AsyncIterator[Letter]:
    """Dead letters, partition by partition, the newest first. of: of this request only."""
    wanted = range(partitions) if of is None else [keys.partition_of(of, partitions)]
    for partition in wanted:
        newest = "+"
        while limit > 0:
            page = await redis.xrevrange(names.dead(partition), max=newest, count=PAGE)
            for id_, fields in page:
                letter = Letter(partition, id_.decode(), fields)
                if of is None or letter.request_id == of:
                    yield letter
                    limit -= 1
                    if limit == 0:
                        return
            if len(page) < PAGE:
                break
            newest = "(" + page[-1][0].decode()


async def find(redis: Redis, names: Keys, partitions: int, name: str) -> Letter:
    """The dead letter of a name. Raises CommandError."""
    partition, _, id_ = name.partition("/")
    if not (partition.isdecimal() and int(partition) < partitions and all(p.isdecimal() for p in id_.split("-", 1))):
        raise CommandError(f"{name!r} is no dead letter: use <partition>/<entry id>, such as 3/1700000000000-0")
    found = await redis.xrange(names.dead(int(partition)), min=id_, max=id_)
    if not found:
        raise CommandError(f"there is no dead letter {name}")
    return Letter(int(partition), id_, found[0][1])


async def requeue(redis: Redis, names: Keys, partitions: int, letter: Letter) -> str:
    """Put whole work (a response or a call) back, and take the failed answer away, so that it is answered anew.

    Returns the stream that it is in now: that of its request id, whichever partition it was found on. Raises
    CommandError for what cannot be put back, with the reason and what to do instead.
    """
    id_ = letter.request_id
    if keys.REQUEST not in letter.fields and b"command" in letter.fields:
        raise CommandError(f"{letter.name} is no entry: it says what Redis refused to write")
    if not (keys.RESPONSE in letter.fields or keys.CALL in letter.fields):
        raise CommandError(
            f"{letter.name} is one entry of a stream, whose request has ended or never began: "
            "publish the request again, under a new id"
        )
    if not keys.valid_request_id(id_):
        raise CommandError(f"{letter.name} has no usable request id, so nobody could read the answer")
    if keys.CUT in letter.fields:
        raise CommandError(
            f"{letter.name} was too large: {letter.text(keys.CUT)} bytes of it were not kept; publish it again"
        )
    partition = keys.partition_of(id_, partitions)
    execute: Any = redis.execute_command
    status = await redis.get(names.status(partition, id_))
    if await execute("HEXISTS", names.open(partition), id_) or status not in (None, keys.STATUS_FAILED.encode()):
        said = "open" if status is None else status.decode()
        raise CommandError(f"{letter.name}: request {id_} is {said}; publish the work again, under a new id")
    async with redis.pipeline(transaction=True) as pipe:
        pipe.delete(names.status(partition, id_), names.reply(partition, id_))
        pipe.xadd(names.bulk(partition), letter.entry)  # type: ignore[arg-type]
        await pipe.execute()
    # Not before: better found twice than lost. The second time its request is not failed any more.
    await redis.xdel(names.dead(letter.partition), letter.id)
    return names.bulk(partition)
