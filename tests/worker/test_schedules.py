"""Two workers on one partition, disturbed at every command: what is published is what an undisturbed one publishes."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest
from fakeredis import FakeServer
from fakeredis.aioredis import FakeRedis

from link.tasks import end
from schemas import keys
from tests.events import chunk
from tests.worker.schedules import NAMES, Killed, Link, LinkedPartition, LinkedRedis, Worker, in_virtual_time
from worker.batch import Rules
from worker.core.model import Model
from worker.core.session import Core, Session
from worker.drain import Counts, Drain
from worker.turns import Turns

CONTEXT = b'{"kind": "chat", "created": 1700000000}'
BESIDE = b'{"kind": "chat", "created": 1700000000, "reply_to": "gw"}'
USAGE = (
    b'{"kind": "chat", "created": 1700000000, "prompt_tokens": 4, "chat_request": {"messages": '
    b'[{"role": "user", "content": "x"}], "n": 2, "stream": true, "stream_options": {"include_usage": true}}}'
)
RESPONSE = b'{"choices": [{"index": 0, "token_ids": [19556], "finish_reason": "length"}]}'
CALL = b'{"created": 5, "generate_response": ' + RESPONSE + b"}"
IDS = (19556, 28, 905, 17)

Published = tuple[str, dict[str, Any]]


def stream(id_: str, chance: random.Random) -> list[Published]:
    """The entries of one request of a random kind, good or bad."""
    kind = chance.choice(("plain", "usage", "abort", "abort of others", "error", "done", "gap", "bad", "retried"))
    payloads: list[dict[str, Any]] = [{"open": USAGE if kind == "usage" else chance.choice((CONTEXT, BESIDE))}]
    length = chance.randint(2, 7)
    for n in range(length):
        finish = "length" if n == length - 1 and kind in ("plain", "usage", "retried") else None
        for index in (0, 1) if kind == "usage" else (0,):
            payloads.append({"chunk": chunk(chance.choice(IDS), finish=finish, index=index)})
    if kind == "bad":
        payloads[2] = {"chunk": b"{"}
    if kind == "error":
        payloads.append({"control": "error", "error": b'{"error": {"message": "x"}}'})
    elif kind in ("abort", "done", "usage", "gap"):
        payloads.append({"control": "abort" if kind == "abort" else "done"})
    entries = [{"request_id": id_, "seq": str(n), **payload} for n, payload in enumerate(payloads)]
    if kind == "gap":
        del entries[2]
    elif kind == "abort of others":
        entries.insert(chance.randint(1, len(entries)), {"request_id": id_, "control": "abort"})
    elif kind == "retried":
        entries = [*entries[: chance.randint(0, len(entries))], *entries]
    return [("chunks", entry) for entry in entries]


def whole(id_: str, chance: random.Random) -> list[Published]:
    fields = chance.choice(
        (
            {"open": CONTEXT, "response": RESPONSE},
            {"open": BESIDE, "response": RESPONSE},
            {"open": CONTEXT, "response": b"{"},
            {"call": CALL},
            {"call": CALL, "reply_to": "gw"},
        )
    )
    times = 2 if "response" in fields and chance.random() < 0.3 else 1  # the answer of an XADD was lost
    return [("bulk", {"request_id": id_, **fields})] * times


def work(chance: random.Random) -> list[Published]:
    """Entries of several requests, mixed."""
    queues = [stream(f"s{n}", chance) for n in range(chance.randint(2, 5))]
    queues += [whole(f"w{n}", chance) for n in range(chance.randint(0, 5))]
    mixed = []
    while queues := [queue for queue in queues if queue]:
        mixed.append(chance.choice(queues).pop(0))
    return mixed


async def everything(raw: FakeRedis) -> dict[str, Any]:
    """What is in Redis, but for ids that are Redis' own and the order between requests."""
    found: dict[str, Any] = {}
    for name in sorted(await raw.keys("*")):
        key = name.decode()
        match key.split(":")[2]:
            case "reply":
                found[key] = await raw.xrange(key)
            case "to":
                by_request = defaultdict(list)
                for _, fields in await raw.xrange(key):
                    by_request[fields[keys.REQUEST]].append(fields)
                found[key] = dict(by_request)
            case "dead" | "signals":
                found[key] = sorted(sorted(fields.items()) for _, fields in await raw.xrange(key))
            case "open" | "attempts":
                found[key] = await raw.hgetall(key)
            case "chunks" | "bulk":
                [group] = await raw.xinfo_groups(key)
                found[key] = group["last-delivered-id"]
            case _:
                found[key] = await raw.get(key)
    return found


async def drained(raw: FakeRedis) -> bool:
    for key in (NAMES.chunks(0), NAMES.bulk(0)):
        last = await raw.xrevrange(key, count=1)
        groups = await raw.xinfo_groups(key) if last else []
        if last and (not groups or groups[0]["last-delivered-id"] != last[0][0]):
            return False
    return True


async def disturb(workers: list[Worker], chance: random.Random, raw: FakeRedis, kills: int) -> int:
    """Something happens to one of the workers. Returns how many may still be killed."""
    victim = chance.choice(workers)
    match chance.choice(("leaves", "is cut off", "is killed", "loses its lease")):
        case "leaves":
            await victim.leave()
            victim.start()
        case "is cut off":
            await victim.cut_off()
        case "is killed" if kills:
            await victim.kill()
            workers.remove(victim)
            workers.append(victim.successor())
            workers[-1].start()
            await raw.delete(NAMES.owner(0))
            return kills - 1
        case _:
            await raw.delete(NAMES.owner(0))
    return kills


async def run(entries: list[Published], workers: list[Worker], raw: FakeRedis, chance: random.Random) -> dict[str, Any]:
    """Publish the entries and disturb the workers until everything is drained and all that live have left."""

    async def publish() -> None:
        for n, (lane, fields) in enumerate(entries):
            key = NAMES.chunks(0) if lane == "chunks" else NAMES.bulk(0)
            await raw.xadd(key, fields, id=f"{1_700_000_000_000 + n}-0")
            await asyncio.sleep(chance.choice((0.0, 0.0, 0.001, 0.01)))

    for worker in workers:
        worker.start()
    publishing = asyncio.create_task(publish())
    kills = 2  # at one entry; the third would have the right to see it buried
    async with asyncio.timeout(300):
        while not (publishing.done() and await drained(raw)):
            await asyncio.sleep(chance.choice((0.003, 0.01, 0.03)))
            if len(workers) > 1 and chance.random() < 0.5:
                kills = await disturb(workers, chance, raw, kills)
    for worker in workers:
        worker.link.faults = 0.0
        await worker.leave()
    found = await everything(raw)
    if kills < 2:
        found.pop(NAMES.attempts(0), None)
        found.pop(NAMES.owner(0), None)
    return found


@pytest.mark.parametrize("owner_keys", [True, False], ids=["owner keys", "none"])
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_a_disturbed_run_publishes_what_an_undisturbed_one_does(
    smollm2: Model, monkeypatch: pytest.MonkeyPatch, first: int, owner_keys: bool
) -> None:
    """Leaving, cut off, killed, overtaken, a lost command or answer out of 50: replies, states, ends, signals and dead
    letters are the same, nothing else is left."""
    for seed in range(first, first + 10):
        found = []
        for number, faults in ((1, 0.0), (2, 0.02)):
            chance, server = random.Random(seed), FakeServer()
            rules = Rules(block_ms=20, idle_ms=10**9, owner_keys=owner_keys)
            workers = [Worker(server, smollm2, rules, chance, faults) for _ in range(number)]
            entries = work(random.Random(seed))
            found.append(in_virtual_time(run(entries, workers, FakeRedis(server=server), chance), monkeypatch, chance))
        assert found[1] == found[0], seed


class Fatal(Core):
    """Of a process that dies where it prepares the fatal request."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def prepare(self, *args: Any, request_id: str, **options: Any) -> Any:  # type: ignore[override]
        if request_id == "fatal":
            self.link.cut = True
            raise Killed
        return Core.prepare(*args, request_id=request_id, **options)


class OfItsOwn(LinkedPartition):
    """Takes every id."""

    def elsewhere(self, lane: str, request_id: str) -> str | None:
        return None


async def die_until_it_is_buried(model: Model, chance: random.Random) -> tuple[int, list[bytes]]:
    """One process after the other has all partitions, with a backlog in each. Returns how many died, and what was put
    aside."""
    server, partitions, deaths = FakeServer(), range(8), 0
    raw = FakeRedis(server=server)
    for number in partitions:
        for n in range(4):
            id_ = "fatal" if (number, n) == (3, 2) else f"{number}.{n}"
            lane, more = chance.choice(((NAMES.chunks, {}), (NAMES.bulk, {"response": RESPONSE})))
            await raw.xadd(lane(number), {"request_id": id_, "open": CONTEXT, **more})
    while True:
        link, counts, turns = Link(chance), Counts(), Turns()
        redis = LinkedRedis(server=server)
        redis.link = link
        session = Session(lambda _: model, core=Fatal(link))
        rules = Rules(block_ms=20, idle_ms=10**9, owner_keys=False)
        leaving = asyncio.Event()
        tasks = []
        for number in partitions:
            partition = OfItsOwn(redis, redis, NAMES, number, token="t")
            drain = Drain(partition, session, rules, leave=leaving.is_set, counts=counts, turns=turns)
            tasks.append(asyncio.create_task(drain.run()))
        died, _ = await asyncio.wait(tasks, timeout=4.0, return_when=asyncio.FIRST_COMPLETED)
        leaving.set()
        if not died:
            await asyncio.wait(tasks)
            break
        await end(*tasks)
        deaths += 1
        assert deaths < 10
    letters = [fields[keys.REQUEST] for n in partitions for _, fields in await raw.xrange(NAMES.dead(n))]
    return deaths, letters


@pytest.mark.parametrize("seed", range(2))
def test_who_stood_beside_an_entry_that_kills_is_not_buried_with_it(
    smollm2: Model, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A process that dies takes the attempts of all its partitions with it."""
    chance = random.Random(seed)
    deaths, letters = in_virtual_time(die_until_it_is_buried(smollm2, chance), monkeypatch, chance)
    assert deaths in (3, 4)
    assert letters == [b"fatal"]
