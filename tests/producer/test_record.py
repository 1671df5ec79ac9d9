"""Recording live chunk streams: what is kept, what is left out, and that a replay of it says the same."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from link.redis import connect
from producer.publish import Producer
from producer.record import Recorder
from producer.replay import Event, read_recording, recut, replay
from schemas import keys
from schemas.keys import Keys
from schemas.openai import ErrorBody, ErrorInfo

pytestmark = [pytest.mark.redis]

NAMES = Keys()
CONTEXT = b'{"kind": "completion", "model": "m", "reply_to": "somebody"}'


@asynccontextmanager
async def recording(url: str, path: Path, *, complete: int) -> AsyncIterator[tuple[Producer, Recorder]]:
    """A producer, and a recorder that ends with the request after so many complete ones."""
    redis = connect(url)
    recorder = Recorder(redis, 8, path)
    async with Producer(connect(url), 8) as producer:
        task = asyncio.create_task(recorder.run(lambda number: recorder.stop() if number > complete else None))
        await recorder.ready.wait()
        yield producer, recorder
        await (await producer.open("last", b"{}")).done()
        await task
    await redis.aclose()


def chunk(*ids: int, finish: str | None = None) -> bytes:
    choice = {"index": 0, "token_ids": ids, "finish_reason": finish}
    return json.dumps({"choices": [choice]}, separators=(",", ":")).encode()


async def test_a_recording_is_what_was_published(server_url: str, tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    failure = ErrorBody(ErrorInfo("broken", "X", None, 500))
    async with recording(server_url, path, complete=3) as (producer, recorder):
        streams = {name: await producer.open(name, CONTEXT) for name in ("a", "b", "c", "d", "e")}
        await streams["a"].chunk(chunk(1, 2))
        await streams["b"].chunk(chunk(3), prompt=1)
        await streams["c"].chunk(b'{\n  "choices": []\n}')
        await streams["d"].chunk(b"no json")
        await streams["a"].chunk(b"[DONE]")
        await streams["b"].abort()
        await streams["c"].error(failure)
        await streams["d"].done()
        await producer.put(NAMES.chunks(0), {keys.REQUEST: b"x", keys.CHUNK: chunk(9)})
    events = [(event.event, event.request_id) for event in read_recording(path)]
    assert events == [
        ("open", "a"), ("open", "b"), ("open", "c"),
        ("chunk", "a"), ("chunk", "b"), ("chunk", "c"),
        ("done", "a"), ("abort", "b"), ("error", "c"),
        ("open", "last"), ("done", "last"),
    ]  # fmt: skip
    lines = {(line["event"], line["request_id"]): line for line in map(json.loads, path.read_text().splitlines())}
    context = lines["open", "a"]["context"]
    assert context.pop("created") > 1_700_000_000
    assert context == {"kind": "completion", "model": "m"}
    assert lines["chunk", "b"] | {"t": 0} == {
        "t": 0, "event": "chunk", "request_id": "b", "prompt": 1, "chunk": json.loads(chunk(3)),
    }  # fmt: skip
    assert lines["error", "c"]["error"] == {"error": {"message": "broken", "type": "X", "param": None, "code": 500}}
    assert (recorder.complete, dict(recorder.lost)) == (4, {"broken": 1, "late": 1, "unfinished": 1})
    assert os.listdir(tmp_path) == [path.name]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


async def test_a_recording_takes_the_place_of_another_one_with_a_mode_of_its_own(
    server_url: str, tmp_path: Path
) -> None:
    """As do the files that it is made of, of which a killed recorder may have left some."""
    path = tmp_path / "live.jsonl"
    for name in ("live.jsonl", "live.jsonl.part", "live.jsonl.whole"):
        (tmp_path / name).write_text("old")
        (tmp_path / name).chmod(0o644)
    modes = []
    async with recording(server_url, path, complete=0):
        modes.append(stat.S_IMODE(os.stat(tmp_path / "live.jsonl.part").st_mode))
        assert path.read_text() == "old"
    modes.append(stat.S_IMODE(os.stat(path).st_mode))
    assert modes == [0o600, 0o600]
    assert os.listdir(tmp_path) == [path.name]
    assert [event.event for event in read_recording(path)] == ["open", "done"]


@pytest.mark.parametrize("before", [None, "old"], ids=["new", "there"])
async def test_without_a_complete_request_no_file_is_touched(
    server_url: str, tmp_path: Path, before: str | None
) -> None:
    path = tmp_path / "live.jsonl"
    if before is not None:
        path.write_text(before)
    redis = connect(server_url)
    recorder = Recorder(redis, 8, path)
    async with Producer(connect(server_url), 8) as producer:
        task = asyncio.create_task(recorder.run())
        await recorder.ready.wait()
        await producer.open("r", CONTEXT)
        for _ in range(1000):
            if "r" in recorder._seq:
                break
            await asyncio.sleep(0.02)
        recorder.stop()
        await task
    await redis.aclose()
    assert (recorder.complete, dict(recorder.lost)) == (0, {"unfinished": 1})
    assert [(name, (tmp_path / name).read_text()) for name in os.listdir(tmp_path)] == (
        [(path.name, "old")] if before else []
    )


async def test_a_request_with_a_gap_is_left_out(server_url: str, tmp_path: Path) -> None:
    """An entry that a worker trimmed before the recorder saw it, and one that was sent twice."""
    path = tmp_path / "live.jsonl"
    async with recording(server_url, path, complete=1) as (producer, recorder):
        key = NAMES.chunks(keys.partition_of("r", 8))
        for name, numbers in (("r", (0, 1, 3)), ("s", (0, 1, 1, 2))):
            key = NAMES.chunks(keys.partition_of(name, 8))
            for number in numbers:
                fields = {keys.REQUEST: name.encode(), keys.SEQ: b"%d" % number}
                fields |= {keys.OPEN: CONTEXT} if number == 0 else {keys.CHUNK: chunk(number)}
                await producer.put(key, fields)
        end = {keys.REQUEST: b"s", keys.SEQ: b"3", keys.CONTROL: b"done"}
        await producer.put(key, end)
    assert [(event.event, event.request_id) for event in read_recording(path)][:4] == [
        ("open", "s"),
        ("chunk", "s"),
        ("chunk", "s"),
        ("done", "s"),
    ]
    assert dict(recorder.lost) == {"gap": 1}


async def test_a_replay_publishes_the_recording_again(server_url: str, real_redis: Any, tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    failure = ErrorBody(ErrorInfo("broken", "X", None, 500))
    async with recording(server_url, path, complete=1) as (producer, _):
        first = await producer.open("one", CONTEXT)
        await first.chunk(chunk(1, 2), prompt=1)
        await first.error(failure)
    await real_redis.delete(*[NAMES.chunks(number) for number in range(8)])
    async with Producer(connect(server_url), 8) as producer:
        await replay(producer, read_recording(path), name=lambda id_, _: f"again-{id_}")
    entries = await real_redis.xrange(NAMES.chunks(keys.partition_of("again-one", 8)))
    assert [fields for _, fields in entries if fields[keys.REQUEST] == b"again-one"][1:] == [
        {keys.REQUEST: b"again-one", keys.SEQ: b"1", keys.CHUNK: chunk(1, 2), keys.PROMPT: b"1"},
        {
            keys.REQUEST: b"again-one",
            keys.SEQ: b"2",
            keys.CONTROL: b"error",
            keys.ERROR: b'{"error":{"message":"broken","type":"X","param":null,"code":500}}',
        },
    ]


def test_a_cut_keeps_what_an_abort_leaves_unfinished() -> None:
    """Ids that wait for more go out before the end of their request, each with its prompt."""
    events = [
        Event(0, "chunk", "r", chunk=Raw(chunk(1)), prompt=0),
        Event(0, "chunk", "r", chunk=Raw(chunk(2)), prompt=1),
        Event(0, "chunk", "r", chunk=Raw(chunk(3)), prompt=0),
        Event(1, "abort", "r"),
    ]
    cut = [
        (e.event, e.prompt, json.loads(bytes(e.chunk))["choices"][0]["token_ids"] if e.event == "chunk" else None)
        for e in recut(events, 0)
    ]
    assert cut == [("chunk", 1, [2]), ("chunk", 0, [1, 3]), ("abort", None, None)]
