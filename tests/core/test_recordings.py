"""Recorded generations of a real engine: every text is the expected one, wherever the stream is cut.

Between any two chunks the state is nothing but bytes, caches are dropped at random; and some streams go through a new
process for every step.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from functools import cache
from typing import Any

import msgspec
import pytest

from schemas.generate import GenerateChunk, GenerateResponse
from schemas.request import RequestContext
from schemas.state import MAX_PLAIN_STATE_BYTES, StreamState
from tests import shared_data
from tests.core import support
from tests.core.golden_runner import accumulate, cut, whole
from worker.core.model import Model
from worker.core.prepare import PreparedRequest, prepare
from worker.core.step import derender, derender_step

pytestmark = pytest.mark.shared

Event = dict[str, Any]


@cache
def recorded() -> dict[str, tuple[Event, list[Event]]]:
    """Request id -> context, chunks."""
    found: dict[str, tuple[Event, list[Event]]] = {}
    for event in shared_data.recording():
        if event["event"] == "open":
            found[event["request_id"]] = (event["context"], [])
        elif event["event"] == "chunk":
            found[event["request_id"]][1].append(event["chunk"])
    return found


def expected() -> dict[str, dict[int, Event]]:
    """Request id -> choice index -> what the choice adds up to."""
    found: dict[str, dict[int, Event]] = {}
    for row in shared_data.recording_expected():
        found.setdefault(row["request_id"], {})[row["index"]] = row
    return found


EXPECTED = expected()


def request_of(context: Event) -> PreparedRequest:
    model = Model(name=context["model"], vocabulary=support.smollm2(), eos_token_id=2, model_eos_ids=frozenset({2}))
    return prepare(model, msgspec.convert(context, RequestContext, strict=False), request_id="r", created=1)


def joined(chunks: list[Event]) -> dict[int, Event]:
    """Each choice of a recording with all its ids and logprobs."""
    choices: dict[int, Event] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            one = choices.setdefault(part["index"], {"index": part["index"], "token_ids": []})
            one["token_ids"] = one["token_ids"] + (part["token_ids"] or [])
            if part.get("logprobs"):
                one.setdefault("logprobs", {"content": []})["content"] += part["logprobs"]["content"]
            if part["finish_reason"]:
                one |= {"finish_reason": part["finish_reason"], "stop_reason": part["stop_reason"]}
    return choices


def parts_of(chunks: list[Event], size: int | str | None) -> list[Event]:
    if size == "recorded":
        return [{"choices": [part]} for chunk in chunks for part in chunk["choices"]]
    assert size is None or isinstance(size, int)
    return [{"choices": [part]} for one in joined(chunks).values() for part in cut(one, size)]


def check(request_id: str, sums: dict[int, Any]) -> None:
    wanted = EXPECTED[request_id]
    assert {index: one.text for index, one in sums.items()} == {
        index: row.get("text_with_stop", row["decoded"]) for index, row in wanted.items()
    }
    for index, row in wanted.items():
        found = "text_with_stop" in row
        assert (sums[index].finish_reason, found or sums[index].stop_reason == row["stop_reason"]) == (
            "stop" if found else row["finish_reason"],
            True,
        )


@pytest.mark.parametrize("size", ["recorded", 1, 2, 3, 7, None], ids=str)
@pytest.mark.parametrize("request_id", EXPECTED)
def test_texts(request_id: str, size: int | str | None) -> None:
    shared_data.count("recordings")
    context, chunks = recorded()[request_id]
    request = request_of(context)
    chance = random.Random(f"{request_id}/{size}")
    states: dict[int, bytes] = {}
    answers = []
    for part in parts_of(chunks, size):
        index = part["choices"][0]["index"]
        chunk = msgspec.json.decode(json.dumps(part).encode(), type=GenerateChunk)
        state = msgspec.json.decode(states[index], type=StreamState) if index in states else None
        answer, after = derender_step(request, chunk, state)
        states[index] = msgspec.json.encode(after)
        assert len(states[index]) <= MAX_PLAIN_STATE_BYTES
        answers.append(msgspec.to_builtins(answer))
        if chance.random() < 0.2:
            request.model.vocabulary.drop_caches()
            request = request_of(context)
    check(request_id, accumulate(answers))
    for index, row in EXPECTED[request_id].items():
        assert msgspec.json.decode(states[index], type=StreamState).tokens == row["tokens"]


@pytest.mark.parametrize("request_id", EXPECTED)
def test_whole_responses(request_id: str) -> None:
    """A whole response adds up to what its stream does, logprobs included."""
    shared_data.count("recordings")
    context, chunks = recorded()[request_id]
    request = request_of(context)
    response = msgspec.convert({"choices": list(joined(chunks).values())}, GenerateResponse)
    sums = whole(msgspec.to_builtins(derender(request, response)))
    check(request_id, sums)
    answers = []
    states: dict[int, StreamState] = {}
    for part in parts_of(chunks, 3):
        index = part["choices"][0]["index"]
        answer, states[index] = derender_step(request, msgspec.convert(part, GenerateChunk), states.get(index))
        answers.append(msgspec.to_builtins(answer))
    streamed = accumulate(answers)
    for index, one in sums.items():
        row = EXPECTED[request_id][index]
        if "text_with_stop" not in row:  # logprobs of what came after a stop string are not streamed
            assert streamed[index] == one


# A chat, two choices, logprobs of both kinds, and the one whose stop string the engine was not asked to find.
IN_NEW_PROCESSES = ("rec-010", "rec-020", "rec-026", "rec-037", "rec-040")


@pytest.mark.slow
@pytest.mark.parametrize("request_id", IN_NEW_PROCESSES)
def test_every_step_in_a_new_process(request_id: str) -> None:
    """Each step gets only the bytes of request, chunk and state: nothing else carries anything."""
    shared_data.count("recordings")
    context, chunks = recorded()[request_id]
    request = request_of(context)
    tokenizer = str(support.SMOLLM2 / "tokenizer.json")
    parts = parts_of(chunks, max(row["tokens"] for row in EXPECTED[request_id].values()) // 8 + 1)
    states: dict[int, Any] = {}
    warm: dict[int, StreamState] = {}
    answers = []
    for part in parts:
        index = part["choices"][0]["index"]
        step = {"context": context, "chunk": part, "state": states.get(index)}
        given = {"tokenizer": tokenizer, "steps": [step]}
        done = subprocess.run(
            [sys.executable, "-m", "tests.core.one_step"],
            input=json.dumps(given).encode(), cwd=shared_data.ROOT, check=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        [said] = json.loads(done.stdout)
        states[index] = said["state"]
        answers.append(said["reply"])
        here, warm[index] = derender_step(request, msgspec.convert(part, GenerateChunk), warm.get(index))
        assert json.loads(msgspec.json.encode(here)) == said["reply"]
        assert json.loads(msgspec.json.encode(warm[index])) == said["state"]
    check(request_id, accumulate(answers))
