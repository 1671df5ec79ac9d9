"""The pure step may not grow by more than 15 % in instructions unnoticed."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from benchmarks import instructions

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def before() -> dict[str, int]:
    if shutil.which("valgrind") is None:
        if os.environ.get("CI"):
            pytest.fail("valgrind is missing: the instruction guard has to run on CI")
        pytest.skip("valgrind is not installed")
    stored = instructions.baseline()
    if stored is None and os.environ.get("CI") and sys.version_info[:2] == (3, 11):
        pytest.fail(f"no baseline for {instructions.platform_key()}, which the locked versions need on CI")
    if stored is None:
        pytest.skip(f"no baseline for {instructions.platform_key()}: python -m benchmarks.instructions --write")
    return stored


@pytest.mark.slow
def test_no_workload_needs_more_instructions_than_its_baseline_allows(before: dict[str, int]) -> None:
    counts = {name: instructions.count(name) for name in instructions.GUARDED}
    assert counts.keys() == before.keys()
    assert instructions.excess(counts, before) == {}


@pytest.mark.slow
def test_a_fifth_more_work_trips_the_guard(before: dict[str, int]) -> None:
    counts = {"plain": instructions.count("plain", extra=0.2)}
    assert list(instructions.excess(counts, {"plain": before["plain"]})) == ["plain"]


@pytest.mark.slow
@pytest.mark.parametrize("name", instructions.FLAT)
def test_a_step_costs_the_same_however_long_the_output_is(name: str) -> None:
    if shutil.which("valgrind") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("valgrind is not installed")
    counts = {length: instructions.count_at(name, length) for length in instructions.LENGTHS}
    print(name, counts)
    assert min(counts.values()) > 10_000
    assert max(counts.values()) <= 1.1 * min(counts.values())


def test_excess_names_the_workload_and_its_growth() -> None:
    assert instructions.excess({"a": 116, "b": 115, "c": 50}, {"a": 100, "b": 100, "c": 100}) == {
        "a": pytest.approx(0.16)
    }
