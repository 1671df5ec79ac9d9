"""Arguments that are rewritten as one JSON object, member by member, whatever they were written as."""

from __future__ import annotations

from zlib import crc32

from worker.core.coerce import dump
from worker.core.run import Run
from worker.core.run_constants import MAX_KEYS, WROTE


def is_new(run: Run, key: str) -> bool:
    """Whether the call has no such key yet, which it has then. Of very many keys the later ones count as repeated."""
    digest = crc32(key.encode("utf-8", "surrogatepass"))
    if digest in run.seen or len(run.seen) >= MAX_KEYS:
        return False
    run.seen = (*run.seen, digest)
    return True


def write_key(run: Run, key: str) -> None:
    """A member's key, and what stands before it."""
    run.write((", " if run.flags & WROTE else "{") + dump(key) + ": ")
    run.flags |= WROTE


def write_end(run: Run) -> None:
    run.write("}" if run.flags & WROTE else "{}")
