"""Recordings: read, cut as asked, published as recorded."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from redis.asyncio import Redis

from producer.publish import Producer
from producer.replay import Event, RecordingError, read_recording, recut, replay, request_ids, schedule, unfinished
from schemas.keys import Keys

DEMO = Path(__file__).parents[2] / "derender" / "data" / "demo.jsonl"


def events() -> list[Event]:
    return read_recording(DEMO)


def generation(rows: list[Event]) -> dict[tuple[str, int], dict[str, Any]]:
    """What a recording says, whatever its cut: ids, logprob entries and ends by request and choice."""
    found: dict[tuple[str, int], dict[str, Any]] = defaultdict(lambda: {"ids": [], "logprobs": [], "ends": []})
    for row in rows:
        if row.event == "chunk":
            for choice in json.loads(bytes(row.chunk))["choices"]:
                one = found[row.request_id, choice["index"]]
                one["ids"] += choice["token_ids"] or []
                entries = (choice.get("logprobs") or {}).get("content") or []
                one["logprobs"] += [(entry["token_id"], entry["logprob"]) for entry in entries]
                if choice["finish_reason"]:
                    one["ends"].append((choice["finish_reason"], choice["stop_reason"]))
    return dict(found)


def test_the_packaged_recording() -> None:
    """Chat and completions, several choices, logprobs, a stop string, several scripts: each of them at least once."""
    rows = events()
    contexts = [json.loads(bytes(row.context)) for row in rows if row.event == "open"]
    requests = [context.get("chat_request") or context["completion_request"] for context in contexts]
    assert {context["kind"] for context in contexts} == {"chat", "completion"}
    assert {request.get("n", 1) for request in requests} == {1, 2}
    assert any(request.get("logprobs") for request in requests)
    assert any(request.get("stop") for request in requests)
    assert [row.t for row in rows] == sorted(row.t for row in rows)
    assert {row.request_id for row in rows if row.event == "done"} == set(request_ids(rows))
    assert DEMO.stat().st_size < 300_000


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
def test_a_cut_changes_no_content(size: int) -> None:
    """The same ids, logprobs and ends; no chunk of a choice is longer than asked."""
    cut = list(recut(events(), size))
    assert generation(cut) == generation(events())
    for row in cut:
        if row.event == "chunk" and size:
            assert all(len(choice["token_ids"]) <= size for choice in json.loads(bytes(row.chunk))["choices"])
    if size == 0:
        chunks = [row for row in cut if row.event == "chunk" and json.loads(bytes(row.chunk))["choices"]]
        assert len(chunks) == len(generation(cut))


def test_usage_events_stay_behind_the_last_chunk() -> None:
    for row_a, row_b in zip(list(recut(events(), 3))[:-1], list(recut(events(), 3))[1:], strict=True):
        if row_a.event == "chunk" and row_a.request_id == row_b.request_id and row_b.event == "chunk":
            assert json.loads(bytes(row_a.chunk))["choices"], "nothing follows the usage event"


@pytest.mark.parametrize("line", ["{", '{"t": 1}', '{"t": 1, "event": "x", "request_id": "r"}'])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"t": 0, "event": "open", "request_id": "r", "context": {}}\n\n' + line + "\n")
    with pytest.raises(RecordingError, match=r"r\.jsonl, line 3: "):
        read_recording(path)


@pytest.mark.parametrize(
    ("before", "event", "request_id", "message"),
    [
        ([], "chunk", "r", "chunk of request 'r', which is not open"),
        (["open", "done"], "chunk", "r", "chunk of request 'r', which is not open"),
        (["open", "abort"], "done", "r", "done of request 'r', which is not open"),
        ([], "open", "a b", "request id 'a b' does not match [A-Za-z0-9._:/-]{1,128}"),
        ([], "open", "r", "open of request 'r' without a context, a JSON object"),
        (["open"], "chunk", "r", "chunk of request 'r' without its chunk"),
        (["open"], "error", "r", "error of request 'r' without its error"),
    ],
    ids=["never", "ended", "twice", "id", "no context", "no chunk", "no error"],
)
def test_events_that_nobody_could_publish(
    tmp_path: Path, before: list[str], event: str, request_id: str, message: str
) -> None:
    path = tmp_path / "r.jsonl"
    lines: list[dict[str, Any]] = [{"t": 0, "event": name, "request_id": "r", "context": {}} for name in before]
    lines.append({"t": 0, "event": event, "request_id": request_id})
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(RecordingError) as error:
        read_recording(path)
    assert str(error.value) == f"{path}, line {len(lines)}: {message}"


@pytest.mark.parametrize("context", ["null", "[]", '"kind"'])
def test_a_context_that_is_no_object(tmp_path: Path, context: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"t": 0, "event": "open", "request_id": "r", "context":  ' + context + "}\n")
    with pytest.raises(RecordingError) as error:
        read_recording(path)
    assert str(error.value) == f"{path}, line 1: open of request 'r' without a context, a JSON object"


def test_requests_without_an_end() -> None:
    """One that is opened again under its id after an end counts anew."""
    ended = [Event(0, "open", id_) for id_ in "abcd"]
    ended += [Event(0, "chunk", "a"), Event(0, "done", "b"), Event(0, "abort", "c"), Event(0, "error", "d")]
    assert unfinished(ended) == ["a"]
    assert unfinished([*ended, Event(0, "open", "c"), Event(0, "open", "b")]) == ["a", "c", "b"]
    assert unfinished(events()) == []


def test_a_chunk_that_cannot_be_cut() -> None:
    rows = [Event(0, "open", "r"), Event(0, "chunk", "r", chunk=Raw(b"3"))]
    with pytest.raises(RecordingError) as error:
        list(recut(rows, 1))
    assert str(error.value) == "a chunk of request r cannot be cut: Expected `object`, got `int`"


async def test_published_as_it_was_recorded(redis: Redis) -> None:
    """The engine's bytes, in order, for each copy; `created` is set where asked for."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    rows, opened = events(), list[str]()
    async with Producer(redis, 1) as producer:
        await replay(producer, rows, copies=2, created=5, on_open=opened.append, on_event=step)
        sent: dict[str, list[dict[bytes, bytes]]] = defaultdict(list)
        for _, fields in await redis.xrange(Keys().chunks(0)):
            sent[fields[b"request_id"].decode()].append(fields)
    assert steps == 2 * len(rows)
    assert opened == [f"{id_}-{copy}" for id_ in request_ids(rows) for copy in range(2)]
    assert set(sent) == {f"{id_}-{copy}" for id_ in request_ids(rows) for copy in range(2)}
    for request_id, entries in sent.items():
        recorded = [row for row in rows if row.request_id == request_id.rpartition("-")[0]]
        assert [int(fields[b"seq"]) for fields in entries] == list(range(len(recorded)))
        assert json.loads(entries[0][b"open"]) == {**json.loads(bytes(recorded[0].context)), "created": 5}
        assert [fields[b"chunk"] for fields in entries[1:-1]] == [bytes(row.chunk) for row in recorded[1:-1]]
        assert entries[-1][b"control"] == b"done"


async def test_one_copy_keeps_its_ids_and_its_context(redis: Redis) -> None:
    context = Raw(b'{ "kind": "chat"}')
    rows = [Event(0, "open", "r", context=context), Event(0, "done", "r")]
    async with Producer(redis, 1) as producer:
        await replay(producer, rows)
        assert [fields[b"request_id"] for _, fields in await redis.xrange(Keys().chunks(0))] == [b"r", b"r"]
        [(_, opened), _] = await redis.xrange(Keys().chunks(0))
        assert opened[b"open"] == bytes(context)


@pytest.mark.parametrize(("speed", "due"), [(1.0, [0.0, 2.0, 5.0]), (10.0, [0.0, 0.2, 0.5]), (None, [0.0, 0.0, 0.0])])
def test_pace(speed: float | None, due: list[float]) -> None:
    """Each event at its time after the first, divided by the speed."""
    rows = [Event(7, "open", "r"), Event(9, "chunk", "r"), Event(12, "done", "r")]
    assert list(schedule(rows, speed)) == list(zip(due, rows, strict=True))
