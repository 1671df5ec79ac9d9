"""The large test data that lives outside the repository: where it is, how it is read, how many of its cases ran.

The folder is `DERENDER_SHARED` (a relative path counts from the project's root; default `../shared`). Where it is
absent every list below is empty, so that a test parametrized over it shows up as one skip; `tests/shared_summary.py`
turns that into a failure on CI. Where it is there, a missing file is an error.

    @pytest.mark.parametrize("case", shared_data.params(shared_data.golden("stop")))
    def test_stop(case):
        shared_data.count("golden")
        ...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = (ROOT / os.environ.get("DERENDER_SHARED", "../shared")).resolve()
PRESENT = SHARED.is_dir()
ON_CI = os.environ.get("CI") == "true"
MISSING = f"no test data at {SHARED} (DERENDER_SHARED names the folder)"

Kind = Literal["golden", "corpus", "faults", "recordings"]
KINDS: tuple[Kind, ...] = get_args(Kind)
executed: Counter[Kind] = Counter()


def count(kind: Kind, n: int = 1) -> None:
    """Say that a test is about to run `n` cases of this kind."""
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r}: one of {', '.join(KINDS)}")
    executed[kind] += n


def require() -> None:
    """Skip the running test where the data is absent; fail it on CI. Marker `shared` calls this before a test."""
    if not PRESENT:
        (pytest.fail if ON_CI else pytest.skip)(MISSING)


def params(rows: Iterable[dict[str, Any]], key: str = "id") -> list[Any]:
    """Rows as pytest parameters that carry their own ids."""
    return [pytest.param(row, id=str(row[key])) for row in rows]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _rows(*parts: str) -> list[dict[str, Any]]:
    return read_jsonl(SHARED.joinpath(*parts)) if PRESENT else []


def _names(folder: str) -> list[str]:
    return sorted(path.stem for path in (SHARED / folder).glob("*.jsonl")) if PRESENT else []


# --- golden cases ----------------------------------------------------------------------------------------------------


def golden_categories() -> list[str]:
    return _names("reference/golden")


def golden(*categories: str) -> list[dict[str, Any]]:
    """Cases of these categories (file names without the suffix), of all when none is named; in file order."""
    return [case for name in categories or golden_categories() for case in _rows("reference/golden", f"{name}.jsonl")]


@cache
def golden_core_ids() -> frozenset[str]:
    """Ids of the compact selection that a quick run uses."""
    return frozenset((SHARED / "reference/golden/core-ids.txt").read_text().split()) if PRESENT else frozenset()


@cache
def golden_servers() -> dict[str, Any]:
    """Server settings per tokenizer folder. Shared between callers: do not change it."""
    servers: dict[str, Any] = json.loads((SHARED / "reference/golden/servers.json").read_text()) if PRESENT else {}
    return servers


# --- corpus, reported faults, recordings -----------------------------------------------------------------------------


def corpus_families() -> list[str]:
    return _names("conformance/dev")


def corpus(*families: str) -> list[dict[str, Any]]:
    """Recorded outputs of these families, of all when none is named."""
    return [row for name in families or corpus_families() for row in _rows("conformance/dev", f"{name}.jsonl")]


def faults() -> list[dict[str, Any]]:
    return _rows("cases", "reported-faults.jsonl")


def recording(name: str = "smollm2-135m") -> list[dict[str, Any]]:
    """Events of a recording, in order of time."""
    return _rows("recordings", f"{name}.jsonl")


def recording_expected(name: str = "smollm2-135m") -> list[dict[str, Any]]:
    """Per request and choice index: number of tokens, finish and stop reason, decoded text."""
    return _rows("recordings", f"{name}.expected.jsonl")


# --- tokenizers ------------------------------------------------------------------------------------------------------


@cache
def tokenizers_root() -> Path:
    """Folder of the unpacked tokenizers; unpacks them on first use (seconds, 340 MB, kept between runs).

    Below it are `tokenizers/<name>` and `conformance/tokenizers/<name>`, the paths that the data files use.
    """
    require()
    script = SHARED / "tokenizers" / "unpack.py"
    done = subprocess.run([sys.executable, str(script)], check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


def tokenizer_dir(name: str) -> Path:
    """Tokenizer of a golden case, of a recording, or (with its folder: `tokenizers/smollm2`) of a reported fault."""
    return tokenizers_root() / (name if "/" in name else f"tokenizers/{name}")


def corpus_tokenizer_dir(row: dict[str, Any]) -> Path:
    return tokenizers_root() / "conformance" / "tokenizers" / row["tokenizer"]["local"]
