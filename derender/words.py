"""Numbers with their nouns, as a person reads them."""

from __future__ import annotations


def count(number: object, noun: str, plural: str = "") -> str:
    """`1 entry`, `2 entries`. number: or a text in place of one that is not known. plural: default: noun + s."""
    return f"{number} {noun if str(number) == '1' else plural or noun + 's'}"
