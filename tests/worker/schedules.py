"""Runs of workers on one Redis in virtual time, every wait and fault drawn from a seed: a schedule that fails can be
run again."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from fakeredis import FakeServer
from fakeredis.aioredis import FakeRedis
from redis.exceptions import ConnectionError

from link.tasks import end
from schemas.keys import Keys
from worker import drain as drain_module
from worker import turns as turns_module
from worker.batch import Rules
from worker.core.model import Model
from worker.core.session import Session
from worker.drain import Counts, Drain
from worker.streams import Lookup, Partition
from worker.turns import Turns

NAMES = Keys()
Result = TypeVar("Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps cost nothing: where nothing is ready, the time is that of the next timer."""

    virtual = 0.0

    def time(self) -> float:
        return self.virtual

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(self._scheduled)._scheduled = False  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        if not self._ready:  # type: ignore[attr-defined]
            assert self._scheduled, "everything waits, and for nothing"  # type: ignore[attr-defined]
            self.virtual = max(self.virtual, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def in_virtual_time(
    main: Coroutine[Any, Any, Result], monkeypatch: pytest.MonkeyPatch, chance: random.Random
) -> Result:
    """Run to the end; what a step costs is drawn, so that batches end anywhere."""
    with monkeypatch.context() as patch, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        work = [0.0]

        def perf_counter() -> float:
            work[0] += chance.choice((0.0, 0.0001, 0.001, 0.006))
            return work[0]

        patch.setattr(drain_module, "perf_counter", perf_counter)
        patch.setattr(random, "uniform", chance.uniform)  # of the pauses
        patch.setattr(turns_module, "monotonic", runner.get_loop().time)
        return runner.run(main)


class Killed(BaseException):
    """The process ends here."""


class Link:
    """One worker's way to Redis. Each command waits before and after; `faults` of them are lost, before or after."""

    def __init__(self, chance: random.Random, faults: float = 0.0) -> None:
        self.chance = chance
        self.faults = faults
        self.cut = False  # nothing goes through any more
        self.commands = 0

    async def point(self) -> None:
        self.commands += 1
        await asyncio.sleep(self.chance.choice((0.0, 0.0002, 0.001, 0.004)))
        if self.cut or self.chance.random() < self.faults:
            raise ConnectionError("lost")


class LinkedRedis(FakeRedis):
    link: Link

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        words, until = list(args), 0.0
        if "BLOCK" in map(_upper, words) or b"BLOCK" in words:  # waiting is ours, in virtual time
            at = next(i for i, word in enumerate(words) if _upper(word) == "BLOCK")
            until = asyncio.get_running_loop().time() + int(words[at + 1]) / 1000
            del words[at : at + 2]
        while True:
            await self.link.point()
            answer = await super().execute_command(*words, **options)
            await self.link.point()
            if answer or asyncio.get_running_loop().time() >= until:
                return answer
            await asyncio.sleep(0.002)


def _upper(word: Any) -> str:
    return (word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)).upper()


class LinkedPartition(Partition):
    async def lookup(self, ids: Any) -> Lookup:
        link: Link = self.redis.link  # type: ignore[attr-defined]
        await link.point()
        found = await super().lookup(ids)
        await link.point()
        return found


class Worker:
    """A worker process with one partition."""

    def __init__(
        self, server: FakeServer, model: Model, rules: Rules, chance: random.Random, faults: float = 0.0
    ) -> None:
        self.successor: Callable[[], Worker] = lambda: Worker(server, model, rules, chance, faults)
        self.link = Link(chance, faults)
        self.redis = LinkedRedis(server=server)
        self.redis.link = self.link
        self.counts = Counts()
        self.turns = Turns()
        self.session = Session(lambda _: model)
        self.rules = rules
        self.leaving = False
        self.token = f"{chance.getrandbits(64):x}"
        self.drain: Drain | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.leaving = False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """As `worker/main.py` and arq do: again and again, a new partition each time, the last attempt taken back."""
        while not self.leaving:
            try:
                if self.drain is not None:
                    await self.drain.forgive()
                partition = LinkedPartition(self.redis, self.redis, NAMES, 0, token=self.token)
                self.drain = Drain(
                    partition,
                    self.session,
                    self.rules,
                    leave=lambda: self.leaving,
                    counts=self.counts,
                    turns=self.turns,
                )
                await self.drain.run()
            except ConnectionError:
                pass
            await asyncio.sleep(0.01)

    async def leave(self) -> None:
        self.leaving = True
        if self.task is not None:
            await self.task
        if self.drain is not None:
            with suppress(ConnectionError):  # else at the next start
                await self.drain.forgive()

    async def cut_off(self) -> None:
        """Redis goes away for this worker, everything is cancelled, Redis comes back."""
        self.link.cut = True
        assert self.task is not None
        await end(self.task)
        self.link.cut = False
        self.start()

    async def kill(self) -> None:
        """Nothing of it reaches Redis any more."""
        self.link.cut = True
        if self.task is not None:
            await end(self.task)
