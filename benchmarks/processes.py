"""Processes of a benchmark: a Redis of its own, children that take orders, and the CPU that each of them used."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis


def cpu_s(pid: int) -> float:
    """CPU seconds of another process, all threads, by the kernel's clock of that process (Linux)."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


class Server:
    """A redis-server on a free loopback port, without persistence."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self.url = f"redis://127.0.0.1:{port}/0"
        self.client: Any = redis.Redis(port=port)

    @property
    def version(self) -> str:
        return str(self.client.info("server")["redis_version"])


@contextmanager
def redis_server() -> Iterator[Server]:
    """Start a server and stop it in the end. Raises FileNotFoundError where there is no redis-server."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            server = Server(process, port)
            for _ in range(200):
                try:
                    server.client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.02)
            yield server
        finally:
            process.terminate()
            process.wait(10)


class Child:
    """One of `benchmarks.roles` in a process of its own: an order is a line of JSON, an answer is another one."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.roles", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self.answer()  # it is ready

    def order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Raises EOFError when the child died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"child {self.pid} ended with {self._process.wait(10)}")
        return json.loads(line)

    def ask(self, **order: Any) -> Any:
        self.order(**order)
        return self.answer()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def children(*roles: tuple[str, ...]) -> Iterator[list[Child]]:
    """Start a child for each role and end them all in the end."""
    started: list[Child] = []
    try:
        for role in roles:
            started.append(Child(*role))
        yield started
    finally:
        for child in started:
            child.close()
