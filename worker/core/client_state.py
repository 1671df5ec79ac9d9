"""A `stream_state` that a client carried is untrusted: what no run of the step could have written is refused.

The pipeline's own states do not come through here. Every message says which fields do not add up. Source: reference
E4, E20 to E22, with the equivalent rules for our own fields.
"""

from __future__ import annotations

from schemas.keys import valid_request_id
from schemas.state import StreamState
from worker.core import assemble, detokenize
from worker.core.errors import StateMismatch
from worker.core.events import TEXT
from worker.core.logprobs import CONTEXT_IDS
from worker.core.prepare import PreparedRequest
from worker.core.step import check_state


def check_client_state(request: PreparedRequest, state: StreamState) -> None:
    """Raises StateMismatch: another version, another configuration, or fields that contradict each other."""
    check_state(request, state)
    _check_progress(request, state)
    _check_stop(request, state)
    _check_calls(request, state)
    if state.decode is not None:
        detokenize.check(request.model.vocabulary, state.decode)
    if state.id is not None and not valid_request_id(state.id):
        raise StateMismatch("stream_state: id is none that this server gives")


def _check_progress(request: PreparedRequest, state: StreamState) -> None:
    begun = bool(state.tokens or state.role_sent or state.finish or state.text_offset or state.logprob_context)
    if state.index is None and begun:
        raise StateMismatch("stream_state: fields of a choice are set, but no index")
    if state.index is not None and not state.role_sent:
        raise StateMismatch("stream_state: index is set, but role_sent is not")
    limit = request.model.limits.max_model_len
    if limit is not None and state.prompt > limit:
        raise StateMismatch(f"stream_state: prompt is {state.prompt}, over the model's limit of {limit}")
    kept, due = len(state.logprob_context), min(state.tokens, CONTEXT_IDS)
    if kept > due or (kept < due and not state.finish):
        raise StateMismatch(f"stream_state: logprob_context has {kept} ids after {state.tokens} tokens")
    if request.kind == "chat" and state.text_offset:
        raise StateMismatch("stream_state: text_offset is set, but only completions count it")
    decode = state.decode
    if decode is not None and not state.tokens and (decode.pending or decode.held or decode.unread or decode.broken):
        raise StateMismatch("stream_state: decode holds text, but tokens is 0")
    held = state.stop_held or state.stop_begun or state.call_held or state.parser or decode
    if state.finish and held:
        raise StateMismatch(f"stream_state: finish is {state.finish!r}, but something is still held")
    if state.stopped and state.finish != "stop":
        raise StateMismatch("stream_state: stopped is set, but finish is not stop")


def _check_stop(request: PreparedRequest, state: StreamState) -> None:
    if state.stop_begun is not None:
        number, length = state.stop_begun
        if state.stop_held or number >= len(request.stops) or not 0 < length < len(request.stops[number]):
            raise StateMismatch("stream_state: stop_begun is no beginning of a stop string of this request")
    if not state.stop_held:
        return
    if request.parser is None or not request.stops:
        raise StateMismatch("stream_state: stop_held is set, but this request holds no tokens for a stop string")
    added = request.model.vocabulary.added
    # whether a text begins with the decoder's own space depends on what stands before it
    if any(
        id_ != TEXT and added.get(id_) not in (text, " " + text, text.removeprefix(" "))
        for text, id_ in state.stop_held
    ):
        raise StateMismatch("stream_state: stop_held has a text that is not the one of its id")
    # a token that a beginning starts in is held whole
    most = max(map(len, request.stops)) + max(map(len, added.values()), default=0)
    held = sum(len(text) for text, _ in state.stop_held)
    if held > most or not all(text for text, _ in state.stop_held):
        raise StateMismatch(f"stream_state: stop_held has {held} characters, but {most} at most and no empty ones")


def _check_calls(request: PreparedRequest, state: StreamState) -> None:
    if request.parser is None:
        if state.parser or state.calls or state.call_done or state.call_open or state.call_held:
            raise StateMismatch("stream_state holds a parser's state, but this request runs no parser")
        return
    if state.calls > state.tokens:
        raise StateMismatch(f"stream_state: {state.calls} calls after {state.tokens} tokens")
    if state.call_open and not state.calls:
        raise StateMismatch("stream_state: call_open is set, but calls is 0")
    if state.call_held is not None and len(state.call_held.arguments) > assemble.MAX_HELD_CALL:
        raise StateMismatch(
            f"stream_state: call_held has {len(state.call_held.arguments)} characters, over the limit of"
            f" {assemble.MAX_HELD_CALL}"
        )
