"""What a producer puts on the wire, and how it behaves when Redis or the workers are behind."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from producer.connection import ConfigError, NotSetUp, read_partitions
from producer.publish import PIPELINE_ENTRIES, BacklogFull, Producer, PublishError
from schemas import keys
from schemas.generate import GenerateChunk, GenerateStreamChoice
from schemas.keys import Keys, partition_of
from schemas.openai import ErrorBody, ErrorInfo
from schemas.request import RequestContext
from tests.conftest import RedisServer

NAMES = Keys()
CHUNK = b'{"choices": []}'


async def entries(redis: Redis, request_id: str = "r", *, lane: str = "chunks") -> list[dict[bytes, bytes]]:
    partition = partition_of(request_id, 4)
    key = NAMES.chunks(partition) if lane == "chunks" else NAMES.bulk(partition)
    return [fields for _, fields in await redis.xrange(key) if fields[b"request_id"] == request_id.encode()]


async def test_a_request_on_the_wire(redis: Redis) -> None:
    """Exactly what a producer in another language has to send."""
    async with Producer(redis, 4) as producer:
        stream = await producer.open("r", RequestContext(kind="chat", prompt_tokens=3))
        await stream.chunk(b'{"choices":[] }')
        await stream.chunk(GenerateChunk(choices=[GenerateStreamChoice(index=0, token_ids=[1])]), prompt=2)
        await stream.error(ErrorBody(ErrorInfo("m", "t", None, 500)))
        await stream.abort()
        await stream.done()
        sent = await entries(redis)
    assert sent[0] == {b"request_id": b"r", b"seq": b"0", b"open": b'{"kind":"chat","prompt_tokens":3}'}
    assert sent[1] == {b"request_id": b"r", b"seq": b"1", b"chunk": b'{"choices":[] }'}
    assert json.loads(sent[2].pop(b"chunk"))["choices"][0]["token_ids"] == [1]
    assert sent[2] == {b"request_id": b"r", b"seq": b"2", b"prompt": b"2"}
    assert sent[3] == {
        b"request_id": b"r", b"seq": b"3", b"control": b"error",
        b"error": b'{"error":{"message":"m","type":"t","param":null,"code":500}}',
    }  # fmt: skip
    assert sent[4:] == [
        {b"request_id": b"r", b"seq": b"4", b"control": b"abort"},
        {b"request_id": b"r", b"seq": b"5", b"control": b"done"},
    ]


async def test_whole_work_on_the_wire(redis: Redis) -> None:
    async with Producer(redis, 4) as producer:
        await producer.response("r", b"{}", b"[]")
        await producer.call("r", b"{ }")
        assert await entries(redis, lane="bulk") == [
            {b"request_id": b"r", b"open": b"{}", b"response": b"[]"},
            {b"request_id": b"r", b"call": b"{ }"},
        ]


@pytest.mark.parametrize("request_id", ["", "a{b}", "a b", "a\n"], ids=repr)
async def test_impossible_request_ids(redis: Redis, request_id: str) -> None:
    async with Producer(redis, 4) as producer:
        with pytest.raises(ValueError, match="does not match"):
            await producer.open(request_id, b"{}")
        assert await redis.keys("*") == []


async def test_many_requests_share_pipelines_and_keep_their_order(redis: Redis) -> None:
    count, chunks = 20, 3 * PIPELINE_ENTRIES // 20
    async with Producer(redis, 4) as producer:

        async def one(n: int) -> None:
            stream = await producer.open(f"r{n}", b"{}")
            for _ in range(chunks):
                await stream.chunk(CHUNK, wait=False)
            await stream.done()

        await asyncio.gather(*map(one, range(count)))
        for n in range(count):
            numbers = [int(fields[b"seq"]) for fields in await entries(redis, f"r{n}")]
            assert numbers == list(range(chunks + 2))


async def test_closing_sends_what_is_buffered(redis_server: RedisServer, real_redis: Redis) -> None:
    from worker.streams import settle_config

    await settle_config(real_redis, NAMES, 4)
    async with await Producer.connect(redis_server.url) as producer:
        stream = await producer.open("r", b"{}")
        for _ in range(1000):
            await stream.chunk(CHUNK, wait=False)
    assert len(await entries(real_redis)) == 1001
    with pytest.raises(RuntimeError, match="the producer is closed"):
        await stream.chunk(CHUNK)


# --- workers behind ---------------------------------------------------------------------------------------------------


async def test_a_full_partition_is_refused_where_asked(redis: Redis) -> None:
    """Nothing of the refused entry is sent, so the request may go on when there is room."""
    async with Producer(redis, 4, max_backlog=8, when_full="fail") as producer:
        stream = await producer.open("r", b"{}")
        for _ in range(7):
            await stream.chunk(CHUNK)
        key = NAMES.chunks(stream.partition)
        with pytest.raises(BacklogFull) as error:
            await stream.chunk(CHUNK)
        assert str(error.value) == f"{key} has 8 unprocessed entries, the bound is 8"
        assert await redis.xlen(key) == 8
        await redis.xtrim(key, maxlen=0, approximate=False)
        await stream.chunk(CHUNK)
        assert [int(fields[b"seq"]) for fields in await entries(redis)] == [8]


async def test_a_full_partition_is_waited_for(redis: Redis) -> None:
    """The backlog never passes its bound, whoever is slow."""
    async with Producer(redis, 4, max_backlog=8) as producer:
        stream = await producer.open("r", b"{}")
        key = NAMES.chunks(stream.partition)
        sending = asyncio.gather(*(stream.chunk(CHUNK) for _ in range(50)))
        seen = 0
        while not sending.done():
            assert await redis.xlen(key) <= 8
            seen += await redis.xtrim(key, maxlen=0, approximate=False)
            await asyncio.sleep(0.002)
        await sending
        assert seen + await redis.xlen(key) == 51


async def test_other_partitions_are_not_held_up(redis: Redis) -> None:
    async with Producer(redis, 4, max_backlog=4, when_full="fail") as producer:
        full = await producer.open("r", b"{}")
        other = await producer.open("c", b"{}")
        assert full.partition != other.partition
        for _ in range(3):
            await full.chunk(CHUNK)
        with pytest.raises(BacklogFull):
            await full.chunk(CHUNK)
        await other.chunk(CHUNK)
        assert len(await entries(redis, "c")) == 2


# --- Redis behind -----------------------------------------------------------------------------------------------------


@pytest.mark.redis
async def test_a_full_redis_says_so(real_redis: Redis, redis_server: RedisServer) -> None:
    """`maxmemory` with `noeviction`: whoever waited gets the error, and a later entry says what went wrong before."""
    async with Producer(real_redis, 4) as producer:
        stream, other = await producer.open("r", b"{}"), await producer.open("b", b"{}")
        await real_redis.config_set("maxmemory-policy", "noeviction")
        await real_redis.config_set("maxmemory", "1")
        try:
            with pytest.raises(PublishError, match="command not allowed when used memory > 'maxmemory'"):
                await stream.chunk(CHUNK)
            await other.chunk(CHUNK, wait=False)
            with pytest.raises(PublishError, match="command not allowed"):
                await stream.chunk(CHUNK)  # sent after the other one
        finally:
            await real_redis.config_set("maxmemory", "0")
        with pytest.raises(PublishError, match="command not allowed"):
            await other.chunk(CHUNK)
        assert len(await entries(real_redis)) == len(await entries(real_redis, "b")) == 1


class Flaky:
    """A client whose pipelines fail: before they are sent, or after (the answer is lost)."""

    def __init__(self, redis: Redis, failures: list[str]) -> None:
        self.redis = redis
        self.failures = failures

    def pipeline(self, transaction: bool) -> object:
        pipe = self.redis.pipeline(transaction=transaction)
        execute = pipe.execute

        async def failing(raise_on_error: bool = True) -> object:
            failure = self.failures.pop(0) if self.failures else "no"
            if failure == "before":
                raise RedisConnectionError("gone")
            answer = await execute(raise_on_error=raise_on_error)
            if failure == "after":
                raise RedisConnectionError("gone")
            return answer

        pipe.execute = failing
        return pipe

    def __getattr__(self, name: str) -> object:
        return getattr(self.redis, name)


async def test_a_lost_answer_is_sent_again_with_the_same_numbers(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """At least once on the wire; `seq` makes it once behind it. One log line for each change of state."""
    caplog.set_level(logging.INFO, "producer")
    flaky = Flaky(redis, ["no", "before", "after", "before", "no"])
    async with Producer(flaky, 4) as producer:  # type: ignore[arg-type]
        stream = await producer.open("r", b"{}")
        await stream.chunk(CHUNK)
        await stream.done()
        assert [int(fields[b"seq"]) for fields in await entries(redis)] == [0, 1, 1, 2]
    assert [record.message for record in caplog.records] == ["Redis is away (ConnectionError)", "Redis is back"]


async def test_a_redis_that_stays_away_is_an_error(redis: Redis) -> None:
    async with Producer(Flaky(redis, ["before"] * 100), 4, retry_s=0.1) as producer:  # type: ignore[arg-type]
        with pytest.raises(PublishError, match="gone"):
            await producer.open("r", b"{}")


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.redis
async def test_a_redis_that_takes_no_writes_for_a_while(real_redis: Redis) -> None:
    """As one whose replicas or whose disk are away: waited for, as if it were away itself."""
    await real_redis.config_set("min-replicas-to-write", "1")
    async with Producer(real_redis, 4) as producer:
        try:
            opening = asyncio.create_task(producer.open("r", b"{}"))
            await asyncio.sleep(0.3)
            assert not opening.done()
        finally:
            await real_redis.config_set("min-replicas-to-write", "0")
        await asyncio.wait_for(opening, 5)
        assert [fields[b"seq"] for fields in await entries(real_redis)] == [b"0"]


async def test_what_redis_cannot_be_sent_is_an_error_of_its_sender(redis: Redis) -> None:
    """Not a producer that never sends anything again."""
    async with Producer(redis, 4) as producer:
        with pytest.raises(PublishError, match=r"str, int, float or bytes|Invalid input of type: 'NoneType'"):
            await producer.put(NAMES.chunks(0), {b"request_id": None})  # type: ignore[dict-item]
        await producer.open("r", b"{}")
        assert len(await entries(redis)) == 1


async def test_partitions_come_from_the_first_worker(redis: Redis) -> None:
    with pytest.raises(ConfigError, match="no worker has been started on this database"):
        await read_partitions(redis, NAMES)
    reading = asyncio.create_task(read_partitions(redis, NAMES, wait_s=10))
    await redis.hset(NAMES.config, mapping={"partitions": 3, "wire_version": keys.WIRE_VERSION})
    assert await reading == 3


async def test_half_a_configuration_is_waited_for(redis: Redis) -> None:
    await redis.hset(NAMES.config, "partitions", "3")
    with pytest.raises(NotSetUp):
        await read_partitions(redis, NAMES)


async def test_a_configuration_of_somebody_else(redis: Redis) -> None:
    await redis.hset(NAMES.config, mapping={"partitions": "many", "wire_version": 1})
    with pytest.raises(ConfigError, match=r"^derender:config is not what a worker writes: "):
        await read_partitions(redis, NAMES)


async def test_another_wire_version_is_refused(redis: Redis) -> None:
    await redis.hset(NAMES.config, mapping={"partitions": 3, "wire_version": 7})
    with pytest.raises(ConfigError, match="wire version 7, this is 1"):
        await read_partitions(redis, NAMES)
