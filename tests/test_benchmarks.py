"""The benchmarks' own arithmetic, and that the yardstick does the same traffic as the worker that it measures."""

from __future__ import annotations

import pytest

from benchmarks.bench_pipeline import latencies, rows_of
from benchmarks.bench_resume import silence
from benchmarks.passthrough import Passthrough
from benchmarks.roles import events
from benchmarks.workloads import WORKLOADS
from schemas import keys
from worker.core.session import Entry, Open, Session


def test_latencies_pair_reply_n_with_chunk_n() -> None:
    sent = [[0.0, 0.5], [1.0, 1.5]]  # two chunks of two streams
    arrived = [[0.001, 1.003], [0.502, 1.504]]
    assert latencies(sent, arrived)["max ms"] == pytest.approx(4.0)
    assert latencies(sent, arrived)["p50 ms"] == pytest.approx(2.5)
    assert latencies(sent, arrived, skip=1)["p50 ms"] == pytest.approx(3.5)


def test_ratios_are_medians_of_pairs_of_one_turn() -> None:
    runs = {"passthrough": [{"x": 1.0}, {"x": 10.0}, {"x": 2.0}], "plain": [{"x": 2.0}, {"x": 20.0}, {"x": 6.0}]}
    assert rows_of(runs, {"x": "ratio"}) == [
        {"worker": "passthrough", "x": 2.0, "ratio": 1.0},
        {"worker": "plain", "x": 6.0, "ratio": 2.0},
    ]


def test_a_silence_counts_from_the_event_on() -> None:
    assert silence([[0.0, 1.0, 9.0], [0.0, 3.0, 9.0]], since=2.0) == 7.0


def test_the_yardstick_writes_the_same_entries() -> None:
    """The same replies and fields for each chunk, the engine's event in place of the answer, and the same end."""
    workload = WORKLOADS["plain"]
    chunks = events(workload, 5, 1)
    shapes = []
    for session in (Passthrough(), Session(lambda _: workload.model())):
        first = {keys.REQUEST: b"r", keys.SEQ: b"0", keys.OPEN: workload.context()}
        outcome = session.fold(Entry(b"1-0", first), None, None)
        shape = [(outcome.opened, outcome.replies)]
        opened: Open | None = outcome.open
        for seq, chunk in enumerate(chunks, 1):
            fields = {keys.REQUEST: b"r", keys.SEQ: b"%d" % seq, keys.CHUNK: chunk}
            outcome = session.fold(Entry(b"1-%d" % seq, fields), opened, None)
            opened = outcome.open
            shape.append((outcome.closed, [(reply.number, set(reply.fields)) for reply in outcome.replies]))
        shapes.append(shape)
    assert shapes[0] == shapes[1]
    assert shapes[0][-1][0] == keys.STATUS_FINISHED
