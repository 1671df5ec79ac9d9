"""Runs golden cases: the server a case was made with, its calls at the original cut or another, what a client sums up.

A golden is compared chunk by chunk at its original cut (plain path), or by what a client accumulates (any cut, and the
parser path). See `reference/golden/README.md` of the large test data for the fields of a case.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from tokenizers import Tokenizer

from tests import shared_data
from worker.core.calls import derender_call
from worker.core.errors import RequestError, UnknownModel
from worker.core.model import Limits, Model, ParserConfig
from worker.core.vocabulary import Vocabulary

CREATED = 1_700_000_000

Case = dict[str, Any]
Body = dict[str, Any]


@cache
def vocabulary(tokenizer: str, patch: str = "{}") -> Vocabulary:
    """Vocabulary of a golden's tokenizer. patch: JSON map id -> new content, as in `tokenizer_patch`.

    Tokens that the tokenizer's configuration declares special are special whatever their flag, as when it is loaded by
    the library it was made for.
    """
    definition = json.loads((shared_data.tokenizer_dir(tokenizer) / "tokenizer.json").read_text(encoding="utf-8"))
    declared = set(shared_data.golden_servers()[tokenizer]["declared_special_ids"])
    names: dict[str, str] = json.loads(patch)
    entries = definition["model"]["vocab"]
    for id_, text in names.items():
        for token in [token for token, number in entries.items() if number == int(id_)]:
            entries[text] = entries.pop(token)
    for token in definition["added_tokens"]:
        if text := names.get(str(token["id"])):
            token.update(content=text, special=text not in ("<think>", "</think>"))
        token["special"] |= token["id"] in declared
    return Vocabulary(Tokenizer.from_str(json.dumps(definition)))


def model(case: Case, **parsers: Any) -> Model:
    """The served model of a case. parsers: options of ParserConfig that the case does not name."""
    patch = case.get("tokenizer_patch")
    server = shared_data.golden_servers()[case["tokenizer"] + ("+p" if patch else "")] | case.get("server", {})
    return Model(
        name=server["served_model_name"],
        vocabulary=vocabulary(case["tokenizer"], json.dumps(patch or {}, sort_keys=True)),
        eos_token_id=server["eos_token_id"],
        model_eos_ids=frozenset(server["model_eos_ids"]),
        model_type=server["model_type"],
        parsers=ParserConfig(
            tool_call_parser=case["parsers"].get("tool"),
            reasoning_parser=case["parsers"].get("reasoning"),
            enable_auto_tool_choice=bool(case["parsers"].get("enable_auto_tools")),
            **parsers,
        ),
        limits=Limits(max_model_len=server["max_model_len"], max_logprobs=server["max_logprobs"]),
    )


def is_plain(case: Case) -> bool:
    return not (case["parsers"].get("tool") or case["parsers"].get("reasoning"))


def call(served: Model, endpoint: str, body: Body | bytes) -> tuple[int, Body]:
    """Status and body that a client of the HTTP feature would see."""

    def models(name: str | None) -> Model:
        if name and name != served.name:
            raise UnknownModel(f"model {name!r} is not served: use {served.name!r}", param="model")
        return served

    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        answer = derender_call(models, raw, created=CREATED, endpoint=endpoint)
    except RequestError as error:
        return error.code, msgspec.to_builtins(error.body())
    return 200, json.loads(answer)


def run(case: Case, served: Model | None = None) -> tuple[int, Any]:
    """Status and answer of a case: a response body, or the list of chunks of a stream (one state per choice index)."""
    served = served or model(case)
    request = case["request"]
    if "raw" in request:
        return call(served, case["endpoint"], request["raw"].encode())
    if "chunks" not in case:
        return call(served, case["endpoint"], request)
    states: dict[int, Any] = {}
    chunks = []
    for chunk in case["chunks"]:
        index = chunk["choices"][0]["index"] if chunk["choices"] else 0
        body = request | {"stream": True, "generate_chunk": chunk, "stream_state": states.get(index)}
        status, answer = call(served, case["endpoint"], body)
        if status != 200:
            return status, answer
        states[index] = answer["stream_state"]
        chunks.append(answer["chunk"])
    return 200, chunks


def without_nulls(value: Any) -> Any:
    """As the golden files are: no null members, no `created`; nulls inside lists stay."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None and key != "created"}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return value


def without_created(answer: Any) -> Any:
    """The answer without the time it was made at, wherever that stands."""
    if isinstance(answer, dict):
        return {key: without_created(value) for key, value in answer.items() if key != "created"}
    if isinstance(answer, list):
        return [without_created(item) for item in answer]
    return answer


# --- what a client accumulates ----------------------------------------------------------------------------------------


@dataclass
class Sum:
    """One choice, summed up: what must not depend on where the stream was cut."""

    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    roles: int = 0
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    def add_logprobs(self, logprobs: Body | None) -> None:
        if logprobs is None:
            return
        if "text_offset" in logprobs:
            names = ("text_offset", "token_logprobs", "tokens", "top_logprobs")
            self.logprobs += [list(row) for row in zip(*(logprobs[name] for name in names), strict=True)]
        else:
            self.logprobs += without_nulls(logprobs.get("content") or [])

    def add_calls(self, deltas: Iterable[Body]) -> None:
        for delta in deltas:
            while len(self.calls) <= delta["index"]:
                self.calls.append({"id": "", "name": "", "arguments": ""})
            call = self.calls[delta["index"]]
            call["id"] += delta.get("id") or ""
            call["name"] += delta["function"].get("name") or ""
            call["arguments"] += delta["function"].get("arguments") or ""


def accumulate(chunks: Iterable[Body]) -> dict[int, Sum]:
    """Choices of a stream, by index; works on chunks with and without null members."""
    sums: dict[int, Sum] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            one = sums.setdefault(choice["index"], Sum())
            delta = choice.get("delta", {})
            one.roles += delta.get("role") is not None
            one.text += delta.get("content") or choice.get("text") or ""
            one.reasoning += delta.get("reasoning") or ""
            one.add_calls(delta.get("tool_calls", ()))
            one.add_logprobs(choice.get("logprobs"))
            one.token_ids += choice.get("token_ids") or []
            one.finish_reason = choice.get("finish_reason") or one.finish_reason
            if choice.get("stop_reason") is not None:
                one.stop_reason = choice["stop_reason"]
    return sums


def whole(response: Body) -> dict[int, Sum]:
    """Choices of a whole response in the same form; `roles` is what one stream of it would send."""
    sums = {}
    for choice in response["choices"]:
        message = choice.get("message", {})
        sums[choice["index"]] = one = Sum(
            text=message.get("content") or choice.get("text") or "",
            reasoning=message.get("reasoning") or "",
            roles=int("message" in choice),
            finish_reason=choice.get("finish_reason"),
            stop_reason=choice.get("stop_reason"),
            token_ids=choice.get("token_ids") or [],
        )
        one.add_logprobs(choice.get("logprobs"))
        one.add_calls({"index": number, **call} for number, call in enumerate(message.get("tool_calls", ())))
    return sums


# --- other cuts -------------------------------------------------------------------------------------------------------


def cut(choice: Body, size: int | None) -> list[Body]:
    """A choice with all its ids as a list of stream choices of `size` ids each (None: one); the last one finishes."""
    ids = choice.get("token_ids") or []
    logprobs = choice.get("logprobs")
    entries = logprobs.get("content") if logprobs else None
    end = {name: choice[name] for name in ("finish_reason", "stop_reason") if name in choice}
    size = size or max(len(ids), 1)
    if entries is not None and len(entries) != len(ids):
        size = max(len(ids), 1)  # logprobs that do not go with the ids one by one cannot be shared out
    parts = []
    for start in range(0, max(len(ids), 1), size):
        part: Body = {"index": choice["index"], "token_ids": ids[start : start + size]}
        if logprobs is not None:
            part["logprobs"] = {"content": entries if entries is None else entries[start : start + size]}
        parts.append(part)
    parts[-1] |= end
    return parts


def recut_stream(case: Case, size: int | None) -> Case:
    """A stream case with the ids of each choice cut anew.

    Runs of chunks of one choice that agree in whether they have logprobs are joined and cut; everything else (usage,
    metrics, prompt ids, chunks without ids) stays where it was.
    """
    chunks: list[Body] = []
    joined: dict[int, Body] = {}

    def put(index: int) -> None:
        run = joined.pop(index, None)
        if run is None:
            return
        common = run.pop("common")
        for number, part in enumerate(cut(run, size)):
            chunks.append((common if number == 0 else {"request_id": common.get("request_id")}) | {"choices": [part]})

    for chunk in case["chunks"]:
        choices = chunk["choices"]
        if not choices:
            for index in list(joined):
                put(index)
            chunks.append(chunk)
            continue
        choice = choices[0]
        index, common = choice["index"], {key: value for key, value in chunk.items() if key != "choices"}
        run = joined.get(index)
        has = choice.get("logprobs") is not None
        if run is not None and (has != (run.get("logprobs") is not None) or common.keys() - {"request_id"}):
            put(index)
            run = None
        if run is None:
            joined[index] = {"index": index, "token_ids": [], "common": common}
            run = joined[index]
            if has:
                run["logprobs"] = {"content": []}
        run["token_ids"] = [*run["token_ids"], *(choice.get("token_ids") or [])]
        if has:
            run["logprobs"]["content"] += choice["logprobs"].get("content") or []
        run |= {name: choice[name] for name in ("finish_reason", "stop_reason") if choice.get(name) is not None}
        if choice.get("finish_reason") is not None:
            put(index)
    for index in list(joined):
        put(index)
    return case | {"chunks": chunks}


def streams_of_batch(case: Case, size: int | None) -> list[Case]:
    """A batch case as streams: one stream case for each engine response (completions have one per prompt)."""
    request = case["request"]
    responses = request.get("generate_responses") or [request["generate_response"]]
    streams = []
    for number, response in enumerate(responses):
        body = {key: value for key, value in request.items() if not key.startswith("generate_")}
        for name in ("prompt_tokens", "prompt_token_ids"):
            if "generate_responses" in request and body.get(name) is not None:
                body[name] = body[name][number]
        chunks = []
        for choice in response["choices"]:
            for part in cut({"finish_reason": "stop"} | choice, size):
                chunks.append({"request_id": response.get("request_id"), "choices": [part]})
                if number_of_first := response.get("prompt_token_ids"):
                    chunks[-1]["prompt_token_ids"] = number_of_first
        streams.append(case | {"request": body, "chunks": chunks})
    return streams


def sums_of(case: Case, answer: Any) -> dict[int, Sum]:
    """What the choices of an answer to a case add up to."""
    return accumulate(answer) if "chunks" in case else whole(answer)
