"""Ending asyncio tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any


def seen(task: asyncio.Future[Any]) -> None:
    """Take note of a task's exception, so that asyncio does not report it as overlooked."""
    if not task.cancelled():
        task.exception()


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and again until they have ended; their results and exceptions are left in them.

    Who is cancelled meanwhile is so after that. Once is not enough: redis-py looks at a connection for 0 seconds before
    it uses it, and sends through `asyncio.wait_for`; a cancellation that meets their end is lost (Python 3.11). A loop
    that is cancelled then goes on, and whoever waits for it hangs.
    """
    left, cancelled = {task for task in tasks if not task.done()}, None
    while left:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=1.0)  # time to clean up in
        except asyncio.CancelledError as error:
            cancelled = error
        left = {task for task in left if not task.done()}
    for task in tasks:
        seen(task)
    if cancelled is not None:
        raise cancelled
