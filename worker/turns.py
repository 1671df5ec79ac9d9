"""Whose turn it is to work on whole responses: one partition of a process at a time; live chunks wait for that one."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

LIVE_S = 0.25
"""A process that had no live chunk for this long has nobody who waits for one."""


class Turns:
    """Tickets in the order in which they were asked for; each holder has the turn until it gives it back."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._holder: asyncio.Future[None] | None = None
        self._live_at = float("-inf")
        self.suspect = asyncio.Lock()
        """Held from the count of an attempt at an entry where somebody died to its publish: if this process dies of it,
        no entry of another partition is counted as well."""

    def ask(self) -> asyncio.Future[None]:
        """A ticket: done when its turn has come. Has to be given back, also by who did not wait for it."""
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._holder is None:
            self._holder = ticket
            ticket.set_result(None)
        else:
            self._waiting.append(ticket)
        return ticket

    def give_back(self, ticket: asyncio.Future[None]) -> None:
        if self._holder is not ticket:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            return
        self._holder = self._waiting.popleft() if self._waiting else None
        if self._holder is not None:
            self._holder.set_result(None)

    def live(self) -> None:
        """A live chunk came."""
        self._live_at = monotonic()

    @property
    def somebody_is_live(self) -> bool:
        return monotonic() - self._live_at < LIVE_S
