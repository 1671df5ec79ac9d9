"""The derender step: one chunk and a state in, one response chunk and the next state out. Pure.

Inside, left to right: ids -> detokenizer -> stop handling -> parser -> assembler. Batch is a fold of the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from schemas.generate import (
    GenerateChoice,
    GenerateChunk,
    GenerateResponse,
    GenerateStreamChoice,
    Usage,
)
from schemas.openai import (
    ChatChoice,
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatCompletionResponse,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    CompletionChoice,
    CompletionChunk,
    CompletionChunkChoice,
    CompletionLogprobs,
    CompletionResponse,
)
from schemas.state import STATE_VERSION, DecodeState, ParserState, StreamState
from worker.core import assemble, stop, validate
from worker.core.detokenize import START, decode_pieces, decode_text, flush, seed
from worker.core.errors import RequestError, StateMismatch
from worker.core.events import TEXT, Content, Event, Piece
from worker.core.logprobs import CONTEXT_IDS, chat_logprobs, completion_logprobs
from worker.core.prepare import Ids, PreparedRequest

Chunk = ChatCompletionChunk | CompletionChunk


# --- one choice, one chunk ------------------------------------------------------------------------------------------


class _Advance(NamedTuple):
    """What one chunk of one choice says: text (plain path) or events (parser path), and how it ends."""

    text: str
    events: list[Event]
    finish: str | None
    stop_reason: int | str | None
    state: StreamState


def _advance(
    request: PreparedRequest,
    choice: GenerateStreamChoice | GenerateChoice,
    state: StreamState,
    prompt_ids: Ids | None,
    strings: Sequence[str],
    *,
    final: bool,
) -> _Advance:
    """Ids of one choice through detokenizer, stop handling and parser. final: no more ids follow."""
    ids: Ids = choice.token_ids or ()
    finish, stop_reason = choice.finish_reason or None, choice.stop_reason  # some engines write "" for null
    text_ids = ids
    if finish is not None and stop.ends_by_token(request.stop_tokens, ids, finish, stop_reason):
        if not request.stop_tokens.include:
            text_ids = ids[:-1]
        if stop_reason is None and ids[-1] != request.stop_tokens.primary:
            stop_reason = ids[-1]
    parser = request.parser
    text, events, parser_state = "", list[Event](), None
    if parser is not None and strings and request.model.parsers.stop_scope == "content":
        events, decode, parser_state, held, found = _content(
            request, state, text_ids, prompt_ids, strings, (finish or "stop") if final else None
        )
    else:
        pieces, decode, held, found = _pieces(request, state, text_ids, prompt_ids, strings, final)
        if parser is None:
            text = pieces[0][0] if len(pieces) == 1 else "".join([text for text, _ in pieces])
        else:
            before = state.parser or parser.start(prompt_ids or (), request.history_calls)
            events, parser_state = parser.step(before, pieces)
            if final or found is not None:
                rest, _ = parser.finish(parser_state, "stop" if found is not None else finish or "stop")
                events.extend(rest)
    if found is not None:
        finish, stop_reason = "stop", found
    if final or found is not None:
        parser_state = None
    stop_held, stop_begun = stop.pack(request.stops, held) if held else ((), None)
    return _Advance(
        text,
        events,
        finish,
        stop_reason,
        structs.replace(  # names the fields that change: half the cost of naming all of them
            state,
            tokens=state.tokens + len(ids),
            role_sent=True,
            finish=finish or "",
            stopped=found is not None and not choice.finish_reason,
            decode=None if finish or decode is START or decode == START else decode,
            stop_held=stop_held,
            logprob_context=(*state.logprob_context, *ids[-CONTEXT_IDS:])[-CONTEXT_IDS:],
            parser=parser_state,
            prompt=state.prompt or len(prompt_ids or ()),
            stop_begun=stop_begun,
        ),
    )


def _pieces(
    request: PreparedRequest,
    state: StreamState,
    ids: Ids,
    prompt_ids: Ids | None,
    strings: Sequence[str],
    final: bool,
) -> tuple[list[Piece], DecodeState, tuple[Piece, ...], str | None]:
    """Pieces that may go on, the detokenizer's state, pieces held for a stop string, and the stop string found."""
    decode = _decode_state(request, state, prompt_ids)
    if not strings:
        pieces, decode = _decoded(request, decode, ids, final)
        return pieces, decode, (), None
    pieces = []
    held = stop.unpack(request.stops, state.stop_held, state.stop_begun)
    parts = stop.parts(ids, state.tokens, request.min_tokens)
    for number, (part, search) in enumerate(parts, 1):
        new, decode = _decoded(request, decode, part, final and number == len(parts))
        new, held, found = stop.feed(strings, held, new, search=search, include=request.stop_tokens.include)
        pieces += new
        if found is not None:
            return pieces, decode, (), found
    if final:
        pieces += held
        held = ()
    return pieces, decode, held, None


def _decoded(request: PreparedRequest, decode: DecodeState, ids: Ids, final: bool) -> tuple[list[Piece], DecodeState]:
    vocabulary = request.model.vocabulary
    if request.parser is not None:
        pieces, decode = decode_pieces(vocabulary, decode, ids)
    else:
        text, decode = decode_text(vocabulary, decode, ids, skip_special=request.skip_special)
        pieces = [(text, TEXT)] if text else []
    if final:
        text, decode = flush(vocabulary, decode)
        if text:
            pieces.append((text, TEXT))
    return pieces, decode


def _decode_state(request: PreparedRequest, state: StreamState, prompt_ids: Ids | None) -> DecodeState:
    if state.decode is not None or state.tokens:
        return state.decode or START
    return _seed(request, prompt_ids)


def _seed(request: PreparedRequest, prompt_ids: Ids | None) -> DecodeState:
    parsed = request.parser is not None
    return seed(request.model.vocabulary, prompt_ids, skip_special=request.skip_special, parsed=parsed)


def _content(
    request: PreparedRequest,
    state: StreamState,
    ids: Ids,
    prompt_ids: Ids | None,
    strings: Sequence[str],
    finish: str | None,
) -> tuple[list[Event], DecodeState, ParserState, tuple[Piece, ...], str | None]:
    """Stop strings in content alone (`stop_scope="content"`): what comes after a match is dropped.

    finish: no more ids follow, and why; None while they do.
    """
    parser = request.parser
    assert parser is not None  # only parsed requests tell content from the rest
    decode = _decode_state(request, state, prompt_ids)
    parsed = state.parser or parser.start(prompt_ids or (), request.history_calls)
    held = stop.unpack(request.stops, state.stop_held, state.stop_begun)
    events: list[Event] = []
    parts = stop.parts(ids, state.tokens, request.min_tokens)
    for number, (part, search) in enumerate(parts, 1):
        ends = finish is not None and number == len(parts)
        pieces, decode = _decoded(request, decode, part, ends)
        said, parsed = parser.step(parsed, pieces)
        if finish is not None and ends:
            rest, parsed = parser.finish(parsed, finish)
            said.extend(rest)
        for event in said:
            if not isinstance(event, Content):
                events.append(event)
                continue
            new, held, found = stop.feed(
                strings, held, [(event.text, TEXT)], search=search, include=request.stop_tokens.include
            )
            if new:
                events.append(Content("".join([text for text, _ in new])))
            if found is not None:
                return events, decode, parsed, (), found
    if finish is not None and held:
        events.append(Content("".join([text for text, _ in held])))
        held = ()
    return events, decode, parsed, held, None


# --- streams --------------------------------------------------------------------------------------------------------


def derender_step(
    request: PreparedRequest, chunk: GenerateChunk, state: StreamState | None, *, prompt: int = 0
) -> tuple[Chunk, StreamState]:
    """Derender one chunk. Pure: equal arguments give equal results.

    chunk: at most one choice, with 0..n new ids in generation order. state: what the call before returned for this
    choice; None before its first chunk. prompt: number of the prompt the chunk belongs to (completions).
    Returns the response chunk (a delta may be empty while text is held; no choice at all once the choice has finished)
    and the next state. Raises RequestError (several choices, a bound passed), StateMismatch (state of another version,
    configuration or choice). Source: OpenAI "chat completion chunk object"; reference behaviour S1 to S46.
    """
    model = request.model
    validate.check_output_mode(chunk)
    if len(chunk.choices) > 1:
        raise RequestError(f"a chunk may hold at most one choice, not {len(chunk.choices)}")
    if state is None:
        state = _first_state(request)
    else:
        check_state(request, state)
    prompt_ids = request.prompt_ids(prompt, chunk.prompt_token_ids)
    usage = None if chunk.usage is None else _chunk_usage(request, chunk.usage, prompt)
    if not chunk.choices:
        return _chunk(request, chunk, usage, None), _remember_prompt(request, state, prompt_ids)
    choice = chunk.choices[0]
    index = prompt * request.choices_per_prompt + choice.index if prompt else choice.index
    if index >= model.limits.max_sequences:
        raise RequestError(f"choice index {index} is over the limit of {model.limits.max_sequences} choices")
    if state.index is None:
        state = structs.replace(state, index=index)
    elif state.index != index:
        raise StateMismatch(f"stream_state belongs to choice {state.index}, but the chunk is of choice {index}")
    _check_length(request, state, choice, prompt_ids)
    if choice.logprobs is not None:
        validate.check_logprobs(choice.logprobs, model.limits)
    if state.finish:
        counted = structs.replace(state, tokens=state.tokens + len(choice.token_ids or ()))
        return _chunk(request, chunk, usage, None), counted
    if request.parser is not None and state.parser is None and prompt_ids is None:
        raise RequestError("prompt_token_ids is required: the model's parser has to know where the prompt ends")
    step = _advance(request, choice, state, prompt_ids, request.stops, final=bool(choice.finish_reason))
    if request.kind == "chat":
        chat_choice, after = _chat_choice(request, choice, index, state, step)
        return _chunk(request, chunk, usage, chat_choice), after
    completion_choice, after = _completion_choice(request, chunk, choice, index, state, step)
    return _chunk(request, chunk, usage, completion_choice), after


def _first_state(request: PreparedRequest) -> StreamState:
    return StreamState(version=STATE_VERSION, fingerprint=request.model.fingerprint)


def check_state(request: PreparedRequest, state: StreamState) -> None:
    """Refuse a state that another version or configuration wrote. Raises StateMismatch."""
    if state.version != STATE_VERSION:
        raise StateMismatch(f"stream_state has version {state.version}; this version reads {STATE_VERSION}")
    if state.fingerprint != request.model.fingerprint:
        raise StateMismatch(
            f"stream_state was written for configuration {state.fingerprint!r}, but {request.model.name!r} is served"
            f" with {request.model.fingerprint}: model, tokenizer, template or parser options differ"
        )


def _remember_prompt(request: PreparedRequest, state: StreamState, prompt_ids: Ids | None) -> StreamState:
    """A first chunk without a choice may be the only one that brings the prompt's ids (S26)."""
    if not prompt_ids or state.index is not None or state.decode is not None or state.parser is not None:
        return state
    parser = request.parser
    decode = _seed(request, prompt_ids)
    return structs.replace(
        state,
        decode=None if decode == START else decode,
        parser=parser.start(prompt_ids, request.history_calls) if parser else None,
        prompt=len(prompt_ids),
    )


def _check_length(
    request: PreparedRequest, state: StreamState, choice: GenerateStreamChoice, prompt_ids: Ids | None
) -> None:
    limit = request.model.limits.max_model_len
    if limit is None:
        return
    prompt = state.prompt if prompt_ids is None else len(prompt_ids)
    new = len(choice.token_ids or ())
    if prompt + state.tokens + new > limit:
        raise RequestError(
            f"{prompt} prompt ids, {state.tokens} output ids and {new} new ids are over the model's limit of {limit}"
        )


def _chunk_usage(request: PreparedRequest, usage: Usage, prompt: int) -> Usage:
    count = request.prompt_tokens[prompt] if prompt < len(request.prompt_tokens) else None
    prompt_tokens = usage.prompt_tokens if count is None else count
    return usage_of(prompt_tokens, usage.completion_tokens or 0)


def usage_of(prompt_tokens: int, completion_tokens: int) -> Usage:
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
    )


def _chunk(
    request: PreparedRequest,
    chunk: GenerateChunk,
    usage: Usage | None,
    choice: ChatChunkChoice | CompletionChunkChoice | None,
) -> Chunk:
    if request.kind == "chat":
        return ChatCompletionChunk(
            id=request.request_id,
            created=request.created,
            model=request.model.name,
            choices=[choice] if isinstance(choice, ChatChunkChoice) else [],
            usage=usage,
            prompt_token_ids=chunk.prompt_token_ids if request.return_token_ids else None,
            metrics=chunk.metrics,
        )
    return CompletionChunk(
        id=request.request_id,
        created=request.created,
        model=request.model.name,
        choices=[choice] if isinstance(choice, CompletionChunkChoice) else [],
        usage=usage,
        metrics=chunk.metrics,
    )


def _chat_choice(
    request: PreparedRequest, choice: GenerateStreamChoice, index: int, before: StreamState, step: _Advance
) -> tuple[ChatChunkChoice, StreamState]:
    after = step.state
    finish = step.finish
    role = not before.role_sent
    if request.parser is None:
        delta = ChatDelta(role="assistant" if role else None, content=step.text or None)
    else:
        known = assemble.CallState(before.calls, before.call_done, before.call_open, before.call_held)
        delta, calls = assemble.delta(step.events, known, request.calls, _call_ids(request, index), role=role)
        if calls is not known:
            after = structs.replace(after, **calls._asdict())
        finish = assemble.finish_reason(finish, calls=calls.call_done, policy=request.calls)
    return (
        ChatChunkChoice(
            index=index,
            delta=delta,
            logprobs=_chat_logprobs(request, choice, before.logprob_context),
            finish_reason=finish,
            stop_reason=step.stop_reason,
            token_ids=_token_ids(request, choice),
        ),
        after,
    )


def _call_ids(request: PreparedRequest, index: int) -> assemble.CallIds:
    parser = request.parser
    assert parser is not None  # only parsed requests have calls

    def make(call_index: int, name: str, model_id: str | None) -> str:
        return parser.call_id(request.request_id, index, call_index, name, model_id, request.history_calls)

    return make


def _chat_logprobs(
    request: PreparedRequest, choice: GenerateStreamChoice | GenerateChoice, context: Ids
) -> ChatLogprobs | None:
    if choice.logprobs is None or request.hide_metadata:
        return None
    return chat_logprobs(request.model.vocabulary, choice.logprobs, context, request.keep_candidates)


def _token_ids(request: PreparedRequest, choice: GenerateStreamChoice | GenerateChoice) -> list[int] | None:
    return choice.token_ids if request.return_token_ids and not request.hide_metadata else None


def _completion_choice(
    request: PreparedRequest,
    chunk: GenerateChunk,
    choice: GenerateStreamChoice,
    index: int,
    before: StreamState,
    step: _Advance,
) -> tuple[CompletionChunkChoice, StreamState]:
    logprobs, offset = _completion_logprobs(request, choice, before, step.text)
    return (
        CompletionChunkChoice(
            index=index,
            text=step.text,
            logprobs=logprobs,
            finish_reason=step.finish,
            stop_reason=step.stop_reason,
            prompt_token_ids=chunk.prompt_token_ids if request.return_token_ids else None,
            token_ids=_token_ids(request, choice),
        ),
        step.state if offset == before.text_offset else structs.replace(step.state, text_offset=offset),
    )


def _completion_logprobs(
    request: PreparedRequest, choice: GenerateStreamChoice | GenerateChoice, before: StreamState, text: str
) -> tuple[CompletionLogprobs | None, int]:
    if choice.logprobs is None:
        return None, before.text_offset + len(text)
    return completion_logprobs(
        request.model.vocabulary, choice.logprobs, before.logprob_context, request.keep_candidates, before.text_offset
    )


# --- whole responses ------------------------------------------------------------------------------------------------


def derender(request: PreparedRequest, response: GenerateResponse) -> ChatCompletionResponse | CompletionResponse:
    """Derender one whole response: a fold of the streaming step over one big chunk per choice.

    Raises RequestError: a bound is passed, or a choice has no ids (E9 to E16).
    """
    if request.kind == "completion":
        return derender_completions(request, [response])
    validate.check_response_size(response, request.model.limits)
    validate.check_ids_present(response)
    prompt_ids = request.prompt_ids(0, response.prompt_token_ids)
    choices = [_chat_whole(request, choice, prompt_ids) for choice in response.choices]
    return ChatCompletionResponse(
        id=request.request_id,
        created=request.created,
        model=request.model.name,
        choices=choices,
        usage=_whole_usage(request, [response]),
        prompt_logprobs=response.prompt_logprobs,
        prompt_token_ids=response.prompt_token_ids if request.return_token_ids else None,
        kv_transfer_params=response.kv_transfer_params,
        metrics=response.metrics,
    )


def derender_completions(request: PreparedRequest, responses: Sequence[GenerateResponse]) -> CompletionResponse:
    """One completion response of several prompts: choices are numbered through, in order (S42 to S45)."""
    limits = request.model.limits
    if not responses:
        raise RequestError("generate_responses must not be empty")
    validate.check_responses(responses, limits)
    for number, response in enumerate(responses):
        validate.check_ids_present(response, of=f" of response {number}")
    choices: list[CompletionChoice] = []
    for prompt, response in enumerate(responses):
        prompt_ids = request.prompt_ids(prompt, response.prompt_token_ids)
        for choice in response.choices:
            step = _whole(request, choice, prompt_ids)
            logprobs, _ = _completion_logprobs(request, choice, _first_state(request), step.text)
            choices.append(
                CompletionChoice(
                    index=len(choices),
                    text=step.text,
                    logprobs=logprobs,
                    finish_reason=step.finish,
                    stop_reason=step.stop_reason,
                    token_ids=_token_ids(request, choice),
                    prompt_token_ids=response.prompt_token_ids if request.return_token_ids else None,
                )
            )
    first = responses[0].kv_transfer_params
    return CompletionResponse(
        id=request.request_id,
        created=request.created,
        model=request.model.name,
        choices=choices,
        usage=_whole_usage(request, responses),
        kv_transfer_params=first if all(response.kv_transfer_params == first for response in responses) else None,
        metrics=responses[0].metrics if len(responses) == 1 else None,
    )


def _whole(request: PreparedRequest, choice: GenerateChoice, prompt_ids: Ids | None) -> _Advance:
    strings: Sequence[str] = request.stops
    if isinstance(choice.stop_reason, str) and choice.stop_reason and choice.stop_reason not in strings:
        strings = (*strings, choice.stop_reason)  # the engine found a string that the request does not name
    return _advance(request, choice, _first_state(request), prompt_ids, strings, final=True)


def _chat_whole(request: PreparedRequest, choice: GenerateChoice, prompt_ids: Ids | None) -> ChatChoice:
    step = _whole(request, choice, prompt_ids)
    finish = step.finish or "stop"
    if request.parser is None:
        message = ChatMessage(content=step.text)
    else:
        ids = _call_ids(request, choice.index)
        message = assemble.message(step.events, request.calls, ids, forced=request.forced)
        finish = assemble.finish_reason(finish, calls=bool(message.tool_calls), policy=request.calls) or finish
    return ChatChoice(
        index=choice.index,
        message=message,
        logprobs=_chat_logprobs(request, choice, ()),
        finish_reason=finish,
        stop_reason=step.stop_reason,
        token_ids=_token_ids(request, choice),
    )


def _whole_usage(request: PreparedRequest, responses: Sequence[GenerateResponse]) -> Usage:
    prompt = sum(count or 0 for count in request.prompt_tokens)
    completion = sum(len(choice.token_ids or ()) for response in responses for choice in response.choices)
    return usage_of(prompt, completion)
