"""Key names, request ids and partitions: what other languages have to compute alike."""

from __future__ import annotations

import pytest

from schemas.keys import Keys, partition_of, valid_reply_to, valid_request_id


@pytest.mark.parametrize(
    ("request_id", "partition"),
    [("req-1", 1), ("rec-000", 4), ("a", 3), ("chatcmpl-0123456789abcdef", 1)],
)
def test_partition_is_crc32(request_id: str, partition: int) -> None:
    """Pinned: a producer in another language computes the same."""
    assert partition_of(request_id, 8) == partition


def test_partitions_of_one() -> None:
    assert {partition_of(f"r{i}", 1) for i in range(50)} == {0}


@pytest.mark.parametrize("request_id", ["a", "A.b_c:d/e-1", "x" * 128])
def test_valid_request_ids(request_id: str) -> None:
    assert valid_request_id(request_id)


@pytest.mark.parametrize(
    "request_id",
    ["", "x" * 129, "a{b}", "a b", "a\n", "a\0", "é", "a}b", "a*", "a\r", "a\u2028", "１"],
    ids=repr,
)
def test_invalid_request_ids(request_id: str) -> None:
    """Nothing that could break a key name, a hash tag or a pattern; a trailing newline counts."""
    assert not valid_request_id(request_id)


@pytest.mark.parametrize(("name", "valid"), [("gw-1", True), ("a:b", False), ("", False), ("x" * 65, False)])
def test_reply_to_names(name: str, valid: bool) -> None:
    """No colon: a client must not name one of our own keys."""
    assert valid_reply_to(name) is valid


def test_key_names_are_pinned() -> None:
    names = Keys()
    assert [
        names.config, names.workers, names.jobs,
        names.chunks(3), names.bulk(3), names.open(3), names.dead(3), names.signals(3), names.owner(3),
        names.attempts(3), names.request(3, "r"), names.reply(3, "r"), names.status(3, "r"), names.reply_to(3, "gw"),
    ] == [
        "derender:config", "derender:workers", "derender:jobs",
        "derender:{3}:chunks", "derender:{3}:bulk", "derender:{3}:open", "derender:{3}:dead", "derender:{3}:signals",
        "derender:{3}:owner", "derender:{3}:attempts", "derender:{3}:request:r", "derender:{3}:reply:r",
        "derender:{3}:status:r", "derender:{3}:to:gw",
    ]  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "a:b", "{x}", "a b", "x" * 65])
def test_bad_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match=r"use 1 to 64 of A-Z a-z 0-9 \. _ -"):
        Keys(prefix)
