"""What `derender doctor` finds and says, on made-up looks and on real servers with faults."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from derender.doctor import (
    DoctorSettings,
    Finding,
    clock,
    database,
    examine,
    hidden,
    permissions,
    server,
    tokenizers,
    workers,
)
from link.redis import connect
from producer import survey as parts
from producer.presence import LIVE_MS
from producer.replay import read_recording, request_ids
from producer.survey import Lane, PartitionLook, Survey
from schemas.keys import Keys, partition_of
from schemas.report import BridgeReport, ModelReport, WorkerReport
from tests.conftest import DATA, redis_in
from tests.shared_data import ROOT
from worker.settings import ModelSettings

INFO = {
    "redis_version": "7.2.4", "maxmemory_policy": "noeviction", "used_memory": 10, "maxmemory": 100,
    "aof_enabled": 1, "role": "master", "cluster_enabled": 0,
}  # fmt: skip
OWNED = PartitionLook(0, "h:1:x:1.1", Lane(), Lane(), 0, 0)
SURVEY = Survey(0, 1, INFO, members=("h:1:x:1.1",), partitions=(OWNED,))


def levels(findings: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in findings if finding.level != "ok"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"redis_version": "6.2.14"}, [("fail", "Redis 6.2.14")]),
        ({"maxmemory_policy": "allkeys-lru"}, [("fail", "maxmemory-policy is allkeys-lru")]),
        ({"maxmemory": 0}, [("warn", "maxmemory is not set")]),
        ({"used_memory": 90}, [("warn", "memory is 90 % full")]),
        ({"used_memory": 100}, [("warn", "memory is 100 % full")]),
        ({"used_memory": 747}, [("fail", "memory is 747 % full: nobody can publish")]),
        (
            {"used_memory": 101, "maxmemory_policy": "allkeys-lru"},
            [("fail", "maxmemory-policy is allkeys-lru"), ("warn", "memory is 101 % full")],
        ),
        ({"aof_enabled": 0}, [("warn", "appendonly is off")]),
        ({"role": "slave"}, [("fail", "this Redis is a slave")]),
        ({"cluster_enabled": 1}, [("fail", "Redis runs as a cluster")]),
    ],
    ids=str,
)
def test_server(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert levels(server({**INFO, **change})) == expected


def test_without_info_nothing_is_guessed() -> None:
    assert [finding.level for finding in server({})] == ["warn"]


@pytest.mark.parametrize(
    ("redis_ms", "expected"),
    [
        (10_500, []),
        (15_000, [("warn", "the clock of Redis is 5.0 s ahead of ours")]),
        (5000, [("warn", "the clock of Redis is 5.0 s behind ours")]),
    ],
)
def test_clock(redis_ms: float, expected: list[tuple[str, str]]) -> None:
    assert levels(clock(redis_ms, 10_000)) == expected


@pytest.mark.parametrize(
    ("survey", "partitions", "expected"),
    [
        (SURVEY, 1, []),
        (replace(SURVEY, partitions=()), None, [("warn", "derender:config is not set")]),
        (SURVEY, 8, [("fail", "1 partition, but --partitions says 8")]),
        (replace(SURVEY, wire_version=2), None, [("fail", "wire version 2, this release speaks 1")]),
    ],
    ids=["agrees", "new", "partitions", "version"],
)
def test_database(survey: Survey, partitions: int | None, expected: list[tuple[str, str]]) -> None:
    assert levels(database(survey, DoctorSettings(partitions=partitions), Keys())) == expected


WAITING = replace(OWNED, owner=None, chunks=Lane(lag=3, oldest_ms=20_000))


@pytest.mark.parametrize(
    ("survey", "expected"),
    [
        (SURVEY, []),
        (replace(SURVEY, members=()), [("warn", "no worker lives, 0 entries wait")]),
        (replace(SURVEY, members=(), partitions=(WAITING,)), [("fail", "no worker lives, 3 entries wait")]),
        (
            replace(SURVEY, members=(), partitions=(replace(WAITING, chunks=Lane(lag=1)),)),
            [("fail", "no worker lives, 1 entry waits")],
        ),
        (replace(SURVEY, partitions=(WAITING,)), [("warn", "partition without an owner: 0")]),
        (
            replace(SURVEY, partitions=(WAITING, replace(WAITING, number=1))),
            [("warn", "partitions without an owner: 0, 1")],
        ),
        (
            replace(SURVEY, partitions=(replace(WAITING, owner="h:1:x:1.1"),)),
            [("warn", "entries wait more than 10 s in partition 0")],
        ),
        (replace(SURVEY, partitions=(replace(OWNED, dead=2),)), [("warn", "2 dead letters, the newest: bad")]),
        (replace(SURVEY, partitions=(replace(OWNED, dead=1),)), [("warn", "1 dead letter, the newest: bad")]),
        (
            replace(SURVEY, workers=(WorkerReport("a", "2.0", 0, 0), WorkerReport("b", "1.0", 0, 0))),
            [("warn", "workers of several releases: 1.0, 2.0")],
        ),
    ],
    ids=["well", "idle", "no worker", "one waits", "orphan", "orphans", "slow", "dead", "one dead", "releases"],
)
def test_workers(survey: Survey, expected: list[tuple[str, str]]) -> None:
    assert levels(workers(survey, "bad")) == expected


def test_what_is_hidden_is_not_taken_for_absent() -> None:
    unseen = Survey(0, None, {}, hidden=frozenset((parts.INFO, parts.CONFIG, parts.WORKERS)))
    found = [*hidden(unseen), *database(unseen, DoctorSettings(), Keys()), *workers(unseen, "")]
    assert [(finding.level, finding.what) for finding in found] == [
        ("warn", "this user may not see: number of partitions, workers")
    ]
    assert list(hidden(replace(unseen, hidden=frozenset((parts.INFO,))))) == []


def test_bridges_are_counted_by_queue() -> None:
    bridges = tuple(BridgeReport(f"h:{n}", "1", queue, 0, 0) for n, queue in enumerate(("", "", "q")))
    found = [finding.what for finding in workers(replace(SURVEY, bridges=bridges), "") if "bridge" in finding.what]
    assert found == ["2 bridges live, default queue", "1 bridge lives, queue q"]


SMOLLM2 = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=("m",))


def serving(*fingerprints: str, error: str | None = None) -> Survey:
    reports = tuple(
        WorkerReport(f"h:{n}:x:1.1", "1", 0, 0, models=(ModelReport("m", "loaded", fingerprint=value, error=error),))
        for n, value in enumerate(fingerprints)
    )
    return replace(SURVEY, workers=reports)


@pytest.mark.parametrize(
    ("survey", "models", "expected"),
    [
        (serving(), [SMOLLM2], []),
        (serving("f", "f"), [], []),
        (serving("f", "g"), [], [("fail", "workers serve m in 2 configurations")]),
        (serving("f"), [SMOLLM2], [("fail", "workers serve m with configuration f")]),
        (serving("", error="gone"), [], [("fail", "h:0 cannot load m: gone")]),
        (
            serving(),
            [ModelSettings(tokenizer="./none"), SMOLLM2],
            [("fail", "model ./none: tokenizer folder ./none does not exist")],
        ),
    ],
    ids=["well", "same", "differ", "not ours", "failed", "no folder"],
)
def test_tokenizers(survey: Survey, models: list[ModelSettings], expected: list[tuple[str, str]]) -> None:
    assert levels(tokenizers(survey, models)) == expected


def test_a_parser_that_does_not_fit_is_found() -> None:
    (finding,) = tokenizers(serving(), [replace(SMOLLM2, reasoning_parser="hf")])
    assert finding.level == "fail"
    assert finding.what.startswith("model m: parsers of model m: ")


# --- real servers ----------------------------------------------------------------------------------------------------


def acl_words(role: str) -> list[str]:
    """The permissions that deploy/ gives a role."""
    name = {"worker": "worker", "client": "operator"}[role]
    rules = (ROOT / "deploy" / "acl" / f"{name}.acl").read_text("utf-8").strip()
    # one word, or a selector in parentheses
    words = re.findall(r"\([^)]*\)|\S+", rules)[2:]
    return [word for word in words if not word.startswith(">")]


@pytest.mark.redis
@pytest.mark.parametrize("role", ["worker", "client"])
async def test_deployed_permissions_are_enough(real_redis: Redis, server_url: str, names: Keys, role: str) -> None:
    await real_redis.execute_command("ACL", "SETUSER", role, "reset", *acl_words(role), "nopass")
    client = connect(server_url.replace("//", f"//{role}:x@"))
    refused = await permissions(client, names, role)
    left = await real_redis.keys("*")
    await client.aclose()
    await real_redis.execute_command("ACL", "DELUSER", role)
    assert (refused, left) == ([], [])


@pytest.mark.redis
async def test_a_missing_permission_is_named(real_redis: Redis, server_url: str, names: Keys) -> None:
    await real_redis.execute_command(
        "ACL", "SETUSER", "w", "reset", "on", "nopass", "~*", "+@all", "-xgroup|setid", "-ping"
    )
    client = connect(server_url.replace("//", "//w:x@"))
    refused = await permissions(client, names, "worker")
    await client.aclose()
    await real_redis.execute_command("ACL", "DELUSER", "w")
    assert [line.partition(":")[0] for line in refused] == ["EVAL", "PING"]


@pytest.mark.redis
async def test_a_refused_command_is_not_a_refused_login(real_redis: Redis, server_url: str) -> None:
    await real_redis.execute_command("ACL", "SETUSER", "w", "reset", "on", ">pw", "~*", "+@all", "-time")
    urls = [server_url.replace("//", f"//w:{password}@") for password in ("pw", "wrong")]
    found = [await examine(DoctorSettings(redis_url=url), ()) for url in urls]
    await real_redis.execute_command("ACL", "DELUSER", "w")
    assert [[(finding.level, finding.what, finding.advice) for finding in findings] for findings in found] == [
        [(
            "fail",
            f"Redis at {server_url} does not allow it: this user has no permissions to run the 'time' command",
            "log in as a user with the permissions of deploy/acl/worker.acl",
        )],
        [(
            "fail",
            f"Redis at {server_url} refuses the login: invalid username-password pair or user is disabled.",
            "check user and password in --redis-url",
        )],
    ]  # fmt: skip


def doctor(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "derender", "doctor", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.redis
def test_a_sound_server_and_one_that_evicts(tmp_path: Path) -> None:
    with redis_in(tmp_path, "--appendonly", "yes", "--maxmemory", "1gb") as sound:
        done = doctor("--redis-url", sound.url, "--tokenizer", str(DATA / "smollm2"))
        subprocess.run(
            ["redis-cli", "-p", str(sound.port), "config", "set", "maxmemory-policy", "allkeys-lru"],
            check=True, capture_output=True,
        )  # fmt: skip
        evicting = doctor("--redis-url", sound.url)
    gone = doctor("--redis-url", sound.url)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "0 to mend, 2 to look at")
    assert (evicting.returncode, evicting.stdout.splitlines()[-1]) == (1, "1 to mend, 2 to look at")
    assert gone.returncode == 1
    assert gone.stdout.startswith(f"fail Redis at {sound.url} cannot be reached: ")


@pytest.mark.redis
async def test_killed_workers_do_not_live(real_redis: Redis, server_url: str, tmp_path: Path) -> None:
    """They could not take themselves off the list, and nobody is left who does it for them."""
    from tests.workers import worker_processes

    names = Keys()
    owners = [names.owner(number) for number in range(8)]
    with worker_processes(1, server_url, tmp_path) as processes:
        for _ in range(1000):
            if await real_redis.exists(*owners) == len(owners):
                break
            await asyncio.sleep(0.05)
        for process in processes:
            process.kill()
            process.wait(timeout=10)
        [(token, said_ms)] = await real_redis.zrange(names.workers, 0, -1, withscores=True)
        await real_redis.zadd(names.workers, {token: said_ms - LIVE_MS})  # so long ago
        await real_redis.xadd(names.chunks(0), {"request_id": "r", "control": "done"})
        await real_redis.delete(names.report(token.decode()))
        done = await asyncio.to_thread(doctor, "--redis-url", server_url)
        seen = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "derender", "top", "--once", "--interval-s", "0.1", "--redis-url", server_url],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
    lines = done.stdout.splitlines()
    assert (done.returncode, [line for line in lines if line.startswith("fail")]) == (
        1, ["fail no worker lives, 1 entry waits"],
    )  # fmt: skip
    assert lines[lines.index("fail no worker lives, 1 entry waits") + 1] == (
        "     -> start one: derender worker --config FILE"
    )
    assert seen.stdout.splitlines()[1] == "8 partitions, 0 workers, 0 open requests, 1 entry waits, 0 dead letters"


@pytest.mark.redis
def test_a_server_that_is_full(tmp_path: Path) -> None:
    """`doctor` and `replay` say so, with what to do; a worker had set the database up before."""
    with redis_in(tmp_path, "--appendonly", "yes") as full:
        for words in (["hset", "derender:config", "partitions", "8", "wire_version", "1"],
                      ["config", "set", "maxmemory", "1"]):  # fmt: skip
            subprocess.run(["redis-cli", "-p", str(full.port), *words], check=True, capture_output=True)
        found = doctor("--redis-url", full.url)
        command = [sys.executable, "-m", "derender", "replay", "--redis-url", full.url, "--run-name", "x-"]
        replayed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    [failure] = [line for line in found.stdout.splitlines() if line.startswith("fail")]
    assert (found.returncode, re.sub(r"\d+", "N", failure)) == (1, "fail memory is N % full: nobody can publish")
    first = Keys().chunks(partition_of("x-" + request_ids(read_recording(DATA / "demo.jsonl"))[0], 8))
    assert (replayed.returncode, replayed.stderr.splitlines()[-1]) == (
        1,
        f"derender replay: Redis at {full.url} is full: {first}: command not allowed when used memory > "
        "'maxmemory'; raise its maxmemory, or let answers go sooner (--reply-ttl-s of the workers)",
    )
