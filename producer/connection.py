"""What producers and readers ask of a database before anything else: how many partitions it has."""

from __future__ import annotations

import asyncio

from link.redis import Redis, connect
from schemas import keys
from schemas.keys import Keys


class ConfigError(Exception):
    """The database is not set up, or with a wire version that we do not speak."""


class NotSetUp(ConfigError):
    """No worker has been started on the database yet."""


def config_of(names: Keys, partitions: bytes | None, version: bytes | None) -> tuple[int | None, int | None]:
    """Number of partitions and wire version; None while one is missing, which workers write. Raises ConfigError."""
    if partitions is None or version is None:
        return None, None
    try:
        return int(partitions), int(version)
    except ValueError:
        raise ConfigError(
            f"{names.config} is not what a worker writes: use another --key-prefix, or delete it"
        ) from None


async def read_partitions(redis: Redis, names: Keys, *, wait_s: float = 0.0) -> int:
    """Number of partitions that the first worker fixed; waits for it. Raises ConfigError."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while True:
        async with redis.pipeline(transaction=False) as pipe:
            pipe.hmget(names.config, [keys.CONFIG_PARTITIONS, keys.CONFIG_WIRE_VERSION])
            ((partitions, version),) = await pipe.execute()
        count, spoken = config_of(names, partitions, version)
        if count is not None:
            if spoken != keys.WIRE_VERSION:
                raise ConfigError(f"{names.config} has wire version {spoken}, this is {keys.WIRE_VERSION}")
            return count
        if loop.time() >= until:
            raise NotSetUp(f"{names.config} is not set: no worker has been started on this database")
        await asyncio.sleep(0.05)


async def connect_to_partitions(url: str, names: Keys, *, wait_s: float) -> tuple[Redis, int]:
    """A client, and the number of partitions; no client stays open when there is none. Raises ConfigError."""
    redis = connect(url)
    try:
        return redis, await read_partitions(redis, names, wait_s=wait_s)
    except BaseException:
        await redis.aclose()
        raise
