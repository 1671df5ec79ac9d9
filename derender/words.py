"""Numbers with their nouns, as a person reads them."""

from __future__ import annotations


def noun(number: object, one: str, plural: str = "") -> str:
    """number: or a text in place of one that is not known. plural: default: one + s."""
    return one if str(number) == "1" else plural or one + "s"


def count(number: object, one: str, plural: str = "") -> str:
    """`1 entry`, `2 entries`."""
    return f"{number} {noun(number, one, plural)}"
