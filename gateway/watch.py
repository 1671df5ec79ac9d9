"""Whether any worker lives, looked at in the background: no request is left waiting for one that does not come."""

from __future__ import annotations

import asyncio

from gateway.errors import refuse
from link.redis import UNREADABLE, Redis, now_ms
from producer.presence import LIVE_MS
from schemas.keys import Keys

LOOK_S = 1.0
"""Pause between two looks, and between two questions of a request that waits."""

WAIT_MS = LIVE_MS
"""Requests are kept for so long after a worker was last there, as while the only one is started again."""


class Watch:
    """Run `follow` as a task; `need` is then answered without asking Redis."""

    def __init__(self, redis: Redis, names: Keys) -> None:
        self.redis = redis
        self.names = names
        self._missing = False
        self._seen_ms: int | None = None  # by Redis' clock; None: not known, the next look counts as one

    def need(self) -> None:
        """Raises HttpError when no worker has lived for WAIT_MS."""
        if self._missing:
            refuse(503, f"no worker has been alive for {WAIT_MS / 1000:g} s: start one: derender worker")

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        try:
            now = await now_ms(self.redis)
            newest = await self.redis.zrange(self.names.workers, -1, -1, withscores=True)
        except UNREADABLE:
            # Nothing is known of workers now. Those that live say so again only when Redis is back.
            self._missing, self._seen_ms = False, None
            return
        said_ms = int(newest[0][1]) if newest else 0
        # Remembered, for a worker that stops takes its last word away; not from the future, for clocks are set back.
        self._seen_ms = min(now, max(said_ms, now if self._seen_ms is None else self._seen_ms))
        self._missing = now - self._seen_ms > WAIT_MS
