"""Events to what a client reads: deltas of a stream, or one whole message.

Source: OpenAI "chat completion chunk object"; reference behaviour S24 to S39; conformance policies 5, 6, 33, 36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import UNSET

from schemas.openai import ChatDelta, ChatMessage, FunctionCall, FunctionCallDelta, ToolCall, ToolCallDelta
from schemas.state import HeldCall
from worker.core.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning

MAX_HELD_CALL = 64 * 1024
"""Characters of arguments that wait for their closer in `complete` streaming; a longer call goes on eagerly."""


class CallIds(Protocol):
    """Makes the id of a call: derived, so that a retry gives the same one."""

    def __call__(self, call_index: int, name: str, model_id: str | None) -> str: ...


class CallPolicy(NamedTuple):
    """What of the calls, and of the reasoning, a client gets.

    keep: False drops all calls (`tool_choice: none`, no tools). parallel: False keeps the first. complete: hold each
    call until its closer. named: the choice names a function, so `finish_reason` stays `stop`.
    reasoning: False drops the reasoning.
    """

    keep: bool = True
    parallel: bool = True
    complete: bool = False
    named: bool = False
    reasoning: bool = True


class CallState(NamedTuple):
    """The part of `StreamState` that the assembler keeps, under the same names."""

    calls: int = 0
    call_done: bool = False
    call_open: bool = False
    call_held: HeldCall | None = None


class _Calls:
    """Tool call deltas of one chunk; pieces of one call in one chunk become one delta."""

    def __init__(self) -> None:
        self.deltas: list[ToolCallDelta] = []

    def begin(self, index: int, id_: str, name: str, arguments: str = "") -> None:
        function = FunctionCallDelta(name=name, arguments=arguments)
        self.deltas.append(ToolCallDelta(index=index, function=function, id=id_, type="function"))

    def more(self, index: int, text: str) -> None:
        if self.deltas and self.deltas[-1].index == index:
            last = self.deltas[-1]
            function = FunctionCallDelta(name=last.function.name, arguments=(last.function.arguments or "") + text)
            self.deltas[-1] = ToolCallDelta(index=index, function=function, id=last.id, type=last.type)
        else:
            self.deltas.append(ToolCallDelta(index=index, function=FunctionCallDelta(arguments=text)))


def delta(
    events: Sequence[Event], state: CallState, policy: CallPolicy, ids: CallIds, *, role: bool
) -> tuple[ChatDelta, CallState]:
    """The delta of one chunk, and the next state. role: this is the choice's first chunk."""
    reasoning: list[str] = []
    content: list[str] = []
    out = _Calls()
    for event in events:
        match event:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case _:
                if policy.keep:
                    state = _call_event(event, state, policy, ids, out)
    return (
        ChatDelta(
            role="assistant" if role else None,
            content="".join(content) or None,
            reasoning=("".join(reasoning) or None) if policy.reasoning else None,
            tool_calls=out.deltas or UNSET,
        ),
        state,
    )


def _call_event(
    event: CallBegin | CallArguments | CallEnd, state: CallState, policy: CallPolicy, ids: CallIds, out: _Calls
) -> CallState:
    if not policy.parallel and state.calls and not state.call_open:
        return state
    match event:
        case CallBegin(_, name, id_):
            if policy.complete:
                return state._replace(call_held=HeldCall(name, id_))
            out.begin(state.calls, ids(state.calls, name, id_), name)
            return state._replace(calls=state.calls + 1, call_open=True)
        case CallArguments(_, text):
            if state.call_held is None:
                out.more(state.calls - 1, text)
                return state
            held = HeldCall(state.call_held.name, state.call_held.id, state.call_held.arguments + text)
            if len(held.arguments) <= MAX_HELD_CALL:
                return state._replace(call_held=held)
            return _release(held, state, ids, out)._replace(call_open=True)
        case CallEnd(_, complete):
            if state.call_held is not None and complete:
                state = _release(state.call_held, state, ids, out)
            return state._replace(call_held=None, call_open=False, call_done=state.call_done or complete)


def _release(held: HeldCall, state: CallState, ids: CallIds, out: _Calls) -> CallState:
    out.begin(state.calls, ids(state.calls, held.name, held.id), held.name, held.arguments)
    return state._replace(calls=state.calls + 1, call_held=None)


def message(events: Sequence[Event], policy: CallPolicy, ids: CallIds, *, forced: bool) -> ChatMessage:
    """The whole message; a call whose own closer is missing is no call.

    forced: a tool was required or named, and then `content` is "" where there is none, not null.
    """
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[ToolCall] = []
    name = ""
    id_: str | None = None
    arguments: list[str] = []
    for event in events:
        match event:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallBegin(_, name, id_):
                arguments = []
            case CallArguments(_, text):
                arguments.append(text)
            case CallEnd(_, complete):
                if complete and policy.keep and (policy.parallel or not calls):
                    function = FunctionCall(name=name, arguments="".join(arguments))
                    calls.append(ToolCall(id=ids(len(calls), name, id_), function=function))
    return ChatMessage(
        content="".join(content) or ("" if forced else None),
        reasoning=("".join(reasoning) or None) if policy.reasoning else None,
        tool_calls=calls or UNSET,
    )


def finish_reason(reason: str | None, *, calls: bool, policy: CallPolicy) -> str | None:
    """`tool_calls` in place of `stop` where calls went out, unless the choice named its function (S38)."""
    return "tool_calls" if reason == "stop" and calls and policy.keep and not policy.named else reason
