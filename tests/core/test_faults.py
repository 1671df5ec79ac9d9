"""Publicly reported faults of servers, as cases: whole, and as streams at every cut a case names, in both call modes.

The large test data's `cases/README.md` says what a case holds and what each check means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from schemas.generate import GenerateChunk, GenerateResponse
from schemas.request import RequestContext
from schemas.state import StreamState
from tests import shared_data
from tests.core.golden_runner import accumulate, whole
from tests.core.harness import fault_model, same_json
from worker.core.prepare import PreparedRequest, prepare
from worker.core.step import derender, derender_step
from worker.core.vocabulary import Vocabulary

Body = dict[str, Any]
Lengths = Callable[[list[int]], list[int]]
"""Lengths of the chunks that ids are cut into."""
REQUEST_ID = "fault"
CREATED = 1_700_000_000
MODES = ("eager", "complete")

_encode = msgspec.json.Encoder().encode
_states = msgspec.json.Decoder(StreamState)


def prepared(case: Body, mode: str, *, stream: bool) -> PreparedRequest:
    request = {key: value for key, value in case["request"].items() if stream or key != "stream_options"}
    context = {
        "kind": case["endpoint"],
        f"{case['endpoint']}_request": request | ({"stream": True} if stream else {}),
        "prompt_token_ids": case["prompt_token_ids"],
    }
    decoded = msgspec.json.decode(_encode(context), type=RequestContext)
    return prepare(fault_model(case, tool_call_streaming=mode), decoded, request_id=REQUEST_ID, created=CREATED)


def groups(ids: list[int], sizes: list[int]) -> list[list[int]]:
    """Ids in chunks of the given lengths; what is left over is a chunk of its own."""
    rest = len(ids) - sum(sizes)
    parts, at = [], 0
    for size in [*sizes, *([rest] if rest > 0 else [])]:
        parts.append(ids[at : at + size])
        at += size
    return parts or [[]]


def cut_lengths(case: Body, voc: Vocabulary) -> list[tuple[str, Lengths]]:
    """Ways to cut, each as a function of ids to chunk lengths."""

    def every(size: int) -> Lengths:
        return lambda ids: [len(ids[at : at + size]) for at in range(0, len(ids), size)]

    def around_added(ids: list[int]) -> list[int]:
        sizes = [0]
        for id_ in ids:
            if id_ in voc.added:
                sizes += [1, 0]
            else:
                sizes[-1] += 1
        return [size for size in sizes if size]

    ways: list[tuple[str, Lengths]] = []
    for cut in case["cuts"]:
        if cut == "all":
            ways += [("one chunk", lambda ids: [len(ids)]), *((f"{n} a chunk", every(n)) for n in (1, 2, 3))]
            ways.append(("around added tokens", around_added))
        else:
            ways.append((str(cut), lambda _, cut=cut: cut))
    return ways


@dataclass
class Stream:
    """One streamed run. origins: the output each chunk came from (None: an event)."""

    mode: str
    cut: str
    chunks: list[Body] = field(default_factory=list)
    origins: list[int | None] = field(default_factory=list)


def chunks_of(case: Body, lengths: Lengths) -> Iterator[tuple[int | None, Body]]:
    """Engine chunks in the order of the case, each with the index of its output."""
    events = case.get("events") or []
    yield from ((None, one["event"]) for one in events if one["at"] == "start")
    queues: dict[int, list[Body]] = {}
    for output in case["outputs"]:
        queue = []
        at = 0
        for part in groups(output["token_ids"], lengths(output["token_ids"])):
            choice: Body = {"index": output["index"], "token_ids": part}
            if "logprobs" in output:
                choice["logprobs"] = {"content": output["logprobs"][at : at + len(part)]}
            at += len(part)
            queue.append({"choices": [choice]})
        queue[-1]["choices"][0] |= {"finish_reason": output["finish_reason"], "stop_reason": output["stop_reason"]}
        queues[output["index"]] = queue
    while any(queues.values()):
        for index, queue in queues.items():
            if queue:
                yield index, queue.pop(0)
    yield from ((None, one["event"]) for one in events if one["at"] == "end")


def run_stream(case: Body, mode: str, cut: str, lengths: Lengths, how: str = "") -> Stream:
    """how: `bytes`: the state goes through bytes and the request is prepared anew; `twice`: each chunk comes twice."""
    request = prepared(case, mode, stream=True)
    stream = Stream(mode, cut)
    states: dict[int, StreamState | None] = {}
    for origin, body in chunks_of(case, lengths):
        chunk = msgspec.json.decode(_encode(body), type=GenerateChunk)
        index = chunk.choices[0].index if chunk.choices else 0
        state = states.get(index)
        if how == "bytes":
            request = prepared(case, mode, stream=True)
            request.model.vocabulary.drop_caches()
            state = state if state is None else _states.decode(_encode(state))
        reply, after = derender_step(request, chunk, state)
        if how == "twice":
            again = derender_step(request, chunk, state)
            assert _encode(again) == _encode((reply, after))
        states[index] = after
        stream.chunks.append(json.loads(_encode(reply)))
        stream.origins.append(origin)
    return stream


def run_whole(case: Body) -> Body:
    finishes = {
        choice["index"]: choice
        for event in case.get("events") or []
        for choice in event["event"]["choices"]
        if choice.get("finish_reason")
    }
    choices = []
    for output in case["outputs"]:
        end = output if output["finish_reason"] else finishes[output["index"]]
        choice = {"index": output["index"], "token_ids": output["token_ids"]}
        choice |= {"finish_reason": end["finish_reason"], "stop_reason": end.get("stop_reason")}
        if "logprobs" in output:
            choice["logprobs"] = {"content": output["logprobs"]}
        choices.append(choice)
    response = msgspec.json.decode(_encode({"choices": choices}), type=GenerateResponse)
    mode = case["parsers"].get("tool_call_streaming", "complete")
    answer: Body = json.loads(_encode(derender(prepared(case, mode, stream=False), response)))
    return answer


# --- what is compared -------------------------------------------------------------------------------------------------


def compare(case: Body, sums: dict[int, Any], where: str, mode: str | None) -> None:
    """mode: of a stream; None: a whole response."""
    expected = case["expected"]["choices"]
    assert sorted(sums) == sorted(choice["index"] for choice in expected), where
    for choice in expected:
        got = sums[choice["index"]]
        texts = {"content": got.text, "text": got.text, "reasoning": got.reasoning}
        for name in ("content", "text", "reasoning"):
            if name in choice:
                assert texts[name] == (choice[name] or ""), (where, name)
        for name in ("finish_reason", "stop_reason"):
            if name in choice:
                assert getattr(got, name) == choice[name], (where, name)
        if "tool_calls" in choice:
            compare_calls(choice, got.calls, where, eager=mode == "eager")


def compare_calls(choice: Body, calls: list[Body], where: str, *, eager: bool) -> None:
    wanted = choice["tool_calls"]
    complete, rest = calls[: len(wanted)], calls[len(wanted) :]
    assert len(complete) == len(wanted), (where, calls)
    for call, want in zip(complete, wanted, strict=True):
        assert call["name"] == want["name"], where
        assert same_json(json.loads(call["arguments"]), want["arguments"]), (where, call)
        if "id" in want:
            assert call["id"] == want["id"], where
    truncated = choice.get("truncated_calls") or []
    assert len(rest) <= (len(truncated) if eager else 0), (where, rest)
    for call, cut in zip(rest, truncated, strict=False):
        assert call["name"] == cut["name"], where
        assert cut["arguments_text"].startswith(call["arguments"]), (where, call)


# --- checks -----------------------------------------------------------------------------------------------------------


@dataclass
class Runs:
    case: Body
    response: Body
    streams: list[Stream]

    def deltas(self, stream: Stream) -> Iterator[tuple[int, Body, Body]]:
        """(choice index, choice, delta) of every choice of every chunk."""
        for chunk in stream.chunks:
            for choice in chunk["choices"]:
                yield choice["index"], choice, choice.get("delta") or {}

    def calls(self) -> Iterator[tuple[int, str, list[Body], list[Body]]]:
        """Choice index, where, the run's calls, and the calls that are expected: for the whole and for every stream."""
        runs = [("whole", whole(self.response)), *((one.cut, accumulate(one.chunks)) for one in self.streams)]
        for choice in self.case["expected"]["choices"]:
            for where, sums in runs:
                yield choice["index"], where, sums[choice["index"]].calls, choice["tool_calls"]


def arguments_is_json(runs: Runs) -> None:
    for _, where, calls, wanted in runs.calls():
        for call in calls[: len(wanted)]:
            assert isinstance(json.loads(call["arguments"]), dict), where


def call_id_nine_alphanumerics(runs: Runs) -> None:
    for _, where, calls, _ in runs.calls():
        for call in calls:
            assert re.fullmatch(r"[A-Za-z0-9]{9}", call["id"]), where


def call_index_contiguous(runs: Runs) -> None:
    for stream in runs.streams:
        seen: dict[int, list[int]] = {}
        for index, _, delta in runs.deltas(stream):
            order = seen.setdefault(index, [])
            order += [call["index"] for call in delta.get("tool_calls") or () if call["index"] not in order]
        assert all(order == list(range(len(order))) for order in seen.values()), stream.cut


def choice_index_kept(runs: Runs) -> None:
    for stream in runs.streams:
        for chunk, origin in zip(stream.chunks, stream.origins, strict=True):
            if origin is not None:
                assert [choice["index"] for choice in chunk["choices"]] == [origin], stream.cut


def content_empty_string(runs: Runs) -> None:
    assert [choice["message"]["content"] for choice in runs.response["choices"]] == [""]


def finish_once(runs: Runs) -> None:
    for stream in runs.streams:
        finished: set[int] = set()
        for index, choice, delta in runs.deltas(stream):
            if index in finished:
                assert not any(delta.values()), stream.cut
                assert not choice.get("finish_reason"), stream.cut
            if choice.get("finish_reason"):
                finished.add(index)
        assert finished == {output["index"] for output in runs.case["outputs"]}, stream.cut


def no_empty_tool_calls(runs: Runs) -> None:
    for choice in runs.response["choices"]:
        assert choice["message"].get("tool_calls") != []
    for stream in runs.streams:
        for _, _, delta in runs.deltas(stream):
            assert delta.get("tool_calls") != [], stream.cut


def one_logprob_per_token(runs: Runs) -> None:
    outputs = {output["index"]: output for output in runs.case["outputs"]}
    sums = [("whole", whole(runs.response)), *((one.cut, accumulate(one.chunks)) for one in runs.streams)]
    voc = fault_model(runs.case).vocabulary
    for where, one in sums:
        for index, output in outputs.items():
            tokens = [entry["token"] for entry in one[index].logprobs]
            assert tokens == [voc.decode([id_]) for id_ in output["token_ids"]], where


def one_role_per_index(runs: Runs) -> None:
    for stream in runs.streams:
        roles: dict[int, list[Any]] = {}
        for index, _, delta in runs.deltas(stream):
            roles.setdefault(index, []).append(delta.get("role"))
        for found in roles.values():
            assert found[0] == "assistant", stream.cut
            assert not any(found[1:]), stream.cut


def restored_state_every_chunk(runs: Runs) -> None:
    for (mode, cut), lengths in streams_and_cuts(runs.case):
        plain = next(one for one in runs.streams if (one.mode, one.cut) == (mode, cut))
        assert run_stream(runs.case, mode, cut, lengths, "bytes").chunks == plain.chunks, (mode, cut)


def retry_same_bytes(runs: Runs) -> None:
    for (mode, cut), lengths in streams_and_cuts(runs.case):
        run_stream(runs.case, mode, cut, lengths, "twice")


def same_arguments_text(runs: Runs) -> None:
    texts: dict[int, set[tuple[str, ...]]] = {}
    for index, _, calls, wanted in runs.calls():
        texts.setdefault(index, set()).add(tuple(call["arguments"] for call in calls[: len(wanted)]))
    assert all(len(one) == 1 for one in texts.values()), texts


def same_chunk_identity(runs: Runs) -> None:
    for stream in runs.streams:
        found = {(chunk["id"], chunk["created"], chunk["model"]) for chunk in stream.chunks}
        assert len(found) == 1, stream.cut


def stable_call_ids(runs: Runs) -> None:
    ids: dict[int, set[tuple[str, ...]]] = {}
    for index, _, calls, wanted in runs.calls():
        ids.setdefault(index, set()).add(tuple(call["id"] for call in calls[: len(wanted)]))
    assert all(len(one) == 1 for one in ids.values()), ids
    for stream in runs.streams:
        begun: set[tuple[int, int]] = set()
        for index, _, delta in runs.deltas(stream):
            for call in delta.get("tool_calls") or ():
                first = (index, call["index"]) not in begun
                begun.add((index, call["index"]))
                given = [call.get("id"), call.get("type"), call["function"].get("name")]
                assert all(given) if first else not any(given), stream.cut


def string_arguments_stream(runs: Runs) -> None:
    """Inside the longest string of the arguments, at most 15 chunks in a row bring no piece."""
    stream = next(one for one in runs.streams if (one.mode, one.cut) == ("eager", "1 a chunk"))
    for output, choice in zip(runs.case["outputs"], runs.case["expected"]["choices"], strict=True):
        values = [value for call in choice["tool_calls"] for value in call["arguments"].values()]
        longest = max((value for value in values if isinstance(value, str)), key=len)
        begin = output["raw"].index(longest)
        voc = fault_model(runs.case).vocabulary
        at = [len(voc.decode(output["token_ids"][:n])) for n in range(len(output["token_ids"]) + 1)]
        mine = [chunk for chunk, origin in zip(stream.chunks, stream.origins, strict=True) if origin == output["index"]]
        inside = [n for n in range(len(mine)) if at[n] >= begin and at[n + 1] <= begin + len(longest)]
        brings = [bool((mine[n]["choices"][0]["delta"]).get("tool_calls")) for n in inside]
        assert len(brings) > 16
        assert all(any(brings[n : n + 16]) for n in range(len(brings) - 15))


def truncated_call_streamed(runs: Runs) -> None:
    for stream in runs.streams:
        if stream.mode != "eager":
            continue
        sums = accumulate(stream.chunks)
        for choice in runs.case["expected"]["choices"]:
            rest = sums[choice["index"]].calls[len(choice["tool_calls"]) :]
            assert [call["name"] for call in rest] == [call["name"] for call in choice["truncated_calls"]], stream.cut


def usage_chunk_last(runs: Runs) -> None:
    for stream in runs.streams:
        carried = [n for n, chunk in enumerate(stream.chunks) if chunk.get("usage") and not chunk["choices"]]
        assert carried == [len(stream.chunks) - 1], stream.cut


CHECKS: dict[str, Callable[[Runs], None]] = {
    check.__name__: check
    for check in (
        arguments_is_json,
        call_id_nine_alphanumerics,
        call_index_contiguous,
        choice_index_kept,
        content_empty_string,
        finish_once,
        no_empty_tool_calls,
        one_logprob_per_token,
        one_role_per_index,
        restored_state_every_chunk,
        retry_same_bytes,
        same_arguments_text,
        same_chunk_identity,
        stable_call_ids,
        string_arguments_stream,
        truncated_call_streamed,
        usage_chunk_last,
    )
}


def streams_and_cuts(case: Body) -> Iterator[tuple[tuple[str, str], Lengths]]:
    voc = fault_model(case).vocabulary
    only = case["parsers"].get("tool_call_streaming")
    for mode in (only,) if only else MODES:
        for cut, lengths in cut_lengths(case, voc):
            yield (mode, cut), lengths


def check_usage(case: Body, runs: Runs) -> None:
    expected = case["expected"].get("usage")
    if expected is None:
        return
    assert {key: runs.response["usage"][key] for key in expected} == expected
    for stream in runs.streams:
        for usage in (chunk["usage"] for chunk in stream.chunks if chunk.get("usage") and not chunk["choices"]):
            assert {key: usage[key] for key in expected} == expected, stream.cut


@pytest.mark.shared
@pytest.mark.parametrize("case", shared_data.params(shared_data.faults()))
def test_fault(case: Body) -> None:
    shared_data.count("faults")
    response = run_whole(case)
    compare(case, whole(response), "whole", None)
    streams = []
    for (mode, cut), lengths in streams_and_cuts(case):
        stream = run_stream(case, mode, cut, lengths)
        compare(case, accumulate(stream.chunks), f"{mode}, {cut}", mode)
        streams.append(stream)
    runs = Runs(case, response, streams)
    check_usage(case, runs)
    # the state is bytes and a retry is free, whether or not a case asks for it
    for name in sorted({*case["expected"].get("checks", ()), "restored_state_every_chunk", "retry_same_bytes"}):
        CHECKS[name](runs)
