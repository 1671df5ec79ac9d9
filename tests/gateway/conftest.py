"""The whole path on loopback: Redis, a worker, a bridge to the test engine, and the gateway; one of each a module."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.app import create_app
from gateway.bridge import Bridge, engine_client
from gateway.settings import BridgeSettings, GatewaySettings
from producer.generate import GenerateQueue
from producer.publish import Producer
from tests.conftest import DATA, RedisServer, redis_in
from tests.engine import Engine, Generation, serving
from worker.core.model import ParserConfig
from worker.core.session import Session
from worker.main import WorkerProcess
from worker.render import ENDPOINTS, Renderer
from worker.settings import ModelSettings, Settings
from worker.tokenizer_cache import ModelTable, load_model, load_template

MODEL = "smollm2-135m-instruct"
EOS = 2


@contextmanager
def background(start: Callable[[], Coroutine[Any, Any, Callable[[], Any]]]) -> Iterator[None]:
    """Run an event loop in a thread. `start` begins work there and returns what stops it, called in that loop."""
    ready, stop = threading.Event(), threading.Event()
    failure: list[BaseException] = []

    async def main() -> None:
        end = await start()
        ready.set()
        await asyncio.to_thread(stop.wait)
        await end()

    def run() -> None:
        try:
            asyncio.run(main())
        except Exception as error:  # noqa: BLE001  raised again where the thread was started
            failure.append(error)
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait(20)
    try:
        if failure:
            raise failure[0]
        yield
    finally:
        stop.set()
        thread.join(20)
    if failure:
        raise failure[0]


@contextmanager
def running_worker(url: str, models: ModelTable, session: Session, **settings: Any) -> Iterator[None]:
    async def start() -> Callable[[], Any]:
        process = WorkerProcess(Settings(redis_url=url, **settings), models, session=session)
        task = asyncio.create_task(process.run())
        await process.ready.wait()

        async def end() -> None:
            process.stop()
            await task

        return end

    with background(start):
        yield


@contextmanager
def running_bridge(url: str, engine: str, **settings: Any) -> Iterator[None]:
    async def start() -> Callable[[], Any]:
        options = BridgeSettings(engine=engine, **settings)
        producer = await Producer.connect(url)
        client = engine_client(options)
        queue = GenerateQueue(producer.redis, producer.partitions, queue=options.queue, consumer=f"bridge-{id(client)}")
        bridge = Bridge(producer, queue, client, options)
        task = asyncio.create_task(bridge.run())
        await bridge.ready.wait()

        async def end() -> None:
            bridge.stop()
            await task
            await client.aclose()
            await producer.aclose()

        return end

    with background(start):
        yield


@dataclass
class Stack:
    """What a test talks to. Set `engine.script` to say what the engine generates."""

    redis: RedisServer
    gateway: str
    engine_url: str
    engine: Engine
    models: ModelTable
    texts: dict[str, str] = field(default_factory=dict)

    def ids(self, text: str, *, eos: bool = True) -> list[int]:
        ids: list[int] = self.models.default.vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
        return [*ids, EOS] if eos else ids

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for something that happens elsewhere; fails after 10 s."""
        until = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < until, "nothing happened"
            time.sleep(0.01)

    def says(self, *texts: str, **options: Any) -> None:
        """From now on the engine says these texts, one for each choice."""
        generation = Generation([self.ids(text) for text in texts], **options)
        self.engine.script = lambda _: generation


@contextmanager
def stack_of(
    redis: RedisServer,
    *,
    parsers: ParserConfig | None = None,
    gateway: GatewaySettings | None = None,
    url_of: Callable[[str], str] | None = None,
    **worker: Any,
) -> Iterator[Stack]:
    """url_of: URL of Redis for a role; None: the same for all."""
    settings = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=(MODEL, "other-name"))
    models = ModelTable([(load_model(settings, parsers), settings.served_model_name)])
    renderer = Renderer(dict.fromkeys(models.names), {MODEL: load_template(settings)}.__getitem__, models)
    session = Session(models, others=dict.fromkeys(ENDPOINTS, renderer))
    engine = Engine(lambda _: Generation([[EOS]]), eos=frozenset({EOS}))
    with (
        running_worker(url_of("worker") if url_of else redis.url, models, session, **worker),
        serving(engine.app) as engine_url,
        running_bridge(url_of("bridge") if url_of else redis.url, engine_url, claim_after_s=2.0, grace_s=0.2),
        serving(create_app(url_of("gateway") if url_of else redis.url, gateway or GatewaySettings(port=0))) as url,
    ):
        yield Stack(redis, url, engine_url, engine, models)


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_in(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def stack(own_redis: RedisServer) -> Iterator[Stack]:
    with stack_of(own_redis) as running:
        yield running
