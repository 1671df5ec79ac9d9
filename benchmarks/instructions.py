"""Instructions per step of fixed workloads, counted by valgrind: the figure that CI guards, since it has no noise.

    python -m benchmarks.instructions            print the counts
    python -m benchmarks.instructions --write    store them as the baseline (after a change that is worth it)
    python -m benchmarks.instructions --lengths  print the counts after outputs of several lengths

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
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.workloads import WORKLOADS
from schemas.state import StreamState

BASELINE = Path(__file__).with_name("instructions.json")
TOLERANCE = 0.15
"""Growth that fails the guard; a test shows that 20 % more work trips it."""

GUARDED = ("plain", "logprobs", "json_call", "xml_call")
FLAT = ("reasoning", "json_call", "xml_call")
"""Outputs whose step may not cost more the longer they are."""
LENGTHS = (100, 1_000, 10_000, 30_000)
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
    return _counted(["--work", more, str(extra)])


def _counted(arguments: list[str], given: bytes = b"") -> int:
    """Instructions of a process of this module. given: its standard input. Raises RuntimeError."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-m", "benchmarks.instructions", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, input=given, env=environment, check=False)
    told = done.stderr.decode()
    match = re.search(r"I\s+refs:\s+([\d,]+)", told)
    if done.returncode != 0 or match is None:
        raise RuntimeError(f"valgrind failed ({done.returncode}): {told[-2000:]}")
    return int(match[1].replace(",", ""))


def counts(workloads: Iterable[tuple[str, float]]) -> list[int]:
    """Instructions per step of each (workload, extra), counted side by side. Raises RuntimeError without valgrind."""
    return _per_step(_total, [("", 0.0), *workloads])


def _per_step(total: Callable[..., int], runs: list[tuple[Any, ...]]) -> list[int]:
    """Instructions per step of all runs but the first, which has no steps to count."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # what is counted does not depend on what runs beside it
        idle, *totals = pool.map(total, *zip(*runs, strict=True))
    return [(one - idle) // (ROUNDS * STEPS) for one in totals]


def work_at(more: str, length: int, states: dict[str, bytes]) -> None:
    """Step each workload of FLAT once through STEPS tokens, and one of them ROUNDS times after output token `length`.

    states: of the one workload the state at that length, of all the state at WARM_UP.
    """
    from benchmarks.bench_step import run_steps

    for name in FLAT:
        workload = WORKLOADS[name]
        request = workload.request()
        for at, rounds in ((WARM_UP, 1), (length, ROUNDS if name == more else 0)):
            ids = workload.ids(at + STEPS)[at:] if rounds else []
            chunks = [workload.chunk([id_]) for id_ in ids]
            for _ in range(rounds):
                state = msgspec.json.decode(states[f"{name} {at}"], type=StreamState)
                run_steps(request, chunks, state, cold=True)


@cache
def _total_at(more: str, length: int) -> int:
    from benchmarks.bench_step import state_at

    wanted = [(name, WARM_UP) for name in FLAT] + ([(more, length)] if more else [])
    states = {}
    for name, at in wanted:
        state = state_at(WORKLOADS[name].request(), WORKLOADS[name], WORKLOADS[name].ids(at))
        states[f"{name} {at}"] = msgspec.json.encode(state)
    return _counted(["--work-at", more, str(length)], msgspec.json.encode(states))


def counts_by_length() -> dict[str, dict[int, int]]:
    """Instructions per step of each workload of FLAT after each of LENGTHS. Raises RuntimeError without valgrind."""
    runs = [(name, length) for name in FLAT for length in LENGTHS]
    found = dict(zip(runs, _per_step(_total_at, [("", 0), *runs]), strict=True))
    return {name: {length: found[name, length] for length in LENGTHS} for name in FLAT}


def platform_key() -> str:
    """What a baseline belongs to: other interpreters and codecs run other instructions."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{platform.machine()} python{python} msgspec{version('msgspec')} tokenizers{version('tokenizers')}"


def baseline() -> dict[str, int] | None:
    """The committed counts for this platform, or None."""
    stored: dict[str, dict[str, int]] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return stored.get(platform_key())


def excess(found: dict[str, int], before: dict[str, int]) -> dict[str, float]:
    """Workloads whose count grew by more than TOLERANCE, with the growth."""
    growth = {name: found[name] / before[name] - 1 for name in before}
    return {name: value for name, value in growth.items() if value > TOLERANCE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store the counts as the baseline")
    parser.add_argument("--work", nargs=2, metavar=("MORE", "EXTRA"), help=argparse.SUPPRESS)
    parser.add_argument("--lengths", action="store_true", help="print the counts after outputs of several lengths")
    parser.add_argument("--work-at", nargs=2, metavar=("MORE", "LENGTH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work_at:
        states = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, bytes])
        work_at(args.work_at[0], int(args.work_at[1]), states)
        return
    if args.lengths:
        for name, by_length in counts_by_length().items():
            print(f"{name:12}", *(f"{length:>7,}: {value:>8,}" for length, value in by_length.items()))
        return
    if args.work:
        work(args.work[0], float(args.work[1]))
        return
    found = dict(zip(GUARDED, counts((name, 0.0) for name in GUARDED), strict=True))
    before = baseline() or {}
    for name, value in found.items():
        change = f"{value / before[name] - 1:+.1%}" if name in before else "new"
        print(f"{name:12} {value:>10,} instructions per step  {change}")
    if args.write:
        stored: dict[str, Any] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
        stored[platform_key()] = found
        BASELINE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
