"""One look at a database: server, workers, partitions. It only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from link.redis import Redis, ResponseError
from producer.presence import LIVE_MS, decode_bridge
from schemas import keys
from schemas.keys import Keys
from schemas.report import BridgeReport, ModelReport, WorkerReport

_report_decoder = msgspec.json.Decoder(WorkerReport)
_model_decoder = msgspec.json.Decoder(ModelReport)


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
    """at_ms: Redis' clock. partitions: empty while no worker has set up the database."""

    at_ms: int
    wire_version: int | None
    info: Mapping[str, Any]
    members: tuple[str, ...] = ()
    workers: tuple[WorkerReport, ...] = ()
    partitions: tuple[PartitionLook, ...] = ()
    models: Mapping[str, ModelReport] = field(default_factory=dict)
    bridges: tuple[BridgeReport, ...] = ()


def _lane(groups: Any, length: Any) -> Lane:
    """From the answers of XINFO GROUPS and XLEN; an answer may be an error: the stream does not exist yet."""
    for group in groups if isinstance(groups, list) else ():
        if group["name"] == keys.GROUP.encode():
            return Lane(
                lag=max(0, group.get("lag") or 0),
                read=group.get("entries-read") or 0,
                cursor=group["last-delivered-id"].decode(),
                length=length,
            )
    return Lane(length=length if isinstance(length, int) else 0)


async def look(redis: Redis, names: Keys) -> Survey:
    """Raises the client's connection errors. What an ACL refuses is left out: `info` is empty then."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.hmget(names.config, [keys.CONFIG_PARTITIONS, keys.CONFIG_WIRE_VERSION])
        pipe.info()
        pipe.zrange(names.workers, 0, -1)
        pipe.hgetall(names.models)
        pipe.hgetall(names.bridges)
        now, config, info, members, models, bridges = await pipe.execute(raise_on_error=False)
    if isinstance(now, Exception):
        raise now
    at_ms = int(now[0]) * 1000 + int(now[1]) // 1000
    tokens = tuple(member.decode() for member in members) if isinstance(members, list) else ()
    count, version = (int(value) if value else None for value in config) if isinstance(config, list) else (None, None)
    return Survey(
        at_ms=at_ms,
        wire_version=version,
        info=info if isinstance(info, dict) else {},
        members=tokens,
        workers=await _reports(redis, names, tokens),
        bridges=tuple(one for one in map(decode_bridge, bridges.values()) if one.at_ms >= at_ms - LIVE_MS)
        if isinstance(bridges, dict)
        else (),
        partitions=await _partitions(redis, names, count, at_ms) if count else (),
        models={name.decode(): _model_decoder.decode(value) for name, value in models.items()}
        if isinstance(models, dict)
        else {},
    )


async def _reports(redis: Redis, names: Keys, tokens: tuple[str, ...]) -> tuple[WorkerReport, ...]:
    if not tokens:
        return ()
    try:
        found = await redis.mget([names.report(token) for token in tokens])
    except ResponseError:
        return ()
    return tuple(_report_decoder.decode(raw) for raw in found if raw is not None)


async def _partitions(redis: Redis, names: Keys, count: int, at_ms: int) -> tuple[PartitionLook, ...]:
    async with redis.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.get(names.owner(number))
            pipe.hlen(names.open(number))
            pipe.xlen(names.dead(number))
            for stream in (names.chunks(number), names.bulk(number)):
                pipe.xinfo_groups(stream)
                pipe.xlen(stream)
        answers = await pipe.execute(raise_on_error=False)
    looks = []
    for number in range(count):
        owner, open_, dead, *lanes = answers[number * 7 : number * 7 + 7]
        looks.append(
            PartitionLook(
                number=number,
                owner=owner.decode() if isinstance(owner, bytes) else None,
                chunks=_lane(*lanes[:2]),
                bulk=_lane(*lanes[2:]),
                open=open_ if isinstance(open_, int) else 0,
                dead=dead if isinstance(dead, int) else 0,
            )
        )
    return await _with_ages(redis, names, tuple(looks), at_ms)


async def _with_ages(
    redis: Redis, names: Keys, looks: tuple[PartitionLook, ...], at_ms: int
) -> tuple[PartitionLook, ...]:
    """Where entries wait, how long the first one does: its id is the time it came."""
    waiting = [(one, lane) for one in looks for lane in ("chunks", "bulk") if getattr(one, lane).lag]
    if not waiting:
        return looks
    async with redis.pipeline(transaction=False) as pipe:
        for one, lane in waiting:
            stream = names.chunks(one.number) if lane == "chunks" else names.bulk(one.number)
            pipe.xrange(stream, min="(" + getattr(one, lane).cursor, count=1)
        answers = await pipe.execute(raise_on_error=False)
    changed = {one.number: one for one in looks}
    for (one, lane), first in zip(waiting, answers, strict=True):
        if isinstance(first, list) and first:
            age = max(0, at_ms - int(first[0][0].partition(b"-")[0]))
            known = changed[one.number]
            changed[one.number] = replace(known, **{lane: replace(getattr(known, lane), oldest_ms=age)})
    return tuple(changed[one.number] for one in looks)
