"""One look at a database, from an empty one to one where entries wait."""

from __future__ import annotations

import msgspec
import pytest
from redis.asyncio import Redis

from link.redis import connect
from producer.presence import LIVE_MS
from producer.survey import (
    AGES,
    BRIDGES,
    CONFIG,
    DEAD,
    INFO,
    OPEN,
    OWNER,
    WAITING,
    WORKERS,
    Lane,
    PartitionLook,
    look,
)
from schemas import keys
from schemas.keys import Keys
from schemas.report import ModelReport, WorkerReport


@pytest.mark.redis
async def test_an_empty_database(real_redis: Redis, names: Keys) -> None:
    survey = await look(real_redis, names)
    assert (survey.wire_version, survey.members, survey.workers, survey.partitions, survey.hidden) == (
        None, (), (), (), frozenset(),
    )  # fmt: skip
    assert survey.info["redis_version"].split(".")[0] == "7"


@pytest.mark.redis
async def test_what_waits_and_who_owns_it(real_redis: Redis, names: Keys) -> None:
    """Partition 0 is drained, 1 has a queue without an owner, 2 has no stream yet."""
    model = ModelReport(name="m", state="loaded", fingerprint="f")
    report = WorkerReport("h:1:x:1.1", "1", 5, 6, partitions=(0,), models=(model,))
    await real_redis.hset(names.config, mapping={keys.CONFIG_PARTITIONS: 3, keys.CONFIG_WIRE_VERSION: 1})
    seconds, _ = await real_redis.time()
    now_ms = seconds * 1000
    await real_redis.zadd(names.workers, {"h:1:x:1.1": now_ms, "h:2:y:1.1": now_ms, "killed:3:z:1.1": now_ms - LIVE_MS})
    await real_redis.set(names.report("killed:3:z:1.1"), msgspec.json.encode(report))
    await real_redis.set(names.report("h:1:x:1.1"), msgspec.json.encode(report))
    await real_redis.set(names.owner(0), "h:1:x:1.1")
    await real_redis.hset(names.open(0), mapping={"a": "{}", "b": "{}"})
    await real_redis.xadd(names.dead(1), {"reason": "x"})
    hour_ago = (seconds - 3600) * 1000
    for partition in (0, 1):
        stream = names.chunks(partition)
        ids = [await real_redis.xadd(stream, {"n": n}, id=f"{hour_ago}-{n}") for n in range(3)]
        done = 3 if partition == 0 else 1
        await real_redis.xgroup_create(stream, keys.GROUP, id="0")
        await real_redis.execute_command("XGROUP", "SETID", stream, keys.GROUP, ids[done - 1], "ENTRIESREAD", done)
    survey = await look(real_redis, names)
    first, second, third = survey.partitions
    assert survey.members == ("h:1:x:1.1", "h:2:y:1.1")
    assert (survey.workers, survey.wire_version, survey.hidden) == ((report,), 1, frozenset())
    assert (first.owner, first.open, first.dead, first.lag, first.read) == ("h:1:x:1.1", 2, 0, 0, 3)
    assert (second.owner, second.dead, second.lag, second.read) == (None, 1, 2, 1)
    assert first.chunks.oldest_ms is None
    assert second.chunks.oldest_ms is not None
    assert second.chunks.oldest_ms // 3_600_000 == 1
    assert third == PartitionLook(2, None, Lane(), Lane(), 0, 0)


@pytest.mark.redis
@pytest.mark.parametrize(
    ("permissions", "hidden"),
    [
        (("~{p}:config", "+time", "+hmget", "+hlen"),
         {INFO, WORKERS, BRIDGES, OWNER, OPEN, DEAD, WAITING, AGES}),
        (("~{p}:*", "+@all", "-info", "-xrange"), {INFO, AGES}),
        (("~{p}:*", "+@all", "-mget", "-hmget"), {CONFIG, WORKERS}),
        (("~{p}:*", "+@all"), set()),
    ],
    ids=["nearly all", "ages", "no partitions", "nothing"],
)  # fmt: skip
async def test_what_an_acl_refuses_is_hidden(
    real_redis: Redis, names: Keys, server_url: str, permissions: tuple[str, ...], hidden: set[str]
) -> None:
    """It is said, so that an absent value is not taken for a 0."""
    await real_redis.hset(names.config, mapping={keys.CONFIG_PARTITIONS: 1, keys.CONFIG_WIRE_VERSION: 1})
    await real_redis.zadd(names.workers, {"h:1:x:1.1": (await real_redis.time())[0] * 1000})
    await real_redis.xadd(names.chunks(0), {"n": 1})
    await real_redis.xgroup_create(names.chunks(0), keys.GROUP, id="0")
    words = [word.format(p=names.prefix) for word in permissions]
    await real_redis.execute_command("ACL", "SETUSER", "looker", "reset", "on", "nopass", *words)
    client = connect(server_url.replace("//", "//looker:x@"))
    survey = await look(client, names)
    await client.aclose()
    await real_redis.execute_command("ACL", "DELUSER", "looker")
    assert survey.hidden == hidden
    assert bool(survey.info) == (INFO not in hidden)
    assert len(survey.partitions) == (CONFIG not in hidden)
