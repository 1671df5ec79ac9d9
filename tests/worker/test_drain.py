"""One partition from its input streams to its reply streams, on fakeredis and on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from schemas import keys
from schemas.keys import Keys
from schemas.state import RequestState
from tests.events import chunk
from worker.batch import DEAD_SHARE, MAX_DEAD_FIELDS, Rules
from worker.core.model import Model
from worker.core.session import Core, Entry, Session
from worker.drain import BATCH_ENTRIES, Counts, Drain
from worker.streams import Moved, Partition

NAMES = Keys()
RULES = Rules(block_ms=20)
CONTEXT = b'{"kind": "chat", "created": 1700000000}'
RESPONSE = b'{"choices": [{"index": 0, "token_ids": [19556], "finish_reason": "length"}]}'


async def add(redis: Redis, request_id: str = "r", *, lane: str = "chunks", **fields: Any) -> bytes:
    key = NAMES.chunks(0) if lane == "chunks" else NAMES.bulk(0)
    entry_id: bytes = await redis.xadd(key, {"request_id": request_id, **fields})
    return entry_id


async def add_stream(redis: Redis, request_id: str = "r", chunks: int = 3) -> None:
    """open, `chunks` times one id, the last with a finish: chunks + 1 entries."""
    await add(redis, request_id, open=CONTEXT)
    for n in range(chunks):
        await add(redis, request_id, chunk=chunk(19556, finish="length" if n == chunks - 1 else None))


def make(
    redis: Redis, model: Model, *, until: int = 0, rules: Rules = RULES, core: Core | None = None, token: str = "t"
) -> Drain:
    """A drain that leaves after `until` entries."""
    counts = Counts()
    return Drain(
        Partition(redis, redis, NAMES, 0, token=token, lease_ms=300),
        Session(lambda _: model, core=core),
        rules,
        leave=lambda: counts.entries >= until,
        counts=counts,
    )


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  what is awaited has no event
        await asyncio.sleep(0.001)


async def replies(redis: Redis, request_id: str = "r") -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: list[tuple[bytes, dict[bytes, bytes]]] = await redis.xrange(NAMES.reply(0, request_id))
    return found


async def text(redis: Redis, request_id: str = "r") -> str:
    parts = []
    for _, fields in await replies(redis, request_id):
        for choice in json.loads(fields.get(b"chunk", b'{"choices": []}'))["choices"]:
            parts.append(choice["delta"]["content"] or "")
    return "".join(parts)


async def error(redis: Redis, request_id: str = "r") -> dict[str, Any]:
    """The error of the last reply, which is the end."""
    _, fields = (await replies(redis, request_id))[-1]
    assert fields[b"done"] == b"failed"
    found: dict[str, Any] = json.loads(fields[b"error"])["error"]
    return found


async def dead(redis: Redis) -> list[dict[bytes, bytes]]:
    return [fields for _, fields in await redis.xrange(NAMES.dead(0))]


# --- the plain way ----------------------------------------------------------------------------------------------------


async def test_a_stream(redis: Redis, smollm2: Model) -> None:
    """Replies 1-0 to n-0; nothing is left of the request but replies and status, both with an end."""
    await add_stream(redis)
    drain = make(redis, smollm2, until=4)
    assert await drain.run() is True
    assert [id_ for id_, _ in await replies(redis)] == [b"1-0", b"2-0", b"3-0"]
    assert await text(redis) == "HelloHelloHello"
    assert await redis.get(NAMES.status(0, "r")) == b"finished"
    assert await redis.hgetall(NAMES.open(0)) == {}
    assert await redis.exists(NAMES.request(0, "r"), NAMES.dead(0), NAMES.signals(0)) == 0
    assert 0 < await redis.pttl(NAMES.reply(0, "r")) <= RULES.reply_ttl_ms
    assert RULES.reply_ttl_ms < await redis.pttl(NAMES.status(0, "r")) <= RULES.status_ttl_ms
    assert await redis.exists(NAMES.owner(0)) == 0, "the owner key is released"


async def test_what_is_kept_while_a_request_is_open(redis: Redis, smollm2: Model) -> None:
    """State, context and status stay without an end; the replies outlive the longest silence."""
    await add(redis, open=CONTEXT)
    last = await add(redis, chunk=chunk(19556))
    await make(redis, smollm2, until=2).run()
    state = msgspec.json.decode(await redis.hget(NAMES.open(0), "r"), type=RequestState)
    assert (state.replies, state.created, state.active) == (1, 1700000000, int(last.split(b"-")[0]))
    assert await redis.get(NAMES.request(0, "r")) == CONTEXT
    assert await redis.get(NAMES.status(0, "r")) == b"open"
    assert await redis.pttl(NAMES.request(0, "r")) == await redis.pttl(NAMES.status(0, "r")) == -1
    assert RULES.idle_ms < await redis.pttl(NAMES.reply(0, "r")) <= RULES.open_ttl_ms


@pytest.mark.parametrize(
    ("lane", "fields", "stream"),
    [
        ("chunks", {"open": CONTEXT}, "derender:{1}:chunks"),
        ("chunks", {"chunk": chunk(19556), "seq": 1}, "derender:{1}:chunks"),
        ("bulk", {"open": CONTEXT, "response": RESPONSE}, "derender:{1}:bulk"),
    ],
    ids=["open", "chunk", "response"],
)
async def test_an_entry_on_the_wrong_partition(
    redis: Redis, smollm2: Model, lane: str, fields: dict[str, Any], stream: str
) -> None:
    """It is dead-lettered with the stream on which it belongs; the answer would be where no reader looks."""
    assert [keys.partition_of(id_, 2) for id_ in ("req-1", "here")] == [1, 0]
    await add(redis, "req-1", lane=lane, **fields)
    await add_stream(redis, "here")
    drain = make(redis, smollm2, until=5)
    drain.partition.partitions = 2
    await drain.run()
    assert [(letter[b"request_id"], letter[b"reason"].decode()) for letter in await dead(redis)] == [
        (b"req-1", f"req-1 belongs on {stream}")
    ]
    assert await redis.exists(NAMES.reply(0, "req-1"), NAMES.status(0, "req-1"), NAMES.request(0, "req-1")) == 0
    assert await redis.hgetall(NAMES.open(0)) == {}
    assert await text(redis, "here") == "HelloHelloHello"


async def test_a_batch_is_one_publish_and_is_trimmed(redis: Redis, smollm2: Model) -> None:
    """Many requests share a publish; the input stream keeps nothing but the entry at the cursor."""
    for n in range(10):
        await add_stream(redis, f"r{n}", chunks=2)
    drain = make(redis, smollm2, until=30)
    await drain.run()
    assert drain.counts.replies == 20
    assert drain.counts.publishes < 10
    assert await redis.xlen(NAMES.chunks(0)) == 1


async def test_a_backlog_is_read_in_full_batches(redis: Redis, smollm2: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing is known of what may come in the other lane, nor of this one before the first read."""
    await add_stream(redis, chunks=300)
    drain = make(redis, smollm2, until=301)
    read, counts = drain.partition.read, list[int]()

    async def watched(cursors: dict[str, bytes], *, count: int, block_ms: int | None) -> dict[str, list[Entry]]:
        found = await read(cursors, count=count, block_ms=block_ms)
        counts.extend(len(entries) for entries in found.values())
        return found

    monkeypatch.setattr(drain.partition, "read", watched)
    await drain.run()
    assert counts == [8, 64, 64, 64, 64, 37]


async def test_a_second_owner_is_refused(redis: Redis, smollm2: Model) -> None:
    await redis.set(NAMES.owner(0), "someone else")
    assert await make(redis, smollm2, until=1).run() is False
    assert await redis.get(NAMES.owner(0)) == b"someone else"


async def test_a_burst_of_whole_work_does_not_stand_before_live_tokens(redis: Redis, smollm2: Model) -> None:
    """Both are waiting: the live stream is finished while most of the burst still waits."""
    for n in range(3 * BATCH_ENTRIES):
        await add(redis, f"b{n}", lane="bulk", open=CONTEXT, response=RESPONSE)
    await add_stream(redis)
    drain = make(redis, smollm2)
    drain.leave = lambda: drain._status.get(b"r") == "finished"
    await drain.run()
    assert await text(redis) == "HelloHelloHello"
    assert await redis.xlen(NAMES.bulk(0)) > BATCH_ENTRIES


async def test_live_chunks_do_not_wait_for_a_turn_at_whole_work(redis: Redis, smollm2: Model) -> None:
    """Another partition has the turn: live chunks go on, and the whole response follows when the turn has come."""
    drain = make(redis, smollm2, until=5)
    others = drain.turns.ask()
    await add(redis, "b", lane="bulk", open=CONTEXT, response=RESPONSE)
    running = asyncio.create_task(drain.run())
    async with asyncio.timeout(5):
        await until(lambda: len(drain.turns._waiting) == 1)
        await add_stream(redis)
        await until(lambda: drain.counts.entries == 4)
    assert (await text(redis), await replies(redis, "b")) == ("HelloHelloHello", [])
    drain.turns.give_back(others)
    assert await asyncio.wait_for(running, 5) is True
    assert [id_ for id_, _ in await replies(redis, "b")] == [b"1-0"]
    assert drain.turns.ask().done(), "the turn was given back"


async def test_a_backlog_may_be_coalesced(redis: Redis, smollm2: Model) -> None:
    """Two interleaved streams: one reply each for the chunks of the batch, with the state of the last."""
    rules = replace(RULES, coalesce=True)
    for id_ in ("a", "b"):
        await add(redis, id_, open=CONTEXT)
    await make(redis, smollm2, rules=rules, until=2).run()
    for n in range(4):
        for id_ in ("a", "b"):
            await add(redis, id_, chunk=chunk(19556, finish="length" if n == 3 else None))
    await make(redis, smollm2, rules=rules, until=8).run()
    for id_ in ("a", "b"):
        [(number, fields)] = await replies(redis, id_)
        assert (number, fields[b"done"], await text(redis, id_)) == (b"1-0", b"finished", "Hello" * 4)
        assert json.loads(fields[b"stream_state"])["tokens"] == 4
    assert await redis.xlen(NAMES.chunks(0)) == 1, "only the last entry is left, which the cursor names"


async def test_a_bad_chunk_among_coalesced_ones_costs_only_what_follows(redis: Redis, smollm2: Model) -> None:
    """The limit is passed at the third id: the two before it are answered, as without merging."""
    model = replace(smollm2, limits=replace(smollm2.limits, max_model_len=2))
    rules = replace(RULES, coalesce=True)
    await add(redis, open=CONTEXT)
    await make(redis, model, rules=rules, until=1).run()
    for _ in range(3):
        await add(redis, chunk=chunk(19556))
    await make(redis, model, rules=rules, until=4 - 1).run()
    found = await replies(redis)
    assert [(id_, b"error" in fields) for id_, fields in found] == [(b"1-0", False), (b"2-0", False), (b"3-0", True)]
    assert [letter[b"entry_id"] for letter in await dead(redis)] != []


async def test_whole_work_is_answered(redis: Redis, smollm2: Model) -> None:
    await add(redis, "b", lane="bulk", open=CONTEXT, response=RESPONSE)
    await add(redis, "c", lane="bulk", call=b'{"created": 5, "generate_response": ' + RESPONSE + b"}")
    await make(redis, smollm2, until=2).run()
    for request_id, created in (("b", 1700000000), ("c", 5)):
        [(id_, fields)] = await replies(redis, request_id)
        body = json.loads(fields[b"response"])
        assert (id_, fields[b"done"], body["created"]) == (b"1-0", b"finished", created)
        assert body["choices"][0]["message"]["content"] == "Hello"


async def test_reply_to_gets_every_reply_too(redis: Redis, smollm2: Model) -> None:
    await add(redis, open=b'{"kind": "chat", "reply_to": "gw"}')
    await add(redis, chunk=chunk(19556, finish="length"))
    await make(redis, smollm2, until=2).run()
    [(reply_id, fields)] = await replies(redis)
    [(_, copy)] = await redis.xrange(NAMES.reply_to(0, "gw"))
    assert copy == {b"request_id": b"r", b"reply_id": reply_id, **fields}


async def test_signals(redis: Redis, smollm2: Model) -> None:
    await add(redis, open=b'{"kind": "chat", "chat_request": {"messages": [], "stop": "ell"}}')
    await add(redis, chunk=chunk(19556))
    await make(redis, smollm2, until=2).run()
    [(_, signal)] = await redis.xrange(NAMES.signals(0))
    assert signal == {b"request_id": b"r", b"signal": b"cancel", b"reason": b"stop", b"index": b"0"}


# --- caches and takeovers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [1, 3, 1024])
async def test_caches_change_nothing_but_time(redis: Redis, smollm2: Model, cached: int) -> None:
    """Interleaved requests with room for fewer in the cache: states come back from the hash."""
    ids = [f"r{n}" for n in range(6)]
    for id_ in ids:
        await add(redis, id_, open=CONTEXT)
    for n in range(40):
        for id_ in ids:
            await add(redis, id_, chunk=chunk(17 + n, finish="length" if n == 39 else None))
    rules = Rules(block_ms=20, cached_requests=cached)
    drain = make(redis, smollm2, until=41 * 6, rules=rules)
    await drain.run()
    texts = {await text(redis, id_) for id_ in ids}
    assert texts == {smollm2.vocabulary.decode(range(17, 57))}
    assert bool(drain.counts.resumed) is (cached < 6)


async def test_an_end_is_not_forgotten_before_its_request(redis: Redis, smollm2: Model) -> None:
    """The cache is small and others came meanwhile: the producer's last word, late, still meets a finished request."""
    drain = make(redis, smollm2, rules=Rules(block_ms=20, cached_requests=3))

    async def work(entries: int) -> None:
        target = drain.counts.entries + entries
        drain.leave = lambda: drain.counts.entries >= target
        await drain.run()

    await add(redis, "x", open=CONTEXT, seq=0)
    await work(1)
    await add(redis, "y", open=CONTEXT, seq=0)
    await work(1)
    await add(redis, "x", chunk=chunk(19556, finish="length"), seq=1)
    await work(1)
    for id_ in ("z", "w"):
        await add(redis, id_, open=CONTEXT, seq=0)
        await work(1)
    await add(redis, "x", control="done", seq=2)
    await work(1)
    assert await redis.get(NAMES.status(0, "x")) == b"finished"
    assert (await dead(redis), drain.counts.refused) == ([], 0)
    assert len(drain._open) == len(drain._status) == 3


async def test_another_worker_goes_on_in_mid_stream(redis: Redis, smollm2: Model) -> None:
    await add(redis, open=CONTEXT)
    await add(redis, chunk=chunk(19556))
    await make(redis, smollm2, until=2).run()
    await add(redis, chunk=chunk(905, finish="length"))
    second = make(redis, smollm2, until=1, token="other")
    await second.run()
    assert [id_ for id_, _ in await replies(redis)] == [b"1-0", b"2-0"]
    assert await text(redis) == "Hello world"
    assert second.counts.resumed == 1


async def test_two_drains_at_once_publish_once(redis: Redis, smollm2: Model) -> None:
    """No owner keys: whoever comes second is answered MOVED, forgets, and goes on from the new cursor."""
    rules = Rules(block_ms=20, owner_keys=False)
    for n in range(8):
        await add_stream(redis, f"r{n}", chunks=30)
    drains = [make(redis, smollm2, rules=rules, token=f"t{n}") for n in range(2)]
    for drain in drains:
        drain.leave = lambda: sum(drain.counts.entries for drain in drains) >= 8 * 31
    await asyncio.gather(*(drain.run() for drain in drains))
    assert sum(drain.counts.moved for drain in drains) > 0
    for n in range(8):
        assert [id_ for id_, _ in await replies(redis, f"r{n}")] == [b"%d-0" % i for i in range(1, 31)]
        assert await text(redis, f"r{n}") == "Hello" * 30


async def test_work_from_an_outdated_cursor_changes_nothing(redis: Redis, smollm2: Model) -> None:
    """A worker that was stopped past its lease wakes with a finished batch in its hands."""
    await add_stream(redis)
    sleeper, other = make(redis, smollm2, until=4, token="a"), make(redis, smollm2, until=4, token="b")
    await sleeper._begin()
    await sleeper._read()
    await other.run()
    before = await replies(redis)
    with pytest.raises(Moved):
        await sleeper._slice(sleeper.lanes["chunks"])
    assert await replies(redis) == before
    assert before[-1][0] == b"3-0"


@pytest.mark.parametrize(
    "fields", [{"open": CONTEXT, "response": RESPONSE}, {"call": b"{}", "reply_to": "gw"}], ids=list("rc")
)
async def test_whole_work_of_an_open_request_does_not_touch_it(
    redis: Redis, smollm2: Model, fields: dict[str, Any]
) -> None:
    """Not even its state is written again: that of a worker with outdated caches would undo what others did."""
    await add(redis, open=CONTEXT)
    drain = make(redis, smollm2, until=1)
    await drain.run()
    stored = b'{"version": 1, "digest": "d", "created": 1, "active": 1}'
    await redis.hset(NAMES.open(0), "r", stored)  # type: ignore[misc]
    await add(redis, lane="bulk", **fields)
    drain.leave = lambda: drain.counts.entries >= 2
    await drain.run()
    assert await redis.hget(NAMES.open(0), "r") == stored
    assert await redis.get(NAMES.status(0, "r")) == b"open"


async def test_caches_that_one_lane_made_outdated_are_not_used_in_the_other(redis: Redis, smollm2: Model) -> None:
    """A worker sleeps past its lease; another one ends a request by its chunks, then the first finds whole work."""
    sleeper, other = (make(redis, smollm2, token=token) for token in "ab")
    await add(redis, open=CONTEXT)
    sleeper.leave = lambda: sleeper.counts.entries >= 1
    await sleeper.run()
    await add(redis, chunk=chunk(19556, finish="length"))
    other.leave = lambda: other.counts.entries >= 1
    await other.run()
    await add(redis, "r", lane="bulk", open=CONTEXT, response=RESPONSE)
    await sleeper._read(only="bulk")
    with pytest.raises(Moved):
        await sleeper._slice(sleeper.lanes["bulk"])
    other.leave = lambda: other.counts.entries >= 2
    await other.run()
    assert other.counts.dropped == 1, "it knows that the request is finished"
    assert await dead(redis) == []


# --- bad input --------------------------------------------------------------------------------------------------------


class Raising(Core):
    """A step that raises for one id, as a bug would."""

    tries = 0

    def derender_step(self, request: Any, chunk: Any, state: Any, *, prompt: int = 0) -> Any:  # type: ignore[override]
        if chunk.choices and 13 in (chunk.choices[0].token_ids or ()):
            Raising.tries += 1
            raise KeyError("the model's words")
        return Core.derender_step(request, chunk, state, prompt=prompt)


async def test_an_exception_in_the_step_costs_its_own_request(
    redis: Redis, smollm2: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """Tried twice, then an error entry and a dead letter; the log has no words of the model."""
    Raising.tries = 0
    await add(redis, "a", open=CONTEXT)
    await add(redis, "b", open=CONTEXT)
    await add(redis, "a", chunk=chunk(13))
    await add(redis, "b", chunk=chunk(19556, finish="length"))
    await make(redis, smollm2, until=4, core=Raising()).run()
    found = await error(redis, "a")
    assert (found["code"], found["type"], found["message"]) == (
        500, "InternalServerError", "internal error (KeyError)",
    )  # fmt: skip
    assert Raising.tries == 2
    assert await text(redis, "b") == "Hello"
    assert [letter[b"reason"] for letter in await dead(redis)] == [b"internal error (KeyError)"]
    assert "words" not in caplog.text


BAD = [
    ("not JSON", {"chunk": b"{"}),
    ("negative id", {"chunk": chunk(-1)}),
    ("control", {"control": b"x"}),
]


@pytest.mark.parametrize("fields", [b[1] for b in BAD], ids=[b[0] for b in BAD])
async def test_bad_input_never_stops_a_partition(redis: Redis, smollm2: Model, fields: dict[str, bytes]) -> None:
    await add(redis, "a", open=CONTEXT)
    bad = await add(redis, "a", **fields)
    await add_stream(redis, "b")
    await make(redis, smollm2, until=6).run()
    assert (await error(redis, "a"))["code"] == 400
    assert await text(redis, "b") == "HelloHelloHello"
    [letter] = await dead(redis)
    raw = {name.encode(): value for name, value in fields.items()}
    assert letter.items() >= {b"stream": b"chunks", b"entry_id": bad, b"request_id": b"a", **raw}.items()
    [(_, signal)] = await redis.xrange(NAMES.signals(0))
    assert (signal[b"request_id"], signal[b"reason"]) == (b"a", b"failed")


async def test_entries_without_a_usable_request_id(redis: Redis, smollm2: Model) -> None:
    await redis.xadd(NAMES.chunks(0), {"x": "y"})
    await add(redis, "a{1}", open=CONTEXT)
    await add_stream(redis)
    await make(redis, smollm2, until=6).run()
    assert [letter[b"reason"] for letter in await dead(redis)] == [b"invalid or missing request_id"] * 2
    assert await text(redis) == "HelloHelloHello"


async def test_an_entry_of_many_fields_costs_no_other_request_anything(redis: Redis, smollm2: Model) -> None:
    """More fields than one command of a script may have: its dead letter keeps the first thousand."""
    many = {f"f{n}": "x" for n in range(MAX_DEAD_FIELDS * 5)}
    await add(redis, open=CONTEXT)
    await add(redis, "many", **many)
    await add(redis, chunk=chunk(19556, finish="length"))
    drain = make(redis, smollm2, until=3)
    await drain.run()
    assert await text(redis) == "Hello"
    assert await redis.get(NAMES.status(0, "r")) == b"finished"
    assert drain.counts.refused == 0
    [letter] = await dead(redis)
    assert letter[b"reason"] == b"request is not open"
    assert len(letter) == len(keys.LETTER) + MAX_DEAD_FIELDS
    left_out = (
        len(b"request_id" + b"many")
        + sum(len(name) + 1 for name in many)
        - sum(len(name) + len(value) for name, value in letter.items() if name not in keys.LETTER)
    )
    assert int(letter[b"cut"]) == left_out


async def test_a_large_entry_is_cut_on_its_way_to_the_dead_letters(redis: Redis, smollm2: Model) -> None:
    await add(redis, open=CONTEXT)
    await add(redis, chunk=b"x" * 2**18, seq="x")
    drain = make(redis, smollm2, until=2)
    drain.partition.dead_bytes = 2**20
    await drain.run()
    [letter] = await dead(redis)
    room = 2**20 // DEAD_SHARE
    assert sum(len(name) + len(value) for name, value in letter.items() if name not in keys.LETTER) == room
    assert (letter[b"request_id"], letter[b"seq"]) == (b"r", b"x")
    size = len(b"request_id" + b"r" + b"chunk" + b"seq" + b"x") + 2**18
    assert int(letter[b"cut"]) == size - room


async def test_a_reply_that_redis_refuses_is_a_dead_letter(redis: Redis, smollm2: Model) -> None:
    """Someone wrote to a reply stream: ids no longer fit. The partition goes on."""
    await redis.xadd(NAMES.reply(0, "r"), {"x": "y"}, id="7-0")
    await add_stream(redis)
    await add_stream(redis, "b")
    drain = make(redis, smollm2, until=8)
    await drain.run()
    assert drain.counts.refused == 3
    letters = await dead(redis)
    assert [letter[b"key"].decode() for letter in letters] == [NAMES.reply(0, "r")] * 3
    assert letters[0][b"reason"].startswith(b"refused: ERR The ID specified in XADD is equal or smaller")
    assert await text(redis, "b") == "HelloHelloHello"


# --- stored values that do not add up ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (b"{}", "stored state has no version"),
        (b'{"version": 99, "digest": "", "created": 0, "active": 0}',
         "stored state has version 99, this worker reads 1"),
    ],
    ids=["unreadable", "other version"],
)  # fmt: skip
async def test_stored_state_that_cannot_be_read(redis: Redis, smollm2: Model, stored: bytes, message: str) -> None:
    """The request fails with the next reply number, so its reader sees the end."""
    await add(redis, open=CONTEXT)
    await add(redis, chunk=chunk(19556))
    await make(redis, smollm2, until=2).run()
    await redis.hset(NAMES.open(0), "r", stored)
    await add(redis, chunk=chunk(905))
    await make(redis, smollm2, until=1).run()
    assert (await error(redis))["message"] == message
    assert [id_ for id_, _ in await replies(redis)] == [b"1-0", b"2-0"]
    assert await redis.hgetall(NAMES.open(0)) == {}


async def test_a_context_that_is_gone(redis: Redis, smollm2: Model) -> None:
    await add(redis, open=CONTEXT)
    await make(redis, smollm2, until=1).run()
    await redis.delete(NAMES.request(0, "r"))
    await add(redis, chunk=chunk(905))
    await make(redis, smollm2, until=1).run()
    assert (await error(redis))["message"] == "the stored context of the request is missing"


# --- silence and loss -------------------------------------------------------------------------------------------------


async def test_an_idle_request_times_out_by_its_input_stream(redis: Redis, smollm2: Model) -> None:
    await add(redis, open=CONTEXT)
    rules = Rules(block_ms=10, idle_ms=50)
    drain = make(redis, smollm2, until=2, rules=rules)
    await drain.run()
    assert (await error(redis))["code"] == 504
    assert await redis.get(NAMES.status(0, "r")) == b"failed"
    assert drain.counts.timeouts == 1


async def test_many_open_requests_are_looked_at_more_often(redis: Redis, smollm2: Model) -> None:
    """One look sees a part of them; until it has been through them all, the next one is sooner."""
    drain = make(redis, smollm2)
    await drain._begin()
    parts, looked = iter([7, 3, 0]), []

    async def scan_open(cursor: int) -> tuple[int, dict[bytes, bytes]]:
        looked.append(cursor)
        return next(parts), {}

    drain.partition.scan_open = scan_open  # type: ignore[method-assign]
    for _ in range(10):  # as many seconds, of which a pass takes two
        await drain._sweep()
        drain._last_sweep -= 1.0
    assert looked == [0, 7, 3]


async def test_an_idle_request_times_out_beside_whole_work(redis: Redis, smollm2: Model) -> None:
    """A burst of whole work that waits for hours keeps nobody from hearing that an engine went silent."""
    await add(redis, open=CONTEXT)
    drain = make(redis, smollm2, until=2, rules=Rules(block_ms=10, idle_ms=50))
    others = drain.turns.ask()
    await add(redis, "b", lane="bulk", open=CONTEXT, response=RESPONSE)
    assert await asyncio.wait_for(drain.run(), 5) is True
    assert (await error(redis))["code"] == 504
    assert (await redis.xlen(NAMES.bulk(0)), drain.counts.lost) == (1, 0)
    drain.turns.give_back(others)


@pytest.mark.redis
async def test_lost_entries_are_noticed(real_redis: Redis, smollm2: Model) -> None:
    """Deleted before they were read: Redis counts them as lag, and nothing can be read. The count is set right."""
    rules = Rules(block_ms=10, idle_ms=50)
    await add_stream(real_redis, "a")
    drain = make(real_redis, smollm2, until=4, rules=rules)
    await drain.run()
    lost = [await add(real_redis, open=CONTEXT) for _ in range(3)]
    await real_redis.xdel(NAMES.chunks(0), *lost)
    await real_redis.xadd(NAMES.chunks(0), {"request_id": "x"})
    drain.leave = lambda: drain.counts.lost > 0
    # XDEL makes the lag unknown; the trim of the next publish makes it known again
    await drain.run()
    assert drain.counts.lost == 3
    [group] = await real_redis.xinfo_groups(NAMES.chunks(0))
    assert group["lag"] == 0


@pytest.mark.redis
async def test_a_full_redis_still_drains(real_redis: Redis, smollm2: Model) -> None:
    """With noeviction at its limit nobody can add, but the worker publishes whole batches and frees memory."""
    await add_stream(real_redis)
    await real_redis.config_set("maxmemory-policy", "noeviction")
    await real_redis.config_set("maxmemory", "1")
    try:
        await make(real_redis, smollm2, until=4, rules=Rules(block_ms=20)).run()
    finally:
        await real_redis.config_set("maxmemory", "0")
    assert [id_ for id_, _ in await replies(real_redis)] == [b"1-0", b"2-0", b"3-0"]
    assert await real_redis.get(NAMES.status(0, "r")) == b"finished"


async def test_a_database_that_was_emptied_starts_anew(redis: Redis, smollm2: Model) -> None:
    await add_stream(redis, "a")
    drain = make(redis, smollm2, until=4)
    await drain.run()
    await redis.flushall()
    await add_stream(redis, "b")
    drain.leave = lambda: drain.counts.entries >= 8
    await drain.run()
    assert await text(redis, "b") == "HelloHelloHello"
    assert await replies(redis, "a") == []


async def test_a_database_that_was_emptied_in_silence_starts_anew(redis: Redis, smollm2: Model) -> None:
    """The look for lost entries is the first to notice; the group is there again before anything comes."""
    drain = make(redis, smollm2, rules=Rules(block_ms=10, idle_ms=50))
    drain.leave = lambda: drain.counts.moved > 0
    running = asyncio.create_task(drain.run())
    await until(lambda: drain._last_sweep > 0)
    await redis.flushall()
    assert await running is True
    await add_stream(redis)
    drain.leave = lambda: drain.counts.entries >= 4
    await drain.run()
    assert await text(redis) == "HelloHelloHello"
