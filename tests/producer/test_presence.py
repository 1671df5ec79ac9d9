"""Who lives, as bridges and workers say themselves."""

from __future__ import annotations

import msgspec
from redis.asyncio import Redis

from producer.presence import LIVE_MS, Presence, live_bridges, live_workers, now_ms
from schemas.keys import Keys
from schemas.report import REPORT_TTL_MS, BridgeReport

NAMES = Keys()


async def test_bridges_come_and_go(redis: Redis) -> None:
    """Each on its queue; one that fell silent is not counted, and is forgotten after a while."""
    one, two = (Presence(redis, NAMES, queue, token) for queue, token in (("", "h:1:a"), ("q", "h:2:b")))
    await one.beat(0)
    await two.beat(3)
    now = await now_ms(redis)
    await redis.zadd(NAMES.bridges, {"q:silent": now - LIVE_MS - 1000, ":gone": now - REPORT_TTL_MS - 1000})
    assert await live_bridges(redis, NAMES) == [("", "h:1:a"), ("q", "h:2:b")]
    report = msgspec.json.decode(await redis.get(NAMES.report("h:2:b")), type=BridgeReport)
    assert (report.token, report.queue, report.calls, report.started_ms) == ("h:2:b", "q", 3, report.at_ms)
    await one.leave()
    await two.beat(0)
    assert await live_bridges(redis, NAMES) == [("q", "h:2:b")]
    assert await redis.zrange(NAMES.bridges, 0, -1) == [b"q:silent", b"q:h:2:b"]
    assert await redis.exists(NAMES.report("h:1:a")) == 0
    assert 0 < await redis.pttl(NAMES.report("h:2:b")) <= REPORT_TTL_MS


async def test_workers(redis: Redis) -> None:
    assert await live_workers(redis, NAMES) == 0
    now = await now_ms(redis)
    await redis.zadd(NAMES.workers, {"h:1:x:1.1": now, "h:2:y:1.1": now - LIVE_MS - 1000})
    assert await live_workers(redis, NAMES) == 1
