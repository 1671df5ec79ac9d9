"""Names that are near one that is not known."""

from __future__ import annotations

import pytest

from worker.core.names import did_you_mean


@pytest.mark.parametrize(
    ("given", "known", "expected"),
    [
        ("hermse", ["pythonic", "hermes"], " (did you mean hermes?)"),
        ("QWEN", ["hermes", "qwen3_xml"], " (did you mean qwen3_xml?)"),
        ("aab", ["aaa", "xaabx"], " (did you mean xaabx or aaa?)"),
        ("aa", ["aa1", "aa2", "aa3", "aa4"], " (did you mean aa1 or aa2 or aa3?)"),
        ("x", ["hermes", "xlam"], ""),
        ("nope", ["openai", "hermes"], ""),
        ("openai_gptoss", ["hermes", "openai", "oss"], " (did you mean openai?)"),
        ("", ["hermes"], ""),
    ],
    ids=str,
)
def test_near_names(given: str, known: list[str], expected: str) -> None:
    """Those that hold what was given come first, then those that it holds, then those that look like it."""
    assert did_you_mean(given, known) == expected
