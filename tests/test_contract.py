"""The contract's table names every rule and every error condition, once."""

from __future__ import annotations

import re

import pytest

from schemas.state import MAX_PLAIN_STATE_BYTES
from tests.shared_data import ROOT
from worker.core.detokenize import MAX_HELD_CHARS, MAX_UNREAD_IDS, WINDOW_IDS
from worker.core.errors import MAX_MESSAGE_CHARS
from worker.core.model import Limits
from worker.core.stop import MAX_STOP_CHARS
from worker.core.validate import MAX_N

CONTRACT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ((?:[SE]\d+(?:, )?)+) ", CONTRACT, re.M)


@pytest.mark.parametrize(("letter", "last"), [("S", 46), ("E", 23)])
def test_every_row_is_there_once(letter: str, last: int) -> None:
    named = [name for row in ROWS for name in row.split(", ") if name.startswith(letter)]
    assert sorted(named, key=lambda name: int(name[1:])) == [f"{letter}{number}" for number in range(1, last + 1)]


@pytest.mark.parametrize(
    "said",
    [
        f"{MAX_PLAIN_STATE_BYTES // 1024} KiB of JSON",
        f"at {MAX_HELD_CHARS} held characters",
        f"{WINDOW_IDS} ids of context and {MAX_UNREAD_IDS} unread ones",
        f"cut at {MAX_MESSAGE_CHARS} characters",
        f"a stop string is at most {MAX_STOP_CHARS:,} characters",
        f"`n` from 1 to {MAX_N:,}",
        f"than {Limits().max_sequences:,} |",
        f"over {Limits().max_payload_bytes // 2**20} MiB, JSON nested deeper than {Limits().max_json_depth}.",
    ],
)
def test_numbers_are_those_of_the_code(said: str) -> None:
    assert CONTRACT.count(said) == 1
