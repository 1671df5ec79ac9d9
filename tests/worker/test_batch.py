"""What a dead letter keeps of an entry; the rest of a batch is tested with the drain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import keys
from worker.batch import MAX_DEAD_FIELDS, kept


@pytest.mark.parametrize(
    ("fields", "room", "expected"),
    [
        ({b"a": b"12", b"b": b""}, 4, ([b"a", b"12", b"b", b""], 0)),
        ({b"a": b"x" * 100, b"b": b"12", b"c": b"y" * 100}, 43, ([b"a", b"x" * 19, b"b", b"12", b"c", b"y" * 19], 162)),
        ({b"n" * 100: b"v"}, 10, ([b"n" * 10, b""], 91)),
        ({b"reason": b"forged", b"cut": b"9", b"a": b"1"}, 100, ([b"a", b"1"], 0)),
    ],
    ids=["whole", "long ones share", "a long name", "names of the letter's own"],
)
def test_kept(fields: dict[bytes, bytes], room: int, expected: tuple[list[bytes], int]) -> None:
    assert kept(fields, room) == expected


@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=200), max_size=20), st.integers(0, 3000))
def test_what_is_kept_has_room_and_adds_up(fields: dict[bytes, bytes], room: int) -> None:
    own = {name: value for name, value in fields.items() if name not in keys.LETTER}
    words, left_out = kept(fields, room)
    size = sum(map(len, words))
    assert size <= room
    assert size + left_out == sum(len(name) + len(value) for name, value in own.items())
    for (name, value), (kept_name, kept_value) in zip(
        own.items(), zip(words[::2], words[1::2], strict=True), strict=True
    ):
        assert (name[: len(kept_name)], value[: len(kept_value)]) == (kept_name, kept_value)
    if left_out == 0:
        assert words == [part for pair in own.items() for part in pair]


def test_more_fields_than_a_command_may_have() -> None:
    words, left_out = kept({b"%d" % n: b"x" for n in range(MAX_DEAD_FIELDS + 10)}, 10**6)
    assert (len(words), left_out) == (2 * MAX_DEAD_FIELDS, 10 * (4 + 1))
