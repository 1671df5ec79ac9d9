"""What every benchmark prints and writes: a table, and JSON with machine, versions and commit."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("msgspec", "redis", "arq", "tokenizers", "hiredis", "uvloop")


def options(doc: str, repeat: str = "turns of which the median is printed") -> argparse.ArgumentParser:
    """What every benchmark can be told. doc: of its module; repeat: what is repeated there."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--repeat", type=int, default=7, help=repeat)
    return parser


def medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each column over runs of one kind."""
    return {column: statistics.median(run[column] for run in runs) for column in runs[0]}


def environment() -> dict[str, Any]:
    """Machine, versions and commit that a figure belongs to."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "commit": _commit(),
        "command": " ".join(["python -m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor()
    names = [
        line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def table(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a Markdown table; the columns are the keys of the first row."""
    print(f"\n{title}\n")
    columns = list(rows[0])
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)]
    print("| " + " | ".join(column.ljust(width) for column, width in zip(columns, widths, strict=True)) + " |")
    print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for line in cells:
        print("| " + " | ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) + " |")


def _cell(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def write(path: str | None, name: str, rows: list[dict[str, Any]]) -> None:
    """Write rows with their environment as JSON, where a path was asked for."""
    if path:
        Path(path).write_text(json.dumps({"benchmark": name, **environment(), "rows": rows}, indent=1) + "\n")
