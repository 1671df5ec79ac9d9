"""Start, stop, reconnect: one worker process."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from link.process import own_version
from link.redis import UNREACHABLE, Backoff, Redis, RedisError, connect
from link.tasks import end
from schemas.keys import Keys
from schemas.report import ModelReport
from schemas.state import REQUEST_STATE_VERSION, STATE_VERSION
from worker.batch import Rules
from worker.core.calls import Models
from worker.core.session import Session
from worker.drain import Counts, Drain
from worker.jobs import PartitionJobs
from worker.report import Reporter
from worker.settings import Settings, shown_url
from worker.streams import Members, Partition, WrongConfig, settle_config
from worker.turns import Turns

if TYPE_CHECKING:
    from worker.metrics import Metrics

logger = logging.getLogger(__name__)


class StartError(Exception):
    """The worker cannot start; the message is one line for whoever started it."""


def rules(settings: Settings, *, block_ms: int = 1000) -> Rules:
    return Rules(
        reply_ttl_ms=int(settings.reply_ttl_s * 1000),
        open_ttl_ms=int(settings.open_ttl_s * 1000),
        status_ttl_ms=int(settings.status_ttl_s * 1000),
        idle_ms=int(settings.idle_timeout_s * 1000),
        signals_cap=settings.signals_cap,
        reply_to_cap=settings.reply_to_cap,
        block_ms=block_ms,
        owner_keys=settings.owner_keys,
        coalesce=settings.coalesce,
    )


class WorkerProcess:
    """A worker: its place among the others, its partitions, its connection.

    redis, reader: clients; by default made from the settings, one client for fakeredis. reports: what is served.
    """

    def __init__(
        self,
        settings: Settings,
        models: Models,
        *,
        redis: Redis | None = None,
        session: Session | None = None,
        reports: Callable[[], Sequence[ModelReport]] = tuple,
    ) -> None:
        self.settings = settings
        self.session = session or Session(models)
        self.redis = redis or connect(settings.redis_url)
        self.reader = redis or connect(settings.redis_url)
        self.names = Keys(settings.key_prefix)
        self.token = (
            f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}:{REQUEST_STATE_VERSION}.{STATE_VERSION}"
        )
        self.counts = Counts()
        self.turns = Turns()
        self.reports = reports
        self.metrics: Metrics | None = None
        self._drains: dict[int, Drain] = {}
        self.rules = rules(settings, block_ms=min(1000, int(settings.lease_s * 500)))
        self.jobs: PartitionJobs | None = None
        self.partitions = 0  # known once ready
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Leave the partitions in good order and return from `run`. Safe from a signal handler."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `stop`. Raises StartError when Redis cannot be used; later it waits for Redis instead."""
        try:
            self.partitions = await self._settle()
            async with self._reporting():
                await self._serve(self.partitions)
        finally:
            for client in {id(self.redis): self.redis, id(self.reader): self.reader}.values():
                with suppress(RedisError, OSError):
                    await client.aclose()

    @asynccontextmanager
    async def _reporting(self) -> AsyncIterator[None]:
        """Metrics and reports while there is work; the report is taken back at the end. Raises StartError."""
        unserve = self._serve_metrics()
        reporter = asyncio.create_task(self._reporter().run())
        try:
            yield
        finally:
            await end(reporter)
            unserve()
            with suppress(RedisError, OSError):
                await self.redis.delete(self.names.report(self.token))

    def _reporter(self) -> Reporter:
        return Reporter(
            self.redis,
            self.names,
            self.token,
            self.counts,
            version=own_version(),
            drains=self._drains.values,
            models=self.reports,
            metrics=self.metrics,
            partitions=self.partitions,
        )

    def _serve_metrics(self) -> Callable[[], None]:
        """Returns what stops it. Raises StartError."""
        port, host = self.settings.metrics_port, self.settings.metrics_host
        if port is None:
            return lambda: None
        try:
            from worker.metrics import Metrics
        except ImportError as error:
            raise StartError(f"--metrics-port needs prometheus-client, of the extra worker: {error}") from None
        self.metrics = Metrics()
        try:
            return self.metrics.serve(port, host)
        except OSError as error:
            raise StartError(f"metrics cannot be served at {host}:{port}: {error.strerror or error}") from None

    async def _settle(self) -> int:
        url = shown_url(self.settings.redis_url)
        try:
            return await settle_config(self.redis, self.names, self.settings.partitions)
        except WrongConfig as error:
            raise StartError(str(error)) from None
        except UNREACHABLE as error:
            raise StartError(f"cannot reach Redis at {url}: {error}") from None
        except RedisError as error:
            raise StartError(f"Redis at {url} refuses us: {error}") from None

    async def _serve(self, partitions: int) -> None:
        logger.info("worker %s: %d partitions at %s", self.token, partitions, shown_url(self.settings.redis_url))
        lease_ms = int(self.settings.lease_s * 1000)
        members = Members(self.redis, self.names, self.token, lease_ms=lease_ms)
        backoff = Backoff()
        stopping = asyncio.create_task(self._stop.wait())
        try:
            while not self._stop.is_set():
                jobs = self.jobs = self._make_jobs(members, partitions)
                main = asyncio.create_task(jobs.async_run())
                self.ready.set()
                await asyncio.wait([main, stopping], return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    await jobs.stop()
                error = (await asyncio.gather(main, return_exceptions=True))[0]
                await jobs.abandon()
                if isinstance(error, UNREACHABLE):
                    if not backoff.failures:
                        logger.warning("jobs: Redis is away (%s)", type(error).__name__)
                    await self._wait_for_redis(backoff, members)
                elif isinstance(error, Exception):
                    raise error
        finally:
            stopping.cancel()
        logger.info("worker %s: stopped", self.token)

    async def _wait_for_redis(self, backoff: Backoff, members: Members) -> None:
        """Until it takes our writes again (a replica answers PING too), and knows that nobody died here."""
        while not self._stop.is_set():
            await backoff.wait()
            try:
                await members.beat()
                for drain in self._drains.values():
                    await drain.forgive()
            except UNREACHABLE:
                continue
            logger.info("jobs: Redis is back")
            backoff.reset()
            return

    def _make_jobs(self, members: Members, partitions: int) -> PartitionJobs:
        lease_ms = members.lease_ms

        async def run_partition(number: int) -> bool:
            if (before := self._drains.get(number)) is not None:
                await before.forgive()
            partition = Partition(
                self.redis,
                self.reader,
                self.names,
                number,
                token=self.token,
                partitions=partitions,
                lease_ms=lease_ms,
                dead_cap=self.settings.dead_cap,
                dead_bytes=self.settings.dead_bytes,
            )
            drain = self._drains[number] = Drain(
                partition,
                self.session,
                self.rules,
                leave=lambda: not jobs.mine(number),
                counts=self.counts,
                turns=self.turns,
                on_commit=self.metrics.batch if self.metrics else None,
            )
            return await drain.run()

        jobs = PartitionJobs(
            self.redis,
            run_partition,
            members,
            partitions,
            queue=self.names.jobs,
            lease_s=self.settings.lease_s,
            exclusive=self.settings.owner_keys,
        )
        return jobs


def run_worker(
    settings: Settings,
    models: Models,
    *,
    reports: Callable[[], Sequence[ModelReport]] = tuple,
    session: Session | None = None,
    on_start: Callable[[WorkerProcess], None] | None = None,
) -> None:
    """Run a worker until SIGTERM or SIGINT. Raises StartError."""

    async def main() -> None:
        process = WorkerProcess(settings, models, session=session, reports=reports)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, process.stop)
        if on_start is not None:
            on_start(process)
        await process.run()

    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
