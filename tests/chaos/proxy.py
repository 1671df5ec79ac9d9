"""A TCP proxy on loopback whose network can fail: refuse connections, or go silent as when packets are dropped."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Proxy:
    """Forwards to a local port. Use as `async with`.

    silence(): what is on its way stays there, new connections are accepted and not answered; nobody is told.
    heal(): what was held is delivered, late, as a network would after retransmission.
    refuse(): connections are reset, new ones refused; accept(): the opposite.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.held = 0  # bytes that waited for heal()
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def __aenter__(self) -> Proxy:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    async def accept(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def silence(self) -> None:
        self._passing.clear()

    def heal(self) -> None:
        self._passing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._passing.wait()
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            self._tasks.discard(task)
            self._writers.discard(writer)
            return
        self._writers.add(up_writer)
        try:
            await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer))
        except asyncio.CancelledError:
            pass  # refuse() ended us; the server would report a cancelled handler as an error
        finally:
            for end in (writer, up_writer):
                end.transport.abort()
                self._writers.discard(end)
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not self._passing.is_set():
                    self.held += len(data)
                    await self._passing.wait()
                writer.write(data)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            if not writer.transport.is_closing():
                writer.write_eof()
