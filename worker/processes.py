"""Several worker processes on one machine: start them, start again what died, end them together.

Each is a worker of its own that takes its share of the partitions, as if it had been started by hand.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from link.redis import Backoff

logger = logging.getLogger(__name__)

START_S = 10.0
"""A worker that fails with a message sooner than this cannot start, and would not the next time."""

STOP_S = 15.0
"""How long workers may take to leave their partitions; then they are killed."""

SAID_WHY = (1, 2)
"""Exit codes of `derender` that come with a message: it cannot work, or its options are wrong."""


class Processes:
    """Keeps one process running for each command until `stop`."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self.commands = commands
        self.running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._code = 0

    def stop(self) -> None:
        """Ask every process to end (SIGTERM). Safe from a signal handler."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    async def run(self) -> int:
        """Until `stop`, or until one cannot start. Returns 0, or the exit code of the one that could not."""
        keepers = [asyncio.create_task(self._keep(number)) for number in range(len(self.commands))]
        await self._stopping.wait()
        _, late = await asyncio.wait(keepers, timeout=STOP_S)
        if late:
            logger.error("%d processes did not end in %.0f s and are killed", len(late), STOP_S)
            self._signal(signal.SIGKILL)
        await asyncio.gather(*keepers)
        return self._code

    def _signal(self, number: signal.Signals) -> None:
        for process in self.running.values():
            if process.returncode is None:
                # Not by the process object: it would look for the end itself and take the exit code from asyncio.
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff()
        while not self._stopping.is_set():
            begin = loop.time()
            process = self.running[number] = await asyncio.create_subprocess_exec(*self.commands[number])
            if self._stopping.is_set():  # stopped while this one was on its way
                self._signal(signal.SIGTERM)
            code = await process.wait()
            if self._stopping.is_set():
                return
            lived_s = loop.time() - begin
            if lived_s < START_S and code in SAID_WHY:
                self._code = code
                self.stop()
                return
            logger.error("process %d (pid %d) ended with %d: it is started again", number, process.pid, code)
            if lived_s >= START_S:
                backoff.reset()
            await backoff.wait()


def keep_running(commands: Sequence[Sequence[str]]) -> int:
    """Run the commands until SIGTERM or SIGINT; the exit code."""

    async def main() -> int:
        processes = Processes(commands)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, processes.stop)
        return await processes.run()

    return asyncio.run(main())
