"""Connections of producers and readers: clients with time-outs, what counts as "away", pauses before trying again.

The only import of redis in this package.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio import Redis as Redis
from redis.exceptions import BusyLoadingError, ConnectionError, ReadOnlyError, TimeoutError
from redis.exceptions import RedisError as RedisError
from redis.exceptions import ResponseError as ResponseError

from schemas import keys
from schemas.keys import Keys

UNREACHABLE: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, OSError)
"""Wait and connect again: the server is away, starting, or was made a replica."""

UNREADABLE: tuple[type[Exception], ...] = (*UNREACHABLE, ResponseError)
"""For whoever reads many streams: also when Redis refuses, as it does while one of them is of another type."""

AWAY_ANSWERS = (BusyLoadingError, ReadOnlyError)
"""Those of UNREACHABLE that come as the answer to one command of a pipeline."""

SOCKET_TIMEOUT_S = 5.0


class ConfigError(Exception):
    """The database is not set up, or with a wire version that we do not speak."""


def connect(url: str) -> Redis:
    """A client with a pool of its own. Raises ValueError for a malformed URL; does not connect yet."""
    return Redis.from_pool(
        ConnectionPool.from_url(
            url, socket_timeout=SOCKET_TIMEOUT_S, socket_connect_timeout=SOCKET_TIMEOUT_S, socket_keepalive=True
        )
    )


async def read_partitions(redis: Redis, names: Keys, *, wait_s: float = 0.0) -> int:
    """Number of partitions that the first worker fixed; waits for it. Raises ConfigError."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while True:
        async with redis.pipeline(transaction=False) as pipe:
            pipe.hmget(names.config, [keys.CONFIG_PARTITIONS, keys.CONFIG_WIRE_VERSION])
            ((partitions, version),) = await pipe.execute()
        if partitions is not None:
            if int(version) != keys.WIRE_VERSION:
                raise ConfigError(f"{names.config} has wire version {int(version)}, this is {keys.WIRE_VERSION}")
            return int(partitions)
        if loop.time() >= until:
            raise ConfigError(f"{names.config} is not set: no worker has been started on this database")
        await asyncio.sleep(0.05)


async def connect_to_partitions(url: str, names: Keys, *, wait_s: float) -> tuple[Redis, int]:
    """A client, and the number of partitions; no client stays open when there is none. Raises ConfigError."""
    redis = connect(url)
    try:
        return redis, await read_partitions(redis, names, wait_s=wait_s)
    except BaseException:
        await redis.aclose()
        raise


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and again until they have ended; who is cancelled meanwhile is so after that.

    Once is not enough: redis-py looks at a connection for 0 seconds before it uses it, and sends through
    `asyncio.wait_for`; a cancellation that meets their end is lost.
    """
    left, cancelled = {task for task in tasks if not task.done()}, None
    while left:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=0.2)
        except asyncio.CancelledError as error:
            cancelled = error
        left = {task for task in left if not task.done()}
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen
    if cancelled is not None:
        raise cancelled


class Backoff:
    """Pauses between attempts: doubled each time up to a cap, each shortened by a random part."""

    def __init__(self, first_s: float = 0.05, cap_s: float = 2.0) -> None:
        self.first_s = first_s
        self.cap_s = cap_s
        self.failures = 0

    async def wait(self) -> None:
        pause = min(self.cap_s, self.first_s * 2.0 ** min(self.failures, 16))
        self.failures += 1
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
