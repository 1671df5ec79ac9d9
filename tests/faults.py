"""Workers as processes of their own, and what their replies have to be: tools of the fault tests."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from redis.asyncio import Redis

from derender.demo import expected_texts
from producer.publish import Producer
from producer.replay import Event, read_recording, replay, request_ids
from schemas import keys
from schemas.keys import Keys, partition_of
from worker.core.model import Model
from worker.main import WorkerProcess
from worker.settings import Settings

ROOT = Path(__file__).parents[1]
DATA = ROOT / "derender" / "data"
CREATED = 1_700_000_000
PARTITIONS = 8
Replies = dict[str, list[tuple[bytes, dict[bytes, bytes]]]]


def recording(seconds: float = 0.0) -> list[Event]:
    """The demo's requests, all open at once: each begins at 0 and ends after so many seconds."""
    events = read_recording(DATA / "demo.jsonl")
    lengths, seen = Counter(event.request_id for event in events), Counter[str]()
    spread = []
    for event in events:
        spread.append(replace(event, t=seconds * seen[event.request_id] / lengths[event.request_id]))
        seen[event.request_id] += 1
    return sorted(spread, key=lambda event: event.t)  # stable: the order within a request stays


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


async def members(redis: Redis, number: int) -> dict[int, str]:
    """Wait until so many workers live: pid -> token."""
    for _ in range(300):
        tokens = [token.decode() for token in await redis.zrange(Keys().workers, 0, -1)]
        if len(tokens) == number:
            return {int(token.split(":")[1]): token for token in tokens}
        await asyncio.sleep(0.05)
    raise AssertionError(f"expected {number} workers, found {tokens}")


async def owners(redis: Redis) -> dict[int, str | None]:
    found = await redis.mget([Keys().owner(p) for p in range(PARTITIONS)])
    return {p: token.decode() if token else None for p, token in enumerate(found)}


async def publish(url: str, events: list[Event], copies: int, **options: Any) -> list[str]:
    """Replay with fixed ids and time of creation, so that two runs can be compared field by field."""
    async with await Producer.connect(url) as producer:
        await replay(producer, events, copies=copies, created=CREATED, name=lambda id_, n: f"{id_}.{n}", **options)
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


async def read_replies(redis: Redis, ids: list[str]) -> Replies:
    """Everything on the reply streams, read with plain XRANGE."""
    names = Keys()
    async with redis.pipeline(transaction=False) as pipe:
        for id_ in ids:
            pipe.xrange(names.reply(partition_of(id_, PARTITIONS), id_))
        return dict(zip(ids, await pipe.execute(), strict=True))


def check_replies(replies: Replies) -> None:
    """Complete, dense, without duplicates, and the texts are the tokenizer's decode of the recorded ids."""
    expected = expected_texts(DATA / "demo.expected.jsonl")
    for id_, entries in replies.items():
        assert [entry_id for entry_id, _ in entries] == [b"%d-0" % n for n in range(1, len(entries) + 1)], id_
        assert [fields.get(keys.DONE) for _, fields in entries] == [None] * (len(entries) - 1) + [b"finished"], id_
        texts: dict[int, str] = {}
        for _, fields in entries:
            for choice in json.loads(fields[keys.CHUNK])["choices"]:
                said = choice["text"] if "text" in choice else choice["delta"]["content"] or ""
                texts[choice["index"]] = texts.get(choice["index"], "") + said
        assert texts == expected[id_.split(".")[0]], id_


async def undisturbed(redis: Redis, url: str, model: Model, copies: int) -> Replies:
    """The same work with one worker and no fault. Empties the database afterwards."""
    process = WorkerProcess(Settings(redis_url=url, partitions=PARTITIONS), lambda _: model)
    running = asyncio.create_task(process.run())
    ids = await publish(url, recording(), copies)
    await closed(redis, ids)
    replies = await read_replies(redis, ids)
    process.stop()
    await running
    await redis.flushall()
    return replies
