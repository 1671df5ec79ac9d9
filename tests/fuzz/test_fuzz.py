"""A short run of the fuzzer in every test run, a million inputs in `make chaos`; and each state field, forged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from schemas import keys
from schemas.state import ParserState, RequestState, StreamState
from tests.chaos.conftest import report as write_figures
from tests.fuzz.inputs import WEIRD, nested
from tests.fuzz.run import Fuzz, Report, model_table
from worker.core import calls
from worker.core.errors import RequestError
from worker.core.session import Entry, Session

SHORT = 6_000
LONG = 1_000_000


def judged(report: Report, inputs: int) -> None:
    assert report.inputs == inputs
    assert report.crashes == []
    assert report.stepped >= inputs / 2, "at least half get past the decoders into the step"
    assert report.answered > inputs / 5
    assert report.refused > inputs / 5


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_but_answers_and_declared_errors(seed: int) -> None:
    judged(Fuzz(seed).run(SHORT), SHORT)


@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_a_million_inputs() -> None:
    report = Fuzz(1).run(LONG)
    write_figures(
        "fuzz", seed=1, inputs=report.inputs, stepped=report.stepped, answered=report.answered,
        refused=report.refused, crashes=len(report.crashes), slowest_s=round(report.slowest_s, 2),
    )  # fmt: skip
    judged(report, LONG)


# --- forged states ---------------------------------------------------------------------------------------------------

HOSTILE = (*WEIRD, nested(70), list(range(5000)), "x" * 300_000, [["a", -1]] * 5000, 2**31, -(2**31), 9)


def body(model: str, state: Any) -> dict[str, Any]:
    return {
        "stream": True, "model": model, "endpoint": "chat", "prompt_token_ids": [5, 6], "stream_state": state,
        "chat_request": {
            "stream": True, "messages": [], "stop": ["zebra", "</tool_call>"], "tool_choice": "auto",
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        },
        "generate_chunk": {"choices": [{"index": 0, "token_ids": [19556, 28, 7, 80, 100, 12]}]},
    }  # fmt: skip


def honest_state(model: str) -> dict[str, Any]:
    answer = json.loads(calls.derender_call(model_table(), json.dumps(body(model, None)).encode(), created=1))
    state: dict[str, Any] = answer["stream_state"]
    return state


@pytest.mark.parametrize("model", ["plain", "hermes", "qwen", "deepseek", "llama", "pythonic", "gptoss", "mistral"])
def test_every_field_of_a_state_forged(model: str) -> None:
    """Each field of the state and of its parts, set to each hostile value: an answer or a 400 that says why."""
    honest = honest_state(model)
    inner = {
        "decode": ("pending", "held", "started", "broken", "window", "unread"),
        "call_held": ("name", "id", "arguments"),
    }
    parser = tuple(field.encode_name for field in msgspec.structs.fields(ParserState))
    places: list[tuple[str, ...]] = [(field.encode_name,) for field in msgspec.structs.fields(StreamState)]
    places += [(outer, name) for outer, names in inner.items() for name in names]
    places += [("parser", name) for name in parser]
    places.append(("unknown",))
    refused = answered = 0
    for place in places:
        for value in HOSTILE:
            state = json.loads(json.dumps(honest))
            holder = state
            for key in place[:-1]:
                if not isinstance(holder.get(key), dict):
                    holder[key] = {"name": "f"} if key == "call_held" else {}
                holder = holder[key]
            holder[place[-1]] = value
            data = json.dumps(body(model, state)).encode("utf-8", "surrogatepass")
            try:
                answer = calls.derender_call(model_table(), data, created=1)
            except RequestError as error:
                assert error.code == 400  # noqa: PT017
                refused += 1
            else:
                assert msgspec.json.decode(answer)["stream_state"]
                answered += 1
    assert refused > 0.6 * len(places) * len(HOSTILE)
    assert answered > 0  # null and zero are what most fields are


# --- what the fuzzer found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2**53 + 1, 2**63, 10**30])
def test_a_count_that_the_stored_state_could_not_hold_is_refused_at_the_open(count: int) -> None:
    """Such a request was taken in, and could not be taken over: its stored state was refused by the decoder."""
    context = {"kind": "completion", "model": "plain", "completion_request": {"prompt": "x"}, "prompt_tokens": count}
    outcome = Session(model_table()).fold(
        Entry(b"1-0", {keys.REQUEST: b"r", keys.SEQ: b"0", keys.OPEN: json.dumps(context).encode()}), None, None
    )
    assert outcome.open is None
    assert outcome.closed == keys.STATUS_FAILED


def test_the_largest_counts_can_be_taken_over() -> None:
    context = {
        "kind": "completion", "model": "plain", "completion_request": {"prompt": "x"},
        "prompt_tokens": [2**40] * 1024, "prompt_token_ids": [[1]] * 1024,
    }  # fmt: skip
    outcome = Session(model_table()).fold(
        Entry(b"1-0", {keys.REQUEST: b"r", keys.SEQ: b"0", keys.OPEN: json.dumps(context).encode()}), None, None
    )
    assert outcome.open is not None
    state = outcome.open.state
    assert msgspec.json.decode(msgspec.json.encode(state), type=RequestState) == state
