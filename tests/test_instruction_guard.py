"""The pure step may not grow by more than 15 % in instructions unnoticed."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from benchmarks import instructions

pytestmark = pytest.mark.timeout(1200)


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


@pytest.fixture(scope="module")
def found(before: dict[str, int]) -> dict[tuple[str, float], int]:
    """Counts of each (workload, extra)."""
    runs = [*((name, 0.0) for name in instructions.GUARDED), ("plain", 0.2)]
    return dict(zip(runs, instructions.counts(runs), strict=True))


@pytest.mark.slow
def test_no_workload_needs_more_instructions_than_its_baseline_allows(
    before: dict[str, int], found: dict[tuple[str, float], int]
) -> None:
    assert before.keys() == set(instructions.GUARDED)
    assert instructions.excess({name: found[name, 0.0] for name in before}, before) == {}


@pytest.mark.slow
def test_a_fifth_more_work_trips_the_guard(before: dict[str, int], found: dict[tuple[str, float], int]) -> None:
    assert list(instructions.excess({"plain": found["plain", 0.2]}, {"plain": before["plain"]})) == ["plain"]


@pytest.fixture(scope="module")
def by_length() -> dict[str, dict[int, int]]:
    if shutil.which("valgrind") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("valgrind is not installed")
    return instructions.counts_by_length()


@pytest.mark.slow
@pytest.mark.parametrize("name", instructions.FLAT)
def test_a_step_costs_the_same_however_long_the_output_is(name: str, by_length: dict[str, dict[int, int]]) -> None:
    counts = by_length[name].values()
    print(name, by_length[name])
    assert min(counts) > 10_000
    assert max(counts) <= 1.1 * min(counts)


def test_excess_names_the_workload_and_its_growth() -> None:
    assert instructions.excess({"a": 116, "b": 115, "c": 50}, {"a": 100, "b": 100, "c": 100}) == {
        "a": pytest.approx(0.16)
    }
