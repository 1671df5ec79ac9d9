"""`derender top`: partitions and workers as they work, in a terminal."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from derender.reach import needed, reaching
from derender.words import count
from link.redis import Redis, connect
from producer.survey import AGES, CONFIG, DEAD, INFO, OPEN, OWNER, WAITING, WORKERS, PartitionLook, Survey, look
from schemas.keys import Keys
from schemas.report import WorkerReport
from worker.settings import RedisSettings, SettingsError, add_options, load, option, shown_url

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table

FRAME_WIDTH = 118
"""Columns of a frame that is printed once."""


@dataclass(frozen=True)
class TopSettings(RedisSettings):
    """Options of `top`."""

    interval_s: float = option(1.0, "time between two looks")
    once: bool = option(False, "print one frame as text and end")
    rows: int = option(32, "most partitions to show; when there are more, those with the longest queues")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.interval_s > 0:
            raise SettingsError("--interval-s has to be more than 0")
        if self.rows < 1:
            raise SettingsError("--rows has to be at least 1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, TopSettings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(TopSettings, vars(args), environ)
    from rich.console import Console

    console = Console(file=sys.stdout, width=FRAME_WIDTH, color_system=None) if settings.once else Console()
    with reaching(settings.redis_url, "operator"):
        asyncio.run(_top(settings, console))
    return 0


async def _top(settings: TopSettings, console: Console) -> None:
    from rich.live import Live

    redis, names = connect(settings.redis_url), Keys(settings.key_prefix)
    try:
        before = await look(redis, names)
        await asyncio.sleep(settings.interval_s)
        now = await look(redis, names)
        if settings.once:
            console.print(frame(settings, before, now))
            return
        with Live(frame(settings, before, now), console=console, screen=True, auto_refresh=False) as live:
            while True:
                before, now = now, await _next(settings, redis, names)
                live.update(frame(settings, before, now), refresh=True)
    finally:
        await redis.aclose()


async def _next(settings: TopSettings, redis: Redis, names: Keys) -> Survey:
    await asyncio.sleep(settings.interval_s)
    return await look(redis, names)


def frame(settings: TopSettings, before: Survey, now: Survey) -> Group:
    """Everything on the screen. Rates are between the two looks, by Redis' clock."""
    from rich.console import Group

    seconds = max(0.001, (now.at_ms - before.at_ms) / 1000)
    parts: list[RenderableType] = [_head(settings, now), _partitions(settings, before, now, seconds)]
    parts += [_workers(before, now, seconds), _models(now)]
    return Group(*parts, *([_bridges(now)] if now.bridges else []))


def short(token: str | None) -> str:
    """`host:pid` of a worker's name."""
    return ":".join(token.split(":")[:2]) if token else "none"


def duration(ms: int | None) -> str:
    if ms is None:
        return "-"
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s" if ms < 60_000 else f"{ms // 60_000} min"


def _head(settings: TopSettings, now: Survey) -> str:
    info = now.info
    memory = f"{int(info['used_memory']) / 2**20:.0f} MiB" if "used_memory" in info else "memory unknown"
    if int(info.get("maxmemory") or 0):
        memory += f" of {int(info['maxmemory']) / 2**20:.0f}"
    ended = Counter[str]()
    for worker in now.workers:
        ended.update(worker.outcomes)
    partitions = _unless_hidden(now, CONFIG, len(now.partitions))
    members = _unless_hidden(now, WORKERS, len(now.members))
    waiting = _unless_hidden(now, WAITING, sum(one.lag for one in now.partitions))
    open_ = _unless_hidden(now, OPEN, sum(one.open for one in now.partitions))
    dead = _unless_hidden(now, DEAD, sum(one.dead for one in now.partitions))
    outcomes = ", ".join(f"{number} {status}" for status, number in sorted(ended.items())) or "none"
    lines = [
        f"{shown_url(settings.redis_url)}  Redis {info.get('redis_version', 'of unknown version')}, {memory}",
        f"{count(partitions, 'partition')}, {count(members, 'worker')}, {count(open_, 'open request')}, "
        f"{count(waiting, 'entry waits', 'entries wait')}, {count(dead, 'dead letter')}",
        f"ended since these workers started: {_unless_hidden(now, WORKERS, outcomes)}",
    ]
    if now.hidden - {INFO}:  # that one the first line says
        lines.append(f"hidden from this user: {', '.join(sorted(now.hidden))}")
        lines.append(f"to see all, {needed('operator')}")
    return "\n".join(lines)


def _unless_hidden(now: Survey, what: str, value: object) -> str:
    return "?" if what in now.hidden else str(value)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return table


def _partitions(settings: TopSettings, before: Survey, now: Survey, seconds: float) -> Table:
    table = _table(
        "partition", "owner", ">waiting", ">oldest", ">bulk waiting", ">oldest", ">entries/s", ">open", ">dead"
    )
    earlier = {one.number: one for one in before.partitions}
    shown = now.partitions
    if len(shown) > settings.rows:
        shown = tuple(sorted(shown, key=lambda one: (-one.lag, one.number))[: settings.rows])
    for one in shown:
        rate = (one.read - earlier.get(one.number, one).read) / seconds
        cells = (
            (OWNER, short(one.owner)), (WAITING, one.chunks.lag), (AGES, duration(one.chunks.oldest_ms)),
            (WAITING, one.bulk.lag), (AGES, duration(one.bulk.oldest_ms)), (WAITING, f"{max(0.0, rate):.0f}"),
            (OPEN, one.open), (DEAD, one.dead),
        )  # fmt: skip
        table.add_row(
            str(one.number), *(_unless_hidden(now, what, value) for what, value in cells), style=_style(now, one)
        )
    return table


def _style(now: Survey, one: PartitionLook) -> str:
    if one.owner is None and one.lag and OWNER not in now.hidden:
        return "bold red"
    return "yellow" if max(one.chunks.oldest_ms or 0, one.bulk.oldest_ms or 0) > 1000 else ""


def _workers(before: Survey, now: Survey, seconds: float) -> Table:
    table = _table("worker", "version", "partitions", ">up", ">tokens/s", ">replies/s", ">requests", "errors")
    earlier = {worker.token: worker for worker in before.workers}
    for worker in sorted(now.workers, key=lambda one: one.token):
        old = earlier.get(worker.token, worker)
        # the report's own clock: it comes once a second, so a look may see the same one twice
        passed = (worker.at_ms - old.at_ms) / 1000 or seconds
        errors = ", ".join(f"{number} {kind}" for kind, number in sorted(worker.errors.items()))
        table.add_row(
            short(worker.token), worker.version, " ".join(map(str, worker.partitions)) or "-",
            duration(worker.at_ms - worker.started_ms), _rate(old, worker, "tokens", passed),
            _rate(old, worker, "replies", passed), str(sum(worker.outcomes.values())), errors or "-",
        )  # fmt: skip
    return table


def _bridges(now: Survey) -> Table:
    table = _table("bridge", "version", "queue", ">up", ">calls")
    for bridge in sorted(now.bridges, key=lambda one: (one.queue, one.token)):
        up = duration(bridge.at_ms - bridge.started_ms)
        table.add_row(bridge.token, bridge.version, bridge.queue or "-", up, str(bridge.calls))
    return table


def _rate(old: WorkerReport, new: WorkerReport, name: str, seconds: float) -> str:
    return f"{max(0, new.counts.get(name, 0) - old.counts.get(name, 0)) / seconds:.0f}"


def _models(now: Survey) -> Table:
    table = _table("model", "state", "fingerprint", "tool parser", "reasoning parser", "workers", "note")
    rows: dict[tuple[str, str, str | None], list[WorkerReport]] = {}
    for worker in now.workers:
        for model in worker.models:
            rows.setdefault((model.name, model.state, model.fingerprint), []).append(worker)
    prints = {name: {row[2] for row in rows if row[0] == name and row[2]} for name, _, _ in rows}
    for (name, state, fingerprint), workers in sorted(rows.items(), key=lambda row: (row[0][0], row[0][1])):
        model = next(one for one in workers[0].models if one.name == name)
        note = "workers differ" if len(prints[name]) > 1 else model.error or ""
        table.add_row(
            name, state, fingerprint or "-", model.tool_call_parser or "-", model.reasoning_parser or "-",
            str(len(workers)), note,
        )  # fmt: skip
    return table
