"""Hours in small: ten minutes at half of capacity, after which nothing has grown."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import mean

import pytest
from redis.asyncio import Redis

from producer.publish import Producer
from tests.chaos.conftest import Expected, Size, report
from tests.chaos.fleet import Fleet, dead_letters
from tests.chaos.load import Load, fifty

SOAK_S = 600
WARM_S = 15
SAMPLE_S = 2.0
REPLY_TTL_S, STATUS_TTL_S = 20, 30
PAGE = 4096


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


@pytest.mark.redis
@pytest.mark.chaos
@pytest.mark.timeout(SOAK_S + 300)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
async def test_memory_stays_flat(
    real_redis: Redis, server_url: str, tmp_path: Path, undisturbed_replies: Expected
) -> None:
    """Resident memory of the worker and used_memory of Redis: last third against middle third, within 5 %."""
    size = Size(streams=0, faults=0, workers=1, lease_s=2.0, bases=fifty)
    options = ("--reply-ttl-s", str(REPLY_TTL_S), "--status-ttl-s", str(STATUS_TTL_S))
    async with Fleet(real_redis, server_url, tmp_path, *options, lease_s=size.lease_s) as fleet:
        (worker,) = await fleet.start(size.workers)
        await fleet.settled()
        async with await Producer.connect(server_url, max_backlog=1_000) as producer:

            async def load(streams: int, rate: float | None, prefix: str) -> Load:
                run = Load(
                    real_redis, producer, size.bases(), undisturbed_replies, streams,
                    random=size.random, together=100, rate=lambda: rate, prefix=prefix, keep=True,
                )  # fmt: skip
                await run.run()
                return run

            begin = time.monotonic()
            warm = await load(60, None, "warm")
            per_s = warm.total / (time.monotonic() - begin)
            begin = time.monotonic()
            warm = await load(int(per_s * WARM_S / 52), None, "full")
            capacity = warm.total / (time.monotonic() - begin)
            running = asyncio.create_task(load(int(capacity / 2 * SOAK_S / 52), capacity / 2, "soak"))
            samples: list[tuple[float, int, int]] = []
            begin = time.monotonic()
            while not running.done():
                memory = (await real_redis.info("memory"))["used_memory"]
                samples.append((time.monotonic() - begin, resident(worker.process.pid), memory))
                await asyncio.wait([running], timeout=SAMPLE_S)
            took_s = time.monotonic() - begin
            soak = running.result()
        fleet.assert_clean_logs()
    thirds = [[row for row in samples if k <= 3 * row[0] / took_s < k + 1] for k in range(3)]
    worker_mib = [mean(row[1] for row in third) / 2**20 for third in thirds]
    redis_mib = [mean(row[2] for row in third) / 2**20 for third in thirds]
    report(
        "soak", took_s=round(took_s), streams=soak.streams, entries=soak.total, capacity_per_s=round(capacity),
        rate_per_s=round(soak.total / took_s), worker_mib=[round(v, 2) for v in worker_mib],
        redis_mib=[round(v, 2) for v in redis_mib], right=soak.verdicts.right,
    )  # fmt: skip
    soak.verdicts.assert_right(soak.streams)
    assert took_s > 0.9 * SOAK_S
    assert worker_mib[2] <= 1.05 * worker_mib[1]
    assert redis_mib[2] <= 1.05 * redis_mib[1]
    assert await dead_letters(real_redis, fleet.partitions) == []
