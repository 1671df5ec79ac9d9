"""A request for an engine that no bridge serves is refused at once, and taken again when a bridge has come."""

from __future__ import annotations

import httpx
import pytest

from gateway.settings import GatewaySettings
from tests.conftest import RedisServer
from tests.gateway.conftest import MODEL, Stack, running_bridge, stack_of

pytestmark = pytest.mark.redis

QUEUE = "big"


@pytest.fixture(scope="module")
def stack(own_redis: RedisServer):  # type: ignore[no-untyped-def]
    with stack_of(own_redis, gateway=GatewaySettings(port=0, queue=(f"{MODEL}={QUEUE}",))) as running:
        yield running


def ask(stack: Stack, *, stream: bool) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    return httpx.post(f"{stack.gateway}/v1/chat/completions", json=body, timeout=30)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_no_bridge_lives(stack: Stack, stream: bool) -> None:
    """The stack's own bridge serves another queue."""
    answer = ask(stack, stream=stream)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["message"] == (
        f"no bridge to an engine of model {MODEL!r} is alive: start one: derender bridge --queue {QUEUE}"
    )


def test_a_bridge_comes(stack: Stack) -> None:
    stack.says("yes")
    with running_bridge(stack.redis.url, stack.engine_url, queue=QUEUE):
        answer = ask(stack, stream=False)
    assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "yes")
