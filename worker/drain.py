"""One partition: read a batch from the committed cursor, fold each entry, publish, again.

Reading changes nothing, so all of this may be done twice or by two workers at once: the publish script lets one batch
through. Caches hold what the last successful publish left; whoever is answered MOVED, or gets no answer, forgets them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

import msgspec

from link.redis import UNREACHABLE, Backoff, RedisError, ResponseError, now_ms
from link.tasks import end, seen
from schemas import keys
from schemas.state import REQUEST_STATE_VERSION, RequestState
from worker.batch import Batch, Rules
from worker.core.coalesce import coalesce
from worker.core.errors import InternalError, ModelNotLoaded, RequestError, StateMismatch
from worker.core.session import NO_ID, Entry, Open, Outcome, Session
from worker.core.versions import read_request_state
from worker.streams import LANES, Commands, Moved, Partition
from worker.turns import Turns

logger = logging.getLogger(__name__)

BATCH_ENTRIES = 64
BATCH_BYTES = 1024 * 1024
UNKNOWN_BYTES = BATCH_BYTES / 8
"""Size of an entry, as long as nothing is known of it."""

SLICE_S = 0.005
"""Work between two publishes, and so between two turns of the event loop: no partition waits longer for another."""

BULK_SLICE_S = 0.0005
BULK_ENTRIES = 16
BULK_PAUSE_MS = 50
"""While live chunks come: work on whole responses in one turn, how many are read at once, and how long a wait for live
chunks may keep the next response waiting."""

MAX_ATTEMPTS = 3
"""How many workers may die at one entry; the next one moves it to the dead letters unread."""

STEP_TRIES = 2
"""An unexpected exception in the step is tried once more, from state as it was stored: a cache may be at fault."""

_encode = msgspec.json.Encoder().encode
_state_decoder = msgspec.json.Decoder(RequestState)


class _Activity(msgspec.Struct):
    active: int


_activity_decoder = msgspec.json.Decoder(_Activity)


@dataclass
class Counts:
    """What happened since the start; `worker/metrics.py` may read it."""

    entries: int = 0
    replies: int = 0
    publishes: int = 0
    moved: int = 0
    dropped: int = 0
    dead: int = 0
    refused: int = 0
    resumed: int = 0
    poison: int = 0
    timeouts: int = 0
    lost: int = 0
    chunks: int = 0
    tokens: int = 0
    unknown_ids: int = 0
    taken: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


class Committed(NamedTuple):
    """One published batch. step_s: CPU and wall time of its steps; oldest_ms: id of its first entry, Redis' clock;
    state_bytes: its largest stored state, 0 where it stored none."""

    partition: int
    entries: int
    step_s: float
    oldest_ms: int
    state_bytes: int


class _Broken(NamedTuple):
    """An open request that cannot be continued; its next entry ends it with this error."""

    state: RequestState
    error: RequestError


@dataclass
class _Lane:
    """Where we are in one input stream."""

    name: str
    cursor: bytes = b""
    attempt: int = 0  # how many were begun at the cursor; with ours, once it is counted
    counted: bool = False  # this owner's beginning was counted
    careful: int = 0  # entries still to be taken one by one, after a worker died
    entry_bytes: float = 0.0  # size of an entry of late; 0: none came yet
    lag: int = 0  # unread entries that Redis counted at the last look
    buffer: deque[Entry] = field(default_factory=deque)


def _size(entry: Entry) -> int:
    return sum(map(len, entry.fields.values()))


class Drain:
    """Drains one partition until `leave()` says so.

    leave: asked between batches; true when the worker stops or the partition belongs to another one.
    on_commit: told of each batch after it was published.
    """

    def __init__(
        self,
        partition: Partition,
        session: Session,
        rules: Rules,
        *,
        leave: Callable[[], bool] = lambda: False,
        counts: Counts | None = None,
        turns: Turns | None = None,
        on_commit: Callable[[Committed], None] | None = None,
    ) -> None:
        self.partition = partition
        self.session = session
        self.rules = rules
        self.leave = leave
        self.counts = counts or Counts()
        self.turns = turns or Turns()
        self.on_commit = on_commit
        self.active = False  # between taking the partition and leaving it
        self.lanes = {name: _Lane(name) for name in LANES}
        self._known = False  # the cursors are what Redis has, the caches belong to them
        self._open: OrderedDict[bytes, Open | _Broken | None] = OrderedDict()
        self._status: dict[bytes, str | None] = {}
        self._lost = False  # the owner key is someone else's
        self._last_sweep = 0.0
        self._scan_cursor = 0
        self._ahead: asyncio.Task[None] | None = None  # a read of live chunks that is under way
        self._ticket: asyncio.Future[None] | None = None  # for a turn at whole responses
        self._epoch = 0  # counts what was forgotten: a read that began before it is of no use

    # --- ownership ----------------------------------------------------------------------------------------------------

    async def run(self) -> bool:
        """Take the partition and drain it. False: it has another owner; True: we left it in good order.

        Outlives a Redis that is away. Cancelled, it stops at once; the owner key then expires or is released.
        """
        if self.rules.owner_keys and not await self.partition.take():
            return False
        self._lost = False
        self.active = True
        self.counts.taken += 1
        for lane in self.lanes.values():
            lane.counted = False
        renewal = asyncio.create_task(self._renew()) if self.rules.owner_keys else None
        backoff = Backoff()
        try:
            while not (self.leave() or self._lost):
                try:
                    if not self._known:
                        await self._begin()
                        continue  # it may have taken a while
                    await self._turn()
                    if backoff.failures:
                        logger.info("partition %d: Redis is back", self.partition.number)
                        backoff.reset()
                except Moved:
                    self.counts.moved += 1
                    logger.info("partition %d: cursor was moved by another worker", self.partition.number)
                    self.forget()
                except UNREACHABLE as error:
                    if not backoff.failures:
                        logger.warning("partition %d: Redis is away (%s)", self.partition.number, type(error).__name__)
                    self.forget()
                    await backoff.wait()
            with suppress(*UNREACHABLE):
                await self.forgive()
            return True
        except Exception:
            for lane in self.lanes.values():
                lane.counted = False  # an entry may be at fault: the attempt stays counted
            raise
        finally:
            self.active = False
            self._give_back()
            running: list[asyncio.Task[None]] = [task for task in (self._ahead, renewal) if task is not None]
            self._ahead = None
            try:
                await end(*running)
            finally:
                if renewal is not None:
                    await self._release()

    async def forgive(self) -> None:
        """Take back what was counted: we live. Does nothing where nothing is left to take back.

        Where Redis was away at the end, or `run` was cancelled for that, whoever is alive calls this once it is back.
        """
        for lane in self.lanes.values():
            if lane.counted:
                await self.partition.forgive(lane.name)
                lane.counted = False

    async def _release(self) -> None:
        release = asyncio.ensure_future(self.partition.release())
        release.add_done_callback(seen)
        with suppress(RedisError, OSError):
            await asyncio.shield(release)

    async def _renew(self) -> None:
        """Keep the owner key. It guarantees nothing, so a failure only means to look again."""
        while not self._lost:
            await asyncio.sleep(self.partition.lease_ms / 3000)
            try:
                self._lost = not await self.partition.take()
            except (RedisError, OSError):
                continue

    def forget(self) -> None:
        """Drop everything that may be out of date."""
        self._known = False
        self._epoch += 1
        self._give_back()
        self._open.clear()
        self._status.clear()
        for lane in self.lanes.values():
            lane.buffer.clear()
            lane.lag = 0

    async def _begin(self) -> None:
        """Read the committed cursors; what was cached belongs to others."""
        self.forget()
        for lane in self.lanes.values():
            lane.cursor, lane.attempt = await self.partition.begin(lane.name, count=False)
            if lane.attempt >= MAX_ATTEMPTS:
                await self._wait_for_the_living()
                lane.cursor, lane.attempt = await self.partition.begin(lane.name, count=False)
        self._known = True

    async def _wait_for_the_living(self) -> None:
        """Before an entry is buried: who began there may be alive, cut off or slow, as we are. It has a lease's time to
        publish the entry, or to take its attempt back as we do."""
        await self.forgive()
        for _ in range(20):
            if self.leave() or self._lost:
                return
            await asyncio.sleep(self.partition.lease_ms / 20_000)

    async def _count(self, lane: _Lane) -> None:
        """Before the first work of this owner: count an attempt. Publishing counts the next one, so later work is free.

        Who is answered MOVED or loses the connection has not died, and is not counted again.
        """
        lane.counted, known = True, lane.attempt
        cursor, lane.attempt = await self.partition.begin(lane.name, count=True)
        if cursor != lane.cursor or known < MAX_ATTEMPTS < lane.attempt:  # others came meanwhile, so they live
            raise Moved
        if lane.attempt > 1:
            lane.careful = BATCH_ENTRIES
            # The first end may have come before this entry did: a worker that dies idle leaves the same trace.
            logger.log(
                logging.WARNING if lane.attempt > 2 else logging.INFO,
                "partition %d: a worker ended without leaving %s at %s; entries are taken one by one, attempt %d",
                self.partition.number, lane.name, lane.cursor.decode(), lane.attempt,
            )  # fmt: skip

    # --- one turn -----------------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Live chunks first, then one slice of whole work, so that a burst of it does not stand before live tokens."""
        live, bulk = self.lanes["chunks"], self.lanes["bulk"]
        if not live.buffer:
            if self._ahead is None and not bulk.buffer:
                await self._read(block_ms=self.rules.block_ms)
            else:
                await self._read_beside(live, bulk)
        if live.buffer:
            self.turns.live()
            await self._slice(live)
        if bulk.buffer:
            ticket = self._ticket = self._ticket or self.turns.ask()
            if ticket.done():
                await self._slice(bulk)
        if not live.buffer:
            await self._sweep()

    async def _read_beside(self, live: _Lane, bulk: _Lane) -> None:
        """Wait for live chunks or for our turn to work on whole responses, whichever comes first."""
        if self._ahead is None:
            self._ahead = asyncio.create_task(self._read(only="chunks", block_ms=BULK_PAUSE_MS))
        if not bulk.buffer:
            await self._read(only="bulk")
        if bulk.buffer:
            ticket = self._ticket = self._ticket or self.turns.ask()
            await asyncio.wait([ticket, self._ahead], return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.wait([self._ahead])
        if self._ahead.done():
            ahead, self._ahead = self._ahead, None
            await ahead

    def _give_back(self) -> None:
        if self._ticket is not None:
            self.turns.give_back(self._ticket)
            self._ticket = None

    async def _read(self, *, only: str | None = None, block_ms: int | None = None) -> None:
        """Fill the buffers that are empty. only: of this lane. block_ms: wait so long for one entry; None: do not."""
        lanes = [lane for lane in self.lanes.values() if not lane.buffer and only in (None, lane.name)]
        # A read that waits is the first to see what comes to a lane where nothing came yet: it takes few.
        unknown = 0.0 if block_ms is None else UNKNOWN_BYTES
        largest = max(lane.entry_bytes or unknown for lane in lanes) or UNKNOWN_BYTES
        count = max(1, min(BATCH_ENTRIES, int(BATCH_BYTES / largest)))
        if only == "bulk" and self.turns.somebody_is_live:
            count = min(count, BULK_ENTRIES)
        epoch = self._epoch
        cursors = {lane.name: lane.cursor for lane in lanes}
        for name, entries in (await self.partition.read(cursors, count=count, block_ms=block_ms)).items():
            if epoch != self._epoch:
                return  # read from a cursor that we have left
            lane = self.lanes[name]
            lane.buffer.extend(entries)
            size = sum(map(_size, entries)) / len(entries)
            lane.entry_bytes = max(1.0, 0.5 * (lane.entry_bytes or size) + 0.5 * size)

    async def _slice(self, lane: _Lane) -> None:
        """Fold entries for at most SLICE_S and commit them; alone in this process where others ended."""
        if lane.attempt > lane.counted:
            async with self.turns.suspect:
                await self._work(lane)
        else:
            await self._work(lane)

    async def _work(self, lane: _Lane) -> None:
        if not lane.counted:
            await self._count(lane)
        if lane.attempt > MAX_ATTEMPTS:
            await self._bury(lane)
            return
        limit = 1 if lane.careful else BATCH_ENTRIES
        entries = [lane.buffer[i] for i in range(min(limit, len(lane.buffer)))]
        await self._load(entries)
        batch = Batch(self.partition, self.rules)
        short = lane.name == "bulk" and self.turns.somebody_is_live
        limit_s = BULK_SLICE_S if short else SLICE_S
        merge = self.rules.coalesce and lane.name == "chunks" and len(entries) > 1
        start = perf_counter()
        for entry in coalesce(entries, self._next_seq) if merge else entries:
            try:
                outcome = self._fold(lane.name, entry)
            except ModelNotLoaded as missing:
                if batch.entries and not merge:
                    break  # commit what is done; this entry comes first in the next slice
                self.forget()  # also what was folded in another order
                await missing.load()
                return
            if entry.parts and (outcome.dead is not None or outcome.dropped is not None):
                self._fold_parts(lane, batch, entry)
                continue
            batch.add(lane.name, entry, outcome)
            self._remember(entry, outcome)
            if not merge and (batch.bytes > BATCH_BYTES or perf_counter() - start > limit_s):
                break
        if merge:
            batch.last = entries[-1].id
        batch.step_s = perf_counter() - start
        await self._commit(lane, batch)

    def _next_seq(self, id_: bytes) -> int | None:
        opened = self._open.get(id_)
        return None if opened is None or opened.state.seq is None else opened.state.seq + 1

    def _fold_parts(self, lane: _Lane, batch: Batch, merged: Entry) -> None:
        """Something is wrong in a merged entry: take its parts one by one, so that only the wrong one is refused."""
        for entry in merged.parts:
            outcome = self._fold(lane.name, entry)
            batch.add(lane.name, entry, outcome)
            self._remember(entry, outcome)

    async def _commit(self, lane: _Lane, batch: Batch) -> None:
        """Publish a batch; meanwhile the next entries are read, which is wasted when the publish fails."""
        if lane.name == "bulk":
            self._give_back()
        oldest_ms = lane.buffer[0].time_ms
        for _ in range(batch.entries):
            lane.buffer.popleft()
        source, lane.cursor = lane.cursor, batch.last
        beside = next(other.cursor for other in self.lanes.values() if other is not lane)
        publish = self.partition.publish(
            lane.name, source, batch.last, batch.entries, batch.commands(), beside=beside, letters=batch.dead
        )
        if lane.buffer or lane.name != "chunks":
            refused = await publish
        else:
            ahead = asyncio.ensure_future(self._read())
            ahead.add_done_callback(seen)  # where the publish fails too, nobody awaits it
            try:
                refused = await publish
            finally:
                await asyncio.wait([ahead])  # before anyone forgets the buffers that it fills
            await ahead
        lane.attempt = 1
        lane.lag = 0
        lane.careful = max(0, lane.careful - batch.entries)
        counts = self.counts
        counts.publishes += 1
        counts.entries += batch.entries
        counts.replies += batch.replies
        counts.dead += batch.dead
        counts.dropped += batch.dropped
        counts.refused += len(refused)
        counts.chunks += batch.chunks
        counts.tokens += batch.tokens
        counts.unknown_ids += batch.unknown
        counts.outcomes.update(batch.outcomes)
        counts.errors.update(batch.errors)
        if self.on_commit is not None:
            self.on_commit(Committed(self.partition.number, batch.entries, batch.step_s, oldest_ms, batch.state_bytes))
        for line in refused:
            logger.error("partition %d: %s", self.partition.number, line)
        while len(self._open) > self.rules.cached_requests:
            id_, _ = self._open.popitem(last=False)
            self._status.pop(id_, None)  # together: who is known not to be open is known by the status

    async def _bury(self, lane: _Lane) -> None:
        """Move an entry at which several workers died to the dead letters; nothing but its request id is looked at, and
        of its request only the state: the context may be what they died of."""
        entry = lane.buffer[0]
        reason = f"{MAX_ATTEMPTS} workers died at this entry"
        id_ = entry.fields.get(keys.REQUEST, b"")
        self._open.pop(id_, None)
        outcome = Outcome(dead=reason)
        if self._foreign(lane.name, id_) is None:
            await self._load([entry], resume=False)
            opened = self._open[id_]
            error = InternalError(reason)
            if lane.name == "chunks" or opened is None or keys.ANSWER_TO in entry.fields:
                outcome = self.session.fail(
                    opened.state if opened else None, error, status=self._status.get(id_), entry=entry
                )
        for cache in (self._open, self._status):
            cache.pop(id_, None)  # the next entry looks again
        batch = Batch(self.partition, self.rules)
        batch.add(lane.name, entry, outcome)
        self.counts.poison += 1
        logger.error("partition %d: %s %s: %s", self.partition.number, lane.name, entry.id.decode(), reason)
        await self._commit(lane, batch)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _load(self, entries: list[Entry], *, resume: bool = True) -> None:
        """Fetch what the caches do not know of these entries' requests, in one round trip.

        resume: make those that are open ready to go on; else they can only be ended.
        """
        missing: dict[bytes, None] = {}
        for entry in entries:
            id_ = entry.fields.get(keys.REQUEST, b"")
            if id_ in self._open:
                self._open.move_to_end(id_)
            elif keys.valid_request_id(id_.decode("ascii", "replace")):
                missing[id_] = None
        self.counts.cache_misses += len(missing)
        self.counts.cache_hits += len(entries) - len(missing)
        if not missing:
            return
        try:
            found = await self.partition.lookup(list(missing))
        except ResponseError:  # as where a key has another type: no entry's fault
            await self.forgive()
            raise
        for id_ in missing:
            status, raw, context = found.status[id_], found.state[id_], found.context[id_]
            self._status[id_] = status.decode() if status else None
            self._open[id_] = None
            if raw is not None:
                self._open[id_] = await self._restore(id_.decode(), raw, context, resume=resume)

    async def _restore(self, request_id: str, raw: bytes, context: bytes | None, *, resume: bool) -> Open | _Broken:
        """An open request as another worker (or an evicted cache) left it."""
        try:
            state = read_request_state(raw)
        except StateMismatch as error:
            last = await self.partition.last_reply(request_id)
            state = RequestState(version=REQUEST_STATE_VERSION, digest="", created=0, active=0, replies=last)
            return _Broken(state, InternalError(error.message))
        if not resume:
            return _Broken(state, InternalError("the request was not resumed"))
        if context is None:
            return _Broken(state, InternalError("the stored context of the request is missing"))
        self.counts.resumed += 1
        while True:
            try:
                return self.session.resume(request_id, state, context)
            except ModelNotLoaded as missing:
                await missing.load()
            except RequestError as error:
                return _Broken(state, error)

    def _fold(self, lane: str, entry: Entry) -> Outcome:
        id_ = entry.fields.get(keys.REQUEST, b"")
        if (reason := self._foreign(lane, id_)) is not None:
            return Outcome(dead=reason)
        opened, status = self._open.get(id_), self._status.get(id_)
        if isinstance(opened, _Broken):
            return self.session.fail(opened.state, opened.error)
        for attempt in range(1, STEP_TRIES + 1):
            try:
                return self.session.fold(entry, opened, status)
            except ModelNotLoaded:
                raise
            except Exception as error:  # noqa: BLE001  whatever the step raises costs its own request only
                # The type alone: messages and tracebacks may quote what the model said.
                logger.error(
                    "partition %d: %s: %s in the step, try %d of %d",
                    self.partition.number, entry.id.decode(), type(error).__name__, attempt, STEP_TRIES,
                )  # fmt: skip
                failure = InternalError(f"internal error ({type(error).__name__})")
                if opened is not None:
                    opened = opened._replace(state=_state_decoder.decode(_encode(opened.state)))
        return self.session.fail(opened.state if opened else None, failure, status=status, entry=entry)

    def _foreign(self, lane: str, id_: bytes) -> str | None:
        """Why nobody would see what was answered here: it is no id, or its reader looks at another partition."""
        name = id_.decode("ascii", "replace")
        if not keys.valid_request_id(name):
            return NO_ID
        stream = self.partition.elsewhere(lane, name)
        return None if stream is None else f"{name} belongs on {stream}"

    def _remember(self, entry: Entry, outcome: Outcome) -> None:
        id_ = entry.fields.get(keys.REQUEST, b"")
        if outcome.open is not None:
            self._open[id_] = outcome.open
            if outcome.opened is not None:
                self._status[id_] = keys.STATUS_OPEN
        elif outcome.closed is not None:
            self._open[id_] = None
            self._status[id_] = outcome.closed

    # --- silence ------------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """With no live chunks: look at a part of the open requests and ask for the end of those that are idle."""
        now = asyncio.get_running_loop().time()
        pause_s = min(10.0, self.rules.idle_ms / 5000)
        if self._scan_cursor:
            pause_s /= 10  # in the middle: of many requests, one look sees a hundred
        if now - self._last_sweep < pause_s:
            return
        self._last_sweep = now
        await self._look_for_loss()
        redis_ms = await now_ms(self.partition.redis)
        self._scan_cursor, part = await self.partition.scan_open(self._scan_cursor)
        for id_, raw in part.items():
            try:
                active = _activity_decoder.decode(raw).active
            except msgspec.DecodeError:
                active = 0
            if redis_ms - active > self.rules.idle_ms:
                self.counts.timeouts += 1
                await self.partition.time_out(id_, active)

    async def _look_for_loss(self) -> None:
        """Nothing to read while Redis counts unread entries: some were deleted, or Redis lost its tail.

        Whose they were is not known; a numbered request finds the gap at its next entry, the others time out.
        """
        for lane in self.lanes.values():
            if lane.buffer:
                continue
            cursor, lag = await self.partition.lag(lane.name)
            if cursor != lane.cursor:
                raise Moved
            if lag > 0 and lag == lane.lag:  # twice, with an empty read between
                logger.error("partition %d: %d entries of %s were lost", self.partition.number, lag, lane.name)
                self.counts.lost += lag
                lane.counted = True  # by the publish
                await self.partition.publish(lane.name, lane.cursor, lane.cursor, lag, Commands())
                lag = 0
            lane.lag = lag
