"""A worker process: how it starts, what it refuses, how it stops, and that it outlives Redis."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from link.redis import connect
from producer.publish import Producer
from producer.read import Reader
from schemas.keys import Keys
from tests.chaos.proxy import Proxy
from tests.conftest import DATA, RedisServer, free_port, redis_in
from tests.events import chunk
from tests.workers import worker_processes
from worker.core.model import Model
from worker.drain import MAX_ATTEMPTS
from worker.main import StartError, WorkerProcess, rules
from worker.settings import Settings
from worker.streams import Partition

ROOT = DATA.parents[1]
NAMES = Keys()
CONTEXT = b'{"kind": "chat"}'


@asynccontextmanager
async def running(process: WorkerProcess) -> AsyncIterator[WorkerProcess]:
    task = asyncio.create_task(process.run())
    ready = asyncio.create_task(process.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield process
    finally:
        ready.cancel()
        process.stop()
        await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  what is awaited has no event
            await asyncio.sleep(0.005)


async def text(reader: Reader, request_id: str) -> str:
    parts = []
    async for reply in reader.follow(request_id):
        assert reply.chunk is not None, reply
        parts += [choice["delta"]["content"] or "" for choice in json.loads(reply.chunk)["choices"]]
    return "".join(parts)


async def test_one_process_with_everything_in_it(smollm2: Model) -> None:
    """Producer, worker and reader on one embedded Redis."""
    from worker.streams import embedded

    redis = embedded()
    async with running(WorkerProcess(Settings(partitions=3), lambda _: smollm2, redis=redis)) as process:
        assert process.partitions == 3
        producer, reader = Producer(redis, 3), Reader(redis, 3)
        stream = await producer.open("r", CONTEXT)
        await stream.chunk(chunk(19556, 905, finish="length"))
        assert await text(reader, "r") == "Hello world"
        await reader.aclose()


@pytest.mark.redis
async def test_a_redis_that_restarts(smollm2: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Worker, producer and reader wait for it and go on where they were; each change of state is one log line."""
    caplog.set_level(logging.INFO)
    with redis_in(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        settings = Settings(redis_url=server.url, partitions=2, lease_s=1.0)
        async with (
            running(WorkerProcess(settings, lambda _: smollm2)),
            await Producer.connect(server.url) as producer,
            await Reader.connect(server.url) as reader,
        ):
            stream = await producer.open("r", CONTEXT)
            await stream.chunk(chunk(19556))
            reading = asyncio.create_task(text(reader, "r"))
            server.kill()
            sending = asyncio.create_task(stream.chunk(chunk(905)))
            await asyncio.sleep(0.5)
            server.start()
            await sending
            await stream.chunk(chunk(17, finish="stop"))
            assert await asyncio.wait_for(reading, 30) == "Hello world!"
    for name in ("producer.publish", "producer.read"):
        lines = [record.message for record in caplog.records if record.name == name]
        assert lines == ["Redis is away (ConnectionError)", "Redis is back"], name
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.redis
async def test_a_redis_that_takes_no_writes_for_a_while(
    smollm2: Model, real_redis: Redis, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Too few replicas, or no disk: the worker waits, says so once, and goes on when it may."""
    caplog.set_level(logging.INFO)
    settings = Settings(redis_url=server_url, partitions=1, lease_s=1.0)
    async with (
        running(WorkerProcess(settings, lambda _: smollm2)) as process,
        await Producer.connect(server_url) as producer,
        await Reader.connect(server_url) as reader,
    ):
        stream = await producer.open("r", CONTEXT)
        await stream.chunk(chunk(19556))
        await until(lambda: process.counts.entries == 2)
        try:
            await real_redis.config_set("min-replicas-to-write", "1")
            await until(lambda: "jobs: Redis is away (WritesRefused)" in caplog.messages)
            await asyncio.sleep(1.0)
        finally:
            await real_redis.config_set("min-replicas-to-write", "0")
        await stream.chunk(chunk(905, finish="stop"))
        assert await asyncio.wait_for(text(reader, "r"), 10) == "Hello world"
    said = [message for message in caplog.messages if message.startswith("jobs:")]
    assert said == ["jobs: Redis is away (WritesRefused)", "jobs: Redis is back"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.redis
async def test_a_worker_whose_connections_break_again_and_again_is_no_death(
    smollm2: Model, real_redis: Redis, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time between the first look at an entry and its publish: the entry is not to blame for it."""
    breaks = 2 * MAX_ATTEMPTS
    publish = Partition.publish
    async with Proxy(redis_server.port) as proxy:

        async def broken(partition: Partition, *args: Any, **options: Any) -> list[str]:
            nonlocal breaks
            if breaks:
                breaks -= 1
                await proxy.refuse()
                accepting.append(asyncio.ensure_future(later()))
            return await publish(partition, *args, **options)

        async def later() -> None:
            await asyncio.sleep(0.2)
            await proxy.accept()

        accepting: list[asyncio.Future[None]] = []
        monkeypatch.setattr(Partition, "publish", broken)
        settings = Settings(redis_url=proxy.url, partitions=1, lease_s=0.6)
        async with Reader(real_redis, 1) as reader:
            producer = Producer(real_redis, 1)
            async with running(WorkerProcess(settings, lambda _: smollm2)) as process:
                stream = await producer.open("r", CONTEXT)
                await stream.chunk(chunk(19556, 905, finish="length"))
                assert await asyncio.wait_for(text(reader, "r"), 60) == "Hello world"
            assert (breaks, process.counts.poison) == (0, 0)
            assert process.counts.taken > MAX_ATTEMPTS, "each break ended the drain, not only a command of it"


# --- start ------------------------------------------------------------------------------------------------------------


def start(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "derender", "worker", "--tokenizer", str(DATA / "smollm2"), *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )


def test_an_unreachable_redis_is_one_line() -> None:
    port = free_port()
    done = start("--redis-url", f"redis://user:secret@127.0.0.1:{port}/0")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"derender worker: cannot reach Redis at redis://127.0.0.1:{port}/0: ")
    assert "secret" not in line


def test_a_missing_tokenizer_is_one_line() -> None:
    done = start("--tokenizer", "/does/not/exist")
    assert (done.returncode, done.stderr) == (
        1, "derender worker: tokenizer folder /does/not/exist does not exist\n",
    )  # fmt: skip


@pytest.mark.redis
async def test_other_partitions_are_refused_at_the_start(real_redis: Redis, server_url: str, smollm2: Model) -> None:
    await real_redis.hset(NAMES.config, mapping={"partitions": 4, "wire_version": 1})
    process = WorkerProcess(Settings(redis_url=server_url, partitions=5), lambda _: smollm2)
    with pytest.raises(StartError, match="has 4 partitions, this worker was told 5"):
        await process.run()


@pytest.mark.redis
async def test_a_redis_that_refuses_us_is_one_line(redis_server: RedisServer, smollm2: Model) -> None:
    url = redis_server.url.replace("redis://", "redis://nobody:wrong@")
    with pytest.raises(StartError, match=r"^(Redis at|cannot reach Redis at) redis://127\.0\.0\.1:\d+/0"):
        await WorkerProcess(Settings(redis_url=url), lambda _: smollm2).run()


# --- stop -------------------------------------------------------------------------------------------------------------


@pytest.mark.redis
async def test_sigterm_hands_over(real_redis: Redis, server_url: str, tmp_path: Path) -> None:
    """Exit code 0, no owner keys left, no membership, the jobs queued for the next one."""
    with worker_processes(1, server_url, tmp_path) as [worker]:
        client = connect(server_url)
        while not all(await client.mget([NAMES.owner(p) for p in range(8)])):
            assert worker.poll() is None, (tmp_path / "worker-0.log").read_text()
            await asyncio.sleep(0.05)
        await client.aclose()
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait, 15) == 0
    assert await real_redis.exists(NAMES.workers, *(NAMES.owner(p) for p in range(8))) == 0
    assert await real_redis.zcard(NAMES.jobs) == 8
    log = (tmp_path / "worker-0.log").read_text()
    assert "Traceback" not in log
    assert log.rstrip().endswith("stopped")


# --- details ----------------------------------------------------------------------------------------------------------


def test_rules_are_in_milliseconds() -> None:
    made = rules(Settings(reply_ttl_s=1.5, status_ttl_s=3, open_ttl_s=400, idle_timeout_s=2), block_ms=7)
    assert (made.reply_ttl_ms, made.status_ttl_ms, made.open_ttl_ms, made.idle_ms, made.block_ms) == (
        1500, 3000, 400_000, 2000, 7,
    )  # fmt: skip
