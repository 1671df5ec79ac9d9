"""Producers that die, requests that kill or flood: the others go on, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from link.tasks import end
from producer.publish import Producer
from producer.read import Reader
from schemas import keys
from schemas.keys import Keys, partition_of
from tests.chaos.conftest import Expected, Size, report, sizes
from tests.chaos.fleet import Fleet, dead_letters
from tests.chaos.fragile_worker import FATAL
from tests.chaos.load import Load, fifty, recorded, renamed
from tests.shared_data import ROOT
from worker.drain import MAX_ATTEMPTS

pytestmark = pytest.mark.redis

PRODUCER = """
import asyncio, sys
from producer.publish import Producer
from tests.chaos.load import recorded
async def main():
    base = recorded()[8]
    async with await Producer.connect(sys.argv[1]) as producer:
        stream = await producer.open(sys.argv[2], base.context)
        for chunk in base.chunks:
            await stream.chunk(chunk)
            await asyncio.sleep(0.02)
        await stream.done()
asyncio.run(main())
"""


async def follow(reader: Reader, request_id: str) -> list[tuple[str, bytes]]:
    return [(reply.id, reply.data) async for reply in reader.follow(request_id)]


async def test_a_producer_dies_in_mid_stream(
    real_redis: Redis, server_url: str, tmp_path: Path, undisturbed_replies: Expected
) -> None:
    """One request is sent again from its start by another producer and is whole; the other is ended by the time-out."""
    base = recorded()[8]
    expected = undisturbed_replies[base.name]
    options = ("--idle-timeout-s", "1.5")
    async with Fleet(real_redis, server_url, tmp_path, *options, partitions=2, lease_s=0.6) as fleet:
        await fleet.start()
        await fleet.settled()
        producers = [
            await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-c", PRODUCER, server_url, name],
                cwd=ROOT,
                stderr=subprocess.DEVNULL,
            )
            for name in ("sent-again", "given-up")
        ]
        try:

            async def in_the_middle() -> bool:
                lengths = [
                    await real_redis.xlen(fleet.names.reply(partition_of(name, 2), name))
                    for name in ("sent-again", "given-up")
                ]
                assert max(lengths) < len(expected) - 1, "too late: a producer was done"
                return min(lengths) >= 5

            await fleet.until(in_the_middle, 20, "both streams are under way")
        finally:
            for process in producers:
                process.kill()
                process.wait()
        async with await Producer.connect(server_url) as producer, await Reader.connect(server_url) as reader:
            stream = await producer.open("sent-again", base.context)
            for chunk in base.chunks:
                await stream.chunk(chunk, wait=False)
            await stream.done()
            whole = await follow(reader, "sent-again")
            given_up = await follow(reader, "given-up")
        fleet.assert_clean_logs()
    assert [(id_, renamed({b"chunk": data}, "sent-again")[b"chunk"]) for id_, data in whole] == [
        (id_, fields[keys.CHUNK]) for id_, fields in expected
    ]
    *begun, (_, error) = given_up
    assert [(id_, renamed({b"chunk": data}, "given-up")[b"chunk"]) for id_, data in begun] == [
        (id_, fields[keys.CHUNK]) for id_, fields in expected[: len(begun)]
    ]
    assert json.loads(error)["error"]["message"].startswith("the engine sent nothing for ")


async def test_a_request_that_kills_workers_costs_a_few_of_them(
    real_redis: Redis, server_url: str, tmp_path: Path, undisturbed_replies: Expected
) -> None:
    """Attempts are counted before the work: after MAX_ATTEMPTS deaths its entry is put aside, unread.

    One more may die before, when the entry stood behind others in its first batch.
    """
    async with Fleet(real_redis, server_url, tmp_path, partitions=2, lease_s=0.6) as fleet:
        fleet.program = ("-m", "tests.chaos.fragile_worker")
        await fleet.start(MAX_ATTEMPTS + 2)
        await fleet.settled(all_workers=False)
        async with await Producer.connect(server_url) as producer, await Reader.connect(server_url) as reader:
            load = Load(
                real_redis, producer, recorded(), undisturbed_replies, 30, random=Size(0, 0, 0, 0).random, together=30,
                rate=lambda: 150.0,
            )  # fmt: skip
            running = asyncio.create_task(load.run())
            stream = await producer.open(FATAL, recorded()[0].context)
            await stream.chunk(recorded()[0].chunks[0])
            replies = [reply async for reply in reader.follow(FATAL)]
            (await running).assert_right(30)
        died = [worker for worker in fleet.workers if worker.process.poll() is not None]
        left = [worker for worker in fleet.workers if worker.process.poll() is None]
        assert {worker.process.returncode for worker in died} == {-signal.SIGKILL}
        assert MAX_ATTEMPTS <= len(died) <= MAX_ATTEMPTS + 1
        assert sum(worker.log.count(f"{MAX_ATTEMPTS} workers died at this entry") for worker in left) == 1
    assert [(reply.id, reply.done) for reply in replies] == [("1-0", keys.STATUS_FAILED)]
    (letter,) = await dead_letters(real_redis, 2)
    assert letter[keys.REQUEST] == FATAL.encode()
    assert letter[keys.REASON] == b"%d workers died at this entry" % MAX_ATTEMPTS
    assert letter[keys.CHUNK] == recorded()[0].chunks[0]


@sizes(Size(streams=20_000, faults=0, workers=1, lease_s=2.0), Size(streams=3_000, faults=0, workers=1, lease_s=2.0))
async def test_a_flood_of_one_request_does_not_stall_the_others(
    real_redis: Redis, server_url: str, tmp_path: Path, undisturbed_replies: Expected, size: Size
) -> None:
    """Live streams end while most of a burst of whole work, and of one request's chunks, is still waiting.

    size.streams: responses in the burst. Whole work waits its turn in a stream of its own; a single request's chunks
    stand in line with the others', and a producer's bound keeps that line short.
    """
    names = Keys()
    async with Fleet(real_redis, server_url, tmp_path, partitions=1, lease_s=size.lease_s) as fleet:
        await fleet.start(1)
        await fleet.settled()
        call = (
            b'{"endpoint": "completion", "generate_responses": [{"choices": [{"index": 0, "token_ids": [19556, 28]}]}]}'
        )
        async with await Producer.connect(server_url, max_backlog=None) as flood:
            for number in range(size.streams):
                flood.put(names.bulk(0), {keys.REQUEST: b"flood-%d" % number, keys.CALL: call})
            async with (
                await Producer.connect(server_url, max_backlog=200) as greedy,
                await Producer.connect(server_url) as producer,
            ):
                stream = await greedy.open("greedy", fifty()[0].context)

                async def pour() -> None:
                    while True:
                        await stream.chunk(b'{"choices": [{"index": 0, "token_ids": [504]}]}', wait=False)

                pouring = asyncio.create_task(pour())
                begin = time.monotonic()
                load = Load(
                    real_redis,
                    producer,
                    recorded(),
                    undisturbed_replies,
                    12,
                    random=size.random,
                    together=12,
                    prefix="live",
                )
                verdicts = await load.run()
                took_s = time.monotonic() - begin
                waiting = await real_redis.xlen(names.bulk(0)) + len(flood._buffer)
                backlog = await real_redis.xlen(names.chunks(0))
                await end(pouring)
                await stream.abort()

            async def answered() -> bool:
                return not flood._buffer and await real_redis.xlen(names.bulk(0)) <= 1  # the entry at the cursor stays

            await fleet.until(answered, 120, "the burst is worked off")
    verdicts.assert_right(12)
    report(
        "flood", burst=size.streams, waiting_when_live_was_done=waiting, live_took_s=round(took_s, 2), backlog=backlog
    )
    assert waiting > size.streams / 4, "the live streams did not wait for the burst"
    assert backlog <= 2_000
