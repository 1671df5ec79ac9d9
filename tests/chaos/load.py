"""Streams to publish while things break, and what must come out of them.

Oracles: the tokenizer's own decode of all ids for the texts, and every field of an undisturbed run of the same stream.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
from redis.asyncio import Redis
from tokenizers import Tokenizer

from link.redis import UNREACHABLE
from producer.publish import Producer, RequestStream
from producer.read import Reader, Reply
from producer.replay import read_recording
from schemas import keys
from schemas.keys import Keys
from tests.conftest import DATA
from worker.batch import Rules
from worker.core.calls import Models
from worker.core.session import Session
from worker.drain import Drain
from worker.settings import ModelSettings
from worker.streams import Partition, embedded
from worker.tokenizer_cache import load_models

CREATED = 1_700_000_000
NAME = "stream-name"  # stands for the request id in expected replies

Fields = dict[bytes, bytes]


@dataclass(frozen=True)
class Base:
    """One stream; copies of it get request ids of their own. texts: by choice, as the tokenizer decodes all ids."""

    name: str
    context: bytes
    chunks: tuple[bytes, ...]
    texts: dict[int, str]


@cache
def models() -> Models:
    return load_models(ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=("smollm2-135m-instruct",)))


@cache
def recorded() -> tuple[Base, ...]:
    """The demo's recording, as it was recorded: chats and completions, two choices, logprobs, a stop string."""
    texts: dict[str, dict[int, str]] = {}
    for line in (DATA / "demo.expected.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        texts.setdefault(row["request_id"], {})[row["index"]] = row.get("text_with_stop", row["decoded"])
    contexts: dict[str, bytes] = {}
    chunks: dict[str, list[bytes]] = {}
    for event in read_recording(DATA / "demo.jsonl"):
        if event.event == "open":
            context = msgspec.json.decode(event.context)
            contexts[event.request_id] = msgspec.json.encode({**context, "created": CREATED})
        elif event.event == "chunk":
            chunks.setdefault(event.request_id, []).append(bytes(event.chunk))
    return tuple(Base(name, contexts[name], tuple(chunks[name]), texts[name]) for name in contexts)


@cache
def fifty(pieces: int = 50) -> tuple[Base, ...]:
    """Streams of exactly `pieces` chunks: the ids (and logprobs) of two recorded choices, one after the other."""
    tokenizer = Tokenizer.from_file(str(DATA / "smollm2" / "tokenizer.json"))
    choices = []
    for base in recorded():
        rows: list[tuple[int, Any]] = []
        for chunk in map(msgspec.json.decode, base.chunks):
            for choice in chunk["choices"]:
                if choice["index"] == 0 and "stop" not in msgspec.json.decode(base.context).get("chat_request", {}):
                    content = (choice.get("logprobs") or {}).get("content") or [None] * len(choice["token_ids"])
                    rows += [(id_, entry) for id_, entry in zip(choice["token_ids"], content, strict=True) if id_ > 2]
        if len(rows) > 12:
            choices.append((base, rows))
    bases = []
    for i, (base, rows) in enumerate(choices):
        with_logprobs = rows[0][1] is not None
        others = [r for b, r in choices[i + 1 :] + choices[:i] if (r[0][1] is not None) == with_logprobs]
        joined = rows + [row for other in others for row in other]
        joined = joined[: max(len(rows), pieces + 7 * (i % 3))]
        cuts = [len(joined) * k // pieces for k in range(pieces + 1)]
        chunks = []
        for k, (begin, end) in enumerate(pairwise(cuts)):
            part = joined[begin:end]
            chunks.append(
                msgspec.json.encode(
                    {
                        "request_id": "engine-id",
                        "choices": [
                            {
                                "index": 0,
                                "token_ids": [id_ for id_, _ in part],
                                "logprobs": {"content": [entry for _, entry in part]} if with_logprobs else None,
                                "finish_reason": "length" if k == pieces - 1 else None,
                            }
                        ],
                    }
                )
            )
        text = tokenizer.decode([id_ for id_, _ in joined], skip_special_tokens=True)
        context = msgspec.json.decode(base.context)
        asked = context.get("chat_request") or context["completion_request"]
        asked.pop("n", None)
        bases.append(Base(f"joined-{base.name}", msgspec.json.encode(context), tuple(chunks), {0: text}))
    return tuple(bases)


async def undisturbed(bases: tuple[Base, ...]) -> dict[str, list[tuple[str, Fields]]]:
    """Replies of each base when nothing goes wrong: one drain, on a Redis in this process. Checks the texts."""
    redis, names = embedded(), Keys()
    leave = False
    drain = Drain(
        Partition(redis, redis, names, 0, token="alone"),
        Session(models()),
        Rules(block_ms=20),
        leave=lambda: leave,
    )
    running = asyncio.create_task(drain.run())
    expected = {}
    async with Producer(redis, 1, names=names) as producer:
        for base in bases:
            stream = await producer.open(base.name, base.context)
            for chunk in base.chunks:
                await stream.chunk(chunk, wait=False)
            await stream.done()
            while await redis.get(names.status(0, base.name)) not in (b"finished", b"failed"):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            replies = await redis.xrange(names.reply(0, base.name))
            assert texts(replies) == base.texts
            assert [id_ for id_, _ in replies] == [b"%d-0" % n for n in range(1, len(replies) + 1)]
            expected[base.name] = [(id_.decode(), renamed(fields, base.name)) for id_, fields in replies]
        leave = True
        await running
    return expected


def renamed(fields: Fields, request_id: str) -> Fields:
    return {name: value.replace(f'"{request_id}"'.encode(), f'"{NAME}"'.encode()) for name, value in fields.items()}


def texts(replies: list[tuple[bytes, Fields]]) -> dict[int, str]:
    """Choice index -> what a client would have put together."""
    result: dict[int, str] = {}
    for _, fields in replies:
        for choice in msgspec.json.decode(fields.get(keys.CHUNK, b'{"choices":[]}'))["choices"]:
            piece = choice["delta"].get("content") if "delta" in choice else choice.get("text")
            result[choice["index"]] = result.get(choice["index"], "") + (piece or "")
    return result


@dataclass
class Verdicts:
    """What became of the streams that were checked."""

    right: int = 0
    lost: int = 0  # replies missing
    doubled: int = 0
    disordered: int = 0
    different: int = 0  # replies with another content
    errors: Counter[str] = field(default_factory=Counter)  # message of the error reply, of streams that were told so
    examples: list[str] = field(default_factory=list)
    readers: int = 0
    resumptions: int = 0

    def add(self, name: str, got: list[tuple[str, Fields]], expected: list[tuple[str, Fields]]) -> None:
        if got == expected:
            self.right += 1
            return
        ids = [id_ for id_, _ in got]
        if got and keys.ERROR in got[-1][1] and got[:-1] == expected[: len(got) - 1]:
            self.errors[msgspec.json.decode(got[-1][1][keys.ERROR])["error"]["message"]] += 1
            return
        wanted = [id_ for id_, _ in expected]
        self.lost += len(set(wanted) - set(ids))
        self.doubled += len(ids) - len(set(ids)) + len(set(ids) - set(wanted))
        self.disordered += ids != sorted(ids, key=lambda id_: int(id_.partition("-")[0]))
        self.different += sum(a != b for a, b in zip(got, expected, strict=False))
        self.examples.append(f"{name}: {len(got)} replies for {len(expected)}")

    def assert_right(self, streams: int) -> None:
        assert (self.lost, self.doubled, self.disordered, self.different) == (0, 0, 0, 0), self.examples[:5]
        assert not self.errors, self.errors
        assert self.right == streams


class Load:
    """Publishes copies of bases, `together` at a time in random interleaving, and checks what comes out.

    rate: entries a second, asked before each burst; None: as fast as the producer allows.
    keep: leave replies in Redis after the check until they expire (else they are deleted, and must not come back).
    live_share: share of the streams that a reader follows, leaving and resuming at random.
    """

    def __init__(
        self,
        redis: Redis,
        producer: Producer,
        bases: tuple[Base, ...],
        expected: dict[str, list[tuple[str, Fields]]],
        streams: int,
        *,
        random: Random,
        together: int = 100,
        rate: Callable[[], float | None] = lambda: None,
        reader: Reader | None = None,
        live_share: float = 0.0,
        prefix: str = "s",
        keep: bool = False,
    ) -> None:
        self.redis = redis
        self.producer = producer
        self.bases = bases
        self.expected = expected
        self.streams = streams
        self.random = random
        self.together = together
        self.rate = rate
        self.reader = reader
        self.live_share = live_share if reader is not None else 0.0
        self.prefix = prefix
        self.keep = keep
        self.published = 0  # entries
        self.total = sum(len(bases[i % len(bases)].chunks) + 2 for i in range(streams))
        self.verdicts = Verdicts()
        self.names = producer.names
        self._unchecked: dict[str, Base] = {}
        self._followers: list[asyncio.Task[None]] = []
        self._all_published = False

    async def run(self, *, finish_s: float = 60.0) -> Verdicts:
        """Publish everything, wait for the ends, check. finish_s: how long without any end before it is a failure."""
        checking = asyncio.create_task(self._check_all(finish_s))
        publishing = asyncio.create_task(self._publish())
        try:
            await asyncio.wait([checking, publishing], return_when=asyncio.FIRST_EXCEPTION)
            for task in (publishing, checking):
                if task.done():
                    task.result()
            await asyncio.gather(*self._followers)
        finally:
            for task in (checking, publishing, *self._followers):
                task.cancel()
            await asyncio.gather(checking, publishing, *self._followers, return_exceptions=True)
        return self.verdicts

    async def _publish(self) -> None:
        loop = asyncio.get_running_loop()
        active: list[tuple[str, Base, RequestStream | None, int]] = []
        started, due = 0, loop.time()
        while started < self.streams or active:
            while started < self.streams and len(active) < self.together:
                base = self.bases[started % len(self.bases)]
                active.append((f"{self.prefix}-{started}", base, None, 0))
                started += 1
            burst = max(1, len(active) // 4)
            for _ in range(burst):
                if not active:
                    break
                place = self.random.randrange(len(active))
                name, base, stream, at = active[place]
                if stream is None:
                    stream = await self._open(name, base)
                    active[place] = (name, base, stream, 0)
                elif at < len(base.chunks):
                    await stream.chunk(base.chunks[at], wait=False)
                    active[place] = (name, base, stream, at + 1)
                else:
                    await stream.send({keys.CONTROL: keys.CONTROL_DONE}, wait=False)
                    active[place] = active[-1]
                    active.pop()
                self.published += 1
            rate = self.rate()
            if rate is not None:
                due = max(due + burst / rate, loop.time() - 0.2)
                await asyncio.sleep(max(0.0, due - loop.time()))
            else:
                await asyncio.sleep(0)
        self._all_published = True

    async def _open(self, name: str, base: Base) -> RequestStream:
        stream = RequestStream(self.producer, name)
        await stream.send({keys.OPEN: base.context}, wait=False)
        if self.random.random() < self.live_share:
            self._followers.append(asyncio.create_task(self._follow(name, base)))
        else:
            self._unchecked[name] = base
        return stream

    def _key(self, kind: Callable[[int, str], str], name: str) -> str:
        return kind(keys.partition_of(name, self.producer.partitions), name)

    async def _check_all(self, finish_s: float) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while not (self._all_published and not self._unchecked):
            await asyncio.sleep(0.1)
            with suppress(*UNREACHABLE):
                if await self._check_some() or not self._all_published:
                    last = loop.time()
            if loop.time() - last > finish_s:
                raise AssertionError(
                    f"{len(self._unchecked)} streams never ended, such as {next(iter(self._unchecked))}"
                )

    async def _check_some(self) -> int:
        waiting = list(self._unchecked)[:2000]
        if not waiting:
            return 0
        async with self.redis.pipeline(transaction=False) as pipe:
            for name in waiting:
                pipe.get(self._key(self.names.status, name))
            statuses = await pipe.execute()
        ended = [n for n, status in zip(waiting, statuses, strict=True) if (status or b"").decode() in keys.CLOSED]
        for name in ended:
            key = self._key(self.names.reply, name)
            replies = await self.redis.xrange(key)
            got = [(id_.decode(), renamed(fields, name)) for id_, fields in replies]
            base = self._unchecked.pop(name)
            self.verdicts.add(name, got, self.expected[base.name])
            if not self.keep:
                await self._delete(key)
        return len(ended)

    async def _follow(self, name: str, base: Base) -> None:
        """Follow the replies as a client would: leave after some, come back with the last id that was seen."""
        assert self.reader is not None
        got: list[tuple[str, Fields]] = []
        after, done = "0", False
        while not done:
            left = self.random.randrange(5, 30)
            async with aclosing(self.reader.follow(name, after=after)) as replies:
                async for reply in replies:
                    got.append((reply.id, renamed(_fields(reply), name)))
                    after, done = reply.id, reply.done is not None
                    left -= 1
                    if left == 0:
                        break
                else:
                    break
            self.verdicts.resumptions += not done
        self.verdicts.readers += 1
        self.verdicts.add(name, got, self.expected[base.name])
        await self._delete(self._key(self.names.reply, name))

    async def _delete(self, key: str) -> None:
        while True:
            try:
                await self.redis.delete(key)
                return
            except UNREACHABLE:
                await asyncio.sleep(0.1)

    async def left_behind(self) -> list[bytes]:
        """Keys that should not be there any more: reply streams that came back after their end, open requests."""
        found = [key async for key in self.redis.scan_iter(f"{self.names.prefix}:*:reply:{self.prefix}-*", count=1000)]
        for partition in range(self.producer.partitions):
            found += await self.redis.hkeys(self.names.open(partition))
        return found


def _fields(reply: Reply) -> Fields:
    pairs = (
        (keys.CHUNK, reply.chunk),
        (keys.RESPONSE, reply.response),
        (keys.ERROR, reply.error),
        (keys.INDEX, None if reply.index is None else b"%d" % reply.index),
        (keys.STREAM_STATE, reply.stream_state),
        (keys.DONE, None if reply.done is None else reply.done.encode()),
    )
    return {name: value for name, value in pairs if value is not None}
