"""Several workers of one command: started together, started again when one dies, ended together."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from derender.worker import command
from schemas.keys import Keys
from tests.conftest import DATA
from worker import processes
from worker.processes import Processes
from worker.settings import Settings

ROOT = DATA.parents[1]
SLEEPER = "import pathlib, os, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(60)"


async def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  what is awaited is another process
            await asyncio.sleep(0.01)


def alive(folder: Path) -> set[int]:
    """Pids of the sleepers that run."""
    pids = set()
    for pid in map(int, (path.name for path in folder.iterdir())):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        pids.add(pid)
    return pids


async def test_the_dead_are_started_again_and_all_end_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Processes([[sys.executable, "-c", SLEEPER, str(tmp_path)]] * 3)
    running = asyncio.create_task(kept.run())
    await until(lambda: len(list(tmp_path.iterdir())) == 3)
    first = alive(tmp_path)
    victim = min(first)
    os.kill(victim, signal.SIGKILL)
    await until(lambda: len(list(tmp_path.iterdir())) == 4)
    assert len(alive(tmp_path)) == 3
    assert first - alive(tmp_path) == {victim}
    assert [record.getMessage().partition(f"(pid {victim})")[2] for record in caplog.records] == [
        " ended with -9: it is started again"
    ]
    kept.stop()
    assert await asyncio.wait_for(running, 10) == 0
    assert alive(tmp_path) == set()


@pytest.mark.parametrize("code", processes.SAID_WHY)
async def test_what_cannot_start_ends_all_with_its_code(code: int) -> None:
    kept = Processes(
        [[sys.executable, "-c", f"raise SystemExit({code})"], [sys.executable, "-c", "import time; time.sleep(60)"]]
    )
    assert await asyncio.wait_for(kept.run(), 10) == code


async def test_who_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "STOP_S", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
    kept = Processes([[sys.executable, "-c", deaf, str(tmp_path)]])
    running = asyncio.create_task(kept.run())
    await until(lambda: len(alive(tmp_path)) == 1)
    kept.stop()
    assert await asyncio.wait_for(running, 10) == 0
    assert alive(tmp_path) == set()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_the_command_of_one_process_has_the_same_options() -> None:
    args = argparse.Namespace(processes="3", redis_url="redis://h/1", served_model_name=["a", "b"], lease_s=None,
                              coalesce=True, owner_keys=False)  # fmt: skip
    assert command(args, Settings(metrics_port=9000), 2) == [
        sys.executable, "-m", "derender", "worker", "--processes", "3", "--redis-url", "redis://h/1",
        "--served-model-name", "a", "--served-model-name", "b", "--coalesce", "--no-owner-keys",
        "--metrics-port", "9002", "--processes", "1",
    ]  # fmt: skip


@pytest.mark.redis
async def test_workers_of_one_command_share_the_partitions(real_redis: Redis, server_url: str) -> None:
    """Two processes own all partitions, fairly; a killed one is replaced; SIGTERM leaves nothing owned."""
    names = Keys()

    async def owners() -> list[bytes]:
        found = await real_redis.mget([names.owner(partition) for partition in range(8)])
        return [owner for owner in found if owner is not None]

    async def fair(without: frozenset[bytes] = frozenset()) -> set[bytes]:
        async with asyncio.timeout(40):
            while True:
                live = await owners()
                if (
                    len(live) == 8
                    and sorted(live.count(owner) for owner in set(live)) == [4, 4]
                    and not (without & set(live))
                ):
                    return set(live)
                await asyncio.sleep(0.05)

    options = ["--processes", "2", "--redis-url", server_url, "--tokenizer", str(DATA / "smollm2")]
    parent = await asyncio.create_subprocess_exec(sys.executable, "-m", "derender", "worker", *options, cwd=ROOT)
    try:
        before = await fair()
        killed = min(before)
        os.kill(int(killed.split(b":")[1]), signal.SIGKILL)
        after = await fair(without=frozenset([killed]))
        assert len(before & after) == 1
    finally:
        parent.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(parent.wait(), 20) == 0
    assert await owners() == []
