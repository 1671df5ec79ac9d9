"""Clients of Redis with time-outs, what counts as "away", pauses before trying again.

Whatever else of redis-py a module needs, it takes from here; only the worker's scripts know the library themselves.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import hiredis
from redis.asyncio import Connection, ConnectionPool
from redis.asyncio import Redis as Redis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    DataError,
    OutOfMemoryError,
    ReadOnlyError,
    TimeoutError,
    WatchError,
)
from redis.exceptions import NoPermissionError as NoPermissionError
from redis.exceptions import RedisError as RedisError
from redis.exceptions import ResponseError as ResponseError

FULL = OutOfMemoryError
"""`maxmemory` is reached with `noeviction`. Only draining frees memory, so no script of ours may be refused for it:
once a script has made one write (any that takes no memory), Redis lets it go on."""

LoginError = AuthenticationError
"""Wrong user or password; one of UNREACHABLE, for a server that is being set up refuses everyone for a while."""


class WritesRefused(ResponseError):
    """Redis takes no writes for now: it cannot save them (MISCONF), has too few replicas (NOREPLICAS), waits for a
    script (BUSY), or its primary is away (MASTERDOWN)."""


AWAY_ANSWERS = (BusyLoadingError, ReadOnlyError, WritesRefused)
"""Those of UNREACHABLE that come as the answer to one command of a pipeline, and that waiting alone mends."""

UNREACHABLE: tuple[type[Exception], ...] = (
    ConnectionError,
    TimeoutError,
    *AWAY_ANSWERS,
    FULL,
    WatchError,
    OSError,
)
"""Wait and try again: the server is away, starting, full, takes no writes, or was made a replica.

WatchError: what redis-py makes of a connection that is lost inside a transaction (arq's are the only ones).
"""

UNREADABLE: tuple[type[Exception], ...] = (*UNREACHABLE, ResponseError)
"""For whoever reads many streams: also when Redis refuses, as it does while one of them is of another type."""

SOCKET_TIMEOUT_S = 5.0
"""A silent network drop is noticed after this long; a blocking read has to be shorter."""


class _Parser(DefaultParser):  # type: ignore[misc, valid-type]
    EXCEPTION_CLASSES: ClassVar[dict[str, Any]] = {
        **DefaultParser.EXCEPTION_CLASSES,
        **dict.fromkeys(("MISCONF", "NOREPLICAS", "BUSY", "MASTERDOWN"), WritesRefused),
    }


class _Connection(Connection):
    """A TCP connection that packs commands in C: in Python it is an eighth of the CPU of a busy worker."""

    def pack_command(self, *args: Any) -> list[bytes]:
        name, *rest = args
        try:
            return [hiredis.pack_command((*name.split(), *rest))]
        except TypeError as error:  # what redis-py's own packing raises
            raise DataError(str(error)) from None


def connect(url: str, *, max_connections: int | None = None) -> Redis:
    """A client with a pool of its own. Raises ValueError for a malformed URL; does not connect yet.

    `rediss://`: the certificate has to be one for the URL's host, unless the URL says `ssl_check_hostname=false` or
    asks for no certificate at all.
    """
    parts = urlsplit(url)
    checked = parts.scheme == "rediss" and parse_qs(parts.query).get("ssl_cert_reqs") != ["none"]
    pool = ConnectionPool.from_url(
        url,
        connection_class=_Connection,  # unless the URL asks for TLS or a Unix socket
        parser_class=_Parser,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        socket_keepalive=True,
        max_connections=max_connections or 2**31,
        **({"ssl_check_hostname": True} if checked else {}),
    )
    return Redis.from_pool(pool)


def time_ms(answer: tuple[int, int]) -> int:
    """What TIME answered, in ms."""
    seconds, micros = answer
    return int(seconds) * 1000 + int(micros) // 1000


async def now_ms(redis: Redis) -> int:
    """Redis' clock: whatever several processes compare is told by it."""
    return time_ms(await redis.time())


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

    def reset(self) -> None:
        self.failures = 0
