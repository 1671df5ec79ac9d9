"""A Redis that restarts, loses its tail, or cannot be reached: what it kept is not lost, what it lost is noticed."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff

from link.redis import UNREACHABLE
from link.tasks import end
from producer.publish import Producer
from producer.read import Reader
from schemas import keys
from schemas.keys import Keys
from tests.chaos.conftest import Expected, Size, report, sizes
from tests.chaos.fleet import Fleet, dead_letters
from tests.chaos.load import NAME, Load, Verdicts, recorded, renamed
from tests.chaos.proxy import Proxy
from tests.conftest import RedisServer

DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")

FOLLOWED: dict[str, Any] = {"together": 20, "rate": lambda: 700.0, "live_share": 0.3}
"""A load of a few streams at once, many of them with a reader."""


class DurableRedis(RedisServer):
    """A server with the append-only file, so that a restart loses nothing but what is cut off meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(folder, *DURABLE)

    @property
    def log(self) -> Path:
        (path,) = (self.folder / "appendonlydir").glob("*.incr.aof")
        return path

    def lose_tail(self, size: int) -> None:
        """Keep so many bytes of the log, while the server is down."""
        with self.log.open("rb+") as log:
            log.truncate(size)


@asynccontextmanager
async def durable_fleet(
    folder: Path, *, partitions: int = 8, lease_s: float = 0.6
) -> AsyncIterator[tuple[DurableRedis, Redis, Fleet]]:
    """A durable server, a patient client of it, and workers on it."""
    (folder / "redis").mkdir()
    durable = DurableRedis(folder / "redis")
    client = Redis.from_url(durable.url, retry=Retry(ConstantBackoff(0.1), 50), retry_on_error=[*UNREACHABLE])
    try:
        async with Fleet(client, durable.url, folder, partitions=partitions, lease_s=lease_s) as fleet:
            yield durable, client, fleet
    finally:
        await client.aclose()
        durable.kill()


async def in_mid_stream(load: Load, fleet: Fleet, share: float) -> int:
    """Wait until so much of a load is published; the number of open streams."""

    async def enough() -> bool:
        return load.published >= share * load.total

    await fleet.until(enough, 120, f"{share:.0%} of the load is published")
    async with fleet.redis.pipeline(transaction=False) as pipe:
        for partition in range(fleet.partitions):
            pipe.hlen(fleet.names.open(partition))
        return sum(await pipe.execute())


async def broken_up(
    load: Load, fleet: Fleet, faults: int, fault: Callable[[], Awaitable[None]]
) -> tuple[Verdicts, list[int]]:
    """Run a load and make a fault in the middle of it, `faults` times; the open streams that each of them hit."""
    running = asyncio.create_task(load.run())
    try:
        hit = []
        for turn in range(faults):
            hit.append(await in_mid_stream(load, fleet, (turn + 1) / (faults + 1)))
            await fault()
        verdicts = await running
    finally:
        await end(running)
    assert await load.left_behind() == []
    return verdicts, hit


@sizes(Size(streams=1_000, faults=2, workers=4, lease_s=2.0))
async def test_redis_is_killed_and_started_again(tmp_path: Path, undisturbed_replies: Expected, size: Size) -> None:
    """With the append-only file synced always, a restart loses nothing: all ends wait and go on."""
    async with durable_fleet(tmp_path, lease_s=size.lease_s) as (durable, redis, fleet):
        await fleet.start(size.workers)
        await fleet.settled()

        async def restart() -> None:
            durable.kill()
            await asyncio.sleep(0.5)
            durable.start()

        async with (
            await Producer.connect(durable.url, max_backlog=2_000) as producer,
            await Reader.connect(durable.url) as reader,
        ):
            load = size.load(
                redis,
                producer,
                undisturbed_replies,
                together=min(200, size.streams // 2),
                reader=reader,
                live_share=min(0.2, 100 / size.streams),
                rate=lambda: 800.0 if size.streams < 100 else 4_000.0,
            )
            begin = time.monotonic()
            verdicts, hit = await broken_up(load, fleet, size.faults, restart)
            took_s = time.monotonic() - begin
        assert await dead_letters(redis, fleet.partitions) == []
        noticed = [worker.log.count("jobs: Redis is away") for worker in fleet.workers]
        lines = [len(worker.log.splitlines()) for worker in fleet.workers]
        fleet.assert_clean_logs()
    report(
        "redis restarted", streams=size.streams, entries=load.total, restarts=size.faults, open_streams_hit=hit,
        took_s=round(took_s, 1), right=verdicts.right, lost=verdicts.lost, doubled=verdicts.doubled,
        errors=sum(verdicts.errors.values()), followed=verdicts.readers, resumed=verdicts.resumptions,
    )  # fmt: skip
    assert all(hit), "streams were open at each restart"
    # At most once each time; a worker that still waits when Redis goes away again says nothing anew.
    assert all(0 < count <= size.faults for count in noticed)
    # One line for each partition and change of state, none for each attempt to connect.
    assert max(lines) <= 10 + 8 * fleet.partitions * size.faults
    verdicts.assert_right(size.streams)


async def test_redis_is_put_back_to_before_the_last_replies(tmp_path: Path, undisturbed_replies: Expected) -> None:
    """Entries are kept, the last replies are not: they are made again, byte for byte, also for a reader ahead."""
    base = recorded()[1]
    expected = undisturbed_replies[base.name]
    names = Keys()
    async with durable_fleet(tmp_path, partitions=1) as (durable, redis, fleet):
        (worker,) = await fleet.start()
        await fleet.settled()
        worker.signal(signal.SIGSTOP)
        async with await Producer.connect(durable.url) as producer:
            stream = await producer.open("back", base.context)
            for chunk in base.chunks:
                await stream.chunk(chunk, wait=False)
            await stream.done()
        size = durable.log.stat().st_size  # all entries, no reply
        worker.signal(signal.SIGCONT)
        async with await Reader.connect(durable.url) as reader:
            before = [reply.id async for reply in reader.follow("back")]
            assert before == [id_ for id_, _ in expected]
            durable.kill()
            assert durable.log.stat().st_size > size
            durable.lose_tail(size)
            worker.signal(signal.SIGSTOP)
            durable.start()
            assert await redis.exists(names.reply(0, "back")) == 0
            worker.signal(signal.SIGCONT)
            again = [reply.id async for reply in reader.follow("back", after="10-0")]
            assert again == before[10:]
        replies = await redis.xrange(names.reply(0, "back"))
        assert [(id_.decode(), renamed(fields, "back")) for id_, fields in replies] == expected
        assert "Redis is away" in worker.log
        fleet.assert_clean_logs()


async def test_redis_loses_entries_of_a_numbered_request(tmp_path: Path, undisturbed_replies: Expected) -> None:
    """The producer goes on after Redis lost its tail: the gap becomes an error reply, not text with a hole.

    Another producer, which sends again from the start, gets everything: what was kept is dropped as seen.
    """
    base = recorded()[1]
    expected = undisturbed_replies[base.name]
    names = Keys()
    async with durable_fleet(tmp_path, partitions=1) as (durable, redis, fleet):
        await fleet.start()
        await fleet.settled()
        async with await Producer.connect(durable.url) as producer:
            streams = [await producer.open(name, base.context) for name in ("goes-on", "sends-again")]
            for chunk in base.chunks[:10]:
                for stream in streams:
                    await stream.chunk(chunk)

            async def answered() -> bool:
                return await redis.xlen(names.reply(0, "sends-again")) >= 10

            await fleet.until(answered, 10, "ten replies")
            size = durable.log.stat().st_size
            for chunk in base.chunks[10:20]:
                for stream in streams:
                    await stream.chunk(chunk)
            durable.kill()
            durable.lose_tail(size)
            durable.start()
            await streams[0].chunk(base.chunks[20])
            again = await producer.open("sends-again", base.context)
            for chunk in base.chunks:
                await again.chunk(chunk, wait=False)
            await again.done()
        async with await Reader.connect(durable.url) as reader:
            gap = [reply async for reply in reader.follow("goes-on")]
            async for _ in reader.follow("sends-again"):
                pass
        assert gap[-1].done == keys.STATUS_FAILED
        error = json.loads(gap[-1].error or b"{}")["error"]
        assert error["message"] == "entries of the request were lost: 21 follows 10"
        kept = [(reply.id, reply.chunk) for reply in gap[:-1]]
        assert len(kept) == 10
        name = f'"{NAME}"'.encode()
        assert kept == [(id_, fields[keys.CHUNK].replace(name, b'"goes-on"')) for id_, fields in expected[: len(kept)]]
        replies = await redis.xrange(names.reply(0, "sends-again"))
        assert [(id_.decode(), renamed(fields, "sends-again")) for id_, fields in replies] == expected


@sizes(Size(streams=300, faults=4, workers=2, lease_s=2.0), Size(streams=40, faults=1, workers=2, lease_s=0.6))
async def test_redis_refuses_all_connections_for_seconds(
    real_redis: Redis, redis_server: RedisServer, tmp_path: Path, undisturbed_replies: Expected, size: Size
) -> None:
    """Worker, producer and reader are cut off (connections reset, new ones refused), wait, and go on."""
    async with (
        Proxy(redis_server.port) as proxy,
        Fleet(real_redis, proxy.url, tmp_path, lease_s=size.lease_s) as fleet,
    ):
        await fleet.start(size.workers)
        await fleet.settled()

        async def refuse() -> None:
            await proxy.refuse()
            await asyncio.sleep(2.0)
            await proxy.accept()

        async with await Producer.connect(proxy.url) as producer, await Reader.connect(proxy.url) as reader:
            load = size.load(real_redis, producer, undisturbed_replies, reader=reader, **FOLLOWED)
            verdicts, hit = await broken_up(load, fleet, size.faults, refuse)
        noticed = [worker.log.count("jobs: Redis is away") for worker in fleet.workers]
        fleet.assert_clean_logs()
    assert all(hit)
    assert noticed == [size.faults] * size.workers
    verdicts.assert_right(size.streams)
    assert verdicts.readers > 0
    assert await dead_letters(real_redis, fleet.partitions) == []


@sizes(Size(streams=300, faults=3, workers=2, lease_s=2.0), Size(streams=40, faults=1, workers=2, lease_s=0.6))
async def test_packets_of_all_are_dropped_for_seconds(
    real_redis: Redis, redis_server: RedisServer, tmp_path: Path, undisturbed_replies: Expected, size: Size
) -> None:
    """Silence without a reset is noticed by the socket time-out; what was on its way arrives late and does no harm."""
    async with Proxy(redis_server.port) as proxy:
        url = proxy.url + "?socket_timeout=1"
        async with Fleet(real_redis, url, tmp_path, lease_s=size.lease_s) as fleet:
            await fleet.start(size.workers)
            await fleet.settled()

            async def silence() -> None:
                proxy.silence()
                await asyncio.sleep(2.5)
                proxy.heal()

            async with await Producer.connect(url) as producer, await Reader.connect(url, block_ms=500) as reader:
                load = size.load(real_redis, producer, undisturbed_replies, reader=reader, **FOLLOWED)
                verdicts, hit = await broken_up(load, fleet, size.faults, silence)
            noticed = [worker.log.count("Redis is away (TimeoutError)") for worker in fleet.workers]
            fleet.assert_clean_logs()
    assert all(hit)
    assert proxy.held > 0
    assert min(noticed) >= size.faults
    verdicts.assert_right(size.streams)
    assert await dead_letters(real_redis, fleet.partitions) == []


async def test_one_worker_is_cut_off_silently(
    real_redis: Redis, redis_server: RedisServer, tmp_path: Path, undisturbed_replies: Expected
) -> None:
    """Others take over after the lease; what the lost worker had sent arrives late and changes nothing."""
    size = Size(streams=60, faults=1, workers=2, lease_s=0.6)
    async with (
        Proxy(redis_server.port) as proxy,
        Fleet(real_redis, redis_server.url, tmp_path, lease_s=size.lease_s) as fleet,
    ):
        (lost,) = await fleet.start(url=proxy.url + "?socket_timeout=1.5")
        await fleet.start()
        await fleet.settled()
        async with await Producer.connect(fleet.url) as producer:
            load = size.load(
                real_redis,
                producer,
                undisturbed_replies,
                together=30,
                rate=lambda: 500.0,
            )
            struck: list[tuple[list[int], int]] = []

            async def taken_over() -> bool:
                return lost.token not in await fleet.owners()

            async def cut_off() -> None:
                struck.append(await fleet.busy_partitions(lost))
                proxy.silence()
                await fleet.until(taken_over, 10, "the other worker has all partitions")
                await asyncio.sleep(0.5)
                proxy.heal()

            verdicts, _ = await broken_up(load, fleet, size.faults, cut_off)
            await fleet.settled()
        fleet.assert_clean_logs()
    ((partitions, open_streams),) = struck
    assert partitions
    assert open_streams
    verdicts.assert_right(size.streams)
    assert await dead_letters(real_redis, fleet.partitions) == []


def test_what_counts_as_away() -> None:
    """Both sides of the proxy's faults are among the errors that are waited for."""
    assert all(issubclass(error, UNREACHABLE) for error in (ConnectionResetError, ConnectionRefusedError, TimeoutError))
