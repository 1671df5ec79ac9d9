"""Golden cases of the plain path: at their original cut chunk by chunk, and cut anew by what a client accumulates."""

from __future__ import annotations

from typing import Any

import pytest

from tests import shared_data
from tests.core import golden_runner as runner
from tests.core.golden_runner import Case, Sum

pytestmark = pytest.mark.shared

CUTS = [
    pytest.param(1, id="cut1"),
    pytest.param(2, id="cut2"),
    pytest.param(3, id="cut3"),
    pytest.param(None, id="whole"),
]

DIFFERS: dict[str, tuple[int, str]] = {
    "err-neg-token-stream": (400, "negative ids are refused in chunks too"),
    "err-huge-token": (400, "ids from 2**31 on are refused in batch too"),
    "err-top-too-many-stream": (400, "the bounds of batch hold for streams"),
    "err-stream-total-completion": (400, "the bounds of batch hold for streams"),
    "err-stream-delta-completion": (400, "the bounds of batch hold for streams"),
    "err-stream-stop": (200, "stop strings are found while streaming"),
    "err-stream-stop-str": (200, "stop strings are found while streaming"),
    "err-stream-stop-completion": (200, "stop strings are found while streaming"),
    "err-state-offset-past": (400, "foreign fields of a state are refused"),
    "err-state-badtoken": (400, "foreign fields of a state are refused"),
    "err-placeholder-logprobs": (200, "both generations of the logprob format are read"),
}
"""Error cases whose status differs on purpose: our status, and why."""

STRING_IN_LENGTH = {
    "stop-A-qwen3-str-length-batch": "The cat sat. ",
    "stop-A-llama2-str-length-batch": " The cat sat. ",
}
"""The engine said `length`, but the text holds a stop string: a tokens-only engine cannot know. Our text."""

SUSPECT = {
    "text-loss": "what is pending at the finish is flushed",
    "finish-reason": "named beside text-loss: the cut character itself, not the reason",
    "differs-from-engine": "special means the token's own flag, so those tokens are hidden as the engine hides them",
}
"""Kinds of suspect goldens that we do not equal, and why; what we say must then be the tokenizer's own decode."""


def cases(*, errors: bool, stream: bool | None = None) -> list[Any]:
    names = ["errors"] if errors else [name for name in shared_data.golden_categories() if name != "errors"]
    found = [case for case in shared_data.golden(*names) if errors or runner.is_plain(case)]
    return shared_data.params(case for case in found if stream is None or ("chunks" in case) == stream)


def texts(sums: dict[int, Sum]) -> dict[int, str]:
    return {index: one.text for index, one in sums.items()}


def decoded(case: Case) -> dict[int, str]:
    """What the tokenizer itself says of all ids of a case (one response; stop tokens are not among the suspects)."""
    request = case["request"]
    asked = request.get("chat_request") or request.get("completion_request") or {}
    vocabulary = runner.model(case).vocabulary
    ids: dict[int, list[int]] = {}
    batch = request.get("generate_responses") or [request.get("generate_response", {"choices": []})]
    for message in case.get("chunks") or batch:
        for choice in message["choices"]:
            ids.setdefault(choice["index"], []).extend(choice.get("token_ids") or [])
    skip = asked.get("skip_special_tokens") is not False
    return {index: vocabulary.decode(of, skip_special=skip) for index, of in ids.items()}


@pytest.mark.parametrize("case", cases(errors=False))
def test_original_cut(case: Case) -> None:
    """Every body, and every chunk of a stream, is the golden one; `wire` cases with every null member in place."""
    shared_data.count("golden")
    status, answer = runner.run(case)
    assert status == 200, answer
    if case["category"] == "wire":
        assert runner.without_created(answer) == case["expected"]
        return
    if case["id"] in STRING_IN_LENGTH:
        choice = answer["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"], choice["stop_reason"]) == (
            STRING_IN_LENGTH[case["id"]],
            "stop",
            "STOP",
        )
        return
    if case.get("suspect") and runner.without_nulls(answer) != case["expected"]:
        assert set(case["suspect_kinds"]) <= SUSPECT.keys()
        ours, theirs = runner.sums_of(case, answer), runner.sums_of(case, case["expected"])
        # a seed or an added token may keep the leading space that a decode of the output alone strips
        assert {i: text.removeprefix(" ") for i, text in texts(ours).items()} == {
            i: text.removeprefix(" ") for i, text in decoded(case).items()
        }
        for index, one in theirs.items():
            one.text = ours[index].text
        assert ours == theirs
        return
    assert runner.without_nulls(answer) == case["expected"]


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("case", cases(errors=False, stream=True))
def test_stream_cut_anew(case: Case, size: int | None) -> None:
    """A stream says the same whatever the cut."""
    shared_data.count("golden")
    served = runner.model(case)
    status, answer = runner.run(runner.recut_stream(case, size), served)
    assert status == 200, answer
    if case.get("suspect"):
        assert runner.accumulate(answer) == runner.accumulate(runner.run(case, served)[1])
    else:
        assert runner.accumulate(answer) == runner.accumulate(case["expected"])
    assert usages(answer) == usages(case["expected"])


def usages(chunks: list[Any]) -> list[Any]:
    return [chunk["usage"] for chunk in runner.without_nulls(chunks) if "usage" in chunk]


NO_STREAM = {
    "stop-A-qwen3-str-norequest-batch": "the engine names a string that the request does not, at the end",
}


def says_no_stream(case: Case) -> bool:
    """An explicit null finish reason: a whole response without an end, which no stream can say."""
    request = case["request"]
    responses = request.get("generate_responses") or [request["generate_response"]]
    null = any(one.get("finish_reason", "stop") is None for response in responses for one in response["choices"])
    return null or case["id"] in NO_STREAM


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize(
    "case", [param for param in cases(errors=False, stream=False) if not says_no_stream(param.values[0])]
)
def test_batch_as_a_stream(case: Case, size: int | None) -> None:
    """A whole response is what a stream of its ids adds up to."""
    shared_data.count("golden")
    served = runner.model(case)
    expected = case["expected"]
    if case.get("suspect") or case["id"] in STRING_IN_LENGTH:
        expected = runner.run(case, served)[1]
    wanted = list(runner.whole(expected).values())
    found: list[Sum] = []
    for stream in runner.streams_of_batch(case, size):
        status, answer = runner.run(stream, served)
        assert status == 200, answer
        found += runner.accumulate(answer).values()
    assert found == wanted


@pytest.mark.parametrize("case", cases(errors=True))
def test_errors(case: Case) -> None:
    """Status, type and field of an error; a difference is one of the table above."""
    shared_data.count("golden")
    if case["id"] == "err-content-type":
        pytest.skip("media types are HTTP's: a stream entry has none")
    status, answer = runner.run(case)
    if isinstance(answer, list):
        answer = answer[-1]
    if case["id"] in DIFFERS:
        assert (status, bool(DIFFERS[case["id"]][1])) == (DIFFERS[case["id"]][0], True)
        assert status != case["status"]
        return
    assert status == case["status"], answer
    if status == 200:
        assert "error" not in answer
        return
    error, expected = answer["error"], case["expected"]["error"]
    # both names of a bad request are the same to a client, see the README of the goldens
    assert (error["code"], error["type"].replace(" ", "").removesuffix("Error")) == (
        expected["code"],
        expected["type"].replace(" ", "").removesuffix("Error"),
    )
    if "param" in expected:
        assert error["param"] == expected["param"]


@pytest.mark.parametrize("name", DIFFERS | STRING_IN_LENGTH)
def test_every_named_difference_is_a_golden(name: str) -> None:
    assert name in {case["id"] for case in shared_data.golden("errors", "stop")}
