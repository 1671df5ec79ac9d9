"""A real redis-server for tests, and the same logic on fakeredis."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from link.redis import connect
from schemas.keys import Keys
from worker.core.model import Model
from worker.settings import ModelSettings
from worker.streams import embedded
from worker.tokenizer_cache import load_model

pytest_plugins = ["tests.shared_summary"]

DATA = Path(__file__).parents[1] / "derender" / "data"
ON_CI = os.environ.get("CI") == "true"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """A redis-server on a free loopback port; killed or stopped, it can be started again there."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Skips the test where redis-server is not installed; on CI that is a failure."""
        binary = shutil.which("redis-server")
        if binary is None:
            (pytest.fail if ON_CI else pytest.skip)("redis-server is not installed")
        self.port = free_port()
        self._command = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self._command += options
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def url_as(self, role: str) -> str:
        """The URL for one of the users of deploy/acl, with the password that stands there."""
        return self.url.replace("//", f"//derender-{role}:CHANGE-ME@")

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(16).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                pytest.fail("redis-server did not start")
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=10)


@contextmanager
def redis_in(folder: Path, *options: str) -> Iterator[RedisServer]:
    """A server of a test's own."""
    server = RedisServer(folder, *options)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for the whole run; each test begins with it empty (`real_redis`, `server_url`)."""
    with redis_in(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def real_redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = connect(redis_server.url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
async def server_url(redis_server: RedisServer, real_redis: Redis) -> str:
    """URL of the empty server, for other processes."""
    return redis_server.url


@pytest.fixture(params=["fakeredis", pytest.param("redis-server", marks=pytest.mark.redis)])
async def redis(request: pytest.FixtureRequest) -> AsyncIterator[Redis]:
    """An empty Redis of either kind: what is tested here must hold on both."""
    if request.param == "fakeredis":
        client = embedded()
    else:
        client = connect(request.getfixturevalue("redis_server").url)
        await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
def names() -> Keys:
    return Keys()


@pytest.fixture(scope="session")
def smollm2() -> Model:
    return load_model(ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=("smollm2-135m-instruct",)))
