"""The HTTP feature as a drop-in: goldens over HTTP, the seed's examples as they are, status codes and limits."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.settings import GatewaySettings
from tests import shared_data
from tests.conftest import RedisServer
from tests.core import golden_runner as runner
from tests.core.test_goldens import DIFFERS, STRING_IN_LENGTH
from tests.engine import serving
from tests.gateway.conftest import MODEL, Stack, create_app, running_worker
from worker.core.errors import UnknownModel
from worker.core.model import Model
from worker.core.session import Session

pytestmark = [pytest.mark.redis]

CHAT = "/v1/chat/completions/derender"


class Served:
    """The model that a worker serves at the moment: goldens were made on servers of many configurations."""

    def __init__(self) -> None:
        self.model: Model | None = None

    def __call__(self, name: str | None) -> Model:
        assert self.model is not None
        if name and name != self.model.name:
            raise UnknownModel(f"model {name!r} is not served: use {self.model.name!r}", param="model")
        return self.model


@pytest.fixture(scope="module")
def golden_server(own_redis: RedisServer) -> Iterator[tuple[httpx.Client, Served]]:
    """A gateway with a worker of its own, under a key prefix of its own."""
    served = Served()
    app = create_app(own_redis.url, GatewaySettings(port=0), prefix="goldens")
    with (
        running_worker(own_redis.url, served, Session(served), key_prefix="goldens"),
        serving(app) as url,
        httpx.Client(base_url=url, timeout=20) as client,
    ):
        yield client, served


def over_http(client: httpx.Client, case: runner.Case) -> tuple[int, Any]:
    """Status and answer of a case, as `golden_runner.run` gives them, from the endpoint itself."""
    headers = case["request"].get("headers") or {"content-type": "application/json"}

    def post(body: Any) -> tuple[int, Any]:
        raw = body if isinstance(body, str) else json.dumps(body)
        answer = client.post(case["endpoint"], content=raw.encode(), headers=headers)
        return answer.status_code, answer.json()

    request = case["request"]
    if "raw" in request:
        return post(request["raw"])
    if "chunks" not in case:
        return post(request)
    states: dict[int, Any] = {}
    chunks = []
    for chunk in case["chunks"]:
        index = chunk["choices"][0]["index"] if chunk["choices"] else 0
        body = request | {"stream": True, "generate_chunk": chunk, "stream_state": states.get(index)}
        status, answer = post(body)
        if status != 200:
            return status, answer
        states[index] = answer["stream_state"]
        chunks.append(answer["chunk"])
    return 200, chunks


def goldens() -> list[runner.Case]:
    """The core set; with DERENDER_GOLDENS=all every case, some minutes of them."""
    chosen = None if os.environ.get("DERENDER_GOLDENS") == "all" else shared_data.golden_core_ids()
    return [case for case in shared_data.golden() if chosen is None or case["id"] in chosen]


@pytest.mark.shared
@pytest.mark.parametrize("case", shared_data.params(goldens()))
def test_goldens_over_http(golden_server: tuple[httpx.Client, Served], case: runner.Case) -> None:
    """Answers are those of the core, and on the plain path those of the golden file."""
    shared_data.count("golden")
    client, served = golden_server
    served.model = runner.model(case)
    status, answer = over_http(client, case)
    if case["id"] == "err-content-type":
        assert (status, answer["error"]["type"], answer["error"]["code"]) == (400, "Bad Request", 400)
        return
    expected_status, expected = runner.run(case)
    assert status == expected_status
    assert runner.without_created(answer) == runner.without_created(expected)
    if status == 200 and runner.is_plain(case) and not case.get("suspect") and "status" not in case:
        if case["category"] == "wire":
            assert runner.without_created(answer) == case["expected"]
        elif case["id"] not in DIFFERS | STRING_IN_LENGTH:
            assert runner.without_nulls(answer) == case["expected"]


# --- the seed's examples ----------------------------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize("name", ["example_batch.py", "example_stream.py"])
def test_the_seed_s_examples_run_as_they_are(stack: Stack, name: str) -> None:
    """Only host and model names are changed; the gateway is RENDER, the test engine is ENGINE."""
    shared_data.require()
    source = (shared_data.SHARED / "seed" / name).read_text()
    for old, new in (
        ("http://localhost:8100", stack.gateway),
        ("http://localhost:8200", stack.engine_url),
        ("meta-llama/Llama-3.2-1B-Instruct", MODEL),
    ):
        assert source.count(old) == 1
        source = source.replace(old, new)
    stack.says("2+2 is 4. 🎉")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, name, "exec"), {})
    said, *usage = printed.getvalue().splitlines()
    assert said == "2+2 is 4. 🎉"
    if name == "example_stream.py":
        counts = {"prompt_tokens": 37, "total_tokens": 48, "completion_tokens": 11}
        assert usage == [str(counts | {"prompt_tokens_details": None, "completion_tokens_details": None})]
    rendered = stack.engine.requests[-1]
    assert stack.models.default.vocabulary.decode(rendered["token_ids"]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert rendered["sampling_params"] == {"max_tokens": 32}


# --- what HTTP adds ---------------------------------------------------------------------------------------------------


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return answer.status_code, error["type"], error["message"]


def test_media_type_and_paths(stack: Stack) -> None:
    with httpx.Client(base_url=stack.gateway) as client:
        assert error_of(client.post(CHAT, content=b"{}", headers={"content-type": "text/plain"})) == (
            400,
            "Bad Request",
            "the media type has to be application/json, not 'text/plain'",
        )
        body = b'{"generate_response": {"choices": [{"index": 0, "token_ids": [582, 2]}]}}'
        with_charset = {"content-type": "Application/JSON; charset=utf-8"}
        assert (
            client.post(CHAT, content=body, headers=with_charset).json()["choices"][0]["message"]["content"] == " one"
        )
        assert error_of(client.get(CHAT)) == (405, "MethodNotAllowedError", f"{CHAT} does not take GET")
        assert error_of(client.post("/v1/nothing")) == (
            404,
            "NotFoundError",
            "there is no /v1/nothing: docs/gateway.md has the paths",
        )
        assert error_of(client.post(CHAT, content=b"{", headers=with_charset))[:2] == (400, "Bad Request")


def test_limits_of_size_and_time(own_redis: RedisServer, stack: Stack) -> None:
    """A body that is too long is refused with or without its length; without a worker's answer there is a 504."""
    settings = GatewaySettings(port=0, max_body_bytes=1000, timeout_s=0.3)
    with serving(create_app(own_redis.url, settings)) as url, httpx.Client(base_url=url) as client:
        long = json.dumps({"generate_response": {}, "padding": "x" * 1000}).encode()
        headers = {"content-type": "application/json"}
        too_long = (413, "PayloadTooLargeError", "the body is longer than 1000 bytes")
        assert error_of(client.post(CHAT, content=long, headers=headers)) == too_long
        assert error_of(client.post(CHAT, content=iter([long]), headers=headers)) == too_long
        assert client.get("/health").json() == {"status": "ok", "workers": 1}


def test_nobody_answers(own_redis: RedisServer, stack: Stack) -> None:
    async def set_up() -> None:
        from link.redis import connect

        redis = connect(own_redis.url)
        await redis.hset("alone:config", mapping={"partitions": "2", "wire_version": "1"})
        await redis.aclose()

    asyncio.run(set_up())
    app = create_app(own_redis.url, GatewaySettings(port=0, timeout_s=0.3), prefix="alone")
    with serving(app) as url, httpx.Client(base_url=url) as client:
        assert error_of(client.post(CHAT, json={})) == (504, "TimeoutError", "no worker answered within 0.3 s")
        health = client.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "no worker is alive", "workers": 0})


def test_five_hundred_calls_at_once(stack: Stack) -> None:
    """Each caller gets its own answer, over one reply_to stream."""

    async def main() -> list[str]:
        limits = httpx.Limits(max_connections=500)
        async with httpx.AsyncClient(base_url=stack.gateway, limits=limits, timeout=60) as client:

            async def one(number: int) -> str:
                ids = stack.ids(f"number {number}")
                body = {"generate_response": {"choices": [{"index": 0, "token_ids": ids}]}}
                answer = await client.post(CHAT, json=body)
                return str(answer.json()["choices"][0]["message"]["content"])

            return await asyncio.gather(*map(one, range(500)))

    assert asyncio.run(main()) == [f"number {number}" for number in range(500)]


def test_metrics(stack: Stack) -> None:
    with httpx.Client(base_url=stack.gateway) as client:
        client.post(CHAT, json={})
        lines = client.get("/metrics").text.splitlines()
    assert any(line.startswith(f'derender_gateway_requests_total{{code="400",endpoint="{CHAT}"}} ') for line in lines)
    assert "derender_gateway_waiting_requests 0.0" in lines


def test_answers_leave_nothing_behind(own_redis: RedisServer, stack: Stack) -> None:
    """A call that is answered on reply_to has no reply stream and no status: one call a chunk would fill Redis."""
    from link.redis import connect

    async def names() -> set[bytes]:
        redis = connect(own_redis.url)
        found = {key async for key in redis.scan_iter("derender:*") if b":reply:" in key or b":status:" in key}
        await redis.aclose()
        return found

    before = asyncio.run(names())
    with httpx.Client(base_url=stack.gateway) as client:
        for _ in range(5):
            client.post(CHAT, json={"generate_response": {"choices": [{"index": 0, "token_ids": [582, 2]}]}})
            client.post(CHAT, json={})
    assert asyncio.run(names()) == before
