"""What a gateway takes for "no worker lives": by the workers' own word and Redis' clock."""

from __future__ import annotations

import json

import pytest
from redis.asyncio import Redis

from gateway.errors import HttpError
from gateway.watch import WAIT_MS, Watch
from link.redis import connect, now_ms
from schemas.keys import Keys

NAMES = Keys()


def refusal(watch: Watch) -> str | None:
    """The message of the answer; None: requests are taken."""
    try:
        watch.need()
    except HttpError as error:
        return str(json.loads(error.body)["error"]["message"])
    return None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What Redis' clock says from now on, in ms: a list of one."""
    now = [1_700_000_000_000]

    async def read(_: Redis) -> int:
        return now[0]

    monkeypatch.setattr("gateway.watch.now_ms", read)
    return now


REFUSED = "no worker has been alive for 5 s: start one: derender worker"


async def test_a_worker_that_is_silent_for_too_long(redis: Redis, clock: list[int]) -> None:
    """A killed worker stays among the members: its last word counts, not its being there. A new one counts at once."""
    watch, now = Watch(redis, NAMES), clock[0]
    seen = []
    await redis.zadd(NAMES.workers, {"h:1:killed": now - 60_000, "h:1:alive": now})
    for clock[0] in (now, now + WAIT_MS, now + WAIT_MS + 1):
        await watch.look()
        seen.append(refusal(watch))
    await redis.zadd(NAMES.workers, {"h:1:new": clock[0]})
    await watch.look()
    assert [*seen, refusal(watch)] == [None, None, REFUSED, None]


async def test_a_worker_that_leaves_in_good_order(redis: Redis, clock: list[int]) -> None:
    """Its word is taken away with it, and is remembered: requests wait as long as after one that was killed."""
    watch, now = Watch(redis, NAMES), clock[0]
    await redis.zadd(NAMES.workers, {"h:1:a": now})
    await watch.look()
    await redis.zrem(NAMES.workers, "h:1:a")
    seen = []
    for clock[0] in (now + WAIT_MS, now + WAIT_MS + 1):
        await watch.look()
        seen.append(refusal(watch))
    assert seen == [None, REFUSED]


async def test_a_gateway_that_was_just_started_waits_first(redis: Redis) -> None:
    watch = Watch(redis, NAMES)
    await redis.zadd(NAMES.workers, {"h:1:killed": await now_ms(redis) - 60_000})
    await watch.look()
    assert refusal(watch) is None


async def test_a_clock_that_was_set_back(redis: Redis, clock: list[int]) -> None:
    """As after a failover: a word from the future is taken for one of now, so that silence after it is noticed."""
    watch, now = Watch(redis, NAMES), clock[0]
    await redis.zadd(NAMES.workers, {"h:1:a": now + 3_600_000})
    await watch.look()
    await redis.zrem(NAMES.workers, "h:1:a")
    clock[0] = now + WAIT_MS + 1
    await watch.look()
    assert refusal(watch) == REFUSED


async def test_while_redis_is_away_nothing_is_known(redis: Redis) -> None:
    """And when it is back, workers have as long as at the start to say that they live."""
    watch = Watch(redis, NAMES)
    watch._missing = True
    away = Watch(connect("redis://127.0.0.1:9/0"), NAMES)
    away._missing, away._seen_ms = True, 1
    await away.look()
    await away.redis.aclose()
    assert refusal(away) is None
    away.redis = redis
    await away.look()
    assert refusal(away) is None
