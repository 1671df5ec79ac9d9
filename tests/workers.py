"""Workers as processes of their own, with the demo's requests as their work; `tests/chaos` has those that are hit."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis.asyncio import Redis

from producer.publish import Producer
from producer.replay import Event, read_recording, replay, request_ids
from schemas import keys
from schemas.keys import Keys, partition_of
from tests.conftest import DATA
from tests.shared_data import ROOT

PARTITIONS = 8


def recording() -> list[Event]:
    """The demo's requests."""
    return read_recording(DATA / "demo.jsonl")


@contextmanager
def worker_processes(number: int, url: str, folder: Path, **env: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Workers on a Redis, killed at the end. Their logs are `folder/worker-<n>.log`."""
    settings = {
        "DERENDER_REDIS_URL": url,
        "DERENDER_TOKENIZER": str(DATA / "smollm2"),
        "DERENDER_SERVED_MODEL_NAME": "smollm2-135m-instruct",
        "DERENDER_PARTITIONS": str(PARTITIONS),
        "DERENDER_LEASE_S": "1",
        "PYTHONPATH": str(ROOT),
    }
    processes = []
    try:
        for n in range(number):
            with (folder / f"worker-{n}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "derender", "worker"],
                        env={**os.environ, **settings, **env},
                        stderr=log,
                        cwd=folder,
                    )
                )
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=10)


async def publish(url: str, events: list[Event], copies: int) -> list[str]:
    """Replay so many copies of each request, without pauses; their ids."""
    async with await Producer.connect(url, wait_s=30.0) as producer:  # a worker takes a while to start
        await replay(producer, events, copies=copies, name=lambda id_, n: f"{id_}.{n}")
    return [f"{id_}.{n}" for id_ in request_ids(events) for n in range(copies)]


async def closed(redis: Redis, ids: list[str], *, seconds: float = 30.0) -> None:
    """Wait until every request has a final status."""
    names = Keys()
    waiting = set(ids)
    for _ in range(int(seconds / 0.05)):
        order = sorted(waiting)
        found = await redis.mget([names.status(partition_of(id_, PARTITIONS), id_) for id_ in order])
        waiting = {id_ for id_, status in zip(order, found, strict=True) if (status or b"").decode() not in keys.CLOSED}
        if not waiting:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{len(waiting)} requests are not closed, for example {sorted(waiting)[0]}")
