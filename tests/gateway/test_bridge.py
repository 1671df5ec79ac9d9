"""The bridge alone: what may be tried again and what may not, and that a bridge that dies strands nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.bridge import MAX_DELIVERIES, Bridge, engine_client
from gateway.settings import BridgeSettings
from link.redis import connect
from producer.generate import GenerateQueue
from producer.publish import Producer
from schemas import keys
from schemas.keys import Keys
from tests.engine import Engine, Generation, serving

pytestmark = [pytest.mark.redis]

NAMES = Keys()
CLOSED = "http://127.0.0.1:9"
"""Nobody listens on the discard port."""


def request(**params: Any) -> bytes:
    return json.dumps({"request_id": "r", "token_ids": [1, 2], "sampling_params": params}).encode()


@asynccontextmanager
async def bridge_to(url: str, engine: str, *, name: str = "one", **settings: Any) -> AsyncIterator[Bridge]:
    options = BridgeSettings(engine=engine, grace_s=settings.pop("grace_s", 5.0), **settings)
    async with Producer(connect(url), 8) as producer, engine_client(options) as client:
        queue = GenerateQueue(producer.redis, 8, queue=options.queue, consumer=name)
        bridge = Bridge(producer, queue, client, options)
        task = asyncio.create_task(bridge.run())
        try:
            yield bridge
        finally:
            bridge.stop()
            await task


class Ends:
    """The two ends of a bridge: what is asked for, and what is published."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.producer = Producer(redis, 8)

    async def ask(self, request_id: str, requests: bytes, **options: Any) -> None:
        await self.producer.generate(request_id, requests, **options)

    async def published(self, request_id: str, *, lane: str = "chunks") -> list[dict[bytes, bytes]]:
        """Entries of a request up to a control entry (chunks), or the first one (bulk)."""
        key = NAMES.of(keys.partition_of(request_id, 8), lane)
        last, found = "0", list[dict[bytes, bytes]]()
        while True:
            answer = await self.redis.xread({key: last}, block=4000)
            assert answer, f"only {found}"
            for id_, fields in answer[0][1]:
                last = id_
                if fields[keys.REQUEST] == request_id.encode():
                    found.append(fields)
            if found and (lane == "bulk" or keys.CONTROL in found[-1]):
                return found

    async def pending(self) -> int:
        counts = [await self.redis.xpending(NAMES.generate(number), keys.BRIDGES) for number in range(8)]
        return sum(count["pending"] for count in counts)


@pytest.fixture
async def ends(real_redis: Redis) -> Ends:
    return Ends(real_redis)


def engine_of(*scripts: Generation) -> Engine:
    """An engine whose calls give these in turn, the last one again and again."""
    left = list(scripts)
    return Engine(lambda _: left.pop(0) if len(left) > 1 else left[0])


def ids_of(entries: list[dict[bytes, bytes]]) -> list[int]:
    chunks = [json.loads(entry[keys.CHUNK]) for entry in entries if keys.CHUNK in entry]
    return [id_ for chunk in chunks for choice in chunk["choices"] for id_ in choice["token_ids"]]


def error_in(entries: list[dict[bytes, bytes]]) -> tuple[int, str]:
    error = json.loads(entries[-1][keys.ERROR])["error"]
    return error["code"], error["message"]


async def test_lines_go_out_as_they_come(ends: Ends, server_url: str) -> None:
    """Each `data:` line is an entry, numbered from 1 (0 is the open); then the end."""
    engine = engine_of(Generation([[5, 6, 2]]))
    with serving(engine.app) as url:
        async with bridge_to(server_url, url):
            await ends.ask("r", request(stop=["x"], n=1))
            entries = await ends.published("r")
    assert [entry[keys.SEQ] for entry in entries] == [b"1", b"2", b"3", b"4"]
    assert (ids_of(entries), entries[-1][keys.CONTROL]) == ([5, 6, 2], b"done")
    assert json.loads(entries[0][keys.CHUNK])["request_id"] == "generate-tokens-r"
    assert engine.requests == [{"request_id": "r", "token_ids": [1, 2], "sampling_params": {"n": 1}, "stream": True}]
    assert await ends.pending() == 0
    assert [await ends.redis.xlen(NAMES.generate(number)) for number in range(8)] == [0] * 8


async def test_whole_work_goes_out_with_its_context(ends: Ends, server_url: str) -> None:
    engine = engine_of(Generation([[5, 6, 2]]))
    with serving(engine.app) as url:
        async with bridge_to(server_url, url, queue="q"):
            await ends.ask("r", request(), context=b'{"kind": "chat"}', queue="q")
            (entry,) = await ends.published("r", lane="bulk")
            two = b"[" + request() + b"," + request() + b"]"
            await ends.ask("s", two, context=b'{"kind": "completion"}', queue="q")
            (several,) = await ends.published("s", lane="bulk")
    assert (entry[keys.OPEN], json.loads(entry[keys.RESPONSE])["choices"][0]["token_ids"]) == (
        b'{"kind": "chat"}',
        [5, 6, 2],
    )
    assert [one["choices"][0]["token_ids"] for one in json.loads(several[keys.RESPONSE])] == [[5, 6, 2]] * 2


async def test_tried_again_before_the_first_token_only(ends: Ends, server_url: str) -> None:
    refused = Generation([[]], refuse=(503, {"error": {"message": "loading", "code": 503}}))
    engine = engine_of(refused, Generation([[7]], break_after=0), Generation([[5, 6]], break_after=1))
    with serving(engine.app) as url:
        async with bridge_to(server_url, url):
            await ends.ask("r", request())
            entries = await ends.published("r")
    assert ids_of(entries) == [5]
    assert error_in(entries) == (502, "the engine broke off in mid-stream (RemoteProtocolError)")
    assert len(engine.requests) == 3


async def test_an_engine_that_stays_away(ends: Ends, server_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="gateway.bridge")
    async with bridge_to(server_url, CLOSED.replace("//", "//user:secret@"), retries=1):
        await ends.ask("r", request())
        assert error_in(await ends.published("r")) == (502, "the engine cannot be reached (ConnectError)")
        await ends.ask("w", request(), context=b'{"kind": "chat"}')
        entries = await ends.published("w")
    assert (entries[0][keys.OPEN], error_in(entries)[0]) == (b'{"kind": "chat"}', 502)
    assert [record.getMessage() for record in caplog.records if record.name == "gateway.bridge"] == [
        "requests of the default queue go to the engine at 127.0.0.1:9",
        "request r: engine at 127.0.0.1:9: ConnectError, trying again",
        "request r failed: engine at 127.0.0.1:9: ConnectError",
        "request w: engine at 127.0.0.1:9: ConnectError, trying again",
        "request w failed: engine at 127.0.0.1:9: ConnectError",
    ]
    assert await ends.pending() == 0


LOGGED: dict[str, tuple[Generation, str, str]] = {
    "refused": (
        Generation([[]], refuse=(400, {"error": {"message": "secret words", "code": 400}})),
        "",
        "status 400 for POST /inference/v1/generate",
    ),
    "no such path": (Generation([[5]]), "/v1", "status 404 for POST /v1/inference/v1/generate"),
    "error in stream": (Generation([[5, 6]], error_after=1), "", "an error in its stream"),
    "broken off": (Generation([[5, 6]], break_after=1), "", "RemoteProtocolError in mid-stream"),
    "silent": (Generation([[5, 6]], first_pause_s=30.0), "", "nothing for 0.3 s"),
}


@pytest.mark.parametrize("name", LOGGED)
async def test_every_failure_of_an_engine_is_logged(
    ends: Ends, server_url: str, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Where it was asked and how it failed, without the words of its answer: those are the client's."""
    generation, path, said = LOGGED[name]
    with serving(engine_of(generation).app) as url:
        async with bridge_to(server_url, url + path, retries=0, engine_timeout_s=0.3):
            caplog.set_level("WARNING", logger="gateway.bridge")
            await ends.ask("r", request())
            await ends.published("r")
    logged = [record.getMessage() for record in caplog.records if record.name == "gateway.bridge"]
    assert logged == [f"request r failed: engine at {url.removeprefix('http://')}: {said}"]


async def test_an_engine_that_says_nothing(ends: Ends, server_url: str) -> None:
    engine = engine_of(Generation([[5, 6]], pause_s=30.0))
    with serving(engine.app) as url:
        async with bridge_to(server_url, url, engine_timeout_s=0.2):
            await ends.ask("r", request())
            assert error_in(await ends.published("r")) == (504, "the engine said nothing for 0.2 s")
    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "generate request is not valid: "),
        (b'{"token_ids": [1]}', "generate request is not valid: Object missing required field `sampling_params`"),
        (b'{"sampling_params": {"n": 100000}}', "generate request is not valid: Expected `int` <= 1024"),
    ],
    ids=["no JSON", "no params", "too many"],
)
async def test_a_request_that_makes_no_sense(ends: Ends, server_url: str, body: bytes, message: str) -> None:
    async with bridge_to(server_url, CLOSED):
        await ends.ask("r", body)
        entries = await ends.published("r")
    code, said = error_in(entries)
    assert (code, said[: len(message)]) == (400, message)
    assert json.loads(entries[-1][keys.ERROR])["error"]["type"] == "Bad Request"
    assert await ends.pending() == 0


async def test_a_signal_closes_the_engine_call(ends: Ends, server_url: str) -> None:
    """`cancel` of one choice of two goes on; of the second one, or of the whole request, closes the call."""
    engine = engine_of(Generation([[5] * 1000, [6] * 1000], pause_s=0.01))
    signals = NAMES.signals(keys.partition_of("r", 8))
    with serving(engine.app) as url:
        async with bridge_to(server_url, url):
            await ends.ask("r", request(n=2))
            key = NAMES.chunks(keys.partition_of("r", 8))
            assert await ends.redis.xread({key: "0"}, block=4000)
            for index in (b"0", b"1"):
                assert engine.closed == []
                await ends.redis.xadd(signals, {keys.REQUEST: b"r", keys.SIGNAL: b"cancel", keys.INDEX: index})
                await asyncio.sleep(0.1)
            entries = await ends.published("r")
            assert entries[-1][keys.CONTROL] == b"done"
    assert (engine.closed, engine.finished) == (["generate-tokens-r"], [])


async def test_a_request_that_has_ended_is_not_generated(ends: Ends, server_url: str) -> None:
    engine = engine_of(Generation([[5]]))
    await ends.redis.set(NAMES.status(keys.partition_of("gone", 8), "gone"), "aborted")
    await ends.ask("gone", request())
    await ends.ask("r", request())
    with serving(engine.app) as url:
        async with bridge_to(server_url, url):
            await ends.published("r")
    assert len(engine.requests) == 1
    assert await ends.pending() == 0


async def test_concurrency_is_bounded(ends: Ends, server_url: str) -> None:
    engine = engine_of(Generation([[5] * 3], pause_s=0.01))
    with serving(engine.app) as url:
        async with bridge_to(server_url, url, concurrency=3):
            for number in range(20):
                await ends.ask(f"r{number}", request())
            for number in range(20):
                assert ids_of(await ends.published(f"r{number}")) == [5] * 3
    assert engine.most_running == 3


async def test_a_bridge_that_dies_before_the_first_token_strands_nothing(ends: Ends, server_url: str) -> None:
    """It took a request and is gone; another one claims it and generates."""
    dead = GenerateQueue(ends.redis, 8, consumer="dead")
    await dead.prepare()
    await ends.ask("r", request())
    (taken,) = await dead.take(1, block_ms=1000)
    assert taken.request_id == "r"
    engine = engine_of(Generation([[5, 6]]))
    with serving(engine.app) as url:
        async with bridge_to(server_url, url, claim_after_s=0.1):
            assert ids_of(await ends.published("r")) == [5, 6]
    assert not await dead.settle(taken)  # the late one may publish nothing


async def test_a_bridge_that_waits_for_its_engine_keeps_its_request(ends: Ends, server_url: str) -> None:
    """A slow first token is no reason for another bridge to take over."""
    engine = engine_of(Generation([[5, 6]], first_pause_s=2.5))
    with serving(engine.app) as url:
        async with (
            bridge_to(server_url, url, name="one", claim_after_s=1.0),
            bridge_to(server_url, url, name="two", claim_after_s=1.0),
        ):
            await ends.ask("r", request())
            assert ids_of(await ends.published("r")) == [5, 6]
    assert len(engine.requests) == 1


async def test_a_request_that_kills_bridges_ends_with_an_error(ends: Ends, server_url: str) -> None:
    await ends.ask("r", request())
    for number in range(MAX_DELIVERIES):
        queue = GenerateQueue(ends.redis, 8, consumer=f"dead{number}")
        await queue.prepare()
        taken = await queue.take(1, block_ms=10) or await queue.claim(0, count=1)
        assert [one.deliveries for one in taken] == [number + 1]
    async with bridge_to(server_url, CLOSED, claim_after_s=0.05):
        assert error_in(await ends.published("r")) == (502, "5 bridges gave up on this request")


async def test_a_bridge_that_stops_gives_back_what_has_not_begun(ends: Ends, server_url: str) -> None:
    """What has begun ends with an error; the rest is another bridge's at once."""
    engine = engine_of(Generation([[5, 6, 7]], pause_s=0.02))
    slow = Engine(
        lambda body: Generation([[5] * 100], first_pause_s=60.0 if body["request_id"] == "slow" else 0.0, pause_s=0.05)
    )
    with serving(slow.app) as url:
        async with bridge_to(server_url, url, grace_s=0.1):
            await ends.ask("begun", request())
            await ends.ask("waits", request().replace(b'"r"', b'"slow"'))
            key = NAMES.chunks(keys.partition_of("begun", 8))
            assert await ends.redis.xread({key: "0"}, block=4000)
            while len(slow.requests) < 2:
                await ends.redis.ping()
    assert error_in(await ends.published("begun")) == (503, "the bridge to the engine was stopped")
    with serving(engine.app) as url:
        async with bridge_to(server_url, url, name="two", claim_after_s=30.0):
            assert ids_of(await ends.published("waits")) == [5, 6, 7]


async def test_an_emptied_database_gets_its_group_again(ends: Ends, server_url: str) -> None:
    engine = engine_of(Generation([[5]]))
    with serving(engine.app) as url:
        async with bridge_to(server_url, url):
            await ends.ask("a", request())
            await ends.published("a")
            await ends.redis.flushall()
            with suppress(AssertionError):
                await ends.ask("b", request())
            assert ids_of(await ends.published("b")) == [5]
