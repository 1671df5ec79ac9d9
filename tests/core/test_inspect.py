"""The inspector's trace: every character of the output is accounted for, and said text is where it was said."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from schemas.generate import GenerateChunk, GenerateStreamChoice
from schemas.inspect import MAX_TOKENS, InspectAnswer, ParserChoice, TokenTrace
from schemas.openai import ChatRequest, CompletionRequest
from schemas.request import RequestContext
from tests import shared_data
from tests.core import support
from tests.core.harness import chat_request as chat
from tests.core.harness import fault_model
from worker.core.errors import RequestError, UnknownModel
from worker.core.inspect import REGIONS, inspect_call, trace
from worker.core.model import Limits, Model
from worker.core.parse import _HANDLERS
from worker.core.prepare import prepare

Pieces = list[tuple[str, str]]


def model(**parsers: Any) -> Model:
    return support.model(support.smollm2(), eos_token_id=2, parsers=parsers)


def ids_of(text: str) -> list[int]:
    ids: list[int] = support.smollm2().tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def chunks_of(ids: list[int], size: int, finish: str | None = "stop") -> list[GenerateChunk]:
    parts = [ids[at : at + size] for at in range(0, len(ids), size)] or [[]]
    return [
        GenerateChunk(
            choices=[
                GenerateStreamChoice(index=0, token_ids=part, finish_reason=finish if at == len(parts) - 1 else None)
            ]
        )
        for at, part in enumerate(parts)
    ]


TOOLS = [{"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}]


def traced(the_model: Model, request: ChatRequest, ids: list[int], *, size: int = 3) -> InspectAnswer:
    context = RequestContext(kind="chat", chat_request=request, prompt_token_ids=[1, 520, 9531, 198])
    prepared = prepare(the_model, context, request_id="r", created=1)
    return trace(prepared, chunks_of(ids, size))


def pieces(tokens: list[TokenTrace]) -> Pieces:
    """Kinds and texts of all tokens, runs of one kind together."""
    runs: Pieces = []
    for token in tokens:
        for kind, text in token.pieces:
            if runs and runs[-1][0] == kind:
                runs[-1] = (kind, runs[-1][1] + text)
            else:
                runs.append((kind, text))
    return runs


def test_reasoning_a_call_and_an_answer() -> None:
    text = '<think>two eggs</think>\n<tool_call>\n{"name": "count", "arguments": {"what": "eggs"}}\n</tool_call>'
    parsers = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3", "enable_auto_tool_choice": True}
    answer = traced(model(**parsers), chat(tools=TOOLS), ids_of(text))
    assert pieces(answer.tokens) == [
        ("marker", "<think>"),
        ("reasoning", "two eggs"),
        ("marker", '</think>\n<tool_call>\n{"name": "'),
        ("name", "count"),
        ("marker", '", "arguments": '),
        ("argument", '{"what": "eggs"}'),
        ("marker", "}\n</tool_call>"),
    ]
    assert (answer.reasoning, answer.content) == ("two eggs", "")
    assert [(call.name, call.arguments) for call in answer.calls] == [("count", '{"what": "eggs"}')]
    assert answer.finish_reason == "tool_calls"
    assert answer.parsers == ParserChoice(**parsers)  # type: ignore[arg-type]


def test_plain_path_and_a_stop_string() -> None:
    """The stop string and what comes after it; the token in the middle has two pieces."""
    answer = traced(model(), chat(stop="two th", stream=True), ids_of("One, two three, four."))
    assert pieces(answer.tokens) == [("content", "One, "), ("stop", "two three"), ("dropped", ", four.")]
    assert answer.content == "One, "


def test_stop_token_is_shown_as_such() -> None:
    answer = traced(model(), chat(), [*ids_of("Yes."), 2])
    assert pieces(answer.tokens) == [("content", "Yes."), ("stop", "<|im_end|>")]
    assert [(token.id, token.special) for token in answer.tokens][-1] == (2, True)


def test_characters_of_several_tokens_belong_to_the_last_one() -> None:
    answer = traced(model(), chat(), ids_of("a 🎉 b"), size=1)
    assert "".join(text for _, text in pieces(answer.tokens)) == "a 🎉 b"
    assert [token.pieces for token in answer.tokens][1:3] == [(("content", " "),), ()]


def test_chunks_are_as_they_came() -> None:
    ids = ids_of("One, two three, four.")
    answer = traced(model(), chat(), ids, size=4)
    assert [chunk.tokens for chunk in answer.chunks] == [4, len(ids) - 4]
    assert [token.chunk for token in answer.tokens] == [0] * 4 + [1] * (len(ids) - 4)
    assert "".join(chunk.delta.content or "" for chunk in answer.chunks) == "One, two three, four."
    assert [chunk.finish_reason for chunk in answer.chunks] == [None, "stop"]
    assert all(chunk.state_bytes > 50 for chunk in answer.chunks)


def test_what_is_held_is_shown() -> None:
    answer = traced(model(reasoning_parser="qwen3"), chat(), ids_of("<think>a < b"), size=1)
    assert [token.held for token in answer.tokens if "<" in token.held][-1] == " <"


def test_a_completion_and_another_choice() -> None:
    context = RequestContext(kind="completion", completion_request=CompletionRequest(prompt="x", n=2))
    prepared = prepare(model(), context, request_id="r", created=1)
    first, second = chunks_of(ids_of("one"), 9), chunks_of(ids_of("two"), 9)
    other = [msgspec.structs.replace(one, choices=[msgspec.structs.replace(one.choices[0], index=1)]) for one in second]
    assert trace(prepared, [*first, *other], index=0).content == "one"
    assert trace(prepared, [*first, *other], index=1).content == "two"


def test_an_end_without_ids() -> None:
    context = RequestContext(kind="chat", chat_request=chat())
    prepared = prepare(model(), context, request_id="r", created=1)
    answer = trace(prepared, [*chunks_of(ids_of("one"), 9, None), *chunks_of([], 1, "length")])
    assert (answer.content, answer.finish_reason, len(answer.tokens)) == ("one", "length", 1)


# --- every reported fault --------------------------------------------------------------------------------------------


def trace_of_fault(case: dict[str, Any], *, size: int) -> InspectAnswer:
    """The first choice of a reported fault."""
    kind = case["endpoint"]
    fields = {
        "kind": kind,
        f"{kind}_request": {"messages": [], "prompt": "x", **case["request"], "stream": True},
        "prompt_token_ids": case["prompt_token_ids"],
    }
    context = msgspec.convert(fields, RequestContext)
    output = case["outputs"][0]
    prepared = prepare(fault_model(case), context, request_id="r", created=1)
    return trace(prepared, chunks_of(output["token_ids"], size, output["finish_reason"]))


@pytest.mark.shared
@pytest.mark.parametrize("case", shared_data.params(shared_data.faults()))
@pytest.mark.parametrize("size", [1, 5])
def test_said_text_is_where_it_was_said(case: dict[str, Any], size: int) -> None:
    """Reported faults: pieces of one kind add up to what a client gets of it."""
    answer = trace_of_fault(case, size=size)
    runs = pieces(answer.tokens)
    for kind, said in (("content", answer.content), ("reasoning", answer.reasoning)):
        assert "".join(text for one, text in runs if one == kind) == said, kind
    names = [text for kind, text in runs if kind == "name"]
    written = "".join(text for _, text in runs)
    assert names == [call.name for call in answer.calls if call.name in written]  # a forced choice may not write it
    assert len(answer.tokens) == len(case["outputs"][0]["token_ids"])
    assert [token.chunk for token in answer.tokens] == [at // size for at in range(len(answer.tokens))]


# --- the call --------------------------------------------------------------------------------------------------------


def asked(**changes: Any) -> bytes:
    body = {
        "context": {"kind": "chat", "chat_request": {"messages": []}, "prompt_token_ids": []},
        "chunks": msgspec.to_builtins(chunks_of(ids_of("<think>a</think>b"), 2)),
        **changes,
    }
    return json.dumps(body).encode()


def call(body: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        inspect_call(lambda _: model(), body, request_id="r", created=1, limits=Limits())
    )
    return answer


def test_other_parsers_than_the_model_s() -> None:
    plain, parsed = call(asked()), call(asked(parsers={"reasoning_parser": "qwen3"}))
    assert (plain["reasoning"], plain["content"]) == ("", "<think>a</think>b")
    assert (parsed["reasoning"], parsed["content"]) == ("a", "b")
    assert plain["fingerprint"] != parsed["fingerprint"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"parsers": {"reasoning_parser": "none_such"}},
            "reasoning parser 'none_such' is not known; /v1/parsers lists the names",
        ),
        (
            {"parsers": {"tool_call_parser": "nope"}},  # though it has no effect without enable_auto_tool_choice
            "tool parser 'nope' is not known; /v1/parsers lists the names",
        ),
        (
            {"parsers": {"tool_call_parser": "hermess", "enable_auto_tool_choice": True}},
            "tool parser 'hermess' is not known (did you mean hermes?); /v1/parsers lists the names",
        ),
        (
            {"parsers": {"reasoning_parser": "R1"}},
            "reasoning parser 'R1' is not known (did you mean deepseek_r1?); /v1/parsers lists the names",
        ),
        (
            {"parsers": {"tool_call_parser": "openai_gptoss"}},
            "tool parser 'openai_gptoss' is a reasoning parser (did you mean openai?); /v1/parsers lists the names",
        ),
        (
            {"parsers": {"tool_call_parser": "auto"}},
            "tool parser auto: a worker that is started with it chooses by the chat template, once; here name a parser,"
            " or take the model's own options",
        ),
        (
            {"parsers": {"tool_call_parser": "hf", "enable_auto_tool_choice": True}},
            "parser 'hf' needs the tokenizer's response_template, and this tokenizer has none",
        ),
        ({"parsers": {"stop_scope": "x"}}, "body.parsers.stop_scope: Invalid enum value 'x'"),
        (
            {"chunks": msgspec.to_builtins(chunks_of([1] * (MAX_TOKENS + 1), MAX_TOKENS))},
            f"the inspector takes at most {MAX_TOKENS} token ids",
        ),
        ({"context": {"kind": "x"}}, "body.context.kind: Invalid enum value 'x'"),
    ],
    ids=["parser", "idle parser", "near", "part", "other kind", "auto", "no template", "word", "length", "kind"],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as raised:
        call(asked(**changes))
    assert str(raised.value) == message


def test_unknown_model() -> None:
    def nobody(name: str | None) -> Model:
        raise UnknownModel(f"model {name!r}")

    with pytest.raises(UnknownModel):
        inspect_call(nobody, asked(), request_id="r", created=1, limits=Limits())


def test_every_region_has_a_name() -> None:
    assert sorted(REGIONS) == list(range(len(_HANDLERS)))
