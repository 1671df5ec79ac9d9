"""Replies as a reader gets them: from any id, over one connection, never hanging on a missed end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from producer import read
from producer.read import Reader, Reply, ReplyUnavailable, parse
from schemas.keys import Keys, partition_of

NAMES = Keys()


@pytest.fixture
async def reader(redis: Redis) -> AsyncIterator[Reader]:
    async with Reader(redis, 4, unknown_after_s=0.3, look_after_s=0.05) as reader:
        yield reader


async def write(redis: Redis, request_id: str, *numbers: int, done: bool = False) -> None:
    """Replies n as a worker writes them; the last with `done` and the status, where asked for."""
    partition = partition_of(request_id, 4)
    for n in numbers:
        fields = {"chunk": f"{request_id} {n}", "index": 0, "stream_state": "{}"}
        if done and n == numbers[-1]:
            fields["done"] = "finished"
        await redis.xadd(NAMES.reply(partition, request_id), fields, id=f"{n}-0")  # type: ignore[arg-type]
    await redis.set(NAMES.status(partition, request_id), "finished" if done else "open")


async def collect(reader: Reader, request_id: str, after: str = "0") -> list[str]:
    return [reply.data.decode() async for reply in reader.follow(request_id, after=after)]


def test_fields_of_a_reply() -> None:
    fields = {b"chunk": b"{}", b"index": b"3", b"stream_state": b"[]", b"done": b"finished"}
    expected = Reply(id="7-0", chunk=b"{}", index=3, stream_state=b"[]", done="finished")
    assert parse(b"7-0", fields) == expected
    assert parse(b"1-0", {b"error": b"e"}).data == b"e"
    assert parse(b"1-0", {b"response": b"r"}).data == b"r"


async def test_a_finished_stream(redis: Redis, reader: Reader) -> None:
    await write(redis, "r", 1, 2, 3, done=True)
    assert await collect(reader, "r") == ["r 1", "r 2", "r 3"]


@pytest.mark.parametrize(("after", "rest"), [("0-0", 3), ("1-0", 2), ("2", 1), ("3-0", 0)])
async def test_resuming_from_any_id(redis: Redis, reader: Reader, after: str, rest: int) -> None:
    """From the last id on, there is nothing more, and no waiting."""
    await write(redis, "r", 1, 2, 3, done=True)
    assert await collect(reader, "r", after) == ["r 1", "r 2", "r 3"][3 - rest :]


async def test_replies_as_they_come(redis: Redis, reader: Reader) -> None:
    """Longer silences than a look at the status are no end while the request is open."""
    await write(redis, "r", 1)
    reading = asyncio.create_task(collect(reader, "r"))
    for n in (2, 3, 4):
        await asyncio.sleep(0.12)
        await write(redis, "r", n, done=n == 4)
    assert await reading == ["r 1", "r 2", "r 3", "r 4"]


async def test_many_streams_and_many_readers_of_one(redis: Redis) -> None:
    """One connection; those that come later begin at their own id."""
    reader = Reader(redis, 4)  # patient: on a busy machine the first writes take a while
    ids = [f"r{n}" for n in range(30)]
    reading = [asyncio.create_task(collect(reader, id_)) for id_ in ids * 2]
    for id_ in ids:
        await write(redis, id_, 1)
    late = asyncio.create_task(collect(reader, "r0", "1-0"))
    for id_ in ids:
        await write(redis, id_, *range(2, 150), done=True)
    for id_, task in zip(ids * 2, reading, strict=True):
        assert await task == [f"{id_} {n}" for n in range(1, 150)]
    assert await late == [f"r0 {n}" for n in range(2, 150)]
    assert reader._followed == {}
    await reader.aclose()


@pytest.mark.redis
async def test_a_stream_that_is_followed_later_is_read_at_once(real_redis: Redis) -> None:
    """The reading connection waits for a minute; whoever comes in the meantime does not."""
    async with Reader(real_redis, 4, block_ms=3000, look_after_s=60) as reader:
        silent = asyncio.create_task(collect(reader, "silent"))
        await asyncio.sleep(0.1)
        await write(real_redis, "r", 1, 2, done=True)
        assert await asyncio.wait_for(collect(reader, "r"), 2.0) == ["r 1", "r 2"]
        await write(real_redis, "silent", 1, done=True)
        assert await silent == ["silent 1"]


# --- missed ends ------------------------------------------------------------------------------------------------------


async def test_a_slow_follower_is_read_for_as_it_takes(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has not taken stays in Redis; others go on, also on the same stream, and in the end it has everything."""
    monkeypatch.setattr(read, "READ_COUNT", 2)
    numbers = range(1, 61)
    await write(redis, "r", *numbers, done=True)
    await write(redis, "other", 1)
    async with Reader(redis, 4, block_ms=20) as reader:
        slow = reader.follow("r")
        got = [(await anext(slow)).data.decode()]
        assert await collect(reader, "r") == [f"r {n}" for n in numbers]
        [followed] = reader._followed[NAMES.reply(partition_of("r", 4), "r").encode()]
        assert followed.queue.qsize() == read.QUEUED_READS
        assert followed.last == b"%d-0" % (2 * (read.QUEUED_READS + 1))
        other = asyncio.create_task(collect(reader, "other"))
        await asyncio.sleep(0.05)
        await write(redis, "other", 2, done=True)
        assert await asyncio.wait_for(other, 5) == ["other 1", "other 2"]
        async with asyncio.timeout(5):
            got += [reply.data.decode() async for reply in slow]
    assert got == [f"r {n}" for n in numbers]


@pytest.mark.parametrize("after", ["", "x", "-1", "1-", "1-0-0", "٣", "9" * 20, "1-" + "9" * 20])
async def test_an_impossible_entry_id_costs_no_other_stream_anything(redis: Redis, reader: Reader, after: str) -> None:
    other = asyncio.create_task(collect(reader, "other"))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match=r"entry id .* is not <number>"):
        await collect(reader, "r", after)
    await write(redis, "other", 1, done=True)
    assert await asyncio.wait_for(other, 5) == ["other 1"]


async def test_a_request_without_a_trace(reader: Reader) -> None:
    with pytest.raises(ReplyUnavailable, match="request r is unknown, or has expired"):
        await collect(reader, "r")


async def test_a_request_without_a_trace_and_an_entry_of_it(redis: Redis) -> None:
    """Who names an entry had it once, so there is nothing to wait for; the words are the same."""
    async with Reader(redis, 4, unknown_after_s=3600, look_after_s=0.05) as reader:
        with pytest.raises(ReplyUnavailable, match=r"^request r is unknown, or has expired$"):
            await asyncio.wait_for(collect(reader, "r", "5-0"), 30)


async def test_a_worker_that_is_behind_is_waited_for(redis: Redis, reader: Reader) -> None:
    reading = asyncio.create_task(collect(reader, "r"))
    await asyncio.sleep(0.15)
    await write(redis, "r", 1, done=True)
    assert await reading == ["r 1"]


async def test_replies_that_expired_before_they_were_read(redis: Redis, reader: Reader) -> None:
    await write(redis, "r", 1, 2, done=True)
    await redis.delete(NAMES.reply(partition_of("r", 4), "r"))
    with pytest.raises(ReplyUnavailable, match="request r is finished, but its replies have expired"):
        await collect(reader, "r", "1-0")


@pytest.mark.parametrize("after", ["3-0", "99"])
async def test_an_entry_that_a_finished_stream_does_not_have(redis: Redis, reader: Reader, after: str) -> None:
    """Whoever names it is told, and does not take the end of another stream for that of this one."""
    await write(redis, "r", 1, 2, done=True)
    with pytest.raises(ReplyUnavailable, match=f"request r is finished, and its stream ended before {after}"):
        await collect(reader, "r", after)


async def test_everything_expired_in_mid_stream(redis: Redis, reader: Reader) -> None:
    await write(redis, "r", 1)
    replies = reader.follow("r")
    assert (await anext(replies)).data == b"r 1"
    await redis.flushall()
    with pytest.raises(ReplyUnavailable, match="request r: status and replies have expired"):
        await anext(replies)


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_impossible_request_ids(reader: Reader) -> None:
    with pytest.raises(ValueError, match="does not match"):
        await collect(reader, "a{b}")


async def test_a_bound_on_streams_for_one_connection(
    redis: Redis, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_FOLLOWED", 2)
    following = [asyncio.create_task(collect(reader, f"r{n}")) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="a reader follows at most 2 streams; use another one"):
        await collect(reader, "x")
    for n, task in enumerate(following):
        await write(redis, f"r{n}", 1, done=True)
        assert await task == [f"r{n} 1"]
    await write(redis, "x", 1, done=True)
    assert await collect(reader, "x") == ["x 1"]


async def test_status(redis: Redis, reader: Reader) -> None:
    assert await reader.status("r") is None
    await write(redis, "r", 1)
    assert await reader.status("r") == "open"


class Scripted:
    """A Redis with three replies, whose first read is under way when a second reader joins."""

    def __init__(self) -> None:
        self.entries = [(b"%d-0" % n, {b"chunk": b"%d" % n}) for n in (1, 2, 3)]
        self.entries[-1][1][b"done"] = b"finished"
        self.during_first_read: asyncio.Event | None = asyncio.Event()
        self.joined = asyncio.Event()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Scripted]:
        yield self

    async def client_id(self) -> int:
        return 1

    async def client_unblock(self, id_: int) -> int:
        return 1

    async def xread(self, cursors: dict[bytes, bytes], **options: int) -> list[tuple[bytes, list[Any]]]:
        (key, cursor) = next(iter(cursors.items()))
        if self.during_first_read is not None:
            self.during_first_read.set()
            self.during_first_read = None
            await self.joined.wait()
        last = int(cursor.partition(b"-")[0])
        return [(key, self.entries[last:])]

    async def aclose(self) -> None:
        pass


async def test_who_joins_during_a_read_misses_nothing() -> None:
    """The read that is under way began where the first reader is; it does not bring all that the second one lacks."""
    redis = Scripted()
    under_way = redis.during_first_read
    assert under_way is not None
    async with Reader(cast(Redis, redis), 4) as reader:
        first = asyncio.create_task(collect(reader, "r", "2-0"))
        await under_way.wait()
        second = asyncio.create_task(collect(reader, "r"))
        await asyncio.sleep(0)
        redis.joined.set()
        assert await asyncio.wait_for(first, 5) == ["3"]
        assert await asyncio.wait_for(second, 5) == ["1", "2", "3"]


async def test_coming_back_behind_a_read_that_is_on_its_way(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who resumes from an id that the connection has read beyond gets everything after it, once and in order."""
    gate = asyncio.Event()
    gate.set()
    original = Redis.xread

    async def held(self: Redis, *args: object, **options: object) -> object:
        answer = await original(self, *args, **options)  # type: ignore[arg-type]
        await gate.wait()
        return answer

    monkeypatch.setattr(Redis, "xread", held)
    await write(real_redis, "a", *range(1, 21))
    async with Reader(real_redis, 4) as reader:
        first = reader.follow("a")
        assert [(await anext(first)).id for _ in range(5)] == ["1-0", "2-0", "3-0", "4-0", "5-0"]
        await asyncio.sleep(0.05)  # now the connection waits for what follows 20-0
        await first.aclose()
        gate.clear()
        await write(real_redis, "a", 21, done=True)
        again = asyncio.create_task(collect(reader, "a", "5-0"))
        await asyncio.sleep(0.05)
        gate.set()
        assert await again == [f"a {n}" for n in range(6, 22)]


async def test_a_request_that_is_opened_while_one_looks_for_it(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status is not there, its replies are, a moment later: that is no stream whose status has expired."""
    opened = False
    original = Redis.execute_command

    async def slow(self: Redis, *args: object, **options: object) -> object:
        nonlocal opened
        answer = await original(self, *args, **options)
        if args[0] == "GET" and not opened:
            opened = True
            await write(redis, "a", 1, 2, done=True)
        return answer

    async with Reader(redis, 4, look_after_s=0.02, block_ms=5_000) as reader:
        monkeypatch.setattr(Redis, "execute_command", slow)
        following = asyncio.create_task(collect(reader, "a"))
        await asyncio.sleep(0.1)
        if not opened:  # nothing was asked for alone
            await write(redis, "a", 1, 2, done=True)
        assert await following == ["a 1", "a 2"]


@pytest.mark.redis
async def test_a_key_that_is_no_stream_costs_its_own_reader_alone(real_redis: Redis) -> None:
    """All follow over one connection, whose reads Redis refuses as long as the key is among them."""
    redis = real_redis
    await redis.set(NAMES.reply(partition_of("bad", 4), "bad"), "x")
    await redis.set(NAMES.status(partition_of("bad", 4), "bad"), "open")
    await write(redis, "good", 1)
    async with Reader(redis, 4, unknown_after_s=0.3, look_after_s=0.05) as reader:
        bad, good = asyncio.create_task(collect(reader, "bad")), asyncio.create_task(collect(reader, "good"))
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            await bad
        await write(redis, "good", 2, done=True)
        assert await good == ["good 1", "good 2"]
