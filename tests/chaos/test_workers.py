"""Workers that die, hang, come and go: replies stay as they would have been."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.publish import Producer
from producer.read import Reader
from tests.chaos.conftest import Expected, Size, report, sizes
from tests.chaos.fleet import Fleet, Hit, dead_letters, percentile
from tests.chaos.load import Load


class Schedule:
    """Spreads the entries of a load over the faults that are to come, however long one takes."""

    def __init__(self, faults: int) -> None:
        self.left = faults
        self.mean_s = 3.0
        self.began = time.monotonic()  # the fault that is under way
        self.load: Load | None = None

    def rate(self) -> float | None:
        if self.left <= 0 or self.load is None:
            return None
        each_s = max(self.mean_s, 2 * (time.monotonic() - self.began))
        return max(10.0, (self.load.total - self.load.published) / ((self.left + 1) * each_s))

    def done(self) -> None:
        now = time.monotonic()
        self.left -= 1
        self.mean_s = 0.8 * self.mean_s + 0.2 * (now - self.began)
        self.began = now


async def run_with_strikes(
    redis: Redis, fleet: Fleet, expected: Expected, size: Size, number: signal.Signals
) -> tuple[list[Hit], Load]:
    """A load, and meanwhile `size.faults` signals to owners of open streams, each healed before the next."""
    random, schedule, hits = size.random, Schedule(size.faults), []
    async with (
        await Producer.connect(fleet.url, max_backlog=2_000) as producer,
        await Reader.connect(fleet.url) as reader,
    ):
        load = schedule.load = size.load(
            redis,
            producer,
            expected,
            random=random,
            together=min(200, size.streams // 2),
            rate=schedule.rate,
            reader=reader,
            live_share=min(0.2, 100 / size.streams),
        )
        running = asyncio.create_task(load.run())
        try:
            for _ in range(size.faults):
                hit, victim = await fleet.strike(random, number)
                hits.append(hit)
                if number == signal.SIGKILL:
                    await fleet.start()
                else:
                    victim.signal(signal.SIGCONT)
                    await fleet.settled()
                schedule.done()
                assert not running.done(), "the load was over before the faults were"
            schedule.left = 0
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert await load.left_behind() == []
        assert await dead_letters(redis, fleet.partitions) == []
        return hits, load


@sizes()
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_workers_are_hit_in_mid_stream(
    real_redis: Redis, server_url: str, tmp_path: Path, undisturbed_replies: Expected, size: Size, fault: signal.Signals
) -> None:
    """kill -9, or SIGSTOP until others have gone on: no reply is lost, doubled or out of order."""
    async with Fleet(real_redis, server_url, tmp_path, lease_s=size.lease_s) as fleet:
        await fleet.start(size.workers)
        await fleet.settled()
        begin = time.monotonic()
        hits, load = await run_with_strikes(real_redis, fleet, undisturbed_replies, size, fault)
        took_s = time.monotonic() - begin
        fleet.assert_clean_logs()
        moved = sum(worker.moved for worker in [*fleet.workers, *fleet.ended])
    takeovers = [value for hit in hits for value in hit.takeover_s]
    verdicts = load.verdicts
    report(
        f"workers {fault.name}", streams=size.streams, entries=load.total, faults=len(hits), took_s=round(took_s, 1),
        open_streams_hit=sum(hit.open_requests for hit in hits), partitions_hit=len(takeovers),
        takeover_p50_s=round(percentile(takeovers, 0.5), 2), takeover_p99_s=round(percentile(takeovers, 0.99), 2),
        moved=moved, right=verdicts.right, lost=verdicts.lost, doubled=verdicts.doubled,
        disordered=verdicts.disordered, different=verdicts.different, errors=sum(verdicts.errors.values()),
        followed=verdicts.readers, resumed=verdicts.resumptions,
    )  # fmt: skip
    verdicts.assert_right(size.streams)
    assert len(hits) == size.faults
    assert verdicts.readers > 0
    assert verdicts.resumptions > 0
    if size.faults >= 100:
        assert percentile(takeovers, 0.99) <= size.lease_s + 2


LONG_MOVES = Size(streams=1_000, faults=8, workers=2, lease_s=2.0)


@sizes(LONG_MOVES)
async def test_partitions_move_while_streams_run(
    real_redis: Redis, server_url: str, tmp_path: Path, undisturbed_replies: Expected, size: Size
) -> None:
    """Workers join and leave in good order; partitions with open streams change hands."""
    random, schedule = size.random, Schedule(size.faults)
    async with Fleet(real_redis, server_url, tmp_path, lease_s=size.lease_s) as fleet:
        await fleet.start(size.workers)
        await fleet.settled()
        async with await Producer.connect(server_url, max_backlog=2_000) as producer:
            load = schedule.load = size.load(
                real_redis,
                producer,
                undisturbed_replies,
                random=random,
                together=40,
                rate=schedule.rate,
            )
            running = asyncio.create_task(load.run())
            moved = 0
            for turn in range(size.faults):
                await asyncio.sleep(random.uniform(0, 0.3))
                before = await fleet.owners()
                busy = [p for worker in fleet.workers for p in (await fleet.busy_partitions(worker))[0]]
                if turn % 2 == 0:
                    await fleet.start()
                else:
                    leaver = random.choice(fleet.workers)
                    leaver.signal(signal.SIGTERM)
                    assert await fleet.gone(leaver) == 0
                await fleet.settled()
                after = await fleet.owners()
                moved += sum(before[p] != after[p] for p in busy)
                schedule.done()
            schedule.left = 0
            verdicts = await running
            assert await load.left_behind() == []
        fleet.assert_clean_logs()
    report("partitions move", streams=size.streams, changes=size.faults, busy_partitions_moved=moved)
    assert moved > 0
    verdicts.assert_right(size.streams)
    assert await dead_letters(real_redis, fleet.partitions) == []


@sizes(Size(streams=2_000, faults=0, workers=2, lease_s=2.0))
async def test_two_workers_on_each_partition_without_owner_keys(
    real_redis: Redis, server_url: str, tmp_path: Path, undisturbed_replies: Expected, size: Size
) -> None:
    """Nothing depends on who owns what: the publish script alone keeps replies right, and answers MOVED."""
    async with Fleet(real_redis, server_url, tmp_path, "--no-owner-keys", lease_s=size.lease_s) as fleet:
        await fleet.start(size.workers)
        async with await Producer.connect(server_url, max_backlog=2_000) as producer:
            load = size.load(real_redis, producer, undisturbed_replies, together=60)
            verdicts = await load.run()
            assert await load.left_behind() == []
        moved = [worker.moved for worker in fleet.workers]
        assert await fleet.owners() == [""] * fleet.partitions
        fleet.assert_clean_logs()
    report("no owner keys", streams=size.streams, moved=moved)
    assert all(moved), "each worker was outrun at least once"
    verdicts.assert_right(size.streams)
    assert await dead_letters(real_redis, fleet.partitions) == []
