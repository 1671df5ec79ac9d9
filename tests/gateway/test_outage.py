"""Redis is restarted under the whole path: callers are told, streams carry on, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.conftest import redis_in
from tests.gateway import sse
from tests.gateway.conftest import stack_of
from tests.gateway.test_streams import begin, content

pytestmark = [pytest.mark.redis]

CHAT = "/v1/chat/completions/derender"


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
            assert answer.json()["error"]["type"] == "ServiceUnavailableError"
            assert (await client.get("/health")).status_code == 503
            assert (await client.get("/v1/streams/other")).status_code == 503
            server.start()
            seen = await asyncio.wait_for(reading, 40)
            assert (content(seen.data), seen.ended) == (text, True)
            assert seen.ids == list(range(1, len(seen.ids) + 1))
            again = await client.post(CHAT, json=body)
            assert again.json()["choices"][0]["message"]["content"] == " one"
