"""What workers and bridges say of themselves in Redis: one report each, and the models that workers serve."""

from __future__ import annotations

from msgspec import Struct

REPORT_EVERY_S = 1.0
REPORT_TTL_MS = 10_000
"""A worker that says nothing for this long is not shown any more."""


class ModelReport(Struct, frozen=True, omit_defaults=True):
    """One served model: a field of the models hash and a part of each worker's report.

    name: the one that responses carry. state: `waiting` (not used yet), `loaded` or `failed`.
    fingerprint: what a producer may put into its contexts; None until the model is loaded.
    """

    name: str
    state: str
    tokenizer: str = ""
    revision: str | None = None
    fingerprint: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    aliases: tuple[str, ...] = ()
    error: str | None = None


class WorkerReport(Struct, frozen=True, omit_defaults=True):
    """What a worker did since its start. Times in ms by Redis' clock; counts as in `worker/drain.py`."""

    token: str
    version: str
    started_ms: int
    at_ms: int
    partitions: tuple[int, ...] = ()
    counts: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    errors: dict[str, int] = {}
    models: tuple[ModelReport, ...] = ()


class BridgeReport(Struct, frozen=True, omit_defaults=True):
    """What a bridge does. queue: whose requests it takes. calls: to its engine at this moment."""

    token: str
    version: str
    queue: str
    started_ms: int
    at_ms: int
    calls: int = 0
