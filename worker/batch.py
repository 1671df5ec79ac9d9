"""What one publish writes: the outcomes of entries, as commands on the keys of their partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from schemas import keys
from schemas.state import RequestState
from worker.core.session import Entry, Outcome
from worker.streams import Commands, Partition

MAX_DEAD_FIELDS = 1000
"""Fields of an entry that its dead letter keeps: ours are six at most, and one command has a limit (`PUBLISH`)."""

DEAD_SHARE = 16
"""One dead letter may take this part of the room for all of a partition."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Rules:
    """Times in ms, sizes in entries. What they mean: `worker/settings.py`."""

    reply_ttl_ms: int = 3_600_000
    open_ttl_ms: int = 86_400_000
    status_ttl_ms: int = 86_400_000
    idle_ms: int = 300_000
    signals_cap: int = 10_000
    reply_to_cap: int = 100_000
    block_ms: int = 1000
    cached_requests: int = 1024
    owner_keys: bool = True
    coalesce: bool = False


class Batch:
    """Outcomes on their way to one publish."""

    def __init__(self, partition: Partition, rules: Rules) -> None:
        self.partition = partition
        self.rules = rules
        self.last = b""
        self.entries = self.replies = self.bytes = self.dead = self.dropped = 0
        self.chunks = self.tokens = self.unknown = self.state_bytes = 0
        self.step_s = 0.0
        self.outcomes: list[str] = []
        self.errors: list[str] = []
        self._commands = Commands()
        self._states: dict[bytes, RequestState] = {}

    def add(self, lane: str, entry: Entry, outcome: Outcome) -> None:
        self.last = entry.id
        self.entries += len(entry.parts) or 1
        self.dropped += outcome.dropped is not None
        self.chunks += keys.CHUNK in entry.fields
        self.tokens += outcome.tokens
        self.unknown += outcome.unknown
        if outcome.closed is not None:
            self.outcomes.append(outcome.closed)
        if outcome.error is not None:
            self.errors.append(outcome.error)
        id_ = entry.fields.get(keys.REQUEST, b"")
        if outcome.dropped is None and (outcome.replies or outcome.open or outcome.closed):
            self._request(id_, outcome)
        if outcome.dead is not None:
            self.dead += 1
            self.add_letter(lane, entry, outcome.dead)

    def add_letter(self, lane: str, entry: Entry, reason: str) -> None:
        """An entry for the dead letters, as it came; of one that is too large, without the ends of its long fields."""
        words, left_out = kept(entry.fields, self.partition.dead_bytes // DEAD_SHARE)
        cut = (keys.CUT, b"%d" % left_out) if left_out else ()
        self.bytes += sum(map(len, words))
        self._commands.add(
            "XADD", self.partition.names.dead(self.partition.number),
            "MAXLEN", "~", self.partition.dead_cap, "*",
            keys.STREAM_NAME, lane, keys.ENTRY_ID, entry.id, keys.REASON, reason[:500], *cut, *words,
        )  # fmt: skip

    def _request(self, id_: bytes, outcome: Outcome) -> None:
        names, number, add = self.partition.names, self.partition.number, self._commands.add
        request_id = id_.decode()
        reply_key = names.reply(number, request_id)
        reply_to = names.reply_to(number, outcome.reply_to) if outcome.reply_to else None
        if outcome.opened is not None:
            add("SET", names.request(number, request_id), outcome.opened)
            add("SET", names.status(number, request_id), keys.STATUS_OPEN)
        for reply in outcome.replies:
            self.replies += 1
            words = [part for pair in reply.fields.items() for part in pair]
            self.bytes += sum(map(len, words))
            reply_id = b"%d-0" % reply.number
            if not outcome.private:
                add("XADD", reply_key, reply_id, *words)
            if reply_to is not None:
                add(
                    "XADD", reply_to, "MAXLEN", "~", self.rules.reply_to_cap, "*",
                    keys.REQUEST, id_, keys.REPLY_ID, reply_id, *words,
                )  # fmt: skip
            if reply.number == 1 and outcome.closed is None and not outcome.private:
                add("PEXPIRE", reply_key, self.rules.open_ttl_ms)
        for signal in outcome.signals:
            index = () if signal.index is None else (keys.INDEX, signal.index)
            add(
                "XADD", names.signals(number), "MAXLEN", "~", self.rules.signals_cap, "*",
                keys.REQUEST, id_, keys.SIGNAL, keys.SIGNAL_CANCEL, keys.REASON, signal.reason, *index,
            )  # fmt: skip
        if outcome.closed is not None:
            self._states.pop(id_, None)
            add("HDEL", names.open(number), id_)
            add("DEL", names.request(number, request_id))
            add("PEXPIRE", reply_key, self.rules.reply_ttl_ms)
            add("SET", names.status(number, request_id), outcome.closed, "PX", self.rules.status_ttl_ms)
        elif outcome.open is not None:
            self._states[id_] = outcome.open.state
        if reply_to is not None and (outcome.closed is not None or outcome.private):
            add("PEXPIRE", reply_to, self.rules.open_ttl_ms)

    def commands(self) -> Commands:
        """All commands; the state of a request is written once, as the last of its entries left it."""
        if self._states:
            words = [part for id_, state in self._states.items() for part in (id_, _encode(state))]
            self.state_bytes = max(map(len, words[1::2]))
            self._commands.add("HSET", self.partition.names.open(self.partition.number), *words)
            self._states = {}
        return self._commands


def kept(fields: Mapping[bytes, bytes], room: int) -> tuple[list[bytes], int]:
    """Names and values for a dead letter, and how many bytes of the entry are not among them.

    Where not all of them have room, each field has the same share, and what short ones leave goes to longer ones.
    """
    pairs = [pair for pair in fields.items() if pair[0] not in keys.LETTER]
    size = sum(len(name) + len(value) for name, value in pairs)
    del pairs[MAX_DEAD_FIELDS:]
    shares: dict[bytes, int] = {}
    left = room
    for n, (name, value) in enumerate(sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))):
        shares[name] = min(len(name) + len(value), left // (len(pairs) - n))
        left -= shares[name]
    words = []
    for name, value in pairs:
        words += [name[: shares[name]], value[: max(0, shares[name] - len(name))]]
    return words, size - sum(map(len, words))
