"""Who lives: workers and bridges say so at least once a second, and a gateway asks before it hands work to a queue."""

from __future__ import annotations

import msgspec

from link.process import own_version
from link.redis import Redis
from schemas.keys import Keys
from schemas.report import REPORT_TTL_MS, BridgeReport

LIVE_MS = 5000
"""Who has not said so for this long is not counted as alive."""

_encode = msgspec.json.Encoder().encode


class Presence:
    """One bridge among the others. token: its random name."""

    def __init__(self, redis: Redis, names: Keys, queue: str, token: str) -> None:
        self.redis = redis
        self.names = names
        self.queue = queue
        self.token = token
        self._member = f"{queue}:{token}"
        self._started_ms = 0

    async def beat(self, calls: int) -> None:
        """Say that we live. calls: to the engine at this moment."""
        now = await now_ms(self.redis)
        self._started_ms = self._started_ms or now
        report = BridgeReport(self.token, own_version(), self.queue, self._started_ms, now, calls)
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.zremrangebyscore(self.names.bridges, "-inf", now - REPORT_TTL_MS)
            pipe.zadd(self.names.bridges, {self._member: now})
            pipe.set(self.names.report(self.token), _encode(report), px=REPORT_TTL_MS)
            await pipe.execute()

    async def leave(self) -> None:
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.zrem(self.names.bridges, self._member)
            pipe.delete(self.names.report(self.token))
            await pipe.execute()


async def now_ms(redis: Redis) -> int:
    seconds, micros = await redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def live_bridges(redis: Redis, names: Keys) -> list[tuple[str, str]]:
    """(queue, token) of each bridge that lives, in order."""
    pairs = (member.partition(":") for member in await _live(redis, names.bridges))
    return sorted((queue, token) for queue, _, token in pairs)


async def live_workers(redis: Redis, names: Keys) -> int:
    """How many workers live."""
    return len(await _live(redis, names.workers))


async def _live(redis: Redis, key: str) -> list[str]:
    now = await now_ms(redis)
    found = await redis.zrange(key, 0, -1, withscores=True)
    return [member.decode() for member, said_ms in found if said_ms >= now - LIVE_MS]
