"""Types of text values."""

from __future__ import annotations

from typing import Any

import pytest

from worker.core.coerce import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    UNKNOWN,
    convert,
    json_or_string,
    parameter_types,
    schema_types,
)


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("12", INTEGER, "12"),
        ("007", INTEGER, "7"),
        ("-05", INTEGER, "-5"),
        ("+3", INTEGER, "3"),
        ("1_000", INTEGER, '"1_000"'),
        ("٣", INTEGER, '"٣"'),
        ("5.0", INTEGER, "5.0"),
        ("0x10", INTEGER, '"0x10"'),
        ("98765432109876543210987", INTEGER, "98765432109876543210987"),
        ("1e20", NUMBER, "1e20"),
        (".5", NUMBER, "0.5"),
        ("1e999", NUMBER, "1e999"),
        ("nan", NUMBER, '"nan"'),
        ("True", BOOLEAN, "true"),
        ("0", BOOLEAN, "false"),
        ("yes", BOOLEAN, '"yes"'),
        ("1", BOOLEAN | INTEGER, "1"),
        ("null", STRING, '"null"'),
        ("null", STRING | NULL, "null"),
        ("NULL", STRING | NULL, "null"),
        ("None", STRING | NULL, '"None"'),
        ("None", INTEGER | NULL, "null"),
        ("null", INTEGER, "null"),
        ("12", INTEGER | STRING, "12"),
        ("12a", INTEGER | STRING, '"12a"'),
        ('{"a": 1}', OBJECT, '{"a": 1}'),
        ('{"a": 1}', OBJECT | STRING, '{"a": 1}'),
        ("{'a': True}", OBJECT, '{"a": true}'),
        (r"['\d']", ARRAY, r'["\\d"]'),
        ("[1, (2,)]", ARRAY, "[1, [2]]"),
        ("[1", ARRAY, '"[1"'),
        ("[NaN]", ARRAY, '"[NaN]"'),
        ('{"a": 1}', ARRAY, '{"a": 1}'),
        ('"str"', OBJECT, '"str"'),
        ('"q"', STRING, '"\\"q\\""'),
        (" 5 ", INTEGER, "5"),
        ("", INTEGER, '""'),
        (" x ", UNKNOWN, '" x "'),
    ],
)
def test_convert(text: str, types: int, expected: str) -> None:
    assert convert(text, types) == expected


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, UNKNOWN),
        (None, UNKNOWN),
        ({"type": "string"}, STRING),
        ({"type": ["integer", "null"]}, INTEGER | NULL),
        ({"type": "Str"}, STRING),
        ({"type": "int"}, INTEGER),
        ({"enum": ["a", 1, 2.5, None, True, [], {}]}, STRING | INTEGER | NUMBER | NULL | BOOLEAN | ARRAY | OBJECT),
        ({"type": "string", "enum": [1]}, STRING),
        ({"const": 3}, INTEGER),
        ({"anyOf": [{"type": "array"}, {"oneOf": [{"type": "null"}]}]}, ARRAY | NULL),
        ({"$ref": "#/$defs/Thing"}, OBJECT),
        ({"$ref": "#/$defs/Self"}, UNKNOWN),
        ({"$ref": "http://elsewhere"}, UNKNOWN),
        ({"properties": {}}, OBJECT),
        ({"items": {}}, ARRAY),
    ],
)
def test_schema_types(schema: Any, types: int) -> None:
    root = {"$defs": {"Thing": {"type": "object"}, "Self": {"$ref": "#/$defs/Self"}}}
    assert schema_types(schema, root) == types


def test_parameter_of_a_tool() -> None:
    tool = {"properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": "number"}}}
    assert parameter_types(tool, "n") == NUMBER
    assert parameter_types(tool, "other") == UNKNOWN
    assert parameter_types(None, "n") == UNKNOWN


@pytest.mark.parametrize(
    ("text", "expected"),
    [(" 5 ", "5"), ("five", '"five"'), ('"a"', '"a"'), ("NaN", '"NaN"'), ("{}\u2028", '"{}\u2028"')],
)
def test_json_or_string(text: str, expected: str) -> None:
    assert json_or_string(text) == expected
