"""Who lives: workers and bridges say so at least once a second, and a gateway asks before it hands work to a queue."""

from __future__ import annotations

from typing import Any

import msgspec

from link.process import own_version
from link.redis import Redis, now_ms
from schemas.keys import Keys
from schemas.report import REPORT_TTL_MS, BridgeReport

LIVE_MS = 5000
"""Who has not said so for this long is not counted as alive."""

_encode = msgspec.json.Encoder().encode
decode_bridge = msgspec.json.Decoder(BridgeReport).decode


class Presence:
    """One bridge among the others. token: its random name."""

    def __init__(self, redis: Redis, names: Keys, queue: str, token: str) -> None:
        self.redis: Any = redis  # its types say that hashes may be answered without waiting
        self.names = names
        self.queue = queue
        self.token = token
        self._started_ms = 0

    async def beat(self, calls: int) -> None:
        """Say that we live; at first also forget who went without a word. calls: to the engine at this moment."""
        now = await now_ms(self.redis)
        if not self._started_ms:
            silent = [one.token for one in await _bridges(self.redis, self.names) if one.at_ms < now - REPORT_TTL_MS]
            if silent:
                await self.redis.hdel(self.names.bridges, *silent)
            self._started_ms = now
        report = BridgeReport(self.token, own_version(), self.queue, self._started_ms, now, calls)
        await self.redis.hset(self.names.bridges, self.token, _encode(report))

    async def leave(self) -> None:
        await self.redis.hdel(self.names.bridges, self.token)


async def live_bridges(redis: Redis, names: Keys) -> list[BridgeReport]:
    now = await now_ms(redis)
    return [one for one in await _bridges(redis, names) if one.at_ms >= now - LIVE_MS]


async def live_workers(redis: Redis, names: Keys) -> int:
    """How many workers live."""
    now = await now_ms(redis)
    found = await redis.zrange(names.workers, 0, -1, withscores=True)
    return sum(said_ms >= now - LIVE_MS for _, said_ms in found)


async def _bridges(redis: Redis, names: Keys) -> list[BridgeReport]:
    found: Any = redis.hgetall(names.bridges)
    return [decode_bridge(raw) for raw in (await found).values()]
