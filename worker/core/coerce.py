"""Types of text values: which JSON value a piece of text is, given the tool's JSON schema.

Source: the rules that engines apply to XML-like parameters. Of Python's wider spellings only those that models write
are taken: `True`, `False`, `None`, leading zeros; not `1_000` and not digits of other scripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from worker.core.json_scan import MAX_DEPTH
from worker.core.python_values import python_value

STRING, INTEGER, NUMBER, BOOLEAN, NULL, OBJECT, ARRAY = 1, 2, 4, 8, 16, 32, 64
UNKNOWN = 0
CONTAINERS = OBJECT | ARRAY

_TYPES = {
    **dict.fromkeys(("string", "str", "text", "varchar", "char", "enum"), STRING),
    **dict.fromkeys(("integer", "int", "int32", "int64", "uint", "long", "short"), INTEGER),
    **dict.fromkeys(("number", "float", "double", "num"), NUMBER),
    **dict.fromkeys(("boolean", "bool", "binary"), BOOLEAN),
    **dict.fromkeys(("null", "none"), NULL),
    **dict.fromkeys(("object", "dict", "map"), OBJECT),
    **dict.fromkeys(("array", "list", "arr", "tuple", "set"), ARRAY),
}
_MAX_DEPTH = 16
"""Of schemas inside schemas: a `$ref` may refer to itself."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{\]}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")


def _type_of(value: Any) -> int:
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return INTEGER
        case float():
            return NUMBER
        case str():
            return STRING
        case list():
            return ARRAY
        case _:
            return OBJECT


def schema_types(schema: Any, root: Any = None, depth: int = 0) -> int:
    """Bits of the types that a JSON schema allows; UNKNOWN if it does not say."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return UNKNOWN
    found = UNKNOWN
    declared = schema.get("type")
    for name in declared if isinstance(declared, list) else [declared]:
        if isinstance(name, str):
            found |= _TYPES.get(name.lower(), UNKNOWN)
    enum = schema.get("enum")
    if isinstance(enum, list) and not found:
        for value in enum:
            found |= _type_of(value)
    if "const" in schema and not found:
        found |= _type_of(schema["const"])
    for key in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(key)
        for branch in branches if isinstance(branches, list) else []:
            found |= schema_types(branch, root, depth + 1)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target = root
        for part in reference[2:].split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        found |= schema_types(target, root, depth + 1)
    if not found:
        if "properties" in schema or "additionalProperties" in schema:
            found = OBJECT
        elif "items" in schema:
            found = ARRAY
    return found


def property_schema(schema: Any, key: str) -> Any:
    """Schema of one member of an object; None if the object's schema does not say."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties.get(key) if isinstance(properties, Mapping) else None


def parameter_types(parameters: Any, key: str) -> int:
    """Types of one parameter of a tool, by the tool's `parameters` schema."""
    return schema_types(property_schema(parameters, key), parameters)


def dump(value: Any) -> str:
    """JSON text as the usual Python dump writes it; escapes for other scripts only where UTF-8 needs them.

    Raises ValueError for a number that JSON does not have.
    """
    text = _encode(value)
    return json.dumps(value) if not text.isascii() and _SURROGATE.search(text) else text


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_constant=_constant, parse_int=len, parse_float=len)
"""Numbers of any length: only whether the text is JSON counts."""
_decode_string = json.JSONDecoder(strict=False).decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_kind(text: str) -> int:
    """Type bits of the JSON value that text is; UNKNOWN if it is none, holds NaN, or nests deeper than MAX_DEPTH."""
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        return UNKNOWN
    try:
        return _type_of(_decoder.decode(text))
    except (ValueError, RecursionError):
        return UNKNOWN


def _depth(text: str) -> int:
    depth = most = 0
    for match in _BRACKETS.finditer(text):
        if match[0] in "[{":
            depth += 1
            most = max(most, depth)
        elif match[0] in "]}":
            depth -= 1
    return most


def json_string(text: str) -> str | None:
    """The string that a JSON string literal stands for, raw control characters allowed; None if it is none.

    A lone surrogate, which JSON can escape but UTF-8 cannot hold, becomes U+FFFD.
    """
    try:
        value = _decode_string(text)
    except (ValueError, RecursionError):
        return None
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else None


def _parse_container(text: str) -> str | None:
    """JSON text of an array or object: verbatim if it is JSON, rewritten if it is a Python literal."""
    if kind := json_kind(text):
        return text if kind & CONTAINERS else None
    try:
        value = python_value(text)
        return dump(value) if isinstance(value, dict | list) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def number_text(text: str) -> str | None:
    """JSON text of a number, digits kept; None if text is no finite decimal number."""
    if _JSON_NUMBER.match(text):
        return text
    if _INTEGER.match(text):
        sign = "-" if text[0] == "-" else ""
        return sign + (text.lstrip("+-").lstrip("0") or "0")
    if _NUMBER.match(text):
        value = float(text)
        return None if value in (float("inf"), float("-inf")) else repr(value)
    return None


def convert(text: str, types: int) -> str:
    """JSON text of the value that `text` stands for; the first type of the set that fits wins, a string fits always."""
    stripped = text.strip()
    if stripped and types & ~STRING:
        lowered = stripped.lower()
        if types & NULL and (lowered == "null" or (stripped == "None" and not types & STRING)):
            return "null"
        if types & INTEGER and _INTEGER.match(stripped):
            return number_text(stripped) or dump(text)
        if types & NUMBER:
            number = number_text(stripped)
            if number is not None:
                return number
        if types & BOOLEAN and lowered in ("true", "false"):
            return lowered
        if types & BOOLEAN and stripped in ("1", "0"):
            return "true" if stripped == "1" else "false"
        if types & CONTAINERS and stripped[0] in "{[(":
            container = _parse_container(stripped)
            if container is not None and types & (OBJECT if container[0] == "{" else ARRAY):
                return container
        if not types & STRING:
            return json_or_string(text)
    return dump(text)


def json_or_string(text: str) -> str:
    """The text itself if it is JSON, which has four kinds of whitespace, else a JSON string of it."""
    stripped = text.strip(" \t\n\r")
    return stripped if json_kind(stripped) else dump(text)
