"""The test engine answers each recorded request with the recorded bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import shared_data
from tests.engine import Engine, Generation, serving

RECORDED = sorted((shared_data.SHARED / "recordings").glob("engine-*.request.json")) if shared_data.PRESENT else []


def recorded_events(answer: str) -> Iterator[dict[str, Any]]:
    for line in answer.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def generation_of(answer: str, *, stream: bool) -> Generation:
    """The script that makes the engine say a recorded answer again."""
    events = list(recorded_events(answer)) if stream else [json.loads(answer)]
    choices = [choice for event in events for choice in event["choices"]]
    n = 1 + max(choice["index"] for choice in choices)
    ids: list[list[int]] = [[] for _ in range(n)]
    logprobs: list[list[dict[str, Any]]] = [[] for _ in range(n)]
    for choice in choices:
        ids[choice["index"]] += choice["token_ids"]
        logprobs[choice["index"]] += (choice["logprobs"] or {}).get("content", [])
    return Generation(ids, logprobs, order=[choice["index"] for choice in choices] if stream else ())


@pytest.mark.shared
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".request.json"))
def test_engine_says_what_was_recorded(path: Any) -> None:
    shared_data.count("recordings")
    request = json.loads(path.read_text())
    stem = path.with_name(path.name.removesuffix(".request.json"))
    stream = stem.with_suffix(".sse").exists()
    expected = stem.with_suffix(".sse" if stream else ".json").read_text()
    created = 0 if stream else json.loads(expected).get("created")
    generation = Generation([[0]])
    if "error" not in path.name:
        generation = generation_of(expected, stream=stream)
    engine = Engine(lambda _: generation, eos=frozenset({151645}), created=created)
    with serving(engine.app) as url, httpx.Client() as client:
        answer = client.post(f"{url}/inference/v1/generate", json=request)
    assert answer.text.rstrip("\n") == expected.rstrip("\n")
    assert answer.status_code == (400 if "error" in path.name else 200)


def test_a_client_that_goes_away_is_noticed() -> None:
    engine = Engine(lambda _: Generation([[5] * 1000], pause_s=0.01))
    body = {"token_ids": [1], "request_id": "r", "stream": True, "sampling_params": {}}
    with serving(engine.app) as url:
        with httpx.stream("POST", f"{url}/inference/v1/generate", json=body) as answer:
            next(answer.iter_lines())
        for _ in range(500):
            if engine.closed:
                break
            httpx.get(url)
    assert (engine.closed, engine.finished, engine.running) == (["generate-tokens-r"], [], 0)


def test_errors_and_broken_connections_come_as_scripted() -> None:
    scripts = [Generation([[5] * 9], error_after=2), Generation([[5] * 9], break_after=2)]
    engine = Engine(lambda body: scripts[body["token_ids"][0]])
    with serving(engine.app) as url:
        body = {"token_ids": [0, 1], "stream": True}
        lines = httpx.post(f"{url}/inference/v1/generate", json={**body, "token_ids": [0]}).text
        assert [line[:14] for line in lines.splitlines() if line] == [
            'data: {"reques',
            'data: {"reques',
            'data: {"error"',
            "data: [DONE]",
        ]
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{url}/inference/v1/generate", json={**body, "token_ids": [1]})
