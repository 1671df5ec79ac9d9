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

REQUEST_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")

# fields of an input entry
REQUEST = b"request_id"
SEQ = b"seq"
OPEN = b"open"
CHUNK = b"chunk"
CONTROL = b"control"
RESPONSE = b"response"
CALL = b"call"
PROMPT = b"prompt"

# fields of a reply entry (CHUNK and RESPONSE too)
INDEX = b"index"
STREAM_STATE = b"stream_state"
ERROR = b"error"
DONE = b"done"


def valid_request_id(request_id: str) -> bool:
    return REQUEST_ID.fullmatch(request_id) is not None


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

    def of(self, partition: int, name: str) -> str:
        return f"{self.prefix}:{{{partition}}}:{name}"

    def chunks(self, partition: int) -> str:
        return self.of(partition, "chunks")

    def bulk(self, partition: int) -> str:
        return self.of(partition, "bulk")

    def open(self, partition: int) -> str:
        return self.of(partition, "open")

    def dead(self, partition: int) -> str:
        return self.of(partition, "dead")

    def signals(self, partition: int) -> str:
        return self.of(partition, "signals")

    def owner(self, partition: int) -> str:
        return self.of(partition, "owner")

    def request(self, partition: int, request_id: str) -> str:
        return self.of(partition, f"request:{request_id}")

    def reply(self, partition: int, request_id: str) -> str:
        return self.of(partition, f"reply:{request_id}")

    def status(self, partition: int, request_id: str) -> str:
        return self.of(partition, f"status:{request_id}")
