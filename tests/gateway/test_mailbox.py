"""Replies of many requests on one stream: each waiter has its own, once and in order, or knows that it missed some."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from gateway.mailbox import MAX_WAITING_REPLIES, Mailbox, Missed, Waiter
from gateway.metrics import Metrics
from link.tasks import end
from producer.read import Reply
from schemas.keys import Keys


def reply(number: int, *, done: str | None = None) -> Reply:
    return Reply(f"{number}-0", chunk=b"%d" % number, done=done)


def numbers(replies: list[Reply]) -> list[int]:
    return [int(one.id.partition("-")[0]) for one in replies]


async def test_in_order_and_once() -> None:
    waiter = Waiter()
    for number in (1, 2, 2, 1, 3):
        waiter.put(reply(number))
    assert numbers(await waiter.take(1)) == [1, 2, 3]
    waiter.put(reply(3))
    with pytest.raises(TimeoutError):
        await waiter.take(0.01)
    waiter.put(reply(4))
    assert numbers(await waiter.take(1)) == [4]
    assert waiter.last == 4


async def test_a_gap_is_noticed() -> None:
    waiter = Waiter()
    for number in (1, 2, 4, 5):
        waiter.put(reply(number))
    assert numbers(await waiter.take(1)) == [1, 2]
    with pytest.raises(Missed):
        await waiter.take(1)
    assert waiter.last == 2


async def test_a_slow_client_is_left_to_the_reply_stream() -> None:
    waiter = Waiter()
    for number in range(1, MAX_WAITING_REPLIES + 10):
        waiter.put(reply(number))
    assert len(await waiter.take(1)) == MAX_WAITING_REPLIES
    with pytest.raises(Missed):
        await waiter.take(1)


async def test_streams_of_all_partitions_are_read_and_trimmed(redis: Redis) -> None:
    """On fakeredis and redis-server: what was handed out is not kept, and what nobody waits for is counted."""
    metrics, names = Metrics(), Keys()
    mailbox = Mailbox(redis, 2, names, metrics)
    following = asyncio.create_task(mailbox.follow())
    try:
        with mailbox.waiter("a") as a, mailbox.waiter("b") as b:
            for partition, request_id, number in ((0, b"a", 1), (1, b"b", 1), (0, b"nobody", 1), (0, b"a", 2)):
                fields = {b"request_id": request_id, b"reply_id": b"%d-0" % number, b"chunk": b"x"}
                await redis.xadd(names.reply_to(partition, mailbox.name), fields)
            found = await a.take(5)
            while len(found) < 2:
                found += await a.take(5)
            assert numbers(found) == [1, 2]
            assert numbers(await b.take(5)) == [1]
        for _ in range(100):
            if await redis.xlen(names.reply_to(0, mailbox.name)) == 1:
                break
            await redis.xadd(names.reply_to(1, mailbox.name), {b"request_id": b"x", b"reply_id": b"1-0"})
            await asyncio.sleep(0.02)
        assert await redis.xlen(names.reply_to(0, mailbox.name)) == 1
    finally:
        await end(following)
    assert b"derender_gateway_waiting_requests 0.0" in metrics.text()
    assert metrics.unclaimed._value.get() >= 1
    await mailbox.close()
    assert await redis.exists(names.reply_to(0, mailbox.name)) == 0


@pytest.mark.redis
async def test_a_stream_of_another_type_is_waited_out(real_redis: Redis) -> None:
    """Someone's value under our key: reads are refused until it is gone, and then go on."""
    redis = real_redis
    names = Keys()
    mailbox = Mailbox(redis, 1, names, Metrics())
    stream = names.reply_to(0, mailbox.name)
    await redis.set(stream, "x")
    following = asyncio.create_task(mailbox.follow())
    try:
        with mailbox.waiter("r") as waiter:
            with pytest.raises(TimeoutError):
                await waiter.take(0.1)
            await redis.delete(stream)
            await redis.xadd(stream, {"request_id": "r", "reply_id": "1-0", "response": "{}", "done": "finished"})
            assert [one.id for one in await waiter.take(10)] == ["1-0"]
    finally:
        await end(following)
