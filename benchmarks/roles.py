"""Child processes of the benchmarks: `python -m benchmarks.roles worker|producer|reader …`, orders on standard input.

Each order is one line of JSON and has one answer. Times are of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from benchmarks.workloads import WORKLOADS, Workload

Orders = Callable[[], Awaitable[dict[str, Any] | None]]


def say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def orders() -> Orders:
    """The next order, or None at the end of input."""
    reader = asyncio.StreamReader(limit=2**24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def read() -> dict[str, Any] | None:
        line = await reader.readline()
        return json.loads(line) if line else None

    return read


def request_ids(prefix: str, streams: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(streams)]


# --- worker -----------------------------------------------------------------------------------------------------------


async def worker(url: str, kind: str, *options: str) -> None:
    """Serve key prefixes, one after the other: `{"serve": prefix}` until `{"stop": true}`. kind: a workload, or
    `passthrough`, or a workload with `+coalesce`. options: settings as `name=value`."""
    from benchmarks.passthrough import Passthrough
    from worker.main import WorkerProcess
    from worker.settings import Settings, load
    from worker.tokenizer_cache import ModelTable

    passthrough = kind == "passthrough"
    kind, *coalesced = kind.split("+")
    models = ModelTable([(WORKLOADS["plain" if passthrough else kind].model(), ())])
    session = Passthrough() if passthrough else None
    given = dict(option.split("=", 1) for option in options)
    if coalesced:
        given["coalesce"] = "on"
    read = await orders()
    say({"pid": os.getpid()})
    while (order := await read()) is not None:
        settings = load(Settings, {**given, "redis_url": url, "key_prefix": order["serve"]}, {})
        process = WorkerProcess(settings, models, session=session)
        running = asyncio.create_task(process.run())
        await process.ready.wait()
        say({"serving": order["serve"]})
        order = await read() or {}
        if order.get("profile"):
            await _profiled(read)
        process.stop()
        await running
        say({"stopped": True})
        if not order:
            return


async def _profiled(read: Orders) -> None:
    """Profile what runs from one order to the next; the stats go to the file that the order names."""
    import cProfile

    profile = cProfile.Profile()
    profile.enable()
    say({"profiling": True})
    order = await read() or {}
    profile.disable()
    profile.dump_stats(order["file"])


# --- producer ---------------------------------------------------------------------------------------------------------


def events(workload: Workload, length: int, tokens: int) -> list[bytes]:
    """A whole stream of `length` tokens in chunks of `tokens`; the last chunk has the finish reason."""
    ids = workload.ids(length)
    chunks = [workload.chunk(ids[at : at + tokens]) for at in range(0, length, tokens)]
    return [*chunks[:-1], chunks[-1].replace(b'"finish_reason":null', b'"finish_reason":"length"')]


async def producer(url: str) -> None:
    """`{"fill": prefix, …}` publishes streams as fast as Redis takes them, `{"live": prefix, …}` at a rate,
    `{"burst": prefix, …}` whole responses. fill: `first` and `until` cut the chunks of streams that stay open."""
    from producer.publish import Producer

    read = await orders()
    say({"pid": os.getpid()})
    while (order := await read()) is not None:
        workload = WORKLOADS[order["workload"]]
        action = next(name for name in ("fill", "live", "burst") if name in order)
        prefix = order[action]
        ids = request_ids(order.get("ids") or prefix, order["streams"])
        async with await Producer.connect(url, prefix=prefix, max_backlog=None) as publisher:
            start = time.process_time()
            if action == "burst":
                await _burst(publisher, workload, ids, order["length"])
                say({"cpu_s": time.process_time() - start})
                continue
            chunks = events(workload, order["length"], order.get("tokens", 1))
            first = order.get("first", 0)
            if first:
                streams = [_again(publisher, id_, first) for id_ in ids]
            else:
                streams = [await publisher.open(id_, workload.context()) for id_ in ids]
            if action == "fill":
                for chunk in chunks[first : order.get("until")]:
                    for stream in streams:
                        await stream.chunk(chunk, wait=False)
                sent: list[list[float]] = []
            else:
                sent = await _live(streams, chunks, order["rate"])
        say({"cpu_s": time.process_time() - start, "chunks": len(streams) * len(chunks), "sent": sent})


def _again(publisher: Any, id_: str, chunks: int) -> Any:
    """A stream that was opened before and has had its first chunks."""
    from producer.publish import RequestStream

    stream = RequestStream(publisher, id_)
    stream._seq = chunks + 1
    return stream


async def _live(streams: list[Any], chunks: list[bytes], rate: float) -> list[list[float]]:
    """Each stream gets `rate` chunks per second, the streams evenly spread; for each chunk the times of its sending."""
    sent: list[list[float]] = []
    begin = time.monotonic()
    for number, chunk in enumerate(chunks):
        times = []
        for position, stream in enumerate(streams):
            due = begin + (number + position / len(streams)) / rate
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            times.append(time.monotonic())
            await stream.chunk(chunk, wait=False)
        sent.append(times)
    return sent


async def _burst(publisher: Any, workload: Workload, ids: list[str], length: int) -> None:
    context, response = workload.context(), workload.response(length)
    waiting = []
    for id_ in ids:
        waiting.append(asyncio.create_task(publisher.response(id_, context, response)))
        if len(waiting) >= 200:
            await asyncio.gather(*waiting)
            waiting = []
    await asyncio.gather(*waiting)


# --- reader -----------------------------------------------------------------------------------------------------------


async def reader(url: str) -> None:
    """`{"follow": prefix, "ids": …, "streams": n}` reads streams to their end; answers with the times of arrival."""
    from producer.read import Reader

    read = await orders()
    say({"pid": os.getpid()})
    while (order := await read()) is not None:
        ids = request_ids(order.get("ids") or order["follow"], order["streams"])
        arrived: list[list[float]] = [[] for _ in ids]

        async def follow(source: Reader, number: int, id_: str, into: list[list[float]]) -> None:
            async for _ in source.follow(id_):
                into[number].append(time.monotonic())

        start = time.process_time()
        readers = [await Reader.connect(url, prefix=order["follow"]) for _ in range(0, len(ids), 100)]
        await asyncio.gather(*(follow(readers[number // 100], number, id_, arrived) for number, id_ in enumerate(ids)))
        for one in readers:
            await one.aclose()
        say({"cpu_s": time.process_time() - start, "arrived": arrived})


ROLES: dict[str, Callable[..., Awaitable[None]]] = {"worker": worker, "producer": producer, "reader": reader}

if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    uvloop.run(ROLES[name](*rest))
