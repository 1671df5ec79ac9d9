"""Entries at which workers die, and workers that only seemed to: what is counted, taken back and buried."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from link.tasks import end
from schemas.keys import Keys
from tests.worker.test_drain import CONTEXT, add, add_stream, chunk, dead, error, make, replies, text
from worker.core.model import Model
from worker.core.session import Core
from worker.drain import MAX_ATTEMPTS

NAMES = Keys()


async def test_an_entry_at_which_workers_die_is_buried_unread(redis: Redis, smollm2: Model) -> None:
    """Each death leaves its attempt counted; the fourth worker fails the request and goes on behind the entry."""
    await add(redis, "poison", open=CONTEXT)
    await add_stream(redis, "healthy")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        dying = make(redis, smollm2)
        await dying._begin()
        await dying._read()
        await dying._count(dying.lanes["chunks"])
        assert dying.lanes["chunks"].attempt == attempt
    drain = make(redis, smollm2, until=5)
    await drain.run()
    assert (await error(redis, "poison"))["message"] == "3 workers died at this entry"
    assert await text(redis, "healthy") == "HelloHelloHello"
    [letter] = await dead(redis)
    assert (letter[b"reason"], letter[b"request_id"], letter[b"open"]) == (
        b"3 workers died at this entry", b"poison", CONTEXT,
    )  # fmt: skip
    assert drain.counts.poison == 1


class Deadly(Core):
    """Kills by preparing a context, as one does that needs more memory than this worker has."""

    @staticmethod
    def prepare(*_: Any, **__: Any) -> Any:
        raise AssertionError("the context was looked at")


async def die(redis: Redis, model: Model, times: int) -> None:
    """Workers that die at what is in front of them."""
    for _ in range(times):
        dying = make(redis, model)
        await dying._begin()
        await dying._read()
        await dying._count(next(lane for lane in dying.lanes.values() if lane.buffer))


async def test_burying_does_not_look_at_the_context(redis: Redis, smollm2: Model) -> None:
    """The request was open: it may be its context that they died of. Its reader still hears of the end."""
    await add(redis, open=CONTEXT)
    await add(redis, chunk=chunk(19556))
    await make(redis, smollm2, until=2).run()
    await add(redis, chunk=chunk(905))
    await die(redis, smollm2, MAX_ATTEMPTS)
    await make(redis, smollm2, until=1, core=Deadly()).run()
    assert [id_ for id_, _ in await replies(redis)] == [b"1-0", b"2-0"]
    assert (await error(redis))["message"] == "3 workers died at this entry"
    assert await redis.hgetall(NAMES.open(0)) == {}


async def test_a_buried_call_leaves_the_open_request_of_its_id_alone(redis: Redis, smollm2: Model) -> None:
    await add(redis, open=CONTEXT)
    await add(redis, chunk=chunk(19556))
    await make(redis, smollm2, until=2).run()
    await add(redis, lane="bulk", call=b"{}", reply_to="gw")
    await die(redis, smollm2, MAX_ATTEMPTS)
    drain = make(redis, smollm2, until=1)
    await drain.run()
    assert drain.counts.poison == 1
    await add(redis, chunk=chunk(905, finish="length"))
    drain.leave = lambda: drain.counts.entries >= 2
    await drain.run()
    assert await text(redis) == "Hello world"


async def test_poison_on_the_wrong_partition(redis: Redis, smollm2: Model) -> None:
    await add(redis, "req-1", open=CONTEXT)
    await die(redis, smollm2, MAX_ATTEMPTS)
    drain = make(redis, smollm2, until=1)
    drain.partition.partitions = 2
    await drain.run()
    assert [letter[b"reason"] for letter in await dead(redis)] == [b"3 workers died at this entry"]
    assert await redis.exists(NAMES.reply(0, "req-1"), NAMES.status(0, "req-1")) == 0


async def test_who_is_cut_off_has_not_died(redis: Redis, smollm2: Model) -> None:
    """Cancelled between the count and the publish, as a worker does whose Redis is away: taken back once it is here."""
    await add_stream(redis)
    for _ in range(2 * MAX_ATTEMPTS):
        drain = make(redis, smollm2)
        cut_off = asyncio.Event()

        async def publish(*_: Any, cut_off: asyncio.Event = cut_off, **__: Any) -> list[str]:
            cut_off.set()
            return await asyncio.Event().wait()  # type: ignore[return-value]

        drain.partition.publish = publish  # type: ignore[method-assign]
        drain.leave = lambda: False
        running = asyncio.create_task(drain.run())
        await asyncio.wait_for(cut_off.wait(), 5)
        assert (await drain.partition.begin("chunks", count=False))[1] == 1
        await end(running)
        await drain.forgive()
        assert (await drain.partition.begin("chunks", count=False))[1] == 0
    await make(redis, smollm2, until=4).run()
    assert (await text(redis), await dead(redis)) == ("HelloHelloHello", [])


async def test_what_a_drain_raised_stays_an_attempt(redis: Redis, smollm2: Model) -> None:
    """An entry that ends drains, though not their process, is buried as well."""
    await add_stream(redis)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        drain = make(redis, smollm2, until=4)

        async def publish(*_: Any, **__: Any) -> list[str]:
            raise ResponseError("ERR as it may be")

        drain.partition.publish = publish  # type: ignore[method-assign]
        with pytest.raises(ResponseError):
            await drain.run()
        await drain.forgive()
        assert (await drain.partition.begin("chunks", count=False))[1] == attempt
    drain = make(redis, smollm2, until=4)
    await drain.run()
    assert drain.counts.poison == 1


async def test_after_a_death_entries_are_taken_one_by_one(redis: Redis, smollm2: Model) -> None:
    """So the next death is at the entry that causes it, and only that one is counted again."""
    await add_stream(redis, chunks=9)
    dying = make(redis, smollm2)
    await dying._begin()
    await dying._read()
    await dying._count(dying.lanes["chunks"])
    drain = make(redis, smollm2, until=10)
    await drain.run()
    assert drain.counts.publishes == 10
    assert await text(redis) == "Hello" * 9


async def test_leaving_in_good_order_is_no_attempt(redis: Redis, smollm2: Model) -> None:
    await add(redis, open=CONTEXT)
    for n in range(MAX_ATTEMPTS + 2):
        await add(redis, chunk=chunk(19556))
        drain = make(redis, smollm2, until=1 if n else 2)
        await drain.run()
        assert drain.lanes["chunks"].attempt == 1
    assert await dead(redis) == []


async def test_idle_workers_that_die_are_no_attempt(redis: Redis, smollm2: Model) -> None:
    """A cursor is not to blame when nothing was worked on."""
    for _ in range(MAX_ATTEMPTS + 2):
        idle = make(redis, smollm2)
        await idle._begin()
        await idle._turn()
    await add_stream(redis)
    await make(redis, smollm2, until=4).run()
    assert await text(redis) == "HelloHelloHello"
