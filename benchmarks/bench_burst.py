"""Whole responses: how many per second, against the per-chunk rate, and what a burst does to live streams.

python -m benchmarks.bench_burst [--json FILE] [--repeat 7]
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.bench_pipeline import (
    LIVE_STREAMS,
    RATE,
    backlog,
    drained,
    latencies,
    unread,
    workload_of,
)
from benchmarks.processes import Child, Server, children, redis_server
from benchmarks.report import environment, medians, options, table, write
from schemas.keys import DEFAULT_PARTITIONS, WIRE_VERSION, Keys

KINDS = ("plain", "reasoning_call")
TOKENS = 500
RESPONSES = 1_000
BURST = 10_000


def burst(server: Server, publisher: Child, worker: Child, kind: str, prefix: str) -> dict[str, float]:
    """A backlog of whole responses, drained by one worker."""
    server.client.hset(f"{prefix}:config", mapping={"partitions": DEFAULT_PARTITIONS, "wire_version": WIRE_VERSION})
    publisher.ask(burst=prefix, workload=workload_of(kind), streams=RESPONSES, length=TOKENS)
    worker.ask(serve=prefix)
    run = drained(server, prefix, worker, "bulk")
    worker.ask(stop=True)
    server.client.flushall()
    rate = run["entries"] / run["seconds"]
    return {
        "responses/s": rate,
        "tokens/s": rate * TOKENS,
        "worker us/response": 1e6 * run["worker_s"] / run["entries"],
        "tokens/s of CPU": run["entries"] * TOKENS / run["worker_s"],
    }


def live_in_burst(
    server: Server, publishers: list[Child], worker: Child, follower: Child, kind: str, prefix: str, bursting: bool
) -> dict[str, float]:
    """Latency of live streams, with or without a burst of BURST responses that arrives when they begin."""
    live_publisher, burst_publisher = publishers
    worker.ask(serve=prefix)
    time.sleep(0.8)  # it has its partitions
    if bursting:
        burst_publisher.order(burst=prefix, ids=f"{prefix}-bulk", workload=kind, streams=BURST, length=TOKENS)
        while unread(server, Keys(prefix), "bulk") < 1_000:
            time.sleep(0.01)
    length = int(RATE * 3)
    follower.order(follow=prefix, streams=LIVE_STREAMS)
    sent = live_publisher.ask(live=prefix, workload=kind, streams=LIVE_STREAMS, length=length, rate=RATE)
    left = unread(server, Keys(prefix), "bulk")
    arrived = follower.answer()
    if bursting:
        burst_publisher.answer()
    worker.ask(stop=True)
    server.client.flushall()
    waits = latencies(sent["sent"], arrived["arrived"])
    return {**waits, "responses left": float(left)}


def main() -> None:
    args = options(__doc__).parse_args()
    rows: list[dict[str, Any]] = []
    with redis_server() as server:
        print({**environment(), "redis": server.version})
        roles = [("worker", server.url, kind) for kind in KINDS]
        with children(*roles, *[("producer", server.url)] * 2, ("reader", server.url)) as started:
            workers, publishers, follower = dict(zip(KINDS, started, strict=False)), started[2:4], started[4]
            for kind in KINDS:
                runs, ratios = [], []
                for turn in range(args.repeat):
                    chunks = backlog(server, publishers[0], workers[kind], kind, f"c{turn}", 1)
                    runs.append(burst(server, publishers[0], workers[kind], kind, f"b{turn}"))
                    ratios.append(runs[-1]["tokens/s"] / chunks["chunks/s"])
                rows.append({"output": kind, **medians(runs), "tokens/s over per-chunk": statistics.median(ratios)})
            table(f"Backlog of {RESPONSES} whole responses of {TOKENS} tokens, one worker process", rows)
            quiet: list[dict[str, float]] = []
            loud: list[dict[str, float]] = []
            for turn in range(args.repeat):
                for into, bursting in ((quiet, False), (loud, True)):
                    prefix = f"l{turn}-{bursting}"
                    into.append(
                        live_in_burst(server, publishers, workers["plain"], follower, "plain", prefix, bursting)
                    )
            part: list[dict[str, Any]] = []
            for name, measured in (("none", quiet), (f"{BURST} responses", loud)):
                pairs = zip(measured, quiet, strict=True)
                ratio = statistics.median(run["p99 ms"] / base["p99 ms"] for run, base in pairs)
                part.append({"burst": name, **medians(measured), "p99 ratio": ratio})
            table(f"Live latency: {LIVE_STREAMS} streams, {RATE:.0f} chunks per second each", part)
            rows += part
    write(args.json, "burst", rows)


if __name__ == "__main__":
    main()
