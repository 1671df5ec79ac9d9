"""The metrics: what a scrape says after work, alone and as the sum of several processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from tests.conftest import free_port
from tests.shared_data import ROOT
from worker import metrics as metrics_module
from worker.drain import Committed, Counts
from worker.metrics import COUNTERS, LABELLED, Metrics, PartitionState


def samples(text: str) -> dict[str, float]:
    """Series -> value; buckets and times of creation left out."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = [line.rpartition(" ") for line in lines if "_bucket" not in line and "_created" not in line]
    return {name: float(value) for name, _, value in pairs}


def scrape(metrics: Metrics) -> dict[str, float]:
    return samples(generate_latest(metrics.registry).decode())


def test_every_count_of_the_drains_has_a_metric() -> None:
    fields = set(Counts.__dataclass_fields__)
    assert COUNTERS.keys() | LABELLED.keys() == fields


def test_names_have_the_prefix_and_the_unit() -> None:
    metrics = Metrics()
    families = list(metrics.registry.collect())
    assert [family.name for family in families if not re.fullmatch(r"derender_[a-z_]+", family.name)] == []
    with_unit = {family.name for family in families if family.type in ("histogram", "gauge")}
    assert with_unit == {
        "derender_step_seconds",
        "derender_batch_entries",
        "derender_lag_seconds",
        "derender_state_bytes",
        "derender_partition_lag_seconds",
        "derender_partition_backlog_entries",
        "derender_partition_open_streams",
        "derender_partition_owned",
        "derender_partitions",
        "derender_model_loaded",
    }


def test_counters_take_what_is_new() -> None:
    metrics, counts = Metrics(), Counts(entries=3, tokens=10)
    counts.outcomes["finished"] = 2
    counts.errors["SchemaError"] = 1
    metrics.counts(counts)
    counts.entries = 5
    counts.outcomes["failed"] = 1
    metrics.counts(counts)
    found = scrape(metrics)
    assert {name: found[name] for name in found if found[name] and name.endswith(("_total", "}"))} == {
        "derender_entries_total": 5,
        "derender_tokens_total": 10,
        'derender_requests_total{outcome="finished"}': 2,
        'derender_requests_total{outcome="failed"}': 1,
        'derender_errors_total{kind="SchemaError"}': 1,
    }


def test_lag_is_measured_by_redis_clock() -> None:
    metrics = Metrics(clock=lambda: 1000.0)
    metrics.offset_s = 0.5  # Redis is half a second ahead
    metrics.batch(Committed(partition=3, entries=7, step_s=0.002, oldest_ms=1000_250, state_bytes=300))
    metrics.batch(Committed(partition=3, entries=1, step_s=0.001, oldest_ms=1002_000, state_bytes=0))
    found = scrape(metrics)
    assert found["derender_lag_seconds_sum"] == 0.25  # the second lies in the future: 0
    assert found["derender_lag_seconds_count"] == 2
    assert found['derender_partition_lag_seconds{partition="3"}'] == 0
    assert (found["derender_batch_entries_sum"], found["derender_state_bytes_count"]) == (8, 1)
    assert found["derender_step_seconds_sum"] == pytest.approx(0.003)


def test_a_partition_that_was_left_goes_to_zero() -> None:
    metrics = Metrics(clock=lambda: 10.0)
    state = PartitionState(1, {"chunks": 4, "bulk": 2}, 5)
    metrics.partitions([state])
    metrics.batch(Committed(1, 1, 0.0, 9000, 0))
    expected = {
        'derender_partition_lag_seconds{partition="1"}': 1.0,
        'derender_partition_owned{partition="1"}': 1.0,
        'derender_partition_open_streams{partition="1"}': 5.0,
        'derender_partition_backlog_entries{lane="chunks",partition="1"}': 4.0,
        'derender_partition_backlog_entries{lane="bulk",partition="1"}': 2.0,
    }
    assert {name: value for name, value in scrape(metrics).items() if "partition=" in name} == expected
    metrics.partitions([])
    assert {name: value for name, value in scrape(metrics).items() if "partition=" in name} == dict.fromkeys(
        expected, 0.0
    )


CHILD = """
from worker.drain import Committed, Counts
from worker.metrics import Metrics, PartitionState
metrics = Metrics(clock=lambda: 1.0)
metrics.counts(Counts(tokens={tokens}))
metrics.batch(Committed({partition}, 2, 0.0, 0, 0))
metrics.partitions([PartitionState({partition}, {{"chunks": 1, "bulk": 0}}, 3)])
"""

SERVER = """
import sys
from worker.metrics import Metrics
metrics = Metrics()
stop = metrics.serve({port}, "127.0.0.1")
print("ready", flush=True)
sys.stdin.read()
stop()
"""


def test_several_processes_are_served_as_one(tmp_path: Path) -> None:
    environ = {**os.environ, metrics_module.MULTIPROC: str(tmp_path), "PYTHONPATH": str(ROOT)}
    for partition, tokens in ((0, 10), (1, 32)):
        script = CHILD.format(partition=partition, tokens=tokens)
        subprocess.run([sys.executable, "-c", script], env=environ, check=True)
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-c", SERVER.format(port=port)],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            found = samples(answer.read().decode())
        process.communicate("")
    assert process.returncode == 0
    assert found["derender_tokens_total"] == 42
    assert found["derender_lag_seconds_count"] == 2
    assert found['derender_partition_open_streams{partition="0"}'] == 3
    assert found['derender_partition_open_streams{partition="1"}'] == 3
