"""Who lives, as bridges and workers say themselves."""

from __future__ import annotations

import msgspec
from redis.asyncio import Redis

from link.redis import now_ms
from producer.presence import LIVE_MS, Presence, live_bridges, live_workers
from schemas.keys import Keys
from schemas.report import REPORT_TTL_MS, BridgeReport

NAMES = Keys()


async def test_bridges_come_and_go(redis: Redis) -> None:
    """Each on its queue; one that fell silent is not counted, and is forgotten after a while."""
    one, two = (Presence(redis, NAMES, queue, token) for queue, token in (("", "h:1:a"), ("q", "h:2:b")))
    await one.beat(0)
    await two.beat(3)
    now = await now_ms(redis)
    for token, at_ms in (("silent", now - LIVE_MS - 1000), ("gone", now - REPORT_TTL_MS - 1000)):
        await redis.hset(NAMES.bridges, token, msgspec.json.encode(BridgeReport(token, "1", "q", 0, at_ms)))
    found = await live_bridges(redis, NAMES)
    assert sorted((one.token, one.queue, one.calls) for one in found) == [("h:1:a", "", 0), ("h:2:b", "q", 3)]
    await one.leave()
    await Presence(redis, NAMES, "", "h:3:c").beat(1)
    assert sorted(one.token for one in await live_bridges(redis, NAMES)) == ["h:2:b", "h:3:c"]
    assert sorted(await redis.hkeys(NAMES.bridges)) == [b"h:2:b", b"h:3:c", b"silent"]


async def test_workers(redis: Redis) -> None:
    assert await live_workers(redis, NAMES) == 0
    now = await now_ms(redis)
    await redis.zadd(NAMES.workers, {"h:1:x:1.1": now, "h:2:y:1.1": now - LIVE_MS - 1000})
    assert await live_workers(redis, NAMES) == 1
