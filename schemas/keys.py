"""Names of keys and entry fields, and the partition of a request id.

Every key of a request carries its partition as a Redis Cluster hash tag, so one script may touch them all.
"""

from __future__ import annotations

import re
from zlib import crc32

WIRE_VERSION = 1
PREFIX = "derender"
DEFAULT_PARTITIONS = 8
GROUP = "derender"
"""Consumer group whose last-delivered id is the committed cursor; nobody reads through it."""

REPLY_TO = re.compile(r"[A-Za-z0-9._-]{1,64}")
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")

# fields of an input entry
REQUEST = b"request_id"
SEQ = b"seq"
OPEN = b"open"
CHUNK = b"chunk"
CONTROL = b"control"
RESPONSE = b"response"
CALL = b"call"
ENDPOINT = b"endpoint"
"""With `call`: the HTTP path that the body belongs to; absent: the body tells."""
ANSWER_TO = b"reply_to"
"""With `call`: name of a `reply_to` stream, which then gets the answer alone: no reply stream, no status."""
PROMPT = b"prompt"
"""Which prompt of a completion with several prompts a chunk belongs to, counting from 0."""
ERROR = b"error"
"""With `control: error`: the JSON of an OpenAI error object. In a reply: the same."""
ACTIVE = b"active"
"""With `control: timeout`: the last activity (ms) that the time-out was judged by."""

# values of CONTROL
CONTROL_DONE = b"done"
CONTROL_ABORT = b"abort"
CONTROL_ERROR = b"error"
CONTROL_TIMEOUT = b"timeout"
"""Written by workers only: a request was idle for too long."""

# fields of a reply entry (CHUNK, RESPONSE and ERROR too)
INDEX = b"index"
STREAM_STATE = b"stream_state"
DONE = b"done"
"""On the last entry only; the value is the final status."""
REPLY_ID = b"reply_id"
"""On a `reply_to` stream, beside REQUEST: id of the same entry on the request's own reply stream."""

# fields of a signal (REQUEST and INDEX too) and of a dead letter (STREAM_NAME, ENTRY_ID, REASON, then the fields of
# the entry itself, but those of these names)
SIGNAL = b"signal"
SIGNAL_CANCEL = b"cancel"
REASON = b"reason"
STREAM_NAME = b"stream"
ENTRY_ID = b"entry_id"
CUT = b"cut"
"""How many bytes of the entry its letter does not have; absent: it is whole."""
LETTER = frozenset((STREAM_NAME, ENTRY_ID, REASON, CUT))

# fields of an entry of a `generate` stream (REQUEST too; OPEN with whole work, whose context goes with the response)
GENERATE = b"generate"
"""JSON of the generate request, or a list of them: one for each prompt of a completion."""
BRIDGES = "bridges"
"""Consumer group of the bridges: an entry is pending from when a bridge takes it until the engine's first token."""

# status of a request
STATUS_OPEN = "open"
STATUS_FINISHED = "finished"
STATUS_ABORTED = "aborted"
STATUS_FAILED = "failed"
CLOSED = frozenset((STATUS_FINISHED, STATUS_ABORTED, STATUS_FAILED))

# fields of the config hash
CONFIG_PARTITIONS = "partitions"
CONFIG_WIRE_VERSION = "wire_version"


def valid_request_id(request_id: str) -> bool:
    return REQUEST_ID.fullmatch(request_id) is not None


def valid_reply_to(name: str) -> bool:
    return REPLY_TO.fullmatch(name) is not None


def valid_queue(name: str) -> bool:
    return name == "" or REPLY_TO.fullmatch(name) is not None


def partition_of(request_id: str, partitions: int) -> int:
    """Partition 0..partitions-1 of a request: crc32 of its id, so that any language can compute it."""
    return crc32(request_id.encode()) % partitions


class Keys:
    """Key names under one prefix (a tenant's namespace)."""

    def __init__(self, prefix: str = PREFIX) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", prefix):
            raise ValueError(f"key prefix {prefix!r}: use 1 to 64 of A-Z a-z 0-9 . _ -")
        self.prefix = prefix
        self.config = f"{prefix}:config"
        self.workers = f"{prefix}:workers"
        self.jobs = f"{prefix}:jobs"
        self.models = f"{prefix}:models"
        self.bridges = f"{prefix}:bridges"
        """Hash: name of a bridge -> what it says of itself (`schemas/report.py`)."""

    def report(self, token: str) -> str:
        """String with a TTL: what the worker of this name says of itself."""
        return f"{self.prefix}:report:{token}"

    def of(self, partition: int, name: str) -> str:
        return f"{self.prefix}:{{{partition}}}:{name}"

    def chunks(self, partition: int) -> str:
        return self.of(partition, "chunks")

    def bulk(self, partition: int) -> str:
        return self.of(partition, "bulk")

    def open(self, partition: int) -> str:
        return self.of(partition, "open")

    def generate(self, partition: int, queue: str = "") -> str:
        """Generate requests that wait for a bridge. queue: of the engines that serve one model; "" the default one."""
        return self.of(partition, f"generate:{queue}" if queue else "generate")

    def dead(self, partition: int) -> str:
        return self.of(partition, "dead")

    def signals(self, partition: int) -> str:
        return self.of(partition, "signals")

    def owner(self, partition: int) -> str:
        return self.of(partition, "owner")

    def attempts(self, partition: int) -> str:
        """Hash: input stream name -> "<cursor> <name> <name> …", the attempts that were begun at that cursor."""
        return self.of(partition, "attempts")

    def reply_to(self, partition: int, name: str) -> str:
        """Second reply stream that an `open` may name: one a partition, so that it lives in the request's slot."""
        return self.of(partition, f"to:{name}")

    def request(self, partition: int, request_id: str) -> str:
        return self.of(partition, f"request:{request_id}")

    def reply(self, partition: int, request_id: str) -> str:
        return self.of(partition, f"reply:{request_id}")

    def status(self, partition: int, request_id: str) -> str:
        return self.of(partition, f"status:{request_id}")
