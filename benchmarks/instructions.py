"""Instructions per step of fixed workloads, counted by valgrind: the figure that CI guards, since it has no noise.

    python -m benchmarks.instructions            print the counts
    python -m benchmarks.instructions --write    store them as the baseline (after a change that is worth it)

Each count is the difference of two runs of one process, one with more steps, so that start-up does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.workloads import WORKLOADS

BASELINE = Path(__file__).with_name("instructions.json")
TOLERANCE = 0.15
"""Growth that fails the guard; a test shows that 20 % more work trips it."""

GUARDED = ("plain", "logprobs", "json_call", "xml_call")
ROUNDS = 5
STEPS = 200
WARM_UP = 100


def work(more: str, extra: float) -> None:
    """Run each guarded workload once over the same STEPS one-token chunks, and one of them ROUNDS times more.

    extra: a share of the steps that are run twice in those rounds.
    """
    from benchmarks.bench_step import run_steps, state_at

    for name in GUARDED:
        workload = WORKLOADS[name]
        request = workload.request()
        ids = workload.ids(WARM_UP + STEPS)
        state = state_at(request, workload, ids[:WARM_UP])
        chunks = [workload.chunk(ids[at : at + 1]) for at in range(WARM_UP, WARM_UP + STEPS)]
        run_steps(request, chunks, state, cold=True)
        for _ in range(ROUNDS if name == more else 0):
            run_steps(request, chunks, state, cold=True)
            run_steps(request, chunks[: int(STEPS * extra)], state, cold=True)


@cache
def _total(more: str, extra: float) -> int:
    """Instructions of a whole process. Raises RuntimeError where valgrind cannot run."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-m", "benchmarks.instructions", "--work", more, str(extra)]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    match = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode != 0 or match is None:
        raise RuntimeError(f"valgrind failed ({done.returncode}): {done.stderr[-2000:]}")
    return int(match[1].replace(",", ""))


def count(name: str, *, extra: float = 0.0) -> int:
    """Instructions per step of a workload. Raises RuntimeError where valgrind cannot run."""
    return (_total(name, extra) - _total("", 0.0)) // (ROUNDS * STEPS)


def platform_key() -> str:
    """What a baseline belongs to: other interpreters and codecs run other instructions."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{platform.machine()} python{python} msgspec{version('msgspec')} tokenizers{version('tokenizers')}"


def baseline() -> dict[str, int] | None:
    """The committed counts for this platform, or None."""
    stored: dict[str, dict[str, int]] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return stored.get(platform_key())


def excess(counts: dict[str, int], before: dict[str, int]) -> dict[str, float]:
    """Workloads whose count grew by more than TOLERANCE, with the growth."""
    growth = {name: counts[name] / before[name] - 1 for name in before}
    return {name: value for name, value in growth.items() if value > TOLERANCE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store the counts as the baseline")
    parser.add_argument("--work", nargs=2, metavar=("MORE", "EXTRA"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work[0], float(args.work[1]))
        return
    counts = {name: count(name) for name in GUARDED}
    before = baseline() or {}
    for name, value in counts.items():
        change = f"{value / before[name] - 1:+.1%}" if name in before else "new"
        print(f"{name:12} {value:>10,} instructions per step  {change}")
    if args.write:
        stored: dict[str, Any] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
        stored[platform_key()] = counts
        BASELINE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
