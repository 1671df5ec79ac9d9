"""What a worker says of itself in Redis, and what a scrape of a working one says."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request

import msgspec
import pytest
from redis.asyncio import Redis

from schemas.keys import Keys
from schemas.report import REPORT_TTL_MS, ModelReport, WorkerReport
from tests.conftest import DATA, free_port
from tests.worker.test_metrics import samples
from worker.drain import Counts
from worker.main import WorkerProcess
from worker.report import Reporter, lag_of
from worker.settings import ModelSettings, Settings
from worker.streams import WrongConfig, settle_config
from worker.tokenizer_cache import ServedModels, load_model

GOOD = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=("good", "alias"))
BAD = ModelSettings(tokenizer="./none", served_model_name=("bad",), reasoning_parser="qwen3")


async def test_models_are_published_when_they_are_loaded(redis: Redis, names: Keys) -> None:
    models = ServedModels([GOOD, BAD])
    reporter = Reporter(redis, names, "t", Counts(entries=3), version="1", drains=tuple, models=models.reports)
    await reporter.report()
    assert await redis.hgetall(names.models) == {}
    models.preload()
    await reporter.report()
    good = ModelReport(
        name="good",
        state="loaded",
        tokenizer=str(DATA / "smollm2"),
        fingerprint=load_model(GOOD).fingerprint,
        aliases=("alias",),
    )
    bad = ModelReport(
        name="bad",
        state="failed",
        tokenizer="./none",
        reasoning_parser="qwen3",
        error="tokenizer folder ./none does not exist",
    )
    published = await redis.hgetall(names.models)
    assert {name: msgspec.json.decode(value, type=ModelReport) for name, value in published.items()} == {
        b"good": good,
        b"alias": good,
    }
    raw = await redis.get(names.report("t"))
    report = msgspec.json.decode(raw, type=WorkerReport)
    assert (report.token, report.version, report.partitions, report.models) == ("t", "1", (), (good, bad))
    assert {name: value for name, value in report.counts.items() if value} == {"entries": 3}
    assert 0 < await redis.pttl(names.report("t")) <= REPORT_TTL_MS


async def test_an_emptied_database_is_told_again(redis: Redis, names: Keys, caplog: pytest.LogCaptureFixture) -> None:
    """Partitions and models: who starts after that has to find what the running workers go by."""
    models = ServedModels([GOOD])
    models.preload()
    reporter = Reporter(redis, names, "t", Counts(), version="1", drains=tuple, models=models.reports, partitions=3)
    assert await settle_config(redis, names, 3) == 3
    await reporter.report()
    before = (await redis.hgetall(names.config), await redis.hgetall(names.models))
    await reporter.report()
    assert caplog.messages == []
    await redis.flushall()
    await reporter.report()
    assert (await redis.hgetall(names.config), await redis.hgetall(names.models)) == before
    assert caplog.messages == ["derender:config was gone: the database was emptied"]
    with pytest.raises(WrongConfig):
        await settle_config(redis, names, 8)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([{"name": b"derender", "lag": 7}], 7),
        ([{"name": b"other", "lag": 7}], 0),
        ([{"name": "derender", "lag": None}], 0),
        ([{"name": b"derender"}], 0),
        (Exception("no such key"), 0),
    ],
)
def test_lag_of_our_group(answer: object, expected: int) -> None:
    assert lag_of(answer) == expected


@pytest.mark.redis
async def test_a_working_worker_says_what_it_did(real_redis: Redis, server_url: str, names: Keys) -> None:
    """Two requests through a worker with metrics: one finishes, one names no known model; an id is out of range."""
    port = free_port()
    models = ServedModels([GOOD])
    models.preload()
    process = WorkerProcess(
        Settings(redis_url=server_url, partitions=1, metrics_port=port), models, reports=models.reports
    )
    running = asyncio.create_task(process.run())
    await process.ready.wait()
    for id_, model in (("a", "good"), ("b", "x")):
        await real_redis.xadd(
            names.chunks(0), {"request_id": id_, "seq": 0, "open": json.dumps({"kind": "chat", "model": model})}
        )
    ids = [19556, 28, 900_000, 905]
    for seq, chunk in enumerate(([*ids], [17, 2]), 1):
        event = {"choices": [{"index": 0, "token_ids": chunk, "finish_reason": "stop" if 2 in chunk else None}]}
        await real_redis.xadd(names.chunks(0), {"request_id": "a", "seq": seq, "chunk": json.dumps(event)})
    found: dict[str, float] = {}
    until = time.monotonic() + 20
    while found.get("derender_entries_total") != 4 or 'derender_partition_owned{partition="0"}' not in found:
        assert time.monotonic() < until
        assert not running.done()
        await asyncio.sleep(0.2)
        found = samples((await asyncio.to_thread(fetch, port)).decode())
    report = msgspec.json.decode(await real_redis.get(names.report(process.token)), type=WorkerReport)
    process.stop()
    await running
    assert {
        name: found[name]
        for name in found
        if name.endswith(("tokens_total", "ids_total", "chunks_total", "dead_letters_total")) or "outcome=" in name
    } == {
        "derender_chunks_total": 2,
        "derender_tokens_total": 6,
        "derender_unknown_ids_total": 1,
        "derender_dead_letters_total": 1,
        'derender_requests_total{outcome="finished"}': 1,
        'derender_requests_total{outcome="failed"}': 1,
    }
    assert found['derender_errors_total{kind="UnknownModel"}'] == 1
    assert found['derender_partition_owned{partition="0"}'] == 1
    assert found['derender_partition_backlog_entries{lane="chunks",partition="0"}'] == 0
    assert found[f'derender_model_loaded{{fingerprint="{models("good").fingerprint}",model="good"}}'] == 1
    assert report.partitions == (0,)
    assert report.outcomes == {"finished": 1, "failed": 1}
    assert await real_redis.exists(names.report(process.token)) == 0  # taken back at the end


def fetch(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        body: bytes = answer.read()
    return body
