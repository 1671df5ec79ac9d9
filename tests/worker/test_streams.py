"""Scripts and commands one by one; what they add up to is tested with the drain."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from schemas import keys
from schemas.keys import Keys
from worker.streams import Commands, Members, Moved, Partition, WrongConfig, settle_config

NAMES = Keys()


@pytest.fixture
def partition(redis: Redis) -> Partition:
    return Partition(redis, redis, NAMES, 0, token="me", lease_ms=300)


def commands(*written: tuple[object, ...]) -> Commands:
    result = Commands()
    for name, key, *args in written:
        result.add(str(name), str(key), *args)
    return result


async def add(redis: Redis, n: int = 1) -> list[bytes]:
    return [await redis.xadd(NAMES.chunks(0), {"request_id": "r"}) for _ in range(n)]


# --- cursor and publish -----------------------------------------------------------------------------------------------


async def test_a_new_partition_begins_at_zero(redis: Redis, partition: Partition) -> None:
    """Also when the producer was there first: its entries are read."""
    ids = await add(redis, 2)
    assert await partition.begin("chunks", count=False) == (b"0-0", 0)
    read = await partition.read({"chunks": b"0-0"}, count=10, block_ms=None)
    assert [entry.id for entry in read["chunks"]] == ids


async def test_publish_commits_all_of_it(redis: Redis, partition: Partition) -> None:
    ids = await add(redis, 3)
    await partition.begin("chunks", count=False)
    written = commands(("SET", "{0}a", "1"), ("XADD", "{0}s", "1-0", "f", b"\xff\x00"), ("SET", "{0}a", "2"))
    assert await partition.publish("chunks", b"0-0", ids[1], 2, written) == []
    assert await redis.get("{0}a") == b"2"
    assert await redis.xrange("{0}s") == [(b"1-0", {b"f": b"\xff\x00"})]
    assert await partition.begin("chunks", count=False) == (ids[1], 1)
    assert [id_ for id_, _ in await redis.xrange(NAMES.chunks(0))] == ids[1:]


@pytest.mark.parametrize("source", [b"0-0", b"5-0", b"99999999999999-0"], ids=["outdated", "other", "ahead"])
async def test_publish_from_another_cursor_writes_nothing(redis: Redis, partition: Partition, source: bytes) -> None:
    ids = await add(redis, 3)
    await partition.begin("chunks", count=False)
    await partition.publish("chunks", b"0-0", ids[0], 1, Commands())
    with pytest.raises(Moved):
        await partition.publish("chunks", source, ids[2], 2, commands(("SET", "{0}a", "1")))
    assert await redis.exists("{0}a") == 0
    assert await partition.begin("chunks", count=False) == (ids[0], 1)


async def test_publish_without_a_group_writes_nothing(redis: Redis, partition: Partition) -> None:
    """The database was emptied under us."""
    with pytest.raises(Moved):
        await partition.publish("chunks", b"0-0", b"1-0", 1, commands(("SET", "{0}a", "1")))
    assert await redis.keys("*") == []


async def test_a_refused_command_stops_no_other(redis: Redis, partition: Partition) -> None:
    """Lua does not roll back, so refusals are collected and kept as dead letters."""
    [id_] = await add(redis)
    await partition.begin("chunks", count=False)
    await redis.xadd("{0}s", {"x": "y"}, id="5-0")
    written = commands(("SET", "{0}a", "1"), ("XADD", "{0}s", "1-0", "f", "v"), ("SET", "{0}b", "2"))
    [refused] = await partition.publish("chunks", b"0-0", id_, 1, written)
    assert refused.startswith("{0}s refused: ERR The ID specified in XADD is equal or smaller")
    assert (await redis.get("{0}a"), await redis.get("{0}b")) == (b"1", b"2")
    [(_, letter)] = await redis.xrange(NAMES.dead(0))
    assert (letter[b"command"], letter[b"key"], letter[b"entry_id"]) == (b"XADD", b"{0}s", id_)


async def test_a_command_that_is_too_long_stops_no_other(redis: Redis, partition: Partition) -> None:
    """Lua cannot pass on more than some 8,000 words, and raises where a refusal would do."""
    [id_] = await add(redis)
    await partition.begin("chunks", count=False)
    long = ("XADD", "{0}s", "*", *["x"] * 8000)
    written = commands(("SET", "{0}a", "1"), long, ("SET", "{0}b", "2"))
    assert await partition.publish("chunks", b"0-0", id_, 1, written) == [
        "{0}s refused: ERR a command of 8003 words is too long"
    ]
    assert (await redis.get("{0}a"), await redis.get("{0}b")) == (b"1", b"2")
    assert await partition.begin("chunks", count=False) == (id_, 1)


async def test_scripts_survive_a_server_that_forgot_them(redis: Redis, partition: Partition) -> None:
    await partition.begin("chunks", count=False)
    await redis.script_flush()
    assert await partition.begin("chunks", count=False) == (b"0-0", 0)


def another(redis: Redis) -> Partition:
    """The same partition in the hands of another worker, or of the same one another time."""
    return Partition(redis, redis, NAMES, 0, token="me")


async def test_attempts_are_counted_for_a_cursor(redis: Redis, partition: Partition) -> None:
    """Each attempt counts once; a publish counts the next one ahead."""
    [id_] = await add(redis)
    assert [(await another(redis).begin("chunks", count=True))[1] for _ in range(2)] == [1, 2]
    assert [(await partition.begin("chunks", count=count))[1] for count in (False, True, True, False)] == [2, 3, 3, 3]
    assert (await partition.begin("bulk", count=True))[1] == 1
    await partition.publish("chunks", b"0-0", id_, 1, Commands())
    assert await partition.begin("chunks", count=True) == (id_, 1)
    assert await another(redis).begin("chunks", count=True) == (id_, 2)


async def test_an_attempt_is_taken_back_by_who_made_it(redis: Redis, partition: Partition) -> None:
    """Of no other, in no other lane, and as often as one likes: its answer may have been lost."""
    others = [another(redis) for _ in range(2)]
    await others[0].begin("chunks", count=True)
    await partition.begin("chunks", count=True)
    await partition.begin("bulk", count=True)
    await others[1].begin("chunks", count=True)
    for _ in range(2):
        await partition.forgive("chunks")
        assert await partition.begin("chunks", count=False) == (b"0-0", 2)
    assert await partition.begin("bulk", count=False) == (b"0-0", 1)
    for other in others:
        await other.forgive("chunks")
    assert await partition.begin("chunks", count=False) == (b"0-0", 0)
    await partition.forgive("bulk")
    assert await redis.exists(NAMES.attempts(0)) == 0


async def test_attempts_do_not_grow_for_ever(redis: Redis) -> None:
    counts = [(await another(redis).begin("chunks", count=True))[1] for _ in range(20)]
    assert counts == [*range(1, 11), *[10] * 10]
    assert len(await redis.hget(NAMES.attempts(0), "chunks") or b"") < 120


async def test_attempts_of_an_older_worker(redis: Redis, partition: Partition) -> None:
    """It wrote a number in place of names: one attempt, however many they were."""
    await partition.begin("chunks", count=False)
    await redis.hset(NAMES.attempts(0), "chunks", "0-0 3")  # type: ignore[misc]
    assert await partition.begin("chunks", count=True) == (b"0-0", 2)


async def test_attempts_of_another_type(redis: Redis, partition: Partition) -> None:
    """Someone else's value under our key: a publish is whole without it, and the next beginning clears it away."""
    ids = await add(redis, 2)
    await partition.begin("chunks", count=True)
    await redis.delete(NAMES.attempts(0))
    await redis.set(NAMES.attempts(0), "x")
    await partition.forgive("chunks")
    assert await partition.publish("chunks", b"0-0", ids[0], 1, commands(("SET", "{0}a", "1"))) == []
    assert await redis.get("{0}a") == b"1"
    assert await partition.begin("chunks", count=True) == (ids[0], 1)
    assert await another(redis).begin("chunks", count=True) == (ids[0], 2)


async def test_the_other_lane_has_to_be_where_it_was_too(redis: Redis, partition: Partition) -> None:
    """What a worker knows of requests is outdated when either cursor is."""
    [id_] = await add(redis)
    await redis.xadd(NAMES.bulk(0), {"request_id": "w"}, id="7-0")
    for lane in ("chunks", "bulk"):
        await partition.begin(lane, count=False)
    await another(redis).publish("chunks", b"0-0", id_, 1, Commands(), beside=b"0-0")
    written = commands(("SET", "{0}a", "1"))
    with pytest.raises(Moved):
        await partition.publish("bulk", b"0-0", b"7-0", 1, written, beside=b"0-0")
    assert (await partition.begin("bulk", count=False), await redis.exists("{0}a")) == ((b"0-0", 0), 0)
    await partition.publish("bulk", b"0-0", b"7-0", 1, written, beside=id_)
    assert (await partition.begin("bulk", count=False), await redis.get("{0}a")) == ((b"7-0", 1), b"1")


@pytest.mark.redis
async def test_dead_letters_have_a_bound_in_bytes(real_redis: Redis) -> None:
    """The oldest go; what Redis says the stream takes is what counts."""
    partition = Partition(real_redis, real_redis, NAMES, 0, token="me", dead_bytes=2**20)
    await partition.begin("chunks", count=False)
    dead, cursor = NAMES.dead(0), b"0-0"
    for number in range(30):
        [id_] = await add(real_redis)
        written = commands(("XADD", dead, f"{number + 1}-0", "reason", "x" * 2**16))
        await partition.publish("chunks", cursor, id_, 1, written, letters=1)
        cursor = id_
        assert await real_redis.memory_usage(dead, samples=0) <= 2**20
    ids = [int(id_.partition(b"-")[0]) for id_, _ in await real_redis.xrange(dead)]
    assert len(ids) >= 8
    assert ids == list(range(31 - len(ids), 31)), "the newest are kept"


@pytest.mark.redis
async def test_the_lag_is_there_for_any_autoscaler(real_redis: Redis) -> None:
    """`XINFO GROUPS` counts what is not processed yet."""
    partition = Partition(real_redis, real_redis, NAMES, 0, token="me")
    await partition.begin("chunks", count=False)
    ids = await add(real_redis, 5)
    assert await partition.lag("chunks") == (b"0-0", 5)
    await partition.publish("chunks", b"0-0", ids[2], 3, Commands())
    assert await partition.lag("chunks") == (ids[2], 2)
    [group] = await real_redis.xinfo_groups(NAMES.chunks(0))
    assert (group["name"], group["lag"], group["pending"]) == (keys.GROUP.encode(), 2, 0)


# --- owner and members ------------------------------------------------------------------------------------------------


async def test_owner_key(redis: Redis, partition: Partition) -> None:
    other = Partition(redis, redis, NAMES, 0, token="other", lease_ms=300)
    assert [await partition.take(), await partition.take(), await other.take()] == [True, True, False]
    assert 0 < await redis.pttl(NAMES.owner(0)) <= 300
    await other.release()
    assert await redis.get(NAMES.owner(0)) == b"me"
    await partition.release()
    assert await other.take()


async def test_members_share_partitions_and_expire(redis: Redis) -> None:
    a, b = (Members(redis, NAMES, token, lease_ms=200) for token in "ab")
    await a.beat()
    assert a.live == ["a"]
    await b.beat()
    await a.beat()
    assert a.live == b.live == ["a", "b"]
    assert [[p for p in range(5) if m.mine(p)] for m in (a, b)] == [[0, 2, 4], [1, 3]]
    await asyncio.sleep(0.3)
    await b.beat()
    assert b.live == ["b"]


# --- configuration ----------------------------------------------------------------------------------------------------


async def test_the_number_of_partitions_is_fixed_when_first_set(redis: Redis) -> None:
    assert await settle_config(redis, NAMES, 4) == 4
    assert await settle_config(redis, NAMES, None) == 4
    with pytest.raises(WrongConfig, match="has 4 partitions, this worker was told 5"):
        await settle_config(redis, NAMES, 5)
    assert await redis.hgetall(NAMES.config) == {b"partitions": b"4", b"wire_version": b"1"}


async def test_default_partitions(redis: Redis) -> None:
    assert await settle_config(redis, NAMES, None) == keys.DEFAULT_PARTITIONS


async def test_another_wire_version_is_refused(redis: Redis) -> None:
    await redis.hset(NAMES.config, mapping={"partitions": 4, "wire_version": 9})
    with pytest.raises(WrongConfig, match="wire version 9, this worker speaks 1"):
        await settle_config(redis, NAMES, None)


# --- connections ------------------------------------------------------------------------------------------------------


def test_blocking_reads_end_before_the_socket_gives_up() -> None:
    from link.redis import SOCKET_TIMEOUT_S
    from worker.main import rules
    from worker.settings import Settings

    assert rules(Settings()).block_ms < SOCKET_TIMEOUT_S * 1000
