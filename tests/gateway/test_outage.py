"""Redis is restarted under the whole path: callers are told, streams carry on, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.inspect import INSPECT
from tests.conftest import redis_in
from tests.gateway import sse
from tests.gateway.conftest import MODEL, stack_of
from tests.gateway.test_streams import begin, content, on_redis

pytestmark = [pytest.mark.redis]

CHAT = "/v1/chat/completions/derender"
AWAY = {"message": "Redis cannot be reached", "type": "ServiceUnavailableError", "param": None, "code": 503}
WITHOUT_REDIS: list[tuple[str, str, Any]] = [
    ("GET", "/v1/streams/other", None),
    ("GET", f"{INSPECT}/other", None),
    ("GET", "/v1/models", None),
    ("POST", "/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}),
    ("POST", "/v1/completions", {"model": MODEL, "prompt": "x", "stream": True}),
]
"""What is asked while Redis is away; all are told so, and nothing of addresses, keys or its own words."""


async def test_redis_is_restarted_in_mid_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.backend.RETRY_S", 0.3)
    options = ("--appendonly", "yes", "--appendfsync", "always")
    text = " ".join(f"number {n}" for n in range(60))
    body = {"generate_response": {"choices": [{"index": 0, "token_ids": [582, 2]}]}}
    with redis_in(tmp_path, *options) as server, stack_of(server) as stack:
        stack.says(text, pause_s=0.02)
        request_id = await begin(stack)
        reading = asyncio.create_task(sse.read(f"{stack.gateway}/v1/streams/{request_id}"))
        await asyncio.sleep(0.5)
        server.kill()
        async with httpx.AsyncClient(base_url=stack.gateway, timeout=20) as client:
            answer = await client.post(CHAT, json=body)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"] == AWAY
            assert (await client.get("/health")).status_code == 503
            for how, path, more in WITHOUT_REDIS:
                answer = await client.request(how, path, json=more)
                assert (answer.status_code, answer.json()["error"]) == (503, AWAY), path
            server.start()
            seen = await asyncio.wait_for(reading, 40)
            assert (content(seen.data), seen.ended) == (text, True)
            assert seen.ids == list(range(1, len(seen.ids) + 1))
            again = await client.post(CHAT, json=body)
            assert again.json()["choices"][0]["message"]["content"] == " one"


async def test_a_full_redis_is_not_said_to_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What Redis said is in the log, with the key; the client hears that it is to try again."""
    monkeypatch.setattr("gateway.backend.RETRY_S", 0.1)
    with redis_in(tmp_path) as server, stack_of(server) as stack:
        await on_redis(server.url, "CONFIG", "SET", "maxmemory", "1")
        async with httpx.AsyncClient(base_url=stack.gateway, timeout=20) as client:
            answer = await client.get("/v1/models")
        await on_redis(server.url, "CONFIG", "SET", "maxmemory", "0")
    message = "Redis does not take requests now: try again later"
    assert (answer.status_code, answer.json()["error"]) == (503, {**AWAY, "message": message})
    logged = [record.getMessage() for record in caplog.records if record.name == "gateway.backend"]
    assert len(logged) == 1
    pattern = r"a request was not taken: derender:\{\d\}:bulk: command not allowed when used memory > 'maxmemory'\."
    assert re.fullmatch(pattern, logged[0]), logged
