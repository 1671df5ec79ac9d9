"""The whole path with a real Redis: producer, worker and reader are processes, beside a pass-through worker.

    python -m benchmarks.bench_pipeline [--json FILE] [--repeat 7]

Backlog: a filled stream is drained by one worker, nothing else runs: chunks per second, and CPU per chunk of the worker
and of Redis. Live: paced streams, the time from the producer's XADD to the reader's iterator, and CPU of all processes.
The kinds take turns, so that what the machine does meanwhile is the same for all; medians are printed.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.processes import Child, Server, children, cpu_s, redis_server
from benchmarks.report import environment, medians, options, table, write
from schemas.keys import DEFAULT_PARTITIONS, WIRE_VERSION, Keys, partition_of

KINDS = ("passthrough", "plain", "reasoning_call")
COALESCED = "reasoning_call+coalesce"
STREAMS = 64
LENGTH = 200
RATE = 50.0
"""Chunks per second of each live stream."""

LIVE_STREAMS = 100


def workload_of(kind: str) -> str:
    return "plain" if kind == "passthrough" else kind.partition("+")[0]


def unread(server: Server, names: Keys, lane: str = "chunks") -> int:
    """Entries that no worker has committed: what is committed is trimmed, but for the last one."""
    pipe = server.client.pipeline(transaction=False)
    for partition in range(DEFAULT_PARTITIONS):
        pipe.xlen(getattr(names, lane)(partition))
    return sum(max(0, length - 1) for length in pipe.execute())


def drained(server: Server, prefix: str, worker: Child, lane: str = "chunks") -> dict[str, float]:
    """Wait until a backlog is drained; from the first commit that is seen to the last."""
    names = Keys(prefix)
    full = left = unread(server, names, lane)
    while left == full:
        time.sleep(0.01)
        left = unread(server, names, lane)
    first, begin, cpu, server_cpu = left, time.monotonic(), cpu_s(worker.pid), cpu_s(server.pid)
    while left:
        time.sleep(0.01)
        left = unread(server, names, lane)
    return {
        "entries": first,
        "seconds": time.monotonic() - begin,
        "worker_s": cpu_s(worker.pid) - cpu,
        "redis_s": cpu_s(server.pid) - server_cpu,
    }


def backlog(server: Server, publisher: Child, worker: Child, kind: str, prefix: str, tokens: int) -> dict[str, float]:
    server.client.hset(f"{prefix}:config", mapping={"partitions": DEFAULT_PARTITIONS, "wire_version": WIRE_VERSION})
    publisher.ask(fill=prefix, workload=workload_of(kind), streams=STREAMS, length=LENGTH * tokens, tokens=tokens)
    before = network_bytes(server)
    worker.ask(serve=prefix)
    run = drained(server, prefix, worker)
    traffic = network_bytes(server) - before
    first = f"{prefix}-0"
    reply = Keys(prefix).reply(partition_of(first, DEFAULT_PARTITIONS), first)
    stored = int(server.client.memory_usage(reply, samples=0))
    worker.ask(stop=True)
    server.client.flushall()
    entries = run["entries"]
    return {
        "chunks/s": entries / run["seconds"],
        "worker us/chunk": 1e6 * run["worker_s"] / entries,
        "redis us/chunk": 1e6 * run["redis_s"] / entries,
        "wire bytes/chunk": traffic / (STREAMS * (LENGTH + 1)),
        "stored bytes/chunk": stored / LENGTH,
    }


def network_bytes(server: Server) -> int:
    info = server.client.info("stats")
    return int(info["total_net_input_bytes"]) + int(info["total_net_output_bytes"])


def live(
    server: Server, publisher: Child, worker: Child, follower: Child, kind: str, prefix: str, seconds: float
) -> dict[str, float]:
    worker.ask(serve=prefix)
    time.sleep(0.8)  # it has its partitions
    pids = {"worker": worker.pid, "redis": server.pid}
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    length = int(RATE * seconds)
    follower.order(follow=prefix, streams=LIVE_STREAMS)
    sent = publisher.ask(live=prefix, workload=workload_of(kind), streams=LIVE_STREAMS, length=length, rate=RATE)
    arrived = follower.answer()
    used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
    worker.ask(stop=True)
    server.client.flushall()
    waits = latencies(sent["sent"], arrived["arrived"], skip=int(RATE / 2))
    chunks = LIVE_STREAMS * length
    return {
        **waits,
        "worker us/chunk": 1e6 * used["worker"] / chunks,
        "redis us/chunk": 1e6 * used["redis"] / chunks,
        "producer us/chunk": 1e6 * sent["cpu_s"] / chunks,
        "reader us/chunk": 1e6 * arrived["cpu_s"] / chunks,
    }


def latencies(sent: list[list[float]], arrived: list[list[float]], *, skip: int = 0) -> dict[str, float]:
    """Percentiles in ms; reply n of a stream answers its chunk n. skip: chunks at the beginning that do not count."""
    waits = sorted(
        1e3 * (arrived[stream][number] - at)
        for number, times in enumerate(sent)
        if number >= skip
        for stream, at in enumerate(times)
    )
    cuts = statistics.quantiles(waits, n=1000, method="inclusive")
    return {"p50 ms": cuts[499], "p95 ms": cuts[949], "p99 ms": cuts[989], "max ms": waits[-1]}


def rows_of(runs: dict[str, list[dict[str, float]]], ratios: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each kind. ratios: column -> title of its ratio to pass-through, the median over pairs of one turn."""
    rows = []
    for kind, measured in runs.items():
        row: dict[str, Any] = {"worker": kind, **medians(measured)}
        for column, title in ratios.items():
            pairs = zip(measured, runs["passthrough"], strict=True)
            row[title] = statistics.median(run[column] / base[column] for run, base in pairs)
        rows.append(row)
    return rows


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--tokens", type=int, action="append", help="tokens per chunk of the backlog; repeatable")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a live run")
    parser.add_argument("--only", choices=("backlog", "live"), help="one of the two parts")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with redis_server() as server:
        print({**environment(), "redis": server.version})
        kinds = (*KINDS, COALESCED)
        roles = [("worker", server.url, kind) for kind in kinds]
        with children(*roles, ("producer", server.url), ("reader", server.url)) as started:
            workers, publisher, follower = dict(zip(kinds, started, strict=False)), started[-2], started[-1]
            for tokens in (args.tokens or [1, 8]) if args.only != "live" else ():
                runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
                for turn in range(args.repeat + 1):
                    for kind in kinds:
                        prefix = f"b{turn}-{tokens}-{kind.replace('+', '-')}"
                        runs[kind].append(backlog(server, publisher, workers[kind], kind, prefix, tokens))
                ratios = {"worker us/chunk": "CPU ratio", "chunks/s": "rate ratio"}
                cold = {kind: [measured[0]] for kind, measured in runs.items()}
                warm = {kind: measured[1:] for kind, measured in runs.items()}
                part = [{"tokens/chunk": tokens, "caches": "warm", **row} for row in rows_of(warm, ratios)]
                if tokens == 1:
                    part += [{"tokens/chunk": tokens, "caches": "cold", **row} for row in rows_of(cold, ratios)]
                table(f"Backlog of {STREAMS} streams, {tokens} tokens per chunk, one worker process", part)
                rows += part
            if args.only != "backlog":
                runs = {kind: [] for kind in KINDS}
                for turn in range(args.repeat):
                    for kind in KINDS:
                        prefix = f"l{turn}-{kind}"
                        runs[kind].append(live(server, publisher, workers[kind], follower, kind, prefix, args.seconds))
                part = rows_of(runs, {"p50 ms": "p50 ratio", "p99 ms": "p99 ratio", "worker us/chunk": "CPU ratio"})
                table(f"Live: {LIVE_STREAMS} streams, {RATE:.0f} chunks per second each", part)
                rows += part
    write(args.json, "pipeline", rows)


if __name__ == "__main__":
    main()
