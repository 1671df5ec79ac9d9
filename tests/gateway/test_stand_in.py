"""The stand-in for an engine: what it reads of a recording, what it answers, and the whole path with it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgspec
import pytest

from derender.demo import expected_texts
from derender.replay import DATA, DEMO_RECORDING
from gateway.settings import GatewaySettings
from gateway.stand_in import Recorded, StandIn, recorded
from producer.replay import Event, read_recording
from schemas.generate import GENERATE, GenerateChoice
from tests.conftest import RedisServer
from tests.engine import serving
from tests.gateway import sse
from tests.gateway.conftest import MODEL, create_app, running_bridge, running_worker
from worker.core.session import Session
from worker.render import ENDPOINTS, Renderer
from worker.settings import ModelSettings
from worker.tokenizer_cache import ModelTable, load_model, load_template


def opened(request_id: str, prompt: object) -> Event:
    context = msgspec.Raw(json.dumps({"prompt_token_ids": prompt}).encode())
    return Event(0, "open", request_id, context=context)


def chunk(request_id: str, *choices: dict[str, Any], prompt: int | None = None) -> Event:
    return Event(0, "chunk", request_id, chunk=msgspec.Raw(json.dumps({"choices": choices}).encode()), prompt=prompt)


EVENTS = [
    opened("a", [1, 2]),
    opened("b", [[3], [4, 5]]),
    chunk("a", {"index": 0, "token_ids": [10, 11]}),
    chunk("a", {"index": 1, "token_ids": [20]}, {"index": 0, "token_ids": [12], "finish_reason": "stop"}),
    chunk("b", {"index": 0, "token_ids": [40], "finish_reason": "stop", "stop_reason": 40}, prompt=1),
    chunk("a", {"index": 1, "token_ids": [21], "finish_reason": "length"}),
    opened("silent", [6]),
    opened("again", [1, 2]),
    chunk("again", {"index": 0, "token_ids": [13], "finish_reason": "stop"}),
    Event(1, "done", "a"),
]


def test_a_recording_is_read_by_prompt_and_choice() -> None:
    assert recorded(EVENTS) == [
        Recorded((1, 2), {0: GenerateChoice(0, [10, 11, 12], "stop"), 1: GenerateChoice(1, [20, 21], "length")}),
        Recorded((4, 5), {0: GenerateChoice(0, [40], "stop", 40)}),
        Recorded((1, 2), {0: GenerateChoice(0, [13], "stop")}),
    ]


@pytest.mark.parametrize(
    ("index", "max_tokens", "expected"),
    [
        (0, None, GenerateChoice(0, [10, 11, 12], "stop")),
        (0, 3, GenerateChoice(0, [10, 11, 12], "stop")),
        (0, 2, GenerateChoice(0, [10, 11], "length")),
        (3, None, GenerateChoice(3, [20, 21], "length")),
    ],
)
def test_a_choice(index: int, max_tokens: int | None, expected: GenerateChoice) -> None:
    assert recorded(EVENTS)[0].choice(index, max_tokens) == expected


def ask(base: str, prompt: list[int], **more: Any) -> httpx.Response:
    params = {name: more.pop(name) for name in ("n", "max_tokens") if name in more}
    return httpx.post(f"{base}{GENERATE}", json={"token_ids": prompt, "sampling_params": params, **more}, timeout=20)


def said(body: dict[str, Any]) -> list[tuple[int, list[int], str | None]]:
    return [(one["index"], one["token_ids"], one["finish_reason"]) for one in body["choices"]]


def test_its_answers() -> None:
    """A recorded prompt gets its own recording, any other one the next in turn."""
    with serving(StandIn(recorded(EVENTS)).app) as base:
        assert [said(ask(base, prompt).json()) for prompt in ([4, 5], [7], [7], [7], [1, 2])] == [
            [(0, [40], "stop")],
            [(0, [10, 11, 12], "stop")],
            [(0, [40], "stop")],
            [(0, [13], "stop")],
            [(0, [10, 11, 12], "stop")],
        ]
        stream = ask(base, [1, 2], n=2, max_tokens=2, stream=True, stream_options={"include_usage": True})
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, last, done = [part.removeprefix("data: ") for part in stream.text.split("\n\n")[:-1]]
        assert [said(json.loads(event)) for event in events] == [
            [(0, [10], None)],
            [(1, [20], None)],
            [(0, [11], "length")],
            [(1, [21], "length")],
        ]
        usage = json.loads(last)["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"], done) == (2, 4, 6, "[DONE]")
        wrong = [ask(base, [1], n=0), ask(base, [-1]), httpx.post(f"{base}{GENERATE}", content=b"{}")]
        assert [(one.status_code, one.json()["error"]["code"]) for one in wrong] == [(400, 400)] * 3


@pytest.mark.redis
async def test_the_front_doors_with_it(own_redis: RedisServer) -> None:
    """A client that asks what was asked in the recording gets the recorded text."""
    settings = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=(MODEL,))
    models = ModelTable([(load_model(settings), settings.served_model_name)])
    renderer = Renderer(dict.fromkeys(models.names), {MODEL: load_template(settings)}.__getitem__, models)
    stand_in = StandIn(recorded(read_recording(DEMO_RECORDING)))
    with (
        running_worker(own_redis.url, models, Session(models, others=dict.fromkeys(ENDPOINTS, renderer))),
        serving(stand_in.app) as engine,
        running_bridge(own_redis.url, engine, grace_s=0.2),
        serving(create_app(own_redis.url, GatewaySettings(port=0))) as base,
    ):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "List five fruits, one per line."}]}
        async with httpx.AsyncClient(timeout=20) as client:
            whole = (await client.post(f"{base}/v1/chat/completions", json=body)).json()
            stream = await client.post(f"{base}/v1/chat/completions", json=body | {"stream": True})
        seen = await sse.read(f"{base}/v1/streams/{stream.headers['x-request-id']}")
    expected = expected_texts(DATA / "demo.expected.jsonl")["rec-004"][0]
    texts = [json.loads(one)["choices"][0]["delta"]["content"] or "" for one in seen.data]
    assert whole["choices"][0]["message"]["content"] == "".join(texts) == expected
