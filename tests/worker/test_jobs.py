"""arq's traps, one by one: what it would do by itself is not what happens here."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from arq.constants import in_progress_key_prefix, job_key_prefix, result_key_prefix, retry_key_prefix
from arq.jobs import serialize_job
from redis.asyncio import Redis

from schemas.keys import Keys
from worker.jobs import FUNCTION, PartitionJobs, pack, unpack
from worker.streams import Members

NAMES = Keys()
QUEUE = NAMES.jobs
JOB = "derender:drain:0"


class Drains:
    """Stands in for the drain: counts starts, runs until told to leave or to fail."""

    def __init__(self) -> None:
        self.started = Counter[int]()
        self.running = Counter[int]()
        self.end: Callable[[int], bool | BaseException | None] = lambda _: None
        self.jobs: PartitionJobs | None = None

    async def __call__(self, partition: int) -> bool:
        self.started[partition] += 1
        self.running[partition] += 1
        try:
            while True:
                end = self.end(partition)
                if isinstance(end, BaseException):
                    raise end
                if end is not None:
                    return end
                if self.jobs is not None and not self.jobs.mine(partition):
                    return True
                await asyncio.sleep(0.01)
        finally:
            self.running[partition] -= 1


@asynccontextmanager
async def jobs(
    redis: Redis, drains: Drains, *, partitions: int = 1, token: str = "t", lease_s: float = 0.6, exclusive: bool = True
) -> AsyncIterator[PartitionJobs]:
    members = Members(redis, NAMES, token, lease_ms=int(lease_s * 1000))
    worker = PartitionJobs(redis, drains, members, partitions, queue=QUEUE, lease_s=lease_s, exclusive=exclusive)
    worker.poll_delay_s = 0.03
    drains.jobs = worker
    main = asyncio.create_task(worker.async_run())
    try:
        yield worker
    finally:
        await worker.stop()
        with suppress(asyncio.CancelledError):
            await main
        await worker.abandon()


async def until(true: Callable[[], bool | Awaitable[bool]], seconds: float = 8.0) -> None:
    """Wait for something to happen; a failure, not a hang, when it does not."""
    for _ in range(int(seconds / 0.02)):
        found = true()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


async def test_every_partition_runs_once(redis: Redis) -> None:
    """Also on a Redis without INFO, which arq asks for at its start."""
    drains = Drains()
    async with jobs(redis, drains, partitions=5):
        await until(lambda: sum(drains.running.values()) == 5)
        await asyncio.sleep(0.5)
        assert drains.started == Counter(range(5))


async def test_job_bodies_are_msgpack(redis: Redis) -> None:
    """Not pickle: whoever can write to Redis could execute code with it."""
    drains = Drains()
    async with jobs(redis, drains):
        await until(lambda: drains.running[0] == 1)
        body = await redis.get(job_key_prefix + JOB)
    value = unpack(body)
    assert (value["f"], value["a"], value["k"]) == (FUNCTION, [0], {})
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(body)


async def test_a_pickled_job_is_not_unpickled(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body from elsewhere fails without being read as pickle, and the partition comes back with one of ours."""
    foreign = serialize_job(FUNCTION, (0,), {}, None, 0)
    monkeypatch.setattr(pickle, "loads", lambda *_: pytest.fail("something was unpickled"))
    await redis.set(job_key_prefix + JOB, foreign)
    await redis.zadd(QUEUE, {JOB: 1})
    drains = Drains()
    async with jobs(redis, drains):
        await until(lambda: drains.running[0] == 1)


def test_results_name_exceptions_only() -> None:
    """An exception's message may quote what a model said."""
    assert unpack(pack({"r": ValueError("secret"), "s": False})) == {"r": "ValueError", "s": False}


async def test_a_failed_job_leaves_no_result_and_comes_back(redis: Redis) -> None:
    """arq keeps the result of a failure for an hour by the worker's setting, and refuses the id so long."""
    drains = Drains()
    drains.end = lambda _: ValueError("broken") if drains.started[0] < 3 else None
    async with jobs(redis, drains):
        await until(lambda: drains.started[0] == 3 and drains.running[0] == 1)
        assert await redis.exists(result_key_prefix + JOB) == 0


async def test_tries_have_no_end(redis: Redis) -> None:
    """Leaving a partition counts as a try for arq, whose default gives up after five."""
    drains = Drains()
    await redis.set(retry_key_prefix + JOB, 1000)
    drains.end = lambda _: True if drains.started[0] < 8 else None
    async with jobs(redis, drains):
        await until(lambda: drains.started[0] == 8 and drains.running[0] == 1)


async def test_cancellation_is_no_end(redis: Redis) -> None:
    drains = Drains()
    drains.end = lambda _: asyncio.CancelledError() if drains.started[0] < 7 else None
    async with jobs(redis, drains):
        await until(lambda: drains.started[0] == 7 and drains.running[0] == 1)


async def test_a_job_whose_body_vanished_comes_back(redis: Redis) -> None:
    """Bodies expire after a day by default; then arq calls the job failed."""
    await redis.zadd(QUEUE, {JOB: 1})
    drains = Drains()
    async with jobs(redis, drains):
        await until(lambda: drains.running[0] == 1)


async def test_a_body_without_a_place_in_the_queue_comes_back(redis: Redis) -> None:
    """arq refuses to queue an id whose body exists, so this partition would sleep for a day."""
    await redis.set(job_key_prefix + JOB, pack({"f": FUNCTION, "a": [0], "k": {}, "t": None, "et": 0}))
    drains = Drains()
    async with jobs(redis, drains):
        await until(lambda: drains.running[0] == 1)


async def test_everything_of_arq_flushed_while_running(redis: Redis) -> None:
    """The next start finds no queue, no body, no in-progress key: and runs again, once at a time."""
    drains = Drains()
    async with jobs(redis, drains):
        await until(lambda: drains.running[0] == 1)
        await redis.flushall()
        await asyncio.sleep(0.5)
        assert drains.started[0] == 1, "it still runs here"
        drains.end = lambda _: True if drains.started[0] < 2 else None
        await until(lambda: drains.started[0] == 2 and drains.running[0] == 1)


async def test_work_that_ends_just_now_is_not_stranded(redis: Redis) -> None:
    """`enqueue_job` returns None while the job of the same id is finishing; the watch asks again."""
    drains = Drains()
    ended = 0

    def end(_: int) -> bool | None:
        nonlocal ended
        if ended < 8:
            ended += 1
            return True
        return None

    drains.end = end
    async with jobs(redis, drains) as worker:
        for _ in range(50):
            await worker.ensure(0)
            await asyncio.sleep(0.005)
        await until(lambda: ended == 8 and drains.running[0] == 1)


async def test_the_same_job_never_runs_twice_here(redis: Redis) -> None:
    """arq would start it when the in-progress key is gone, and end it in a KeyError that looks like success."""
    drains = Drains()
    async with jobs(redis, drains) as worker:
        await until(lambda: drains.running[0] == 1)
        for _ in range(5):
            await redis.delete(in_progress_key_prefix + JOB)
            await worker.start_jobs([JOB.encode()])
        assert (drains.started[0], worker.jobs_failed) == (1, 0)


async def test_the_in_progress_key_is_as_short_as_the_lease(redis: Redis) -> None:
    """arq holds it for the longest job time-out, and so would a dead worker's partitions be held."""
    drains = Drains()
    key = in_progress_key_prefix + JOB

    async def left_ms() -> int:
        return int(await redis.pttl(key))

    async with jobs(redis, drains, lease_s=3.0):
        await until(lambda: drains.running[0] == 1)
        assert 0 < await left_ms() <= 3000
        await redis.pexpire(key, 2000)

        async def renewed() -> bool:
            return await left_ms() > 2000

        await until(renewed)
        assert await left_ms() <= 3000


async def test_a_dead_workers_partition_is_taken_over(redis: Redis) -> None:
    """It leaves its keys behind: job, queue place, in-progress key, membership. They expire with the lease."""
    dead = Members(redis, NAMES, "dead", lease_ms=600)
    await dead.beat()
    await redis.set(job_key_prefix + JOB, pack({"f": FUNCTION, "a": [0], "k": {}, "t": None, "et": 0}))
    await redis.zadd(QUEUE, {JOB: 1})
    await redis.set(in_progress_key_prefix + JOB, 1, px=600)
    drains = Drains()
    async with jobs(redis, drains):
        await until(lambda: drains.running[0] == 1)


async def test_partitions_are_shared_fairly(redis: Redis) -> None:
    """A second worker gets its half, and gives it back when it leaves."""
    first, second = Drains(), Drains()
    async with jobs(redis, first, partitions=6, token="a"):
        await until(lambda: sum(first.running.values()) == 6)
        async with jobs(redis, second, partitions=6, token="b"):
            await until(lambda: [sum(d.running.values()) for d in (first, second)] == [3, 3])
            assert {p for p, n in first.running.items() if n} == {0, 2, 4}
        await until(lambda: sum(first.running.values()) == 6)


async def test_without_exclusion_everyone_runs_everything(redis: Redis) -> None:
    first, second = Drains(), Drains()
    async with (
        jobs(redis, first, partitions=2, token="a", exclusive=False),
        jobs(redis, second, partitions=2, token="b", exclusive=False),
    ):
        await until(lambda: [sum(d.running.values()) for d in (first, second)] == [2, 2])


@pytest.mark.redis
async def test_a_full_redis_is_drained_without_arq(real_redis: Redis) -> None:
    """arq cannot write its in-progress key, but only draining frees memory; with memory again, one drain each."""
    await real_redis.config_set("maxmemory-policy", "noeviction")
    await real_redis.config_set("maxmemory", "1")
    drains = Drains()
    try:
        async with jobs(real_redis, drains, partitions=2):
            await until(lambda: sum(drains.running.values()) == 2)
            await real_redis.config_set("maxmemory", "0")
            await asyncio.sleep(0.8)
            assert drains.started == Counter([0, 1])
    finally:
        await real_redis.config_set("maxmemory", "0")


@pytest.mark.redis
async def test_what_ends_a_drain_without_arq_is_said_and_the_partition_begun_again(
    real_redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """By its name alone: a message may quote what a model said."""
    await real_redis.config_set("maxmemory-policy", "noeviction")
    await real_redis.config_set("maxmemory", "1")
    drains = Drains()
    drains.end = lambda _: [None, ValueError("secret"), ConnectionError("away"), None][min(3, drains.started[0])]
    try:
        async with jobs(real_redis, drains):
            await until(lambda: drains.started[0] == 3 and drains.running[0] == 1)
    finally:
        await real_redis.config_set("maxmemory", "0")
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("partition")]
    assert said == ["partition 0: ValueError", "partition 0: Redis is away (ConnectionError)"]


async def test_stopping_leaves_the_job_in_the_queue(redis: Redis) -> None:
    """Whoever comes next starts it at once: no in-progress key stays, and we are no member any more."""
    drains = Drains()
    async with jobs(redis, drains):
        await until(lambda: drains.running[0] == 1)
    assert await redis.zscore(QUEUE, JOB) is not None
    assert await redis.exists(in_progress_key_prefix + JOB) == 0
    assert await redis.zcard(NAMES.workers) == 0
