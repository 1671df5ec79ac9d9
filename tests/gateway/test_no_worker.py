"""Without a worker no call hangs: it is kept for a moment, as while the only worker is started again, then refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from gateway.settings import GatewaySettings
from schemas.inspect import INSPECT
from schemas.keys import Keys
from tests.conftest import DATA, RedisServer
from tests.engine import Engine, Generation, serving
from tests.gateway.conftest import EOS, MODEL, create_app, running_bridge, running_worker
from tests.gateway.test_streams import on_redis
from worker.core.session import Session
from worker.render import ENDPOINTS, Renderer
from worker.settings import ModelSettings
from worker.tokenizer_cache import ModelTable, load_model, load_template

pytestmark = [pytest.mark.redis]

WAIT_MS = 1500
REFUSED = {
    "error": {
        "message": "no worker has been alive for 1.5 s: start one: derender worker",
        "type": "ServiceUnavailableError",
        "param": None,
        "code": 503,
    }
}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/v1/models", None),
    ("GET", "/v1/parsers", None),
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/chat/completions", {**CHAT, "stream": True}),
    ("POST", "/v1/completions", {"model": MODEL, "prompt": "Hi"}),
    ("POST", "/v1/completions", {"model": MODEL, "prompt": "Hi", "stream": True}),
    ("POST", "/v1/chat/completions/render", CHAT),
    ("POST", "/v1/completions/render", {"model": MODEL, "prompt": "Hi"}),
    ("POST", "/v1/chat/completions/derender", {"generate_response": {"choices": []}}),
    ("POST", "/v1/completions/derender", {"generate_responses": []}),
    ("POST", INSPECT, {"context": {"kind": "chat"}, "chunks": []}),
]
"""Every path that a worker answers."""


@pytest.fixture(scope="module")
def models() -> ModelTable:
    settings = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=(MODEL,))
    return ModelTable([(load_model(settings), settings.served_model_name)])


@contextmanager
def worker(redis: RedisServer, models: ModelTable) -> Iterator[None]:
    template = load_template(ModelSettings(tokenizer=str(DATA / "smollm2")))
    renderer = Renderer(dict.fromkeys(models.names), {MODEL: template}.__getitem__, models)
    with running_worker(redis.url, models, Session(models, others=dict.fromkeys(ENDPOINTS, renderer))):
        yield


@pytest.fixture
def engine() -> Engine:
    return Engine(lambda _: Generation([[EOS]]), eos=frozenset({EOS}))


@pytest.fixture
def gateway(
    own_redis: RedisServer, models: ModelTable, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A gateway and a bridge that once had a worker."""
    monkeypatch.setattr("gateway.watch.WAIT_MS", WAIT_MS)
    monkeypatch.setattr("gateway.watch.LOOK_S", 0.1)
    monkeypatch.setattr("gateway.backend.LOOK_S", 0.1)
    with worker(own_redis, models):
        pass
    with (
        serving(engine.app) as engine_url,
        running_bridge(own_redis.url, engine_url, grace_s=0.2),
        serving(create_app(own_redis.url, GatewaySettings(port=0))) as url,
    ):
        yield url


async def test_every_call_is_refused(own_redis: RedisServer, gateway: str) -> None:
    """Those that came while a worker might still have come, and those that come later: all are told the same."""
    async with httpx.AsyncClient(base_url=gateway, timeout=20) as client:
        for moment in ("at once", "later"):
            answers = await asyncio.gather(*(client.request(how, path, json=body) for how, path, body in CALLS))
            found = [(answer.status_code, answer.headers.get("retry-after"), answer.json()) for answer in answers]
            assert found == [(503, "1", REFUSED)] * len(CALLS), moment
        health = await client.get("/health")
    assert (health.status_code, health.json()) == (503, {"status": "no worker is alive", "workers": 0})
    # what came later was not even published: only the calls of the first round are there for the next worker
    published = [await on_redis(own_redis.url, "XLEN", Keys().bulk(number)) for number in range(8)]
    assert sum(published) == len(CALLS)


async def test_a_worker_that_is_started_again_answers_what_came_meanwhile(
    own_redis: RedisServer, gateway: str, models: ModelTable
) -> None:
    async with httpx.AsyncClient(base_url=gateway, timeout=20) as client:
        asking = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        models_asked = asyncio.create_task(client.get("/v1/models"))
        await asyncio.sleep(0.2)
        with worker(own_redis, models):
            answer, served = await asyncio.gather(asking, models_asked)
    assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "")
    assert [one["id"] for one in served.json()["data"]] == [MODEL]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_last_worker_goes_while_the_engine_thinks(
    own_redis: RedisServer, gateway: str, models: ModelTable, engine: Engine, stream: bool
) -> None:
    """Nothing was said yet, so the client is told, and the request is aborted: nobody waits for it."""
    engine.script = lambda _: Generation([[EOS]], first_pause_s=30.0)
    async with httpx.AsyncClient(base_url=gateway, timeout=20) as client:
        with worker(own_redis, models):
            asking = asyncio.create_task(client.post("/v1/chat/completions", json={**CHAT, "stream": stream}))
            while not engine.requests:
                assert not asking.done(), asking.result().text
                await asyncio.sleep(0.01)
        answer = await asking
    assert (answer.status_code, answer.json()) == (503, REFUSED)
    entries = [await on_redis(own_redis.url, "XREVRANGE", Keys().chunks(number), "+", "-") for number in range(8)]
    request_id = engine.requests[0]["request_id"].encode()
    own = [fields for found in entries for _, fields in found if fields[b"request_id"] == request_id]
    assert [fields[b"control"] for fields in own if b"control" in fields] == [b"abort"]


async def test_a_stream_that_has_begun_goes_on_with_the_next_worker(
    own_redis: RedisServer, gateway: str, models: ModelTable, engine: Engine
) -> None:
    """What a client has something of is not ended, however long no worker is there."""
    text = " ".join(f"number {n}" for n in range(40))
    ids = models.default.vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
    engine.script = lambda _: Generation([[*ids, EOS]], pause_s=0.02)
    said = ""
    async with httpx.AsyncClient(base_url=gateway, timeout=20) as client, asyncio.timeout(20):
        with ExitStack() as stack:
            stack.enter_context(worker(own_redis, models))
            async with client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
                lines = answer.aiter_lines()
                assert (answer.status_code, await anext(lines)) == (200, "id: 1-0")
                stack.close()
                while (await client.get("/v1/models")).status_code != 503:
                    pass
                stack.enter_context(worker(own_redis, models))
                async for line in lines:
                    if line.startswith("data: {"):
                        said += json.loads(line[6:])["choices"][0]["delta"]["content"] or ""
    assert said == text
