"""A real redis-server for tests, and the same logic on fakeredis."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
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


@dataclass
class RedisServer:
    """A redis-server on a free loopback port."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_redis(folder: Path, *options: str, port: int | None = None) -> RedisServer:
    """Start a server and wait until it answers. Skips where there is none; on CI that is a failure."""
    binary = shutil.which("redis-server")
    if binary is None:
        message = "redis-server is not installed"
        if ON_CI:
            pytest.fail(message)
        pytest.skip(message)
    port = port or free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 10
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                if probe.recv(16).startswith(b"+PONG"):
                    return RedisServer(port, process)
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            pytest.fail("redis-server did not start")
        time.sleep(0.02)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for the whole run; each test begins with it empty (`real_redis`, `server_url`)."""
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.terminate()
    server.process.wait(timeout=10)


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
