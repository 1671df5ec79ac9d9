"""The parser's facade: what a request changes, where outputs start, ids of calls, foreign states."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.state import ParserState
from tests.core.families import FAMILIES, family, markers_of
from tests.core.grammars.samples import TOOLS
from tests.core.harness import chat_request, parser_for, run
from tests.core.support import smollm2
from worker.core import grammars
from worker.core.errors import GrammarError, StateMismatch
from worker.core.events import TEXT, CallBegin
from worker.core.model import Model, ParserConfig
from worker.core.parse import Parser, template_kwargs, tool_choice

CALL = '<tool_call>{"name": "now", "arguments": {"a": 1}}</tool_call>'
NAMED = {"type": "function", "function": {"name": "now"}}


def outcome(raw: str, tool: str | None = "hermes", reasoning: str | None = None, **request: Any) -> Any:
    declared = [grammars.TOOLS.get(tool or ""), grammars.REASONING.get(reasoning or "")]
    voc = smollm2(tuple(markers_of(*declared)))
    parser = parser_for(voc, tool, reasoning, **request)
    ids = voc.tokenizer.encode(raw, add_special_tokens=False).ids
    said = run(parser, [[id_] for id_ in ids], "stop").said()
    assert run(parser, [ids], "stop").said() == said
    return said


@pytest.mark.parametrize(
    ("raw", "request_", "expected"),
    [
        (CALL, {"tools": TOOLS}, ("", "", [("now", {"a": 1})])),
        (CALL, {"tools": TOOLS, "tool_choice": "none"}, ("", "", [])),
        ("a" + CALL + "b", {"tools": TOOLS, "tool_choice": "none"}, ("ab", "", [])),
        (CALL, {}, (CALL, "", [])),
        (CALL, {"tools": TOOLS, "tool_choice": "required"}, ("", "", [("now", {"a": 1})])),
        (CALL, {"tools": TOOLS, "tool_choice": NAMED}, ("", "", [("now", {"a": 1})])),
    ],
    ids=["auto", "none", "none-keeps-text", "no-tools", "required-native", "named-native"],
)
def test_tool_choice(raw: str, request_: dict[str, Any], expected: Any) -> None:
    assert outcome(raw, **request_) == expected


@pytest.mark.parametrize(
    ("raw", "choice", "expected"),
    [
        ('[{"name": "now", "parameters": {"a": 1}}, {"name": "f"}]', "required",
         ("", "", [("now", {"a": 1}), ("f", {})])),
        (' [{"parameters": {"a": 1}, "name": "now"}] text', "required", ("", "", [("now", {"a": 1})])),
        ('[{"name": "now", "parameters": null}]', "required", ("", "", [("now", {})])),
        ("[]", "required", ("", "", [])),
        ("text", "required", ("", "", [])),
        ('{"a": 1} text', NAMED, ("", "", [("now", {"a": 1})])),
        ("text", NAMED, ("text", "", [])),
        (" \n", NAMED, ("", "", [])),
    ],
)  # fmt: skip
def test_forced_json(raw: str, choice: Any, expected: Any) -> None:
    assert outcome(raw, forced="json", tools=TOOLS, tool_choice=choice) == expected


def test_forced_json_after_reasoning() -> None:
    raw = 'why</think>\n\n[{"name": "now", "parameters": {}}]'
    expected: Any = ("", "why", [("now", {})])
    assert outcome(raw, reasoning="deepseek_r1", forced="json", tools=TOOLS, tool_choice="required") == expected


def test_formats_that_are_always_native() -> None:
    raw = "<|tool_call>call:now{}<tool_call|>"
    assert outcome(raw, "gemma4", forced="json", tools=TOOLS, tool_choice="required") == ("", "", [("now", {})])


def test_reasoning_channel_without_a_reasoning_parser_is_dropped() -> None:
    raw = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b"
    assert outcome(raw, "openai", tools=TOOLS) == ("b", "", [])
    assert outcome(raw, "openai", "openai_gptoss", tools=TOOLS) == ("b", "a", [])


def test_special_tokens_are_dropped_outside_values_and_kept_inside() -> None:
    raw = 'a<|im_end|>b<tool_call>{"name": "now", "arguments": {"t": "<|im_end|>"}}</tool_call>'
    assert outcome(raw, tools=TOOLS) == ("ab", "", [("now", {"t": "<|im_end|>"})])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, ("none", "")),
        ({"tools": TOOLS}, ("auto", "")),
        ({"tools": TOOLS, "tool_choice": None}, ("none", "")),
        ({"tools": TOOLS, "tool_choice": "required"}, ("required", "")),
        ({"tools": TOOLS, "tool_choice": NAMED}, ("named", "now")),
    ],
)
def test_kind_of_choice(request_: dict[str, Any], expected: tuple[str, str]) -> None:
    assert tool_choice(chat_request(**request_)) == expected


@pytest.mark.parametrize(
    ("defaults", "request_", "expected"),
    [
        ({"a": 1, "b": 1}, {"chat_template_kwargs": {"b": 2}}, {"a": 1, "b": 2}),
        ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "none", "enable_thinking": False}),
        ({"enable_thinking": False}, {"reasoning_effort": "low"}, {"reasoning_effort": "low", "enable_thinking": True}),
        ({}, {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
         {"reasoning_effort": "low", "enable_thinking": False}),
    ],
)  # fmt: skip
def test_template_kwargs(defaults: dict[str, Any], request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert template_kwargs(defaults, chat_request(**request_)) == expected


def test_call_ids_are_derived() -> None:
    voc = smollm2(())
    plain = parser_for(voc, "hermes", None, tools=TOOLS)
    one = plain.call_id("r", 0, 0, "now", None)
    assert one == plain.call_id("r", 0, 0, "now", None)
    assert one.startswith("chatcmpl-tool-")
    assert len(one) == len("chatcmpl-tool-") + 16
    assert len({plain.call_id("r", choice, call, "now", None) for choice in (0, 1) for call in (0, 1)}) == 4
    assert plain.call_id("r", 0, 0, "now", "own") == "own"
    kimi = parser_for(voc, "hermes", None, model_type="kimi_k2", tools=TOOLS)
    assert kimi.call_id("r", 0, 1, "now", None, 3) == "functions.now:4"
    mistral = parser_for(voc, "mistral", None, tools=TOOLS)
    nine = mistral.call_id("r", 0, 0, "now", None)
    assert (len(nine), nine.isalnum(), nine.isascii()) == (9, True, True)
    assert mistral.call_id("r", 0, 0, "now", "abcDEF123") == "abcDEF123"
    assert mistral.call_id("r", 0, 0, "now", "short") == nine


def test_history_is_carried() -> None:
    parser = parser_for(smollm2(()), "hermes", None, tools=TOOLS)
    state = parser.start([], 7)
    assert state.history == 7
    assert parser.step(state, [("text", TEXT)])[1].history == 7


def test_events_of_one_call_in_one_chunk() -> None:
    parser = parser_for(smollm2(()), "hermes", None, tools=TOOLS)
    events, _ = parser.step(parser.start([], 0), [(CALL, TEXT)])
    assert [type(event).__name__ for event in events] == ["CallBegin", "CallArguments", "CallEnd"]
    assert events[0] == CallBegin(0, "now", None)


def test_unknown_parser_name() -> None:
    model = Model(name="m", vocabulary=smollm2(()), parsers=ParserConfig(reasoning_parser="qwen33"))
    with pytest.raises(GrammarError) as raised:
        Parser.for_request(model, chat_request())
    known = ", ".join(grammars.REASONING_NAMES)
    assert str(raised.value) == f"reasoning parser 'qwen33' is not known; known are: {known}"


fields = st.fixed_dictionaries(
    {"region": st.integers(0, 19)},
    optional={
        "flags": st.integers(0, 2**20 - 1),
        "held": st.sampled_from(["<", "\ufdd0", "\ufdd0x", "{", "text", "[f("]),
        "calls": st.integers(0, 3),
        "name": st.sampled_from(["f", "x" * 300]),
        "phase": st.integers(0, 15),
        "mode": st.integers(0, 127),
        "stack": st.text(alphabet="{[(", max_size=4),
        "scalar": st.sampled_from(["1", "tru"]),
        "key": st.sampled_from(['"', '"name"', "k"]),
        "kind": st.integers(0, 255),
        "value": st.sampled_from(["1", '{"a"', '"', "x"]),
        "raw": st.sampled_from(["{", "\n<tool_call>"]),
        "seen": st.lists(st.integers(0, 3), max_size=3),
    },
)


@pytest.mark.parametrize("name", FAMILIES)
@given(value=fields, text=st.sampled_from(["</think>", '"}', "x", '{"a": 1}', ", ", "]", "<", "\n", "'", "f(a=1)"]))
@settings(max_examples=150, deadline=None)
def test_foreign_states(name: str, value: dict[str, Any], text: str) -> None:
    """A state that clients made up is refused or parsed on; nothing else happens."""
    parser = family(name, "ids")[0]
    state = msgspec.convert(value, ParserState)
    for _ in range(2):
        try:
            _, state = parser.step(state, [(text, TEXT)])
            parser.finish(state, "stop")
        except StateMismatch:
            return
