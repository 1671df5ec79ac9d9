"""Resumable event streams: cuts, many readers, late readers, and an explicit answer to everything that is over."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from gateway.settings import GatewaySettings
from link.redis import connect
from schemas import keys
from schemas.keys import Keys
from tests.conftest import RedisServer, free_port
from tests.engine import serving
from tests.gateway import sse
from tests.gateway.conftest import MODEL, Stack, create_app
from tests.shared_data import ROOT

pytestmark = [pytest.mark.redis]

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Go on."}], "stream": True, "detach": True}


async def begin(stack: Stack, **more: Any) -> str:
    """Start a generation that goes on without its client; gives its request id."""
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("POST", f"{stack.gateway}/v1/chat/completions", json={**BODY, **more}) as answer,
    ):
        return str(answer.headers["x-request-id"])


async def on_redis(url: str, *command: Any) -> Any:
    redis = connect(url)
    try:
        return await redis.execute_command(*command)
    finally:
        await redis.aclose()


def key_of(request_id: str, name: str) -> str:
    return Keys().of(keys.partition_of(request_id, keys.DEFAULT_PARTITIONS), f"{name}:{request_id}")


def content(data: list[bytes]) -> str:
    """What a client appends: the deltas of all events but the closing `[DONE]`."""
    chunks = [json.loads(one) for one in data]
    return "".join(choice["delta"]["content"] or "" for chunk in chunks for choice in chunk["choices"])


async def test_twenty_cuts_lose_and_double_nothing(stack: Stack) -> None:
    """A client that is cut off 20 times, also inside an event, has the bytes of one that was not."""
    text = " ".join(f"number {n} 🎉" for n in range(60))
    stack.says(text, pause_s=0.01)
    request_id = await begin(stack)
    url = f"{stack.gateway}/v1/streams/{request_id}"
    undisturbed = asyncio.create_task(sse.read(url))
    rng, last, data, ids, cuts = random.Random(7), None, [], [], 0
    while True:
        cut = rng.randint(20, 4000) if cuts < 20 else None
        seen = await sse.read(url, after=last, cut_after=cut)
        data += seen.data
        ids += seen.ids
        last = f"{ids[-1]}-0" if ids else None
        if seen.ended:
            break
        cuts += 1
    whole = await undisturbed
    assert cuts == 20
    assert data == whole.data
    assert ids == whole.ids == list(range(1, len(ids) + 1))
    assert content(whole.data) == text


@contextmanager
def gateway_process(url: str) -> Iterator[str]:
    """`derender gateway` as a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "derender", "gateway", "--redis-url", url, "--port", str(port)]
    process = subprocess.Popen([*command, "--log-level", "warning"], cwd=ROOT)
    base = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 30
        while True:
            try:
                if httpx.get(f"{base}/health").status_code == 200:
                    break
            except httpx.TransportError:
                assert process.poll() is None, "the gateway has ended"
            assert time.monotonic() < until, "the gateway did not start"
            time.sleep(0.05)
        yield base
    finally:
        process.terminate()
        assert process.wait(timeout=15) == 0


async def test_five_hundred_readers_on_one_process(stack: Stack) -> None:
    """20 streams with 25 readers each, at once: every reader sees every event once, in order."""
    stack.says("one two three four five six seven eight nine ten", first_pause_s=1.0, pause_s=0.05)
    with gateway_process(stack.redis.url) as base:
        request_ids = await asyncio.gather(*(begin(stack) for _ in range(20)))
        readers = [sse.read(f"{base}/v1/streams/{id_}") for id_ in request_ids for _ in range(25)]
        seen = await asyncio.wait_for(asyncio.gather(*readers), 60)
    count = len(stack.ids("one two three four five six seven eight nine ten"))
    assert [one.ids for one in seen] == [list(range(1, count + 1))] * 500
    assert all(one.ended for one in seen)
    assert len({tuple(one.data) for one in seen}) == 20


async def test_a_late_reader_gets_a_snapshot_and_the_rest(stack: Stack) -> None:
    stack.says("one two three four five six seven eight nine ten", pause_s=0.05)
    request_id = await begin(stack)
    url = f"{stack.gateway}/v1/streams/{request_id}"
    whole_task = asyncio.create_task(sse.read(url))
    await on_redis(stack.redis.url, "XREAD", "BLOCK", 4000, "STREAMS", key_of(request_id, "reply"), "2-0")
    late = await sse.read(f"{url}?from=snapshot")
    whole = await whole_task
    assert content(late.data) == content(whole.data) == "one two three four five six seven eight nine ten"
    assert late.ids[0] > 1
    assert late.ids == list(range(late.ids[0], whole.ids[-1] + 1))
    assert late.ended
    after_the_end = await sse.read(f"{url}?from=snapshot")
    assert (after_the_end.ids, len(after_the_end.data), after_the_end.ended) == ([whole.ids[-1]], 1, True)
    merged = json.loads(after_the_end.data[0])
    assert merged.keys() == json.loads(whole.data[0]).keys()
    assert merged["choices"][0]["finish_reason"] == "stop"
    assert merged["choices"][0]["delta"]["role"] == "assistant"


async def test_what_is_over_is_said(stack: Stack) -> None:
    """204 after the end, 404 for what is not known, 410 for what has expired or was trimmed; never a silent wait."""
    stack.says("one two three")
    request_id = await begin(stack)
    url = f"{stack.gateway}/v1/streams/{request_id}"
    ids = (await sse.read(url)).ids
    reply = key_of(request_id, "reply")

    async def status(after: str | None, path: str = url) -> tuple[int, str | None]:
        seen = await sse.read(path, after=after)
        return seen.status, json.loads(seen.body)["error"]["message"] if seen.status >= 400 else None

    assert await status(f"{ids[-1]}-0") == (204, None)
    assert await status("never") == (400, "Last-Event-ID has to be the id of an event of this stream, such as 7-0")
    assert await status(None, f"{url}?after=never") == (
        400,
        "after has to be the id of an event of this stream, such as 7-0",
    )
    assert (await status(None, f"{url}?from=middle"))[0] == 400
    assert (await status("99-0")) == (
        410,
        f"request {request_id} has no event 99-0: it is finished, and ended with {ids[-1]}-0",
    )
    assert await status(None, f"{stack.gateway}/v1/streams/nobody") == (
        404,
        "request nobody is not known, or its stream was forgotten",
    )
    assert (await status(None, f"{stack.gateway}/v1/streams/no%20body"))[0] == 400
    await on_redis(stack.redis.url, "XTRIM", reply, "MINID", "3-0")
    assert await status("1-0") == (410, f"event 2 of request {request_id} has expired")
    assert await status("0-0") == (410, f"events 1 to 2 of request {request_id} have expired")
    assert (await sse.read(url, after="2-0")).ids == ids[2:]
    await on_redis(stack.redis.url, "DEL", reply)
    assert await status(None) == (410, f"request {request_id} is finished, and its stream has expired")
    await on_redis(stack.redis.url, "DEL", key_of(request_id, "status"))
    assert (await status("1-0"))[0] == 404


async def test_a_reader_that_is_ahead_of_an_open_stream_goes_on_behind_its_own_last_event(stack: Stack) -> None:
    """As after a failover that lost writes: the replies come again with the ids that they had."""
    stack.says("one two three four five six seven", pause_s=0.1)
    request_id = await begin(stack)
    url = f"{stack.gateway}/v1/streams/{request_id}"
    ahead = await sse.read(url, after="5-0")
    whole = await sse.read(url)
    assert (ahead.status, ahead.ids, ahead.ended) == (200, whole.ids[5:], True)
    assert ahead.data == whole.data[5:]


async def test_a_stream_that_ends_before_its_reader_s_last_event_says_so(own_redis: RedisServer, stack: Stack) -> None:
    stack.says("one two three", pause_s=30.0, first_pause_s=-30.0)  # one event, then nothing
    request_id = await begin(stack)
    with serving(create_app(own_redis.url, GatewaySettings(port=0))) as base:
        reading = asyncio.create_task(sse.read(f"{base}/v1/streams/{request_id}", after="99-0"))
        async with httpx.AsyncClient() as client:
            for _ in range(500):
                if "derender_gateway_event_streams 1.0" in (await client.get(f"{base}/metrics")).text:
                    break
                await asyncio.sleep(0.02)
        chunks = Keys().chunks(keys.partition_of(request_id, keys.DEFAULT_PARTITIONS))
        await on_redis(own_redis.url, "XADD", chunks, "*", "request_id", request_id, "control", "abort")
        seen = await asyncio.wait_for(reading, 20)
    assert (seen.status, seen.ids, seen.ended) == (200, [], True)
    error = json.loads(seen.data[0])["error"]
    assert (error["code"], error["message"]) == (
        410,
        f"request {request_id} is aborted, and its stream ended before 99-0",
    )


async def test_silence_has_heartbeats_and_an_end(own_redis: RedisServer, stack: Stack) -> None:
    """Comments while nothing comes; when the stream vanishes under a reader, it is told."""
    stack.says("one two three", pause_s=0.6)
    settings = GatewaySettings(port=0, heartbeat_s=0.1)
    with serving(create_app(own_redis.url, settings)) as base:
        request_id = await begin(stack)
        reading = asyncio.create_task(sse.read(f"{base}/v1/streams/{request_id}"))
        seen = await reading
        assert content(seen.data) == "one two three"
        assert seen.comments >= 5
        stack.says("one two three", pause_s=30.0, first_pause_s=-30.0)  # one event, then nothing
        request_id = await begin(stack)
        reading = asyncio.create_task(sse.read(f"{base}/v1/streams/{request_id}"))
        await asyncio.sleep(0.3)
        await on_redis(stack.redis.url, "DEL", key_of(request_id, "reply"), key_of(request_id, "status"))
        seen = await asyncio.wait_for(reading, 20)
        assert json.loads(seen.data[-1])["error"]["code"] == 410
        assert seen.ended


async def test_the_front_s_own_stream_can_be_resumed(stack: Stack) -> None:
    """The client that asked loses its connection and reads on: ids are the same in both places."""
    stack.says("one two three four five six", pause_s=0.02)
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("POST", f"{stack.gateway}/v1/chat/completions", json=BODY) as answer,
    ):
        lines = answer.aiter_lines()
        first = [await anext(lines) for _ in range(6)]
        request_id = answer.headers["x-request-id"]
    assert [line[:7] for line in first] == ["id: 1-0", "data: {", "", "id: 2-0", "data: {", ""]
    rest = await sse.read(f"{stack.gateway}/v1/streams/{request_id}", after="2-0")
    data = [line.removeprefix("data: ").encode() for line in first if line.startswith("data: ")]
    assert content([*data, *rest.data]) == "one two three four five six"
