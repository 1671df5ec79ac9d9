"""Memory of an open stream in the worker, and what importing the producer costs.

    python -m benchmarks.bench_footprint [--json FILE] [--repeat 7]

Memory is counted by tracemalloc over many open requests as a partition's caches hold them; their contexts (compiled
requests, one a request here) are shown apart. The import is CPU of a new interpreter, in turns with its yardstick.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks.report import environment, options, table, write
from benchmarks.roles import events
from benchmarks.workloads import WORKLOADS, Workload
from schemas import keys
from worker.core.session import Entry, Open, Session
from worker.tokenizer_cache import ModelTable

REQUESTS = 200
OUTPUT = 60
PRODUCER = "import producer.publish, producer.read"
YARDSTICK = "import redis.asyncio, msgspec"


def allocated(make: Callable[[], Any]) -> tuple[float, Any]:
    """Bytes that the result of a call keeps alive, and the result."""
    gc.collect()
    tracemalloc.start()
    result = make()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size, result


def streams(workload: Workload) -> dict[str, Any]:
    """Open requests in the middle of their output, as `worker.drain.Drain` keeps them."""
    session = Session(ModelTable([(workload.model(), ())]))
    chunks = events(workload, OUTPUT * 2, 1)[:OUTPUT]

    def opened(number: int) -> Open:
        fields = {keys.REQUEST: b"request-%d" % number, keys.SEQ: b"0", keys.OPEN: workload.context()}
        first = session.fold(Entry(b"1700000000000-0", fields), None, None).open
        assert first is not None
        return first

    def output(first: Open, number: int) -> Open:
        for seq, chunk in enumerate(chunks, 1):
            fields = {keys.REQUEST: b"request-%d" % number, keys.SEQ: b"%d" % seq, keys.CHUNK: chunk}
            after = session.fold(Entry(b"1700000000000-%d" % seq, fields), first, None).open
            assert after is not None
            first = after
        return first

    output(opened(0), 0)  # tables and grammars are shared by all
    context_bytes, begun = allocated(lambda: [opened(number) for number in range(REQUESTS)])
    both_bytes, kept = allocated(
        lambda: (
            {b"request-%d" % number: output(first, number) for number, first in enumerate(begun)},
            {b"request-%d" % number: keys.STATUS_OPEN for number in range(REQUESTS)},
        )
    )
    assert len(kept[0]) == REQUESTS
    return {
        "output": workload.name,
        "bytes per open stream": both_bytes / REQUESTS,
        "bytes per context": context_bytes / REQUESTS,
    }


def import_cpu_s(code: str) -> float:
    """CPU seconds of an interpreter that only imports."""
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"python -c {code!r} failed")
    return usage.ru_utime + usage.ru_stime


def imports(repeat: int) -> list[dict[str, Any]]:
    check = "; import sys; sys.exit(bool({'transformers', 'tokenizers'} & set(sys.modules)))"
    import_cpu_s(PRODUCER + check)
    turns = [(import_cpu_s(YARDSTICK), import_cpu_s(PRODUCER)) for _ in range(repeat)]
    return [
        {
            "import": code.removeprefix("import "),
            "CPU ms": 1e3 * statistics.median(turn[at] for turn in turns),
            "ratio": statistics.median(turn[at] / turn[0] for turn in turns),
        }
        for at, code in enumerate((YARDSTICK, PRODUCER))
    ]


def main() -> None:
    args = options(__doc__, "imports of which the median is printed").parse_args()
    print(environment())
    rows = [streams(workload) for workload in WORKLOADS.values()]
    table(f"Memory per open stream after {OUTPUT} tokens, in bytes", rows)
    part = imports(args.repeat)
    table("Import of the producer", part)
    write(args.json, "footprint", rows + part)


if __name__ == "__main__":
    main()
