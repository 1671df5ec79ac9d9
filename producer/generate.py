"""Generate requests on their way to engines: what bridges take, keep and give up.

A taken entry is pending in the consumer group of the bridges until the engine's first token has come: a bridge that
dies before that strands nothing, for another one claims what was left alone for long enough. Once tokens go out the
entry is gone: nobody generates a second time, and a bridge that dies then leaves a silence that the worker's idle
time-out ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from link.redis import Redis, ResponseError
from schemas import keys
from schemas.keys import Keys

SETTLE = b"""
-- KEYS: generate stream   ARGV: group, consumer, entry id
-- Take the entry out, if it is still ours: of two bridges that called an engine only one may publish.
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if not pending[1] or pending[1][2] ~= ARGV[2] then return 0 end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
return 1
"""


class Taken(NamedTuple):
    """A generate request that this bridge has.

    request_id: "" for an entry that makes no sense. requests: JSON of one generate request or of a list. context: of
    whole work, None for a stream. deliveries: how often bridges took it, this time included.
    """

    partition: int
    entry_id: bytes
    request_id: str
    requests: bytes
    context: bytes | None
    deliveries: int = 1

    @property
    def place(self) -> tuple[int, bytes]:
        """What no other entry has: ids repeat between partitions."""
        return self.partition, self.entry_id


class GenerateQueue:
    """The generate streams of all partitions, as one bridge sees them.

    redis: its pool is used for a blocking read too. consumer: random name of this bridge.
    """

    def __init__(
        self, redis: Redis, partitions: int, *, names: Keys | None = None, queue: str = "", consumer: str
    ) -> None:
        self.redis = redis
        self.partitions = partitions
        self.names = names or Keys()
        self.consumer = consumer
        self._streams = [self.names.generate(partition, queue) for partition in range(partitions)]
        self._signals = {self.names.signals(partition): b"" for partition in range(partitions)}

    async def prepare(self) -> None:
        """Make the group where it is missing. Again after a `NOGROUP`."""
        for stream in self._streams:
            try:
                await self.redis.xgroup_create(stream, keys.BRIDGES, id="0", mkstream=True)
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise

    async def take(self, count: int, *, block_ms: int) -> list[Taken]:
        """New requests: up to `count` of each partition. Waits for one."""
        try:
            answer = await self.redis.xreadgroup(
                keys.BRIDGES, self.consumer, dict.fromkeys(self._streams, ">"), count=count, block=block_ms
            )
        except ResponseError as error:
            if "NOGROUP" not in str(error) and "no longer exists" not in str(error):
                raise
            await self.prepare()  # the database was emptied
            return []
        return [
            _taken(self._streams.index(stream.decode()), id_, fields, 1)
            for stream, entries in answer or ()
            for id_, fields in entries
        ]

    async def claim(self, idle_ms: int, *, count: int) -> list[Taken]:
        """Requests whose bridge has said nothing for `idle_ms`."""
        found: list[Taken] = []
        for partition, stream in enumerate(self._streams):
            try:
                answer = await self.redis.xautoclaim(stream, keys.BRIDGES, self.consumer, idle_ms, count=count)
            except ResponseError as error:
                if "NOGROUP" not in str(error):
                    raise
                return found  # the database was emptied: `take` makes the group again
            for id_, fields in answer[1]:
                pending = await self.redis.xpending_range(stream, keys.BRIDGES, min=id_, max=id_, count=1)
                deliveries = int(pending[0]["times_delivered"]) if pending else 1
                found.append(_taken(partition, id_, fields, deliveries))
        return found

    async def keep(self, taken: Sequence[Taken]) -> None:
        """Say that these are being worked on, so that nobody claims them."""
        if not taken:
            return
        async with self.redis.pipeline(transaction=False) as pipe:
            for one in taken:
                pipe.xclaim(self._streams[one.partition], keys.BRIDGES, self.consumer, 0, [one.entry_id], justid=True)
            await pipe.execute(raise_on_error=False)

    async def give_back(self, taken: Taken) -> None:
        """Let another bridge claim it at once."""
        hour_ms = 3_600_000
        await self.redis.xclaim(
            self._streams[taken.partition], keys.BRIDGES, self.consumer, 0, [taken.entry_id], idle=hour_ms, justid=True
        )

    async def settle(self, taken: Taken) -> bool:
        """Take the entry out of the stream. False: another bridge has claimed it, so publish nothing."""
        stream = self._streams[taken.partition]
        arguments = (stream, keys.BRIDGES, self.consumer, taken.entry_id)
        return bool(await self.redis.execute_command("EVAL", SETTLE, 1, *arguments))  # type: ignore[no-untyped-call]

    async def closed(self, taken: Taken) -> bool:
        """Whether the request has ended before it began: nobody waits for it."""
        status = await self.redis.get(self.names.status(taken.partition, taken.request_id))
        return status is not None and status.decode() in keys.CLOSED

    async def signals(self, *, block_ms: int) -> list[Mapping[bytes, bytes]]:
        """What workers said to the engines' side since the last call (the first call: from now on)."""
        for stream, last in self._signals.items():
            if not last:
                newest: Any = await self.redis.xrevrange(stream, count=1)
                self._signals[stream] = newest[0][0] if newest else b"0-0"
        answer = await self.redis.xread(dict(self._signals), count=256, block=block_ms)  # type: ignore[arg-type]
        found: list[Mapping[bytes, bytes]] = []
        for stream, entries in answer or ():
            self._signals[stream.decode()] = entries[-1][0]
            found += [fields for _, fields in entries]
        return found


def _taken(partition: int, id_: bytes, fields: Mapping[bytes, bytes] | None, deliveries: int) -> Taken:
    known = fields or {}
    request_id = known.get(keys.REQUEST, b"").decode("ascii", "replace")
    if not keys.valid_request_id(request_id) or keys.GENERATE not in known:
        return Taken(partition, id_, "", b"", None, deliveries)
    return Taken(partition, id_, request_id, known[keys.GENERATE], known.get(keys.OPEN), deliveries)
