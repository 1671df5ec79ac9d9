"""What the fault tests share: how large they are, and the undisturbed run that they are compared with."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.publish import Producer
from tests.chaos.load import Base, Load, fifty, recorded, undisturbed

Fields = dict[bytes, bytes]
Expected = dict[str, list[tuple[str, Fields]]]
"""Replies of each base stream when nothing goes wrong."""


@dataclass(frozen=True)
class Size:
    """How long a fault test is. faults: how often the fault is made; seed: of everything that is random."""

    streams: int
    faults: int
    workers: int
    lease_s: float
    bases: Callable[[], tuple[Base, ...]] = recorded
    seed: int = 7

    @property
    def random(self) -> Random:
        return Random(self.seed)

    def load(self, redis: Redis, producer: Producer, expected: Expected, **options: Any) -> Load:
        """The streams of this size as a load. options: as for `Load`."""
        return Load(redis, producer, self.bases(), expected, self.streams, **{"random": self.random, **options})


SHORT = Size(streams=60, faults=2, workers=2, lease_s=0.6)
LONG = Size(streams=10_000, faults=100, workers=4, lease_s=2.0, bases=fifty)


def sizes(long: Size = LONG, short: Size = SHORT, *, timeout: int = 1500) -> pytest.MarkDecorator:
    """Parameter `size`: a short form for every run, a long one for `make chaos`."""
    return pytest.mark.parametrize(
        "size",
        [
            pytest.param(short, id="short", marks=pytest.mark.redis),
            pytest.param(long, id="long", marks=[pytest.mark.redis, pytest.mark.chaos, pytest.mark.timeout(timeout)]),
        ],
    )


@pytest.fixture(scope="session")
def undisturbed_replies() -> Expected:
    return asyncio.run(undisturbed((*recorded(), *fifty())))


def report(name: str, **figures: Any) -> None:
    """Print the figures of a run, and append them to the file that DERENDER_CHAOS_REPORT names."""
    line = json.dumps({"run": name, **figures})
    print(line)
    if path := os.environ.get("DERENDER_CHAOS_REPORT"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
