"""Python literals as values of JSON.

Source: what models write where they were told to answer in Python: literals, both spellings of the three words, and
string prefixes.
"""

from __future__ import annotations

import ast
import json
import math
from typing import Any
from warnings import catch_warnings, simplefilter

_WORDS = {"true": True, "false": False, "null": None}


def python_value(text: str) -> Any:
    """The value of a Python literal: lists for tuples and sets, text for keys, of equal keys the last.

    Raises ValueError for anything else, infinities and bytes among it, and what the interpreter's parser raises:
    SyntaxError, RecursionError, MemoryError.
    """
    with catch_warnings():
        # What it only warns of, as of a regular expression's `\d` in a string, is neither said nor an error.
        simplefilter("ignore")
        tree = ast.parse(text.strip(), mode="eval")
    return _value(tree.body)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, bool | int | str):
            return value
        case ast.Constant(value=float() as value) if math.isfinite(value):
            return value
        case ast.Name(id=name) if name in _WORDS:
            return _WORDS[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as value)):
            return -value if isinstance(sign, ast.USub) else value
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_key(_value(key)): _value(value) for key, value in zip(keys, values, strict=True) if key}
        case ast.JoinedStr(values=[]):
            return ""
        case ast.JoinedStr(values=[ast.Constant(value=str() as text)]):
            return text
        case _:
            raise ValueError("not a literal")


def _key(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise ValueError("not a key")
    return json.dumps(value)
