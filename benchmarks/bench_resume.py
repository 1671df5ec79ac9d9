"""Takeover and resume: what clients notice when workers come and go, and what a resumed request costs.

    python -m benchmarks.bench_resume [--json FILE] [--repeat 7]

Longest silence: of all live streams, the longest time between two replies after the event; each stream has 20 chunks
per second, so 50 ms are silence already.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from benchmarks.bench_pipeline import drained
from benchmarks.processes import Child, Server, children, redis_server
from benchmarks.report import environment, medians, options, table, write
from schemas.keys import DEFAULT_PARTITIONS, WIRE_VERSION

STREAMS = 50
RATE = 20.0
SECONDS = 8
REQUESTS = 1_000


def silence(arrived: list[list[float]], since: float) -> float:
    """Longest pause in any stream that ends after a time, in seconds."""
    return max(later - max(earlier, since) for times in arrived for earlier, later in pairwise(times) if later > since)


def event(server: Server, publisher: Child, follower: Child, name: str, kind: str, prefix: str) -> dict[str, float]:
    """Live streams over two workers (one, before a join); 2 s after their begin the event happens."""
    with children(*[("worker", server.url, kind)] * 2) as (first, second):
        first.ask(serve=prefix)
        if name != "join":
            second.ask(serve=prefix)
        time.sleep(2.5)  # the partitions are shared
        follower.order(follow=prefix, streams=STREAMS)
        publisher.order(live=prefix, workload=kind, streams=STREAMS, length=int(RATE * SECONDS), rate=RATE)
        time.sleep(2)
        happened = time.monotonic()
        actions: dict[str, Callable[[], Any]] = {
            "none": lambda: None,
            "join": lambda: second.ask(serve=prefix),
            "leave (SIGTERM)": lambda: second.ask(stop=True),
            "die (SIGKILL)": second.kill,
        }
        action = threading.Thread(target=actions[name])
        action.start()
        publisher.answer()
        arrived = follower.answer()["arrived"]
        action.join()
    server.client.flushall()
    replies = {len(times) for times in arrived}
    if replies != {int(RATE * SECONDS)}:
        raise RuntimeError(f"streams of {int(RATE * SECONDS)} chunks had {sorted(replies)} replies")
    return {"longest silence ms": 1e3 * silence(arrived, happened)}


def resumed(server: Server, publisher: Child, kind: str, prefix: str) -> dict[str, float]:
    """CPU per chunk of many requests: of a worker that opens them, and of one that takes them over in the middle.

    Both prepare each request once; the second one also fetches and decodes its state.
    """
    server.client.hset(f"{prefix}:config", mapping={"partitions": DEFAULT_PARTITIONS, "wire_version": WIRE_VERSION})
    cost = {}
    with children(("worker", server.url, kind), ("worker", server.url, kind)) as workers:
        for name, worker in zip(("opened here", "resumed"), workers, strict=True):
            # The second worker gets the chunks of requests that the first one opened.
            publisher.ask(
                fill=prefix, workload=kind, streams=REQUESTS, length=40, first=0 if name == "opened here" else 20,
                until=20 if name == "opened here" else 40,
            )  # fmt: skip
            worker.ask(serve=prefix)
            run = drained(server, prefix, worker)
            cost[name] = 1e6 * run["worker_s"] / run["entries"]
            worker.ask(stop=True)
    server.client.flushall()
    return {
        "opened here us/chunk": cost["opened here"],
        "taken over us/chunk": cost["resumed"],
        "ratio": cost["resumed"] / cost["opened here"],
    }


def main() -> None:
    args = options(__doc__).parse_args()
    rows: list[dict[str, Any]] = []
    with redis_server() as server:
        print({**environment(), "redis": server.version})
        with children(("producer", server.url), ("reader", server.url)) as (publisher, follower):
            for name in ("none", "join", "leave (SIGTERM)", "die (SIGKILL)"):
                runs = [
                    event(server, publisher, follower, name, "reasoning_call", f"e{turn}-{name[:4].strip()}")
                    for turn in range(args.repeat)
                ]
                values = [run["longest silence ms"] for run in runs]
                rows.append({"event": name, "longest silence ms": statistics.median(values), "worst ms": max(values)})
            table(f"Longest silence of {STREAMS} live streams over 2 worker processes, lease 2 s", rows)
            part: list[dict[str, Any]] = []
            for kind in ("plain", "reasoning_call"):
                measured = [resumed(server, publisher, kind, f"r{turn}") for turn in range(args.repeat)]
                part.append({"output": kind, **medians(measured)})
            table(f"{REQUESTS} requests, 20 chunks of each by one worker and 20 by the next", part)
    write(args.json, "resume", rows + part)


if __name__ == "__main__":
    main()
