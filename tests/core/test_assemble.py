"""Events to deltas and whole messages."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from schemas.openai import ChatDelta, ChatMessage, FunctionCall, FunctionCallDelta, ToolCall, ToolCallDelta
from schemas.state import HeldCall
from worker.core.assemble import MAX_HELD_CALL, CallPolicy, CallState, delta, finish_reason, message
from worker.core.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning


def ids(call_index: int, name: str, model_id: str | None) -> str:
    return model_id or f"{name}-{call_index}"


def call(index: int, name: str, *arguments: str, complete: bool = True, id_: str | None = None) -> list[Event]:
    pieces = [CallArguments(index, text) for text in arguments]
    return [CallBegin(index, name, id_), *pieces, CallEnd(index, complete)]


def begun(index: int, id_: str, name: str, arguments: str) -> ToolCallDelta:
    return ToolCallDelta(index, FunctionCallDelta(name, arguments), id_, "function")


def more(index: int, arguments: str) -> ToolCallDelta:
    return ToolCallDelta(index, FunctionCallDelta(None, arguments))


@pytest.mark.parametrize(
    ("events", "policy", "expected"),
    [
        pytest.param([], CallPolicy(), ChatDelta(), id="nothing"),
        pytest.param(
            [Reasoning("a"), Content("b"), Reasoning("c"), Content("d")],
            CallPolicy(),
            ChatDelta(reasoning="ac", content="bd"),
            id="texts-join",
        ),
        pytest.param([Reasoning("a")], CallPolicy(reasoning=False), ChatDelta(), id="S30-reasoning-hidden"),
        pytest.param([Content("")], CallPolicy(), ChatDelta(), id="empty-text-is-null"),
        pytest.param(
            [*call(0, "f", "{", "}"), *call(1, "g", "{}", id_="own")],
            CallPolicy(),
            ChatDelta(tool_calls=[begun(0, "f-0", "f", "{}"), begun(1, "own", "g", "{}")]),
            id="one-delta-a-call",
        ),
        pytest.param(
            [*call(0, "f", "{}"), *call(1, "g", "{}")],
            CallPolicy(parallel=False),
            ChatDelta(tool_calls=[begun(0, "f-0", "f", "{}")]),
            id="S36-first-call-only",
        ),
        pytest.param(
            [*call(0, "f", "{}"), Content("x")], CallPolicy(keep=False), ChatDelta(content="x"), id="S34-none"
        ),
        pytest.param(
            call(0, "f", '{"a', complete=False), CallPolicy(complete=True), ChatDelta(), id="P6-cut-call-complete"
        ),
        pytest.param(
            call(0, "f", '{"a', complete=False),
            CallPolicy(),
            ChatDelta(tool_calls=[begun(0, "f-0", "f", '{"a')]),
            id="P6-cut-call-eager",
        ),
    ],
)
def test_delta(events: list[Event], policy: CallPolicy, expected: ChatDelta) -> None:
    assert delta(events, CallState(), policy, ids, role=False)[0] == expected


def test_the_role_is_sent_when_asked_for() -> None:
    assert delta([], CallState(), CallPolicy(), ids, role=True) == (ChatDelta(role="assistant"), CallState())


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(
            CallPolicy(),
            [[begun(0, "f-0", "f", "")], [more(0, '{"a":')], [more(0, "1}")], UNSET, [begun(1, "g-1", "g", "{}")]],
            id="eager",
        ),
        pytest.param(
            CallPolicy(complete=True),
            [UNSET, UNSET, UNSET, [begun(0, "f-0", "f", '{"a":1}')], [begun(1, "g-1", "g", "{}")]],
            id="complete",
        ),
    ],
)
def test_a_call_over_several_chunks(policy: CallPolicy, expected: list[object]) -> None:
    chunks: list[list[Event]] = [
        [CallBegin(0, "f")],
        [CallArguments(0, '{"a":')],
        [CallArguments(0, "1}")],
        [CallEnd(0, True)],
        call(1, "g", "{}"),
    ]
    state, found = CallState(), []
    for events in chunks:
        one, state = delta(events, state, policy, ids, role=False)
        found.append(one.tool_calls)
    assert found == expected
    assert state == CallState(calls=2, call_done=True)


def test_a_long_call_goes_on_eagerly() -> None:
    """The bound of a held call: past MAX_HELD_CALL characters it goes out as it is written."""
    policy = CallPolicy(complete=True)
    one, state = delta([CallBegin(0, "f"), CallArguments(0, "x" * MAX_HELD_CALL)], CallState(), policy, ids, role=False)
    assert (one.tool_calls, state.call_held) == (UNSET, HeldCall("f", None, "x" * MAX_HELD_CALL))
    one, state = delta([CallArguments(0, "y"), CallArguments(0, "z")], state, policy, ids, role=False)
    assert one.tool_calls == [begun(0, "f-0", "f", "x" * MAX_HELD_CALL + "yz")]
    assert state == CallState(calls=1, call_open=True)
    one, state = delta([CallArguments(0, "!"), CallEnd(0, False)], state, policy, ids, role=False)
    assert (one.tool_calls, state) == ([more(0, "!")], CallState(calls=1))


@pytest.mark.parametrize(
    ("events", "policy", "forced", "expected"),
    [
        pytest.param([], CallPolicy(), False, ChatMessage(content=None), id="empty"),
        pytest.param([], CallPolicy(), True, ChatMessage(content=""), id="S35-forced-content-is-a-string"),
        pytest.param(
            [Reasoning("r"), Content("a"), *call(0, "f", "{", "}"), Content("b")],
            CallPolicy(),
            False,
            ChatMessage("ab", "r", [ToolCall("f-0", FunctionCall("f", "{}"))]),
            id="all",
        ),
        pytest.param(
            call(0, "f", "{", complete=False), CallPolicy(), False, ChatMessage(content=None), id="P6-cut-call"
        ),
        pytest.param(
            [*call(0, "f", "{}"), *call(1, "g", "{}")],
            CallPolicy(parallel=False),
            False,
            ChatMessage(None, None, [ToolCall("f-0", FunctionCall("f", "{}"))]),
            id="S36-first-call-only",
        ),
        pytest.param(call(0, "f", "{}"), CallPolicy(keep=False), False, ChatMessage(content=None), id="S34-none"),
        pytest.param([Reasoning("r")], CallPolicy(reasoning=False), False, ChatMessage(content=None), id="S30-hidden"),
    ],
)
def test_message(events: list[Event], policy: CallPolicy, forced: bool, expected: ChatMessage) -> None:
    assert message(events, policy, ids, forced=forced) == expected


@pytest.mark.parametrize(
    ("reason", "calls", "policy", "expected"),
    [
        pytest.param("stop", True, CallPolicy(), "tool_calls", id="S38-calls"),
        pytest.param("stop", False, CallPolicy(), "stop", id="S38-no-calls"),
        pytest.param("stop", True, CallPolicy(named=True), "stop", id="S38-named"),
        pytest.param("stop", True, CallPolicy(keep=False), "stop", id="S38-dropped"),
        pytest.param("length", True, CallPolicy(), "length", id="S38-length"),
        pytest.param(None, True, CallPolicy(), None, id="goes-on"),
    ],
)
def test_finish_reason(reason: str | None, calls: bool, policy: CallPolicy, expected: str | None) -> None:
    assert finish_reason(reason, calls=calls, policy=policy) == expected
