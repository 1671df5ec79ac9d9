"""Redis as the worker sees it: commands, the publish script, the owner key. What it shares is in `link.redis`.

**The cursor is the fence.** Each input stream of a partition has a consumer group that nobody reads through; its
last-delivered id is the committed cursor. Every write goes through `PUBLISH`, which compares that cursor with the one
the batch was read from: whoever works from an outdated cursor is answered MOVED and has changed nothing.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import Any

from redis.exceptions import NoScriptError

from link.redis import Redis, ResponseError
from schemas import keys
from schemas.keys import Keys
from worker.core.session import Entry

LANES = ("chunks", "bulk")

POSITION = b"""
local function position(stream, name)
  -- A group's last-delivered id and how many entries it has read; nothing where stream or group do not exist.
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err then return end
  for _, group in ipairs(groups) do
    local info = {}
    for i = 1, #group, 2 do info[group[i]] = group[i + 1] end
    if info['name'] == name then return info['last-delivered-id'], tonumber(info['entries-read']) or 0 end
  end
end
"""

PUBLISH = (
    POSITION
    + b"""
-- KEYS: input stream, attempts, dead letters, the other input stream, then the keys that commands name by position
-- ARGV: group, cursor the batch was read from, new cursor, entries between, lane, name of our attempt,
--       cursor of the other stream ('': whatever it is), cap of the dead letters, their bytes, how many are added,
--       then commands: number of words, words (the word after the name is the position of a key)
local cursor, read = position(KEYS[1], ARGV[1])
if cursor ~= ARGV[2] then return {'MOVED'} end
-- What we know of requests is as old as the older of our two cursors.
if ARGV[7] ~= '' and position(KEYS[4], ARGV[1]) ~= ARGV[7] then return {'MOVED'} end
-- First, and never refused for lack of memory (see link.redis.FULL).
redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], ARGV[3], 'ENTRIESREAD', read + ARGV[4])
-- From here on nothing may raise: what was written stays, and the rest of the batch would be lost.
redis.pcall('HSET', KEYS[2], ARGV[5], ARGV[3] .. ' ' .. ARGV[6])
local refused = {'OK'}
local i = 11
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  local key = KEYS[tonumber(ARGV[i + 2])]
  local answer
  if words > 7000 then -- Lua has room for fewer than 8000 arguments
    answer = {err = 'ERR a command of ' .. words .. ' words is too long'}
  else
    answer = redis.pcall(ARGV[i + 1], key, unpack(ARGV, i + 3, i + words))
  end
  if type(answer) == 'table' and answer.err then
    local reason = 'refused: ' .. tostring(answer.err)
    refused[#refused + 1] = key .. ' ' .. reason
    redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', ARGV[8], '*',
      'stream', ARGV[5], 'entry_id', ARGV[3], 'reason', reason, 'command', ARGV[i + 1], 'key', key)
  end
  i = i + words + 1
end
if ARGV[10] ~= '0' then -- the oldest dead letters go, a tenth at a time, until the others have room
  local length = redis.pcall('XLEN', KEYS[3])
  while type(length) == 'number' and length > 1 do
    local bytes = redis.pcall('MEMORY', 'USAGE', KEYS[3], 'SAMPLES', '0')
    if type(bytes) ~= 'number' or bytes <= tonumber(ARGV[9]) then break end
    length = math.floor(length * 0.9)
    redis.pcall('XTRIM', KEYS[3], 'MAXLEN', '=', length)
  end
end
redis.pcall('XTRIM', KEYS[1], 'MINID', '=', ARGV[3])
return refused
"""
)

BEGIN = (
    POSITION
    + b"""
-- KEYS: input stream, attempts   ARGV: group, lane, name of our attempt ('': only look)
-- Returns the committed cursor and how many attempts were begun there, ours included. Creates the group.
local attempts = redis.pcall('HGET', KEYS[2], ARGV[2])
if type(attempts) == 'table' then -- no hash: of no use to anyone
  redis.call('DEL', KEYS[2])
  attempts = false
end
local cursor, read = position(KEYS[1], ARGV[1])
if not cursor then
  redis.call('HDEL', KEYS[2], ARGV[2]) -- first: see FULL
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
  cursor, read, attempts = '0-0', 0, false
end
local known, begun = string.match(attempts or '', '^(%S+)(.*)$')
if known ~= cursor then begun = '' end
local _, count = string.gsub(begun, '%S+', '')
if ARGV[3] ~= '' and not string.find(begun .. ' ', ' ' .. ARGV[3] .. ' ', 1, true) then
  count = count + 1
  if count < 10 then -- enough to bury an entry; more would only grow
    redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], cursor, 'ENTRIESREAD', read) -- changes nothing (see FULL)
    redis.call('HSET', KEYS[2], ARGV[2], cursor .. begun .. ' ' .. ARGV[3])
  end
end
return {cursor, count}
"""
)

FORGIVE = b"""
-- KEYS: attempts   ARGV: lane, name of our attempt   Takes it back, wherever it was begun; harmless twice.
local attempts = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(attempts) ~= 'string' then return 0 end
local left, found = string.gsub(attempts .. ' ', ' ' .. ARGV[2] .. ' ', ' ')
if found == 0 then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1]) -- first: see FULL
if string.find(left, ' %S') then redis.call('HSET', KEYS[1], ARGV[1], string.sub(left, 1, -2)) end
return 1
"""

TAKE = b"""
-- KEYS: owner key   ARGV: token, lease in ms   Returns 1 if the key is ours now, or was already.
local owner = redis.pcall('GET', KEYS[1])
if type(owner) == 'string' and owner ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1]) -- see FULL; also what is no string
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
BEAT = b"""
-- KEYS: live workers   ARGV: our token, lease in ms   Returns all live workers, by Redis' clock.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2]) -- first: see FULL
redis.call('ZADD', KEYS[1], now, ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""

RELEASE = b"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Moved(Exception):
    """Someone else committed from the cursor that this batch was read from: nothing was written, start over."""


class WrongConfig(Exception):
    """The database was set up with other values; the message names them."""


def embedded() -> Redis:
    """A client of a new in-process fakeredis: one process only. Raises ImportError without the extra `embedded`."""
    from fakeredis.aioredis import FakeRedis

    return FakeRedis()  # type: ignore[no-any-return]


class Script:
    """A Lua script, sent by its digest and in full only when the server does not know it."""

    def __init__(self, redis: Redis, source: bytes) -> None:
        self._redis = redis
        self._source = source
        self._digest = sha1(source).hexdigest()  # Redis' own name for it, no protection

    async def __call__(self, key_names: Sequence[str | bytes], args: Sequence[Any]) -> Any:
        execute: Any = self._redis.execute_command
        rest = (len(key_names), *key_names, *args)
        try:
            return await execute("EVALSHA", self._digest, *rest)
        except NoScriptError:
            return await execute("EVAL", self._source, *rest)


class Commands:
    """What one publish writes: commands in order, each on a key of the partition."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.args: list[Any] = []
        self._position: dict[str, int] = {}

    def add(self, name: str, key: str, *args: Any) -> None:
        position = self._position.get(key)
        if position is None:
            position = self._position[key] = len(self.keys) + 5  # after the four keys of the script
            self.keys.append(key)
        self.args += (len(args) + 2, name, position, *args)


class Lookup:
    """What Redis knows of requests that are not in the caches, by request id."""

    def __init__(
        self, ids: Sequence[bytes], states: Iterable[Any], statuses: Iterable[Any], contexts: Iterable[Any]
    ) -> None:
        self.state: dict[bytes, bytes | None] = dict(zip(ids, states, strict=True))
        self.status: dict[bytes, bytes | None] = dict(zip(ids, statuses, strict=True))
        self.context: dict[bytes, bytes | None] = dict(zip(ids, contexts, strict=True))


class Partition:
    """The keys of one partition.

    redis: for commands; reader: a client for blocking reads, whose connections nothing else waits for.
    token: random name of this worker, the value of the owner key. partitions: how many there are.
    dead_cap, dead_bytes: how many dead letters are kept, and how much memory they may take.
    """

    def __init__(
        self,
        redis: Redis,
        reader: Redis,
        names: Keys,
        partition: int,
        *,
        token: str,
        partitions: int = 1,
        lease_ms: int = 2000,
        dead_cap: int = 10_000,
        dead_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.redis = redis
        self.reader = reader
        self.names = names
        self.number = partition
        self.partitions = partitions
        self.token = token
        self.lease_ms = lease_ms
        self.dead_cap = dead_cap
        self.dead_bytes = dead_bytes
        # One for each time that a partition is taken: who died there is told from who lives and tries again. Not all
        # digits, which were a count to workers of before.
        self.attempt = "w" + secrets.token_hex(4)
        self.input = {"chunks": names.chunks(partition), "bulk": names.bulk(partition)}
        self._publish = Script(redis, PUBLISH)
        self._begin = Script(redis, BEGIN)
        self._forgive = Script(redis, FORGIVE)
        self._take = Script(redis, TAKE)
        self._release = Script(redis, RELEASE)

    # --- cursor -------------------------------------------------------------------------------------------------------

    async def begin(self, lane: str, *, count: bool) -> tuple[bytes, int]:
        """The committed cursor of a lane and how many attempts were begun there; `count` makes ours one of them."""
        attempt = self.attempt if count else ""
        answer = await self._begin([self.input[lane], self.names.attempts(self.number)], [keys.GROUP, lane, attempt])
        return answer[0], int(answer[1])

    async def lag(self, lane: str) -> tuple[bytes, int]:
        """The committed cursor and how many entries follow it, as Redis counts them (0: it does not know).

        The cursor is empty where there is none: the database was emptied.
        """
        try:
            groups = await self.redis.xinfo_groups(self.input[lane])
        except ResponseError as error:
            if str(error) != "no such key":
                raise
            return b"", 0
        for group in groups:
            if group["name"] in (keys.GROUP, keys.GROUP.encode()):
                return group["last-delivered-id"], max(0, group.get("lag") or 0)
        return b"", 0

    async def forgive(self, lane: str) -> None:
        """Our attempt ended without our death, so it is none. Harmless twice."""
        await self._forgive([self.names.attempts(self.number)], [lane, self.attempt])

    async def read(self, cursors: dict[str, bytes], *, count: int, block_ms: int | None) -> dict[str, list[Entry]]:
        """Entries after the cursors, at most `count` a lane. block_ms: wait for one; None: do not."""
        try:
            answer = await self.reader.xread(
                {self.input[lane]: cursor for lane, cursor in cursors.items()}, count=count, block=block_ms
            )
        except ResponseError as error:
            if not str(error).startswith("UNBLOCKED"):
                raise
            return {}  # someone ended the wait (CLIENT UNBLOCK … ERROR): as if nothing had come
        lanes = {name.encode(): lane for lane, name in self.input.items()}
        return {lanes[name]: [Entry(id_, fields or {}) for id_, fields in entries] for name, entries in answer or ()}

    async def publish(
        self,
        lane: str,
        source: bytes,
        target: bytes,
        entries: int,
        commands: Commands,
        *,
        beside: bytes = b"",
        letters: int = 0,
    ) -> list[str]:
        """Commit a batch: the commands and the new cursor, or nothing. Raises Moved.

        beside: cursor of the other lane, which has to be where it was too; empty: nothing depends on it.
        letters: how many dead letters are among the commands.
        Returns what Redis refused (each is on the dead-letter stream too).
        """
        other = next(self.input[name] for name in LANES if name != lane)
        answer = await self._publish(
            [self.input[lane], self.names.attempts(self.number), self.names.dead(self.number), other, *commands.keys],
            [
                keys.GROUP, source, target, entries, lane, self.attempt, beside,
                self.dead_cap, self.dead_bytes, letters, *commands.args,
            ],
        )  # fmt: skip
        if answer[0] == b"MOVED":
            raise Moved
        return [line.decode("utf-8", "replace") for line in answer[1:]]

    def elsewhere(self, lane: str, request_id: str) -> str | None:
        """The stream on which a request belongs, if that is not the one of this partition."""
        partition = keys.partition_of(request_id, self.partitions)
        if partition == self.number:
            return None
        return self.names.chunks(partition) if lane == "chunks" else self.names.bulk(partition)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def lookup(self, ids: Sequence[bytes]) -> Lookup:
        """State, status and context of requests, in one round trip."""
        names = [id_.decode("ascii", "replace") for id_ in ids]
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.hmget(self.names.open(self.number), list(ids))
            pipe.mget([self.names.status(self.number, name) for name in names])
            pipe.mget([self.names.request(self.number, name) for name in names])
            return Lookup(ids, *await pipe.execute())

    async def last_reply(self, request_id: str) -> int:
        """Number of the last reply of a request; 0: none."""
        try:
            last = await self.redis.xrevrange(self.names.reply(self.number, request_id), count=1)
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            return 0  # someone else's value, beside which no reply has room
        return int(last[0][0].partition(b"-")[0]) if last else 0

    async def scan_open(self, cursor: int) -> tuple[int, dict[bytes, bytes]]:
        """A part of the `open` hash and the cursor of the next part; 0: that was the last."""
        next_cursor, part = await self.redis.hscan(self.names.open(self.number), cursor, count=100)
        return int(next_cursor), part

    async def time_out(self, request_id: bytes, active_ms: int) -> None:
        """Ask for the end of an idle request, by way of its input stream like everything else."""
        await self.redis.xadd(
            self.input["chunks"],
            {keys.REQUEST: request_id, keys.CONTROL: keys.CONTROL_TIMEOUT, keys.ACTIVE: active_ms},
        )

    # --- owner key ----------------------------------------------------------------------------------------------------

    async def take(self) -> bool:
        """Become the owner, or stay it for another lease."""
        return bool(await self._take([self.names.owner(self.number)], [self.token, self.lease_ms]))

    async def release(self) -> None:
        await self._release([self.names.owner(self.number)], [self.token])


def state_versions(token: str) -> tuple[int, ...]:
    """Versions of the states that a worker writes, from the end of its name; `()` where it has none."""
    end = token.rpartition(":")[2]
    return tuple(map(int, end.split("."))) if re.fullmatch(r"\d{1,6}\.\d{1,6}", end) else ()


class Members:
    """The live workers, for fair sharing: partition p belongs to worker number p mod W in order of their names.

    Only those that write the newest state version count: what they have written, an older worker could not go on with.
    """

    def __init__(self, redis: Redis, names: Keys, token: str, *, lease_ms: int = 2000) -> None:
        self.redis = redis
        self.names = names
        self.token = token
        self.lease_ms = lease_ms
        self.live: list[str] = [token]
        self._beat = Script(redis, BEAT)

    async def beat(self) -> None:
        """Say that we live and see who else does (by Redis' clock)."""
        members = await self._beat([self.names.workers], [self.token, self.lease_ms])
        found = sorted(member.decode() for member in members)
        newest = max(map(state_versions, found), default=())
        self.live = [member for member in found if state_versions(member) == newest]

    async def leave(self) -> None:
        await self.redis.zrem(self.names.workers, self.token)

    def mine(self, partition: int) -> bool:
        live = self.live
        return bool(live) and live[partition % len(live)] == self.token


async def settle_config(redis: Redis, names: Keys, partitions: int | None) -> int:
    """Fix the number of partitions when it is first set; afterwards it must agree. None: take what is set.

    Raises WrongConfig.
    """
    fields = [keys.CONFIG_PARTITIONS, keys.CONFIG_WIRE_VERSION]
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hmget(names.config, fields)
        [(fixed, version)] = await pipe.execute()
        if fixed is None or version is None:
            pipe.hsetnx(names.config, keys.CONFIG_PARTITIONS, str(partitions or keys.DEFAULT_PARTITIONS))
            pipe.hsetnx(names.config, keys.CONFIG_WIRE_VERSION, str(keys.WIRE_VERSION))
            pipe.hmget(names.config, fields)
            *_, (fixed, version) = await pipe.execute()
    if int(version) != keys.WIRE_VERSION:
        raise WrongConfig(f"{names.config} has wire version {int(version)}, this worker speaks {keys.WIRE_VERSION}")
    if partitions is not None and int(fixed) != partitions:
        raise WrongConfig(
            f"{names.config} has {int(fixed)} partitions, this worker was told {partitions}: "
            "the number is fixed when it is first set"
        )
    return int(fixed)
