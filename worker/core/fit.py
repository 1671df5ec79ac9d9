"""Fits a declaration to a vocabulary: checkpoints of some families write `<tag:suffix>` for every `<tag>`."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from worker.core.grammar import Reasoning, Tools
from worker.core.vocabulary import Vocabulary

G = TypeVar("G", Reasoning, Tools)

_TAG = re.compile(r"</?[^<>]+>")


def fitted(grammar: G, vocabulary: Vocabulary) -> G:
    """The grammar with the suffix that this vocabulary's tags have; the grammar itself if they have none."""
    if not grammar.suffixed:
        return grammar
    first = (grammar.open if isinstance(grammar, Reasoning) else grammar.section or grammar.call)[0]
    if first in vocabulary.id_of:
        return grammar
    stem = first.removesuffix(">")
    suffixes = {text[len(stem) : -1] for text in vocabulary.id_of if text.startswith(stem + ":") and text[-1] == ">"}
    return _with_suffix(grammar, suffixes.pop()) if len(suffixes) == 1 else grammar


def _with_suffix(value: Any, suffix: str) -> Any:
    if isinstance(value, str):
        return f"{value[:-1]}{suffix}>" if _TAG.fullmatch(value) else value
    if isinstance(value, tuple):
        return tuple(_with_suffix(one, suffix) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: _with_suffix(getattr(value, field.name), suffix) for field in fields(value)}
        )
    return value
