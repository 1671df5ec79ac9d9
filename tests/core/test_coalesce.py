"""Merged chunks say what their parts say, and only plain runs are merged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.coalesce import coalesce
from worker.core.model import Model
from worker.core.session import Entry, Open, Session

IDS = (19556, 28, 905, 17, 233, 190, 126)
CONTEXT = b'{"kind": "chat", "created": 1700000000}'


def entry(n: int, request_id: str = "r", *, ids: tuple[int, ...] = (17,), seq: int | None = None, **more: Any) -> Entry:
    fields = {b"request_id": request_id.encode()}
    if seq is not None:
        fields[b"seq"] = b"%d" % seq
    choice = {"index": 0, "token_ids": ids, "finish_reason": None, **more}
    fields[b"chunk"] = json.dumps({"choices": [choice]}).encode()
    return Entry(b"1700000000000-%d" % n, fields)


def control(n: int, request_id: str = "r") -> Entry:
    return Entry(b"1700000000000-%d" % n, {b"request_id": request_id.encode(), b"control": b"done"})


def shape(entries: list[Entry]) -> list[tuple[int, ...]]:
    """Numbers of the entries that each of the merged ones stands for."""
    return [tuple(int(part.id.partition(b"-")[2]) for part in one.parts or (one,)) for one in entries]


def unnumbered(_: bytes) -> None:
    return None


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([entry(1)], [(1,)], id="one"),
        pytest.param([entry(1), entry(2), entry(3)], [(1, 2, 3)], id="a run"),
        pytest.param([entry(1, "a"), entry(2, "b"), entry(3, "a"), entry(4, "b")], [(1, 3), (2, 4)], id="interleaved"),
        pytest.param([entry(1), control(2), entry(3), entry(4)], [(1,), (2,), (3, 4)], id="a control between"),
        pytest.param([entry(1), entry(2, finish_reason="stop"), entry(3)], [(1, 2), (3,)], id="a finish ends it"),
        pytest.param([entry(1), entry(2, index=1), entry(3, index=1)], [(1,), (2, 3)], id="another choice"),
        pytest.param([entry(1), entry(2, logprobs={"content": []})], [(1,), (2,)], id="logprobs from now on"),
        pytest.param([entry(1, seq=0), entry(2, seq=1)], [(1,), (2,)], id="numbers that nobody expects"),
    ],
)
def test_which_entries_are_merged(entries: list[Entry], expected: list[tuple[int, ...]]) -> None:
    assert shape(coalesce(entries, unnumbered)) == expected


@pytest.mark.parametrize(
    ("seqs", "expected"),
    [
        pytest.param((5, 6, 7), [(0, 1, 2)], id="in order"),
        pytest.param((4, 5, 6), [(0,), (1,), (2,)], id="the first was seen before: too rare for a rule of its own"),
        pytest.param((5, 7, 8), [(0,), (1,), (2,)], id="a gap"),
    ],
)
def test_numbered_requests_are_merged_where_the_numbers_fit(seqs: tuple[int, ...], expected: list[Any]) -> None:
    entries = [entry(n, seq=seq) for n, seq in enumerate(seqs)]
    assert shape(coalesce(entries, lambda _: 5)) == expected


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b'{"choices": []}',
        b'{"choices": [{"index": 0}], "usage": {}}',
        b'{"choices": [{"index": 0}, {"index": 1}]}',
    ],
)
def test_what_is_no_plain_chunk_stays_as_it_is(payload: bytes) -> None:
    odd = Entry(b"1-1", {b"request_id": b"r", b"chunk": payload})
    assert coalesce([odd, odd], unnumbered) == [odd, odd]


def said(session: Session, entries: list[Entry]) -> tuple[str, list[Any], str | None, bytes]:
    """Text, logprobs, finish reason and last state of a request that is opened first."""
    opening = Entry(b"1700000000000-0", {b"request_id": b"r", b"seq": b"0", b"open": LOGPROBS})
    opened: Open | None = session.fold(opening, None, None).open
    text, logprobs, finish, state = "", [], None, b""
    for one in entries:
        outcome = session.fold(one, opened, None)
        assert outcome.dead is None
        opened = outcome.open
        for reply in outcome.replies:
            state = reply.fields[b"stream_state"]
            [choice] = json.loads(reply.fields[b"chunk"])["choices"]
            text += choice["delta"]["content"] or ""
            logprobs += choice["logprobs"]["content"]
            finish = choice["finish_reason"]
    return text, logprobs, finish, state


LOGPROBS = b'{"kind": "chat", "created": 1700000000, "chat_request": {"messages": [], "logprobs": true}}'


@given(chunks=st.lists(st.lists(st.sampled_from(IDS), max_size=3), min_size=1, max_size=8), data=st.data())
def test_it_does_not_matter_what_is_merged(smollm2: Model, chunks: list[list[int]], data: st.DataObject) -> None:
    """Equal text, logprobs, finish reason and last state, for any cut into batches."""
    session = Session(lambda _: smollm2)
    entries = [
        entry(
            n, ids=tuple(ids), seq=n, finish_reason="length" if n == len(chunks) else None,
            logprobs={"content": [{"token_id": id_, "logprob": -0.5} for id_ in ids]},
        )
        for n, ids in enumerate(chunks, 1)
    ]  # fmt: skip
    merged: list[Entry] = []
    at = 0
    while at < len(entries):
        size = data.draw(st.integers(1, len(entries) - at), label="batch")
        batch, first = entries[at : at + size], at + 1
        merged += coalesce(batch, lambda _, first=first: first)  # type: ignore[misc]
        at += size
    assert said(session, merged) == said(session, entries)
