"""Python literals as values of JSON."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from worker.core.coerce import ARRAY, OBJECT, convert
from worker.core.python_values import python_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("[True, false, null]", [True, False, None]),
        (" -1", -1),
        ("+2.5", 2.5),
        ("'it\\'s' \"\\x41\\u00e9\"", "it'sAé"),
        ("('a',)", ["a"]),
        ("{1, (2,)}", [1, [2]]),
        ("{'a': {'b': []}, None: 1, True: 2, 1.5: 3}", {"a": {"b": []}, "null": 1, "true": 2, "1.5": 3}),
        ("{1: 'a', '1': 'b'}", {"1": "b"}),
        ("f'plain'", "plain"),
        ("f''", ""),
        (r"r'\d'", "\\d"),
    ],
)
def test_value(text: str, value: Any) -> None:
    got = python_value(text)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize("text", ["1e999", "b'a'", "1j", "a", "f()", "f'{a}'", "{**{}}", "{[]: 1}", "1 + 1", "-'a'"])
def test_no_literal(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not a (literal|key)$"):
        python_value(text)


@pytest.mark.parametrize("text", ["", "[", "1 2", "'a", "\x00"])
def test_no_expression(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        python_value(text)


def test_what_the_interpreter_warns_of_is_a_value() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert python_value(r"['\d+']") == ["\\d+"]


def test_equal_keys_in_a_tagged_value_are_one() -> None:
    assert convert("{1: 'a', '1': 'b'}", OBJECT) == '{"1": "b"}'
    assert convert("({1, 2}, {'k': (3,)})", ARRAY) == '[[1, 2], {"k": [3]}]'
