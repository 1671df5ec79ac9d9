"""Turns at whole responses: one holder at a time, in order, and nobody waits for one that went away."""

from __future__ import annotations

import pytest

from worker import turns
from worker.turns import Turns


async def test_tickets_come_up_in_order() -> None:
    queue = Turns()
    tickets = [queue.ask() for _ in range(3)]
    seen = []
    for ticket in tickets:
        seen.append([one.done() for one in tickets])
        queue.give_back(ticket)
    assert seen == [[True, False, False], [True, True, False], [True, True, True]]
    assert queue.ask().done()


async def test_who_stops_waiting_is_passed_over() -> None:
    queue = Turns()
    first, second, third = (queue.ask() for _ in range(3))
    queue.give_back(second)
    queue.give_back(second)  # again: changes nothing
    queue.give_back(first)
    assert (second.done(), third.done()) == (False, True)


def test_somebody_is_live_for_a_while_after_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(turns, "monotonic", lambda: now)
    queue = Turns()
    assert not queue.somebody_is_live
    queue.live()
    assert queue.somebody_is_live
    now += turns.LIVE_S
    assert not queue.somebody_is_live
