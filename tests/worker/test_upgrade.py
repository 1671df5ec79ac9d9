"""A rolling upgrade in mid-stream: what the previous version began is finished, or refused with a clear error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from schemas import keys
from schemas import state as schema
from schemas.keys import Keys
from schemas.request import RequestContext
from tests.events import chunk
from worker import drain as drain_module
from worker.batch import Rules
from worker.core import session as session_module
from worker.core import step, versions
from worker.core.model import Model
from worker.core.session import Session
from worker.drain import Drain
from worker.streams import Members, Partition, state_versions

IDS = [19556, 28, 905, 17, 2]


async def add(redis: Redis, names: Keys, seq: int, **fields: Any) -> None:
    await redis.xadd(names.chunks(0), {"request_id": "r", "seq": seq, **fields})


async def work(redis: Redis, names: Keys, model: Model, entries: int) -> None:
    """A worker that lives for so many entries."""
    done = asyncio.Event()
    drain = Drain(
        Partition(redis, redis, names, 0, token="t"), Session(lambda _: model), Rules(block_ms=20), leave=done.is_set
    )
    task = asyncio.create_task(drain.run())
    while drain.counts.entries < entries:
        assert not task.done()
        await asyncio.sleep(0.005)
    done.set()
    await task


async def first_half(redis: Redis, names: Keys, model: Model) -> None:
    context = msgspec.json.encode(RequestContext(kind="chat", prompt_tokens=4, created=7))
    await add(redis, names, 0, open=context)
    await add(redis, names, 1, chunk=chunk(*IDS[:2]))
    await work(redis, names, model, 2)


async def second_half(redis: Redis, names: Keys, model: Model) -> list[dict[bytes, bytes]]:
    await add(redis, names, 2, chunk=chunk(*IDS[2:], finish="stop"))
    await work(redis, names, model, 1)
    return [fields for _, fields in await redis.xrange(names.reply(0, "r"))]


def next_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the code is of the next state version."""
    for module in (schema, step):
        monkeypatch.setattr(module, "STATE_VERSION", 2)
    for module in (schema, session_module, drain_module):
        monkeypatch.setattr(module, "REQUEST_STATE_VERSION", 2)


async def test_a_stream_of_the_previous_version_finishes(
    redis: Redis, names: Keys, smollm2: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replies are those of a run without an upgrade, the states' versions apart."""
    await first_half(redis, names, smollm2)
    without = await second_half(redis, names, smollm2)
    await redis.flushall()
    await first_half(redis, names, smollm2)
    next_release(monkeypatch)
    monkeypatch.setattr(versions, "STREAM_UPGRADES", {1: lambda old: {**old, "version": 2}})
    monkeypatch.setattr(versions, "REQUEST_UPGRADES", {1: lambda old: {**old, "version": 2}})
    upgraded = await second_half(redis, names, smollm2)
    assert [fields[keys.CHUNK] for fields in upgraded] == [fields[keys.CHUNK] for fields in without]
    assert [json.loads(fields[keys.STREAM_STATE])["version"] for fields in upgraded] == [1, 2]
    assert upgraded[-1][keys.DONE] == b"finished"


async def test_a_version_without_an_upgrade_ends_with_an_error(
    redis: Redis, names: Keys, smollm2: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    await first_half(redis, names, smollm2)
    next_release(monkeypatch)
    *_, last = await second_half(redis, names, smollm2)
    assert json.loads(last[keys.ERROR])["error"] == {
        "message": "stored state has version 1, this worker reads 2",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }
    assert last[keys.DONE] == b"failed"
    assert await redis.hgetall(names.open(0)) == {}


async def test_a_state_of_a_newer_version_is_refused_by_an_older_worker(
    redis: Redis, names: Keys, smollm2: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        next_release(newer)
        await first_half(redis, names, smollm2)
    *_, last = await second_half(redis, names, smollm2)
    assert json.loads(last[keys.ERROR])["error"]["message"] == "stored state has version 2, this worker reads 1"


async def test_partitions_belong_to_the_workers_of_the_newest_state_version(redis: Redis, names: Keys) -> None:
    """As soon as a newer worker lives, older ones leave every partition; when it is gone they come back."""
    old, other, new = (Members(redis, names, token) for token in ("ff:1.1", "aa:1.1", "cc:1.2"))
    for members in (old, other, old):
        await members.beat()
    assert [sum(one.mine(p) for one in (old, other)) for p in range(4)] == [1, 1, 1, 1]
    for members in (new, old, other):
        await members.beat()
    assert [[one.mine(p) for p in range(2)] for one in (new, old, other)] == [[True] * 2, [False] * 2, [False] * 2]
    await new.leave()
    await old.beat()
    assert old.live == ["aa:1.1", "ff:1.1"]


@pytest.mark.parametrize(
    ("token", "expected"),
    [("h:7:ab:1.2", (1, 2)), ("ab:10.2", (10, 2)), ("1.2", (1, 2)), ("ab", ()), ("ab:1", ()), ("ab:x.1", ()), ("", ())],
)
def test_versions_in_a_worker_s_name(token: str, expected: tuple[int, ...]) -> None:
    assert state_versions(token) == expected
