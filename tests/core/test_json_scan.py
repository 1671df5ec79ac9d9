"""The JSON scanner: where a value ends, whether it is JSON, and that cuts make no difference."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.json_scan import DONE, MAX_DEPTH, JsonScan


def scan(text: str, cuts: list[int] | None = None) -> tuple[str, str, bool]:
    """Text of the value, what follows it, and whether it is whole and good."""
    edges = [0, *sorted(cuts or []), len(text)]
    scanner = JsonScan()
    out: list[str] = []
    for begin, end in pairwise(edges):
        chunk = text[begin:end]
        pos = scanner.feed(chunk, 0, len(chunk), out)
        scanner = JsonScan(scanner.mode, scanner.stack, scanner.scalar, scanner.bad)
        if pos < len(chunk) or scanner.done:
            return "".join(out), chunk[pos:] + text[end:], scanner.done and not scanner.bad
    scanner.finish()
    return "".join(out), "", scanner.mode == DONE and not scanner.bad


@pytest.mark.parametrize(
    ("text", "value", "rest", "good"),
    [
        ('{"a": 1} x', '{"a": 1}', " x", True),
        ('{"a": "}"}]', '{"a": "}"}', "]", True),
        ('[1, [2], {"k": []}]', '[1, [2], {"k": []}]', "", True),
        (r'"\"" ', r'"\""', " ", True),
        ('"a\nb\x01"', '"a\\nb\\u0001"', "", True),
        ("12,", "12", ",", True),
        ("true", "true", "", True),
        ("01", "01", "", False),
        ("tru ", "tru", " ", False),
        (r'"\x"', r'"\x"', "", False),
        (r'"\u00g"', r'"\u00g"', "", False),
        ('{"a" 1}', '{"a" ', "1}", False),
        ("{,}", "{", ",}", False),
        ('{"a": 1,}', '{"a": 1,', "}", False),
        ("[1,]", "[1,", "]", False),
        ("{]", "{", "]", False),
        ("[1}", "[1", "}", False),
        ("<", "", "<", False),
        ('{"a": <', '{"a": ', "<", False),
        ("[" * (MAX_DEPTH + 1), "[" * MAX_DEPTH, "[", False),
        ("1" * 100, "1" * 100, "", True),
    ],
)
def test_value(text: str, value: str, rest: str, good: bool) -> None:
    assert scan(text) == (value, rest, good)
    assert scan(text, list(range(1, len(text)))) == (value, rest, good)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(value=values, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]), data=st.data())
def test_json_is_passed_on_as_written(value: object, ascii_only: bool, indent: int | None, data: st.DataObject) -> None:
    """Every JSON text is good and ends where it ends, for every cut."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5))
    assert scan(text, cuts) == (text, "", True)


@given(text=st.text(alphabet='{}[]",:\\ua1.e- \n'), data=st.data())
def test_agrees_with_a_parser(text: str, data: st.DataObject) -> None:
    """What is good is JSON, and what is JSON is good (raw control characters aside)."""
    value, rest, good = scan(text, data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    try:
        json.loads(text)
    except ValueError:
        whole = False
    else:
        whole = True
    if whole:
        assert good
        assert rest.strip() == ""
    if good:
        json.loads(value)
