"""Once a second: what this worker did, for its metrics and for whoever looks at Redis (`derender top`, `doctor`)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from link.redis import UNREACHABLE, Redis, RedisError, time_ms
from schemas import keys
from schemas.keys import Keys
from schemas.report import REPORT_EVERY_S, REPORT_TTL_MS, ModelReport, WorkerReport
from worker.drain import Counts, Drain

if TYPE_CHECKING:
    from worker.metrics import Metrics

logger = logging.getLogger(__name__)

RETRY_S = 30.0

_encode = msgspec.json.Encoder().encode


class Reporter:
    """Reports until it is cancelled; a Redis that is away is waited for in silence, others complain already.

    drains: those of this process. models: what is served, asked anew each time. partitions: of the database.
    """

    def __init__(
        self,
        redis: Redis,
        names: Keys,
        token: str,
        counts: Counts,
        *,
        version: str,
        drains: Callable[[], Iterable[Drain]],
        models: Callable[[], Sequence[ModelReport]] = tuple,
        metrics: Metrics | None = None,
        partitions: int = 0,
    ) -> None:
        self.partitions = partitions
        self.redis = redis
        self.names = names
        self.token = token
        self.counts = counts
        self.version = version
        self.drains = drains
        self.models = models
        self.metrics = metrics
        self._started_ms = 0
        self._published: dict[str, ModelReport] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.report()
            except UNREACHABLE:
                self._published.clear()
            except RedisError as error:  # as an ACL without these keys: work goes on, unseen
                logger.warning("no report: %s", error)
                await asyncio.sleep(RETRY_S)
            except Exception:
                logger.exception("no report: a fault of ours, work goes on")
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(REPORT_EVERY_S)

    async def report(self) -> None:
        drained = sorted(drain.partition.number for drain in self.drains() if drain.active)
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            for number in drained:
                pipe.hlen(self.names.open(number))
                pipe.xinfo_groups(self.names.chunks(number))
                pipe.xinfo_groups(self.names.bulk(number))
            clock, *found = await pipe.execute(raise_on_error=False)
        now_ms = time_ms(clock)
        self._started_ms = self._started_ms or now_ms
        models = tuple(self.models())
        if self.metrics is not None:
            self._measure(self.metrics, now_ms, drained, found, models)
        plain = {name: value for name, value in dataclasses.asdict(self.counts).items() if isinstance(value, int)}
        report = WorkerReport(
            token=self.token,
            version=self.version,
            started_ms=self._started_ms,
            at_ms=now_ms,
            partitions=tuple(drained),
            counts=plain,
            outcomes=dict(self.counts.outcomes),
            errors=dict(self.counts.errors),
            models=models,
        )
        if self.partitions and await self._settle_again():
            self._published.clear()
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.set(self.names.report(self.token), _encode(report), px=REPORT_TTL_MS)
            for model in models:
                if model.state == "loaded" and self._published.get(model.name) != model:
                    value = _encode(model)
                    pipe.hset(self.names.models, mapping=dict.fromkeys((model.name, *model.aliases), value))
            await pipe.execute()
        self._published = {model.name: model for model in models}

    async def _settle_again(self) -> bool:
        """Write the configuration of a database that was emptied under us; whoever starts now would settle another."""
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.hsetnx(self.names.config, keys.CONFIG_PARTITIONS, str(self.partitions))
            pipe.hsetnx(self.names.config, keys.CONFIG_WIRE_VERSION, str(keys.WIRE_VERSION))
            written = any(await pipe.execute())
        if written:
            logger.warning("%s was gone: the database was emptied", self.names.config)
        return written

    def _measure(
        self, metrics: Metrics, now_ms: int, drained: list[int], found: list[Any], models: Iterable[ModelReport]
    ) -> None:
        from worker.metrics import PartitionState

        metrics.offset_s = now_ms / 1000 - time.time()
        metrics.counts(self.counts)
        metrics.all_partitions.set(self.partitions)
        metrics.partitions(
            PartitionState(number, {"chunks": lag_of(chunks), "bulk": lag_of(bulk)}, open_ if type(open_) is int else 0)
            for number, open_, chunks, bulk in zip(drained, found[::3], found[1::3], found[2::3], strict=True)
        )
        for model in models:
            metrics.model(model.name, model.fingerprint, loaded=model.state == "loaded")


def lag_of(groups: Any) -> int:
    """Unread entries of our group in an answer to XINFO GROUPS; 0 where there is none (yet) or Redis does not know."""
    for group in groups if isinstance(groups, list) else ():
        if group["name"] in (keys.GROUP, keys.GROUP.encode()):
            return max(0, group.get("lag") or 0)
    return 0
