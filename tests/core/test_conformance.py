"""The published half of the conformance corpus, by its own grading: whole, and as streams at every cut it names.

Everything goes through the step, with the state as bytes at every cut. Some streams go through a new process for every
step, which gets the bytes of request, chunk and state, and nothing else.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from schemas.generate import GenerateChunk, GenerateResponse
from schemas.request import RequestContext
from schemas.state import StreamState
from tests import shared_data
from tests.core.golden_runner import Sum, accumulate, whole
from tests.core.harness import cuts, same_json, strict, vocabulary
from worker.core.model import Model, ParserConfig
from worker.core.prepare import PreparedRequest, prepare
from worker.core.step import derender, derender_step

pytestmark = pytest.mark.shared

Record = dict[str, Any]

PARSERS = [
    ("Qwen/Qwen3-4B-Instruct", "hermes", None),
    ("Qwen/Qwen3-0.6B", "hermes", "qwen3"),
    ("Qwen/Qwen3-4B-Thinking", "hermes", "qwen3"),
    ("Qwen/Qwen3-Coder", "qwen3_coder", None),
    ("Qwen/Qwen3.", "qwen3_coder", "qwen3"),
    ("deepseek-ai/DeepSeek-V3-0324", "deepseek_v3", None),
    ("deepseek-ai/DeepSeek-V3.1", "deepseek_v31", "deepseek_v3"),
    ("deepseek-ai/DeepSeek-V3.2", "deepseek_v32", "deepseek_v3"),
    ("deepseek-ai/DeepSeek-V4.1", "deepseek_v41", "deepseek_v41"),
    ("deepseek-ai/DeepSeek-V4", "deepseek_v4", "deepseek_v4"),
    ("moonshotai/Kimi-K2-Instruct", "kimi_k2", None),
    ("moonshotai/Kimi-K2.6", "kimi_k2", "kimi_k2"),
    ("moonshotai/Kimi-K3", "kimi_k3", "kimi_k3"),
    ("zai-org/GLM-4.5", "glm45", "glm45"),
    ("zai-org/GLM", "glm47", "glm47"),
    ("openai/gpt-oss", "openai", "openai_gptoss"),
    ("meta-llama/Llama-3.3", "llama3_json", None),
    ("meta-llama/Llama-4", "llama4_pythonic", None),
    ("google/gemma-4", "gemma4", "gemma4"),
    ("mistralai/", "mistral", "mistral"),
]
SWITCH = {"deepseek": "thinking", "kimi": "thinking"}


def parsers_of(record: dict[str, Any]) -> tuple[str, str | None]:
    return next((tool, reasoning) for prefix, tool, reasoning in PARSERS if record["models"][0].startswith(prefix))


def grade(record: Record, message: Sum) -> str:
    """pass, soft (outer whitespace) or fail."""
    by_name = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in record["tools"] or []}
    calls = []
    for call in message.calls:
        try:
            calls.append({"name": call["name"], "arguments": strict(call["arguments"])})
        except ValueError:
            return "fail"
    if not all(isinstance(call["arguments"], dict) for call in calls):
        return "fail"
    expected = record.get("expected")
    if expected is None:
        accept = record["expected_error"]["accept"]
        if not calls and not message.text:
            return "pass"
        passes = not calls and {"content_passthrough", "raw_text_as_content"} & set(accept)
        return "pass" if passes else "fail"
    for call in calls:
        if call["name"] not in by_name:
            return "fail"
        if not Draft202012Validator(by_name[call["name"]]).is_valid(call["arguments"]):
            wanted = [one["arguments"] for one in expected["tool_calls"] if one["name"] == call["name"]]
            if not any(same_json(call["arguments"], arguments) for arguments in wanted):
                return "fail"
    if not same_json(calls, expected["tool_calls"]):
        return "fail"
    if message.finish_reason != ("length" if record["truncated"] else "tool_calls" if calls else "stop"):
        return "fail"
    texts = [(message.text, expected["content"] or ""), (message.reasoning, expected["reasoning_content"] or "")]
    if all(ours == theirs for ours, theirs in texts):
        return "pass"
    return "soft" if all(ours.strip() == theirs.strip() for ours, theirs in texts) else "fail"


def parser_config(record: Record, mode: str) -> dict[str, Any]:
    tool, reasoning = parsers_of(record)
    return {
        "tool_call_parser": tool,
        "reasoning_parser": reasoning,
        "enable_auto_tool_choice": True,
        "tool_call_streaming": mode,
    }


def context_of(record: Record) -> dict[str, Any]:
    """The request as a producer would publish it."""
    chat: dict[str, Any] = {"messages": [], "tools": record["tools"], "tool_choice": "auto"}
    if record["thinking"] is not None:
        switch = SWITCH.get(record["family"], "enable_thinking")
        chat["chat_template_kwargs"] = {switch: record["thinking"]}
    voc = vocabulary("conformance/tokenizers/" + record["tokenizer"]["local"])
    prompt = voc.tokenizer.encode(record["generation_prompt"], add_special_tokens=False).ids
    return {"kind": "chat", "model": "m", "chat_request": chat, "prompt_token_ids": prompt}


def request_of(record: Record, mode: str) -> PreparedRequest:
    voc = vocabulary("conformance/tokenizers/" + record["tokenizer"]["local"])
    served = Model(name="m", vocabulary=voc, parsers=ParserConfig(**parser_config(record, mode)))
    context = msgspec.json.decode(msgspec.json.encode(context_of(record)), type=RequestContext)
    return prepare(served, context, request_id="r", created=1)


def bodies(record: Record, groups: Iterable[Sequence[int]]) -> list[dict[str, Any]]:
    """The engine's chunks; the last one ends the output."""
    chunks = [{"choices": [{"index": 0, "token_ids": list(ids)}]} for ids in groups]
    chunks[-1]["choices"][0]["finish_reason"] = "length" if record["truncated"] else "stop"
    return chunks


def streamed(request: PreparedRequest, chunks: list[dict[str, Any]]) -> Sum:
    state: StreamState | None = None
    replies = []
    for body in chunks:
        reply, after = derender_step(request, msgspec.convert(body, GenerateChunk), state)
        state = msgspec.json.decode(msgspec.json.encode(after), type=StreamState)
        replies.append(msgspec.to_builtins(reply))
    return accumulate(replies)[0]


def run_record(record: Record) -> dict[str, str]:
    """Grade of a record for the whole, and for complete and eager streams (worst of the cuts)."""
    order = ["pass", "soft", "fail"]
    response = msgspec.convert(bodies(record, [record["output_token_ids"]])[0], GenerateResponse)
    one = whole(msgspec.to_builtins(derender(request_of(record, "complete"), response)))[0]
    grades = {"whole": grade(record, one), "complete": "pass", "eager": "pass"}
    voc = vocabulary("conformance/tokenizers/" + record["tokenizer"]["local"])
    for mode in ("complete", "eager"):
        request = request_of(record, mode)
        first = one if mode == "complete" else None
        for _, groups in cuts(record["output_token_ids"], voc, record["id"]):
            message = streamed(request, bodies(record, groups))
            first = first or message
            got = grade(record, message) if message == first else "fail"
            grades[mode] = max(grades[mode], got, key=order.index)
    return grades


@pytest.mark.parametrize("family", shared_data.corpus_families())
def test_corpus(family: str) -> None:
    """Everything passes in `complete` mode, and all but truncated calls in `eager` mode."""
    counts: Counter[tuple[str, str]] = Counter()
    failed: list[tuple[str, str]] = []
    for record in shared_data.corpus(family):
        shared_data.count("corpus")
        for mode, got in run_record(record).items():
            counts[mode, got] += 1
            if got == "fail" and not (mode == "eager" and record["truncated"]):
                failed.append((record["id"], mode))
    for key in sorted(counts):
        print(family, *key, counts[key])
    assert failed == []


def for_new_processes(family: str) -> tuple[list[Record], int]:
    """Up to eight records of the family's smallest tokenizer, and the steps that each is made in."""
    by_size: dict[int, list[Record]] = {}
    for record in shared_data.corpus(family):
        size = (shared_data.corpus_tokenizer_dir(record) / "tokenizer.json").stat().st_size
        by_size.setdefault(size, []).append(record)
    records = [record for record in by_size[min(by_size)] if len(record["output_token_ids"]) > 2]
    steps = 3 if min(by_size) < 5_000_000 else 2  # to load a large tokenizer takes a process seconds
    return random.Random(family).sample(records, min(len(records), 8)), steps


def in_new_process(tokenizer: str, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.core.one_step"],
        input=json.dumps({"tokenizer": tokenizer, "steps": steps}).encode(),
        cwd=shared_data.ROOT, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    said: list[dict[str, Any]] = json.loads(done.stdout)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("family", shared_data.corpus_families())
def test_every_step_in_a_new_process(family: str) -> None:
    """Random cuts; each step of a record is in another process, which gets only bytes: the sum is that of one process.

    One process makes a step of several records, since it is its tokenizer that takes the time.
    """
    records, steps = for_new_processes(family)
    shared_data.count("corpus", len(records))
    tokenizer = str(shared_data.corpus_tokenizer_dir(records[0]) / "tokenizer.json")
    chunks, modes = [], []
    for record in records:
        source, ids = random.Random(record["id"]), record["output_token_ids"]
        borders = [0, *sorted(source.sample(range(1, len(ids)), steps - 1)), len(ids)]
        chunks.append(bodies(record, [ids[start:end] for start, end in pairwise(borders)]))
        modes.append(source.choice(("eager", "complete")))
    states: list[Any] = [None] * len(records)
    replies: list[list[Any]] = [[] for _ in records]
    for number in range(steps):
        given = [
            {
                "context": context_of(record),
                "parsers": parser_config(record, modes[at]),
                "eos_token_id": None,
                "chunk": chunks[at][number],
                "state": states[at],
            }
            for at, record in enumerate(records)
        ]
        for at, said in enumerate(in_new_process(tokenizer, given)):
            states[at] = said["state"]
            replies[at].append(said["reply"])
    for record, mode, answers in zip(records, modes, replies, strict=True):
        at_once = streamed(request_of(record, mode), bodies(record, [record["output_token_ids"]]))
        assert accumulate(answers)[0] == at_once, record["id"]
