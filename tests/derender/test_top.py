"""The frame of `derender top`: rates between two looks, what is marked, and one frame of a real worker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis
from rich.console import Console

from derender.top import TopSettings, duration, frame, short
from producer.survey import AGES, INFO, OWNER, WAITING, WORKERS, Lane, PartitionLook, Survey
from schemas.keys import Keys
from schemas.report import BridgeReport, ModelReport, WorkerReport
from tests.shared_data import ROOT
from tests.workers import publish, recording, worker_processes
from worker.settings import SettingsError

A, B = "host-a:11:x:1.1", "host-b:12:y:1.1"


def report(token: str, at_ms: int, tokens: int, *models: ModelReport) -> WorkerReport:
    return WorkerReport(
        token, "0.1.0", 1000, at_ms, partitions=(0,), counts={"tokens": tokens, "replies": tokens // 2},
        outcomes={"finished": 3, "failed": 1}, errors={"SchemaError": 1}, models=models,
    )  # fmt: skip


def survey(at_ms: int, read: int, *workers: WorkerReport) -> Survey:
    return Survey(
        at_ms=at_ms,
        wire_version=1,
        info={"redis_version": "7.0.15", "used_memory": 3 * 2**20, "maxmemory": 2**30},
        members=(A, B),
        workers=workers,
        partitions=(
            PartitionLook(0, A, Lane(read=read), Lane(), open=7, dead=0),
            PartitionLook(1, None, Lane(lag=5, oldest_ms=2500), Lane(lag=1, oldest_ms=90_000), open=0, dead=2),
        ),
    )


def text(settings: TopSettings, before: Survey, now: Survey) -> list[list[str]]:
    """Words of each line of the frame, rules left out."""
    console = Console(width=118, color_system=None)
    with console.capture() as captured:
        console.print(frame(settings, before, now))
    lines = [line.split() for line in captured.get().splitlines()]
    return [words for words in lines if words and not words[0].startswith("─")]


def test_a_frame() -> None:
    good = ModelReport(name="m", state="loaded", fingerprint="f1", tool_call_parser="hermes")
    other = ModelReport(name="m", state="loaded", fingerprint="f2", tool_call_parser="hermes")
    bad = ModelReport(name="n", state="failed", error="no folder")
    before = survey(10_000, 100, report(A, 9500, 1000, good))
    now = survey(12_000, 700, report(A, 11_500, 5000, good, bad), report(B, 11_600, 10, other))
    assert text(TopSettings(), before, now) == [
        ["redis://127.0.0.1:6379/0", "Redis", "7.0.15,", "3", "MiB", "of", "1024"],
        [
            "2",
            "partitions,",
            "2",
            "workers,",
            "7",
            "open",
            "requests,",
            "6",
            "entries",
            "wait,",
            "2",
            "dead",
            "letters",
        ],
        ["ended", "since", "these", "workers", "started:", "2", "failed,", "6", "finished"],
        ["partition", "owner", "waiting", "oldest", "bulk", "waiting", "oldest", "entries/s", "open", "dead"],
        ["0", "host-a:11", "0", "-", "0", "-", "300", "7", "0"],
        ["1", "none", "5", "2.5", "s", "1", "1", "min", "0", "0", "2"],
        ["worker", "version", "partitions", "up", "tokens/s", "replies/s", "requests", "errors"],
        ["host-a:11", "0.1.0", "0", "10.5", "s", "2000", "1000", "4", "1", "SchemaError"],
        ["host-b:12", "0.1.0", "0", "10.6", "s", "0", "0", "4", "1", "SchemaError"],
        ["model", "state", "fingerprint", "tool", "parser", "reasoning", "parser", "workers", "note"],
        ["m", "loaded", "f1", "hermes", "-", "1", "workers", "differ"],
        ["m", "loaded", "f2", "hermes", "-", "1", "workers", "differ"],
        ["n", "failed", "-", "-", "-", "1", "no", "folder"],
    ]


def test_one_of_each() -> None:
    now = survey(1, 0)
    one = PartitionLook(0, A, Lane(lag=1), Lane(), open=1, dead=1)
    rows = text(TopSettings(), survey(0, 0), replace(now, members=(A,), partitions=(one,)))
    assert " ".join(rows[1]) == "1 partition, 1 worker, 1 open request, 1 entry waits, 1 dead letter"


def test_what_is_hidden_is_no_zero() -> None:
    hidden = frozenset((INFO, OWNER, WAITING, AGES, WORKERS))
    rows = text(TopSettings(), survey(0, 0), replace(survey(1, 0), hidden=hidden, info={}, workers=()))
    assert [" ".join(words) for words in rows[:8]] == [
        "redis://127.0.0.1:6379/0 Redis of unknown version, memory unknown",
        "2 partitions, ? workers, 7 open requests, ? entries wait, 2 dead letters",
        "ended since these workers started: ?",
        "hidden from this user: how long it waits, owners, server, what waits, workers",
        "to see all, log in as a user with the permissions of deploy/acl/operator.acl",
        "partition owner waiting oldest bulk waiting oldest entries/s open dead",
        "0 ? ? ? ? ? ? 7 0",
        "1 ? ? ? ? ? ? 0 2",
    ]


def test_a_worker_s_user_sees_all_but_the_server() -> None:
    rows = text(TopSettings(), survey(0, 0), replace(survey(1, 0), hidden=frozenset((INFO,)), info={}))
    assert rows[3][0] == "partition"


def test_bridges_are_shown_where_there_are_some() -> None:
    bridges = (BridgeReport("h:2:b", "1", "q", 0, 1500, 3), BridgeReport("h:1:a", "1", "", 0, 500))
    rows = text(TopSettings(), survey(0, 0), replace(survey(1, 0), bridges=bridges))
    assert rows[-3:] == [
        ["bridge", "version", "queue", "up", "calls"],
        ["h:1:a", "1", "-", "500", "ms", "0"],
        ["h:2:b", "1", "q", "1.5", "s", "3"],
    ]


def test_longest_queues_are_shown_when_there_are_too_many() -> None:
    rows = text(TopSettings(rows=1), survey(0, 0), survey(1, 0))
    assert [words[0] for words in rows[4:5]] == ["1"]
    assert rows[5][0] == "worker"


@pytest.mark.parametrize(
    ("ms", "expected"), [(None, "-"), (0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (120_000, "2 min")]
)
def test_durations(ms: int | None, expected: str) -> None:
    assert duration(ms) == expected


def test_worker_names_are_shortened() -> None:
    assert (short(A), short(None)) == ("host-a:11", "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"interval_s": 0.0}, "--interval-s has to be more than 0"), ({"rows": 0}, "--rows has to be at least 1")],
    ids=["interval", "rows"],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        TopSettings(**options)
    assert str(raised.value) == message


@pytest.mark.redis
async def test_one_frame_of_a_real_worker(real_redis: Redis, server_url: str, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    """`--once` prints text: the worker, its eight partitions and the requests that it has finished."""
    events = recording()
    with worker_processes(1, server_url, tmp_path_factory.mktemp("top")):
        ids = await publish(server_url, events, 1)
        for _ in range(200):
            reports = await real_redis.keys(Keys().report("*"))
            if reports and b'"finished":%d' % len(ids) in (await real_redis.get(reports[0]) or b""):
                break
            await asyncio.sleep(0.1)
        command = [sys.executable, "-m", "derender", "top", "--once", "--interval-s", "0.1", "--redis-url", server_url]
        done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[1] == "8 partitions, 1 worker, 0 open requests, 0 entries wait, 0 dead letters"
    assert lines[2] == f"ended since these workers started: {len(ids)} finished"
    assert sum("smollm2-135m-instruct" in line for line in lines) == 1
