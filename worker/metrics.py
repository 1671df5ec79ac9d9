"""Every metric and label of a worker. Import it only where it is wanted: prometheus-client is an extra.

With `PROMETHEUS_MULTIPROC_DIR` set before the import, the values of several processes live in that folder and any of
them (or their parent) can serve the sum; see `serve`.

Counters take what the drains counted, about once a second; only the histograms are touched for each batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

from worker.drain import Committed, Counts

MULTIPROC = "PROMETHEUS_MULTIPROC_DIR"

COUNTERS = {
    "entries": ("derender_entries", "Input entries that were committed"),
    "chunks": ("derender_chunks", "Engine chunks that were committed"),
    "tokens": ("derender_tokens", "Token ids that were taken in"),
    "unknown_ids": ("derender_unknown_ids", "Token ids beyond the tokenizer's vocabulary"),
    "replies": ("derender_replies", "Reply entries that were written"),
    "publishes": ("derender_batches", "Batches that were committed"),
    "moved": ("derender_moved_batches", "Batches thrown away because another worker had committed"),
    "dropped": ("derender_dropped_entries", "Entries without effect: seen before, or after the end"),
    "dead": ("derender_dead_letters", "Entries that went to the dead letters"),
    "refused": ("derender_refused_commands", "Writes that Redis refused"),
    "taken": ("derender_takeovers", "Partitions that were taken"),
    "resumed": ("derender_resumed_requests", "Open requests that were continued from their stored state"),
    "poison": ("derender_poison_entries", "Entries given up after several workers died at them"),
    "timeouts": ("derender_idle_requests", "Open requests that were asked to end for silence"),
    "lost": ("derender_lost_entries", "Unread entries that vanished from Redis"),
    "cache_hits": ("derender_cache_hits", "Entries whose request was in the cache"),
    "cache_misses": ("derender_cache_misses", "Requests that were looked up in Redis"),
}
"""Field of `Counts` -> name (Prometheus appends `_total`) and help."""

LABELLED = {
    "outcomes": ("derender_requests", "Requests that ended, by final status", "outcome"),
    "errors": ("derender_errors", "Requests that ended with an error, by kind", "kind"),
}


@dataclass(frozen=True)
class PartitionState:
    """Of a partition that this process drains. backlog: entries that wait, by lane; open: open requests."""

    number: int
    backlog: Mapping[str, int]
    open: int


class Metrics:
    """The metrics of one process.

    clock: unix seconds; `offset_s` is added to it, so that ids of entries can be compared with Redis' clock.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.registry = registry = CollectorRegistry()
        self.clock = clock
        self.offset_s = 0.0
        self._seen: dict[tuple[str, str], int] = {}
        self._partitions: set[int] = set()
        self._counters = {field: Counter(name, text, registry=registry) for field, (name, text) in COUNTERS.items()}
        self._labelled = {
            field: Counter(name, text, (label,), registry=registry) for field, (name, text, label) in LABELLED.items()
        }
        self.step_seconds = Histogram(
            "derender_step_seconds", "Time of all steps of one batch", registry=registry,
            buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0),
        )  # fmt: skip
        self.batch_entries = Histogram(
            "derender_batch_entries", "Entries of one batch", registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64),
        )  # fmt: skip
        self.lag_seconds = Histogram(
            "derender_lag_seconds", "From an entry's arrival in Redis to its replies: oldest of each batch",
            registry=registry, buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )  # fmt: skip
        self.state_bytes = Histogram(
            "derender_state_bytes", "Largest request state of each batch that stored one", registry=registry,
            buckets=(256, 512, 1024, 2048, 4096, 16_384, 65_536, 262_144),
        )  # fmt: skip

        def gauge(name: str, text: str, *labels: str, mode: Any = "max") -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="live" + mode)

        self.partition_lag_seconds = gauge("derender_partition_lag_seconds", "Lag of the last batch", "partition")
        self.partition_backlog = gauge(
            "derender_partition_backlog_entries", "Entries that wait, by lane", "partition", "lane"
        )
        self.partition_open = gauge("derender_partition_open_streams", "Open requests", "partition")
        self.partition_owned = gauge("derender_partition_owned", "Drained by this worker", "partition", mode="sum")
        self.all_partitions = gauge("derender_partitions", "Partitions of the database, whoever drains them")
        self.model_loaded = gauge("derender_model_loaded", "1 loaded, 0 waiting or failed", "model", "fingerprint")

    def batch(self, done: Committed) -> None:
        """One committed batch. The only part on the hot path."""
        self.step_seconds.observe(done.step_s)
        self.batch_entries.observe(done.entries)
        lag_s = max(0.0, self.clock() + self.offset_s - done.oldest_ms / 1000)
        self.lag_seconds.observe(lag_s)
        self.partition_lag_seconds.labels(done.partition).set(lag_s)
        if done.state_bytes:
            self.state_bytes.observe(done.state_bytes)

    def counts(self, counts: Counts) -> None:
        """What was counted since the last call."""
        for field, counter in self._counters.items():
            counter.inc(self._new(field, "", getattr(counts, field)))
        for field, labelled in self._labelled.items():
            for value, number in getattr(counts, field).items():
                labelled.labels(value).inc(self._new(field, value, number))

    def _new(self, field: str, label: str, total: int) -> int:
        before = self._seen.get((field, label), 0)
        self._seen[field, label] = total
        return total - before

    def partitions(self, drained: Iterable[PartitionState]) -> None:
        """The partitions that this process drains now. Those that it has left go to 0."""
        now = {state.number: state for state in drained}
        for number in self._partitions - now.keys():
            self._set(PartitionState(number, dict.fromkeys(("chunks", "bulk"), 0), 0), owned=0)
            self.partition_lag_seconds.labels(number).set(0)
        for number, state in now.items():
            self._set(state, owned=1)
            if not any(state.backlog.values()) and number in self._partitions:
                self.partition_lag_seconds.labels(number).set(0)
        self._partitions = set(now)

    def _set(self, state: PartitionState, *, owned: int) -> None:
        self.partition_owned.labels(state.number).set(owned)
        self.partition_open.labels(state.number).set(state.open)
        for lane, waiting in state.backlog.items():
            self.partition_backlog.labels(state.number, lane).set(waiting)

    def model(self, name: str, fingerprint: str | None, *, loaded: bool) -> None:
        self.model_loaded.labels(name, fingerprint or "").set(int(loaded))

    def serve(self, port: int, host: str) -> Callable[[], None]:
        """Serve `/metrics` from a thread, of all processes where their folder is set. Returns what stops it.

        Raises OSError where the port is taken.
        """
        registry = self.registry
        if os.environ.get(MULTIPROC):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        server, thread = start_http_server(port, addr=host, registry=registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop
