"""One look at a database: server, workers, partitions. It only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from link.redis import NoPermissionError, Redis, time_ms
from producer.connection import config_of
from producer.presence import LIVE_MS, decode_bridge
from schemas import keys
from schemas.keys import Keys
from schemas.report import BridgeReport, WorkerReport

T = TypeVar("T")

CONFIG = "number of partitions"
INFO = "server"
WORKERS = "workers"
BRIDGES = "bridges"
OWNER = "owners"
OPEN = "open requests"
DEAD = "dead letters"
WAITING = "what waits"
AGES = "how long it waits"
"""What a user may be refused to read; each part of a look is refused, or not, as a whole."""

_report_decoder = msgspec.json.Decoder(WorkerReport)


@dataclass(frozen=True)
class Lane:
    """One input stream. lag: entries that wait; read: entries that were ever committed; cursor: last of them."""

    lag: int = 0
    read: int = 0
    cursor: str = "0-0"
    length: int = 0
    oldest_ms: int | None = None
    """Age of the first entry that waits; None: none waits."""


@dataclass(frozen=True)
class PartitionLook:
    """owner: token of the worker that drains it. open, dead: requests, dead letters."""

    number: int
    owner: str | None
    chunks: Lane
    bulk: Lane
    open: int
    dead: int

    @property
    def lag(self) -> int:
        return self.chunks.lag + self.bulk.lag

    @property
    def read(self) -> int:
        return self.chunks.read + self.bulk.read


@dataclass(frozen=True)
class Survey:
    """at_ms: Redis' clock. members: workers that live. partitions: empty while no worker has set up the database.

    hidden: what this user may not read, of CONFIG to AGES; it is empty or 0 here, whatever it is.
    """

    at_ms: int
    wire_version: int | None
    info: Mapping[str, Any]
    members: tuple[str, ...] = ()
    workers: tuple[WorkerReport, ...] = ()
    partitions: tuple[PartitionLook, ...] = ()
    bridges: tuple[BridgeReport, ...] = ()
    hidden: frozenset[str] = frozenset()


def _lane(groups: list[Any] | None, length: Any) -> Lane:
    """From the answers of XINFO GROUPS and XLEN; there is none of a stream that does not exist yet."""
    for group in groups or ():
        if group["name"] == keys.GROUP.encode():
            return Lane(
                lag=max(0, group.get("lag") or 0),
                read=group.get("entries-read") or 0,
                cursor=group["last-delivered-id"].decode(),
                length=length,
            )
    return Lane(length=length if isinstance(length, int) else 0)


class _Answers:
    """Takes answers of a pipeline apart, and keeps what was refused."""

    def __init__(self) -> None:
        self.hidden: set[str] = set()

    def of(self, answer: Any, kind: type[T], what: str) -> T | None:
        """The answer; None where there is none, as of a stream that does not exist yet."""
        if isinstance(answer, NoPermissionError):
            self.hidden |= {what, AGES} if what == WAITING else {what}
        return answer if isinstance(answer, kind) else None


async def look(redis: Redis, names: Keys) -> Survey:
    """Raises the client's connection errors, ConfigError, and NoPermissionError where even the time is refused."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.hmget(names.config, [keys.CONFIG_PARTITIONS, keys.CONFIG_WIRE_VERSION])
        pipe.info()
        pipe.zrange(names.workers, 0, -1, withscores=True)
        pipe.hgetall(names.bridges)
        now, *found = await pipe.execute(raise_on_error=False)
    if isinstance(now, Exception):
        raise now
    if isinstance(found[0], Exception) and not isinstance(found[0], NoPermissionError):
        raise found[0]  # a key of another type
    answers = _Answers()
    config = answers.of(found[0], list, CONFIG) or (None, None)
    info = answers.of(found[1], dict, INFO) or {}
    members = answers.of(found[2], list, WORKERS) or ()
    bridges = answers.of(found[3], dict, BRIDGES) or {}
    at_ms = time_ms(now)
    # Who was killed stays on the list for as long as no other worker lives.
    tokens = tuple(member.decode() for member, said_ms in members if said_ms >= at_ms - LIVE_MS)
    count, version = config_of(names, *config)
    return Survey(
        at_ms=at_ms,
        wire_version=version,
        info=info,
        members=tokens,
        workers=await _reports(redis, names, tokens, answers),
        bridges=tuple(one for one in map(decode_bridge, bridges.values()) if one.at_ms >= at_ms - LIVE_MS),
        partitions=await _partitions(redis, names, count, at_ms, answers) if count else (),
        hidden=frozenset(answers.hidden),
    )


async def _reports(redis: Redis, names: Keys, tokens: tuple[str, ...], answers: _Answers) -> tuple[WorkerReport, ...]:
    if not tokens:
        return ()
    async with redis.pipeline(transaction=False) as pipe:
        pipe.mget([names.report(token) for token in tokens])
        (found,) = await pipe.execute(raise_on_error=False)
    return tuple(_report_decoder.decode(raw) for raw in answers.of(found, list, WORKERS) or () if raw is not None)


async def _partitions(
    redis: Redis, names: Keys, count: int, at_ms: int, answers: _Answers
) -> tuple[PartitionLook, ...]:
    async with redis.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.get(names.owner(number))
            pipe.hlen(names.open(number))
            pipe.xlen(names.dead(number))
            for stream in (names.chunks(number), names.bulk(number)):
                pipe.xinfo_groups(stream)
                pipe.xlen(stream)
        found = await pipe.execute(raise_on_error=False)
    looks = []
    for number in range(count):
        raw, open_, dead, chunks, chunks_length, bulk, bulk_length = found[number * 7 : number * 7 + 7]
        owner = answers.of(raw, bytes, OWNER)
        looks.append(
            PartitionLook(
                number=number,
                owner=None if owner is None else owner.decode(),
                chunks=_lane(answers.of(chunks, list, WAITING), chunks_length),
                bulk=_lane(answers.of(bulk, list, WAITING), bulk_length),
                open=answers.of(open_, int, OPEN) or 0,
                dead=answers.of(dead, int, DEAD) or 0,
            )
        )
    return await _with_ages(redis, names, tuple(looks), at_ms, answers)


async def _with_ages(
    redis: Redis, names: Keys, looks: tuple[PartitionLook, ...], at_ms: int, answers: _Answers
) -> tuple[PartitionLook, ...]:
    """Where entries wait, how long the first one does: its id is the time it came."""
    waiting = [(one, lane) for one in looks for lane in ("chunks", "bulk") if getattr(one, lane).lag]
    if not waiting:
        return looks
    async with redis.pipeline(transaction=False) as pipe:
        for one, lane in waiting:
            stream = names.chunks(one.number) if lane == "chunks" else names.bulk(one.number)
            pipe.xrange(stream, min="(" + getattr(one, lane).cursor, count=1)
        found = await pipe.execute(raise_on_error=False)
    changed = {one.number: one for one in looks}
    for (one, lane), entries in zip(waiting, found, strict=True):
        if first := answers.of(entries, list, AGES):
            age = max(0, at_ms - int(first[0][0].partition(b"-")[0]))
            known = changed[one.number]
            changed[one.number] = replace(known, **{lane: replace(getattr(known, lane), oldest_ms=age)})
    return tuple(changed[one.number] for one in looks)
