"""Ending asyncio tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any


def seen(task: asyncio.Future[Any]) -> None:
    """Take note of a task's exception, so that asyncio does not report it as overlooked."""
    if not task.cancelled():
        task.exception()


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and again until they have ended; their results and exceptions are left in them.

    Who is cancelled meanwhile is so after that.

    Once is not enough: `asyncio.wait_for` of Python 3.11, through which redis-py sends every command, swallows a
    cancellation that meets its result. A loop that is cancelled then goes on, and whoever waits for it hangs.
    """
    left = {task for task in tasks if not task.done()}
    cancelled = None
    while left:
        for task in left:
            task.cancel()
        try:
            _, left = await asyncio.wait(left, timeout=1.0)  # time to clean up in
        except asyncio.CancelledError as error:
            cancelled = error
            left = {task for task in left if not task.done()}
    for task in tasks:
        seen(task)
    if cancelled is not None:
        raise cancelled
