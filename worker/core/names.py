"""Names that are near one that is not known, for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MAX_MEANT = 3
"""Names that an error proposes for one that is not known."""
NEAR = 0.65
"""Part of two names that has to agree (difflib's ratio); at its own 0.6, `nope` is near `openai`."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """What to append to the message about a name that is not known; nothing where none is near."""
    names, given = list(known), given.lower()
    near = [name for name in names if given in name] if len(given) > 1 else []
    near += [name for name in names if len(name) > 3 and name in given]
    near += get_close_matches(given, names, n=MAX_MEANT, cutoff=NEAR)
    near = list(dict.fromkeys(near))[:MAX_MEANT]
    return f" (did you mean {' or '.join(near)}?)" if near else ""
