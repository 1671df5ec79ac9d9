"""arq runs one long job for each partition. The only import of arq.

`drain_partition(p)` has the unique id `<prefix>:drain:<p>`, never returns and ends by `Retry`. arq starts it, starts it
again after a crash and shows its health; who owns a partition is the owner key's and the cursor's affair.

What arq 0.28 would do by itself, and what is done about it:
* pickles job bodies (code execution for whoever can write to Redis): `pack` and `unpack` are msgpack;
* keeps the result of a failed job for an hour, which blocks its id: `keep_result` is 0 in both places where it counts;
* gives up after 5 tries, cancellations included, and lets job bodies expire after a day: tries have no end, the body's
  expiry is renewed, and what vanished all the same is queued again within a second or two (`watch`);
* refuses to queue an id while the job of that id is finishing: `watch` asks again;
* lets the same job start twice in one process, which ends in a KeyError that looks like success: `start_jobs` skips ids
  that run here, and ids of other workers, which also keeps polling cheap;
* keeps its in-progress key for the longest job time-out: it is as short as our lease and renewed;
* logs arguments and results: there is one argument, the partition, and no result;
* waits for ever on a silent connection and ends at the first lost one: the pool is ours (`link.redis.connect`), and
  `worker/main.py` puts a loop around it;
* cannot start a job in a Redis that is full, and only draining would free it: partitions then run alone (`_run_alone`);
* asks INFO at the start, which an embedded Redis does not know and an ACL may refuse: `main` leaves it out.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix, job_key_prefix
from arq.worker import Retry, Worker, func

from link.redis import FULL, UNREACHABLE, Redis
from link.tasks import end
from worker.streams import Members

logger = logging.getLogger(__name__)

FUNCTION = "drain_partition"
POLL_S = 0.2
RETRY_S = 0.3
"""How long to wait before asking again for a partition that another worker has."""

WATCH_S = 1.0
JOB_TTL_MS = 86_400_000

Run = Callable[[int], Awaitable[bool]]
"""Drains a partition until it should be left. False: another worker owns it."""

_packer = msgspec.msgpack.Encoder()
_unpacker = msgspec.msgpack.Decoder(dict[str, Any])


def pack(value: dict[str, Any]) -> bytes:
    """A job body or result as msgpack. Exceptions go by name alone: their messages may quote outputs."""
    return _packer.encode({k: type(v).__name__ if isinstance(v, BaseException) else v for k, v in value.items()})


def unpack(data: bytes) -> dict[str, Any]:
    return _unpacker.decode(data)


class PartitionJobs(Worker):
    """An arq worker whose jobs are the partitions that belong to it.

    run: drains one partition. members: who lives, for fair sharing. exclusive: False gives every worker jobs of its own
    for all partitions (only to test that nothing depends on who owns them).
    """

    def __init__(
        self,
        redis: Redis,
        run: Run,
        members: Members,
        partitions: int,
        *,
        queue: str,
        lease_s: float,
        exclusive: bool = True,
    ) -> None:
        self.run_partition = run
        self.members = members
        self.partitions = partitions
        self.lease_s = lease_s
        self.exclusive = exclusive
        self.stopping = False
        self._ended = False
        self._full = False
        self._alone: dict[int, asyncio.Task[bool]] = {}
        self._prefix = queue.removesuffix(":jobs") + ":drain:" + ("" if exclusive else members.token + ":")
        pool = ArqRedis(
            redis.connection_pool,
            job_serializer=pack,
            job_deserializer=unpack,
            default_queue_name=queue if exclusive else f"{queue}:{members.token}",
        )
        super().__init__(
            [func(self._drain, name=FUNCTION, keep_result=0, max_tries=sys.maxsize)],
            queue_name=pool.default_queue_name,
            redis_pool=pool,
            handle_signals=False,
            max_jobs=partitions,
            job_timeout=None,  # type: ignore[arg-type]  # None is what switches it off
            keep_result=0,
            max_tries=sys.maxsize,
            poll_delay=POLL_S,
            health_check_interval=10,
            job_serializer=pack,
            job_deserializer=unpack,
            log_results=False,
        )
        self.in_progress_timeout_s = lease_s

    def job_id(self, partition: int) -> str:
        return f"{self._prefix}{partition}"

    def mine(self, partition: int) -> bool:
        return not self.stopping and (not self.exclusive or self.members.mine(partition))

    async def main(self) -> None:
        """Poll until cancelled. As arq's own, without INFO and with the watch beside it."""
        await self.members.beat()
        watch = asyncio.create_task(self._watch())
        try:
            while not self._ended:
                if watch.done():
                    watch.result()  # raises what ended it
                try:
                    await self._poll_iteration()
                    self._full = False
                except FULL:
                    self._run_alone()
                await asyncio.sleep(self.poll_delay_s)
        finally:
            await end(watch)

    async def start_jobs(self, job_ids: list[bytes]) -> None:
        wanted = {self.job_id(partition).encode() for partition in range(self.partitions) if self.mine(partition)}
        await super().start_jobs([id_ for id_ in job_ids if id_ in wanted and id_.decode() not in self.tasks])

    async def _watch(self) -> None:
        """Say that we live, and see that each of our partitions has a job."""
        beat_s = min(WATCH_S, self.lease_s / 3)
        while not self.stopping:
            await self.members.beat()
            try:
                for partition in range(self.partitions):
                    job_id = self.job_id(partition)
                    if self.mine(partition) and job_id not in self.tasks:
                        await self.ensure(partition)
                    elif job_id in self.tasks:
                        await self._renew(job_id)
            except FULL:
                self._run_alone()
            await asyncio.sleep(beat_s)

    def _run_alone(self) -> None:
        """Drain our partitions without arq, which a full Redis does not let start anything."""
        if not self._full:
            logger.warning("Redis is full: draining without arq")
            self._full = True
        self._alone = {partition: task for partition, task in self._alone.items() if not task.done()}
        for partition in range(self.partitions):
            if self.mine(partition) and partition not in self._alone and self.job_id(partition) not in self.tasks:
                self._alone[partition] = asyncio.create_task(self._drain_alone(partition))

    async def _drain_alone(self, partition: int) -> bool:
        try:
            return await self._run(partition)
        except Exception as error:  # noqa: BLE001  arq is not there to say so; the partition is begun again
            logger.error("partition %d: %s", partition, type(error).__name__)
            return False

    async def _run(self, partition: int) -> bool:
        try:
            return await self.run_partition(partition)
        except UNREACHABLE as error:
            logger.warning("partition %d: Redis is away (%s)", partition, type(error).__name__)
            return False

    async def ensure(self, partition: int) -> None:
        """Queue the partition's job where it is not queued. arq skips an id whose body exists, so look for both."""
        job_id = self.job_id(partition)
        if await self.pool.enqueue_job(FUNCTION, partition, _job_id=job_id) is None:
            # A body without a place in the queue would never be started.
            score = await self.pool.zscore(self.queue_name, job_id)
            if score is None and not await self.pool.exists(in_progress_key_prefix + job_id):
                await self.pool.delete(job_key_prefix + job_id)
                await self.pool.enqueue_job(FUNCTION, partition, _job_id=job_id)

    async def _renew(self, job_id: str) -> None:
        async with self.pool.pipeline(transaction=False) as pipe:
            pipe.pexpire(in_progress_key_prefix + job_id, int(self.lease_s * 1000))
            pipe.pexpire(job_key_prefix + job_id, JOB_TTL_MS)
            await pipe.execute()

    async def _drain(self, ctx: dict[Any, Any], partition: int) -> None:
        """The job. Ends by Retry, so that it stays queued for whoever comes next."""
        alone = self._alone.get(partition)
        if not self.mine(partition) or (alone is not None and not alone.done()):
            raise Retry(defer=RETRY_S)
        left = await self._run(partition)
        raise Retry(defer=0 if left else RETRY_S)

    async def stop(self) -> None:
        """Leave all partitions in good order, then stop polling."""
        self.stopping = True
        with suppress(*UNREACHABLE):
            await self.members.leave()
        if running := [*self.tasks.values(), *self._alone.values()]:
            await asyncio.wait(running, timeout=5.0)
        with suppress(*UNREACHABLE):
            await self.members.leave()  # a last beat may have been on its way
        self._ended = True
        if self.main_task is not None:
            await end(self.main_task)

    async def abandon(self) -> None:
        """Cancel everything that still runs and wait for it; Redis may be away, the pool stays open."""
        running: list[asyncio.Task[Any]] = [*self.tasks.values(), *self._alone.values()]
        await end(*running)
        self.tasks.clear()
        self._alone.clear()
