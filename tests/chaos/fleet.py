"""Worker processes that can be killed, stopped and replaced, and what Redis says of who owns what."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from redis.asyncio import Redis

from schemas.keys import Keys
from tests.conftest import DATA
from tests.shared_data import ROOT

START_S = 20.0
POLL_S = 0.02


@dataclass
class WorkerProcess:
    """A `derender worker`. token: the value of its owner keys."""

    process: subprocess.Popen[bytes]
    log_path: Path
    token: str = ""

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    @property
    def moved(self) -> int:
        return self.log.count("cursor was moved by another worker")


@dataclass
class Hit:
    """One fault: whom it hit, and how long until others had committed in each partition with open streams."""

    partitions: list[int]
    open_requests: int
    takeover_s: list[float] = field(default_factory=list)


class Fleet:
    """Workers on one Redis. Use as `async with`; the exit ends every process that was started here."""

    def __init__(self, redis: Redis, url: str, folder: Path, *options: str, partitions: int = 8, lease_s: float = 2.0):
        self.redis = redis
        self.url = url
        self.folder = folder
        self.partitions = partitions
        self.lease_s = lease_s
        self.names = Keys()
        self.options = options
        self.program: tuple[str, ...] = ("-m", "derender", "worker")
        self.workers: list[WorkerProcess] = []
        self.ended: list[WorkerProcess] = []

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.signal(signal.SIGCONT)
                worker.signal(signal.SIGTERM)
        for worker in self.workers:
            try:
                await asyncio.to_thread(worker.process.wait, 10)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    async def start(self, count: int = 1, *, url: str | None = None) -> list[WorkerProcess]:
        """Start workers and wait until they are members."""
        return list(await asyncio.gather(*(self._start(url or self.url) for _ in range(count))))

    async def _start(self, url: str) -> WorkerProcess:
        number = len(self.workers) + len(self.ended)
        path = self.folder / f"worker-{number}.log"
        command = [
            sys.executable, *self.program, "--redis-url", url, "--tokenizer", str(DATA / "smollm2"),
            "--served-model-name", "smollm2-135m-instruct", "--partitions", str(self.partitions),
            "--lease-s", str(self.lease_s), *self.options,
        ]  # fmt: skip
        with path.open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220  returns at once
                command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
            )
        worker = WorkerProcess(process, path)
        self.workers.append(worker)
        until = time.monotonic() + START_S
        while not worker.token:
            if time.monotonic() > until or process.poll() is not None:
                raise AssertionError(f"worker did not start: {worker.log}")
            await asyncio.sleep(POLL_S)
            if found := re.search(r"worker (\S+): \d+ partitions", worker.log):
                tokens = [raw.decode() for raw in await self.redis.zrange(self.names.workers, 0, -1)]
                worker.token = next((token for token in tokens if token.startswith(found[1])), "")
        return worker

    async def gone(self, worker: WorkerProcess) -> int:
        """Wait for the end of a worker that was told to end, or killed; its exit code."""
        code = await asyncio.to_thread(worker.process.wait, 10)
        self.workers.remove(worker)
        self.ended.append(worker)
        return code

    async def owners(self) -> list[str]:
        """Owner token of each partition; "" where there is none."""
        raw = await self.redis.mget([self.names.owner(p) for p in range(self.partitions)])
        return [value.decode() if value else "" for value in raw]

    async def settled(self, *, timeout_s: float = 20.0, all_workers: bool = True) -> None:
        """Wait until every partition is owned by a worker that lives here. all_workers: and each of them owns one."""

        async def is_settled() -> bool:
            owners, living = set(await self.owners()), {worker.token for worker in self.workers}
            return owners == living if all_workers else owners <= living

        await self.until(is_settled, timeout_s, "each partition has a living owner and each worker a partition")

    async def until(self, condition, timeout_s: float, what: str) -> None:  # type: ignore[no-untyped-def]
        end = time.monotonic() + timeout_s
        while not await condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited {timeout_s} s in vain until {what}")
            await asyncio.sleep(POLL_S)

    async def busy_partitions(self, worker: WorkerProcess) -> tuple[list[int], int]:
        """Partitions that the worker owns and that have open streams, and how many streams."""
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.mget([self.names.owner(p) for p in range(self.partitions)])
            for partition in range(self.partitions):
                pipe.hlen(self.names.open(partition))
            owners, *counts = await pipe.execute()
        mine = [p for p in range(self.partitions) if owners[p] == worker.token.encode() and counts[p]]
        return mine, sum(counts[p] for p in mine)

    async def _positions(self, partitions: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
        """Owner token and committed cursor of partitions."""
        async with self.redis.pipeline(transaction=False) as pipe:
            for partition in partitions:
                pipe.get(self.names.owner(partition))
                pipe.xinfo_groups(self.names.chunks(partition))
            answers = await pipe.execute()
        return {
            partition: (answers[2 * i] or b"", answers[2 * i + 1][0]["last-delivered-id"])
            for i, partition in enumerate(partitions)
        }

    async def strike(
        self, random: Random, number: signal.Signals, *, timeout_s: float = 30.0
    ) -> tuple[Hit, WorkerProcess]:
        """Send a signal to a worker that owns open streams, at a random moment; wait until others have taken over.

        A stopped worker is still stopped when this returns. Needs entries that keep coming.
        """
        end = time.monotonic() + timeout_s
        while True:
            worker = random.choice(self.workers)
            await asyncio.sleep(random.uniform(0, 0.15))
            partitions, _ = await self.busy_partitions(worker)
            if partitions:
                worker.signal(number)
                begin = time.monotonic()
                # It cannot have let go by itself: that the key is still its own proves that it was hit as owner.
                partitions, open_requests = await self.busy_partitions(worker)
                if partitions:
                    break
                if number == signal.SIGKILL:
                    raise AssertionError("killed a worker that had just let go of its partitions")
                worker.signal(signal.SIGCONT)
            assert time.monotonic() < end, "no worker owns an open stream"
        if number == signal.SIGKILL:
            await self.gone(worker)
        hit = Hit(partitions, open_requests)
        at = await self._positions(partitions)
        left = set(partitions)
        while left:
            await asyncio.sleep(POLL_S)
            now = await self._positions(sorted(left))
            for partition, (owner, cursor) in now.items():
                if owner not in (b"", worker.token.encode()) and cursor != at[partition][1]:
                    hit.takeover_s.append(time.monotonic() - begin)
                    left.discard(partition)
            if time.monotonic() > begin + timeout_s:
                raise AssertionError(f"partitions {sorted(left)} were not taken over in {timeout_s} s")
        return hit, worker

    def assert_clean_logs(self) -> None:
        for worker in [*self.workers, *self.ended]:
            assert "Traceback" not in worker.log, worker.log
            assert "ERROR" not in worker.log, worker.log


async def dead_letters(redis: Redis, partitions: int) -> list[dict[bytes, bytes]]:
    names = Keys()
    return [fields for p in range(partitions) for _, fields in await redis.xrange(names.dead(p))]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
