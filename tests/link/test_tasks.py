"""Tasks end when they are told to, also those to which one cancellation gets lost."""

from __future__ import annotations

import asyncio
import logging

import pytest

from link.tasks import end, seen


async def test_a_loop_that_swallows_cancellations() -> None:
    """As `asyncio.wait_for` does in Python 3.11 when the result is there in the same moment."""
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end(task)
    assert (task.cancelled(), swallowed) == (True, 2)


async def test_several_tasks_in_all_states(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("x")

    async def fine() -> int:
        return 3

    tasks = [asyncio.create_task(fail()), asyncio.create_task(fine()), asyncio.create_task(asyncio.sleep(60))]
    await asyncio.sleep(0)
    await end(*tasks)
    assert [task.cancelled() for task in tasks] == [False, False, True]
    assert tasks[1].result() == 3
    with caplog.at_level(logging.ERROR):
        del tasks
        await asyncio.sleep(0)
    assert caplog.records == []


async def test_a_failure_that_nobody_awaits_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("x")

    task = asyncio.create_task(fail())
    task.add_done_callback(seen)
    await asyncio.sleep(0.01)
    del task
    assert caplog.records == []
