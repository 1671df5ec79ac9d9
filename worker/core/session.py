"""One request from `open` to its last reply: input entries are folded into replies. Pure, like the step that it calls.

    fold(entry, open request or None, status or None) -> Outcome

The rules of the wire live here: sequence numbers, several choices, the end of a stream, errors. Who reads the entries
and where the outcome is written is not known here (`worker/drain.py`, `worker/streams.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from schemas import keys
from schemas.generate import GenerateChunk, GenerateResponse, GenerateStreamChoice
from schemas.inspect import INSPECT
from schemas.openai import (
    ChatCompletionChunk,
    ChatRequest,
    CompletionChunk,
    CompletionRequest,
    ErrorBody,
    ErrorInfo,
    FunctionCallPiece,
    ToolCallDelta,
    ToolCallPiece,
)
from schemas.request import RequestContext
from schemas.state import REQUEST_STATE_VERSION, RequestState, StreamState
from worker.core import prepare, step, validate
from worker.core.calls import Models, derender_call
from worker.core.errors import IdleTooLong, RequestError, SchemaError, cut
from worker.core.inspect import inspect_call
from worker.core.model import Limits
from worker.core.prepare import PreparedRequest


class Core:
    """The pure functions that a session calls; tests put others in their place."""

    prepare = staticmethod(prepare.prepare)
    derender_step = staticmethod(step.derender_step)
    derender = staticmethod(step.derender)
    derender_completions = staticmethod(step.derender_completions)
    derender_call = staticmethod(derender_call)
    inspect_call = staticmethod(inspect_call)


class Entry(NamedTuple):
    """One entry of an input stream, as Redis returns it. parts: the entries that a merged one stands for."""

    id: bytes
    fields: dict[bytes, bytes]
    parts: tuple[Entry, ...] = ()

    @property
    def time_ms(self) -> int:
        return int(self.id.partition(b"-")[0])


class Open(NamedTuple):
    """An open request: what is stored, and its compiled context (a cache that can be made again)."""

    state: RequestState
    request: PreparedRequest


class Reply(NamedTuple):
    """One entry of a reply stream. number: n of the entry id `n-0`; fields: see `schemas/keys.py`."""

    number: int
    fields: dict[bytes, bytes]


@dataclass(frozen=True)
class Signal:
    """Tells the engine's side to cancel a generation. index: flat choice index; None: the whole request."""

    reason: str
    index: int | None = None


@dataclass(slots=True)
class Outcome:
    """What one entry changes.

    open: the request afterwards; None: it is not open (any more), or the entry has nothing to do with it.
    opened: the context to store, when this entry opened the request.
    closed: final status, when this entry ended the request.
    dead: reason to put the entry on the dead-letter stream.
    dropped: why the entry had no effect (it was seen before, or came after the end).
    error: kind of the error that ended the request: a class name of ours, or `EngineError`.
    tokens: ids that were taken in; unknown: those among them that the tokenizer does not have.
    reply_to: second stream for the replies. private: the only one; the request leaves no reply stream and no status.
    """

    open: Open | None = None
    replies: list[Reply] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    opened: bytes | None = None
    closed: str | None = None
    dead: str | None = None
    dropped: str | None = None
    reply_to: str | None = None
    error: str | None = None
    tokens: int = 0
    unknown: int = 0
    private: bool = False


class Answer(Protocol):
    def __call__(self, endpoint: str, body: bytes, *, request_id: str, limits: Limits) -> bytes:
        """The JSON answer to a call. Raises RequestError."""
        ...


class _Address(msgspec.Struct):
    reply_to: str | None = None


class _EngineError(msgspec.Struct):
    error: Any


ENGINE_ERROR = "EngineError"
NO_ID = "invalid or missing request_id"

_KINDS = frozenset((keys.OPEN, keys.CHUNK, keys.CONTROL, keys.RESPONSE, keys.CALL))
_WHOLE = frozenset((keys.OPEN, keys.RESPONSE))

MAX_CHOICES = 1024
"""Choices of one request, over all prompts: their states live in one value."""

_encode = msgspec.json.Encoder().encode
_context_decoder = msgspec.json.Decoder(RequestContext)
_address_decoder = msgspec.json.Decoder(_Address)
_chunk_decoder = msgspec.json.Decoder(GenerateChunk)
_response_decoder = msgspec.json.Decoder(GenerateResponse)
_responses_decoder = msgspec.json.Decoder(list[GenerateResponse])
_engine_error_decoder = msgspec.json.Decoder(_EngineError)


def context_digest(context: bytes) -> str:
    """16 hex digits of a context as it was published: two opens of one request have to agree."""
    return blake2b(context, digest_size=8).hexdigest()


def _integer(entry: Entry, name: bytes) -> int | None:
    """A non-negative decimal field of at most 15 digits, or None where it is absent."""
    raw = entry.fields.get(name)
    if raw is None:
        return None
    if not (raw.isdigit() and len(raw) <= 15):
        raise RequestError(f"entry field {name.decode()} has to be a non-negative integer", param=name.decode())
    return int(raw)


def _engine_error(payload: bytes) -> ErrorBody | None:
    """The error that an engine sent in place of a chunk, in OpenAI form; None when it is none."""
    try:
        value = _engine_error_decoder.decode(payload).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    given = value if isinstance(value, dict) else {"message": value if isinstance(value, str) else None}
    message, kind, param, code = (given.get(name) for name in ("message", "type", "param", "code"))
    return ErrorBody(
        ErrorInfo(
            message=cut(message) if isinstance(message, str) else "the engine reported an error without a message",
            type=cut(kind) if isinstance(kind, str) else "InternalServerError",
            param=cut(param) if isinstance(param, str) else None,
            code=code if type(code) is int else 500,
        )
    )


class Session:
    """Folds entries of requests. Holds no request itself.

    models: the served model of a name (None: the default one); raises UnknownModel.
    limits: size and depth of payloads, checked before they are decoded.
    others: answers the endpoints of calls that are no derendering (`worker/render.py`), by their path.
    """

    def __init__(
        self,
        models: Models,
        *,
        core: Core | None = None,
        limits: Limits | None = None,
        others: Mapping[str, Answer] | None = None,
    ) -> None:
        self.models = models
        self.others = others or {}
        self.core = core or Core()
        self.limits = limits or Limits()

    # --- whole entries ----------------------------------------------------------------------------------------------

    def fold(self, entry: Entry, opened: Open | None, status: str | None) -> Outcome:
        """Take in one entry of a `chunks` or `bulk` stream.

        opened: the request, if it is open; status: what its status key says, if it is not.
        Bad input never raises: it becomes an error reply and a dead letter.
        """
        fields = entry.fields
        request_id = fields.get(keys.REQUEST, b"").decode("ascii", "replace")
        if opened is None and not keys.valid_request_id(request_id):
            return Outcome(dead=NO_ID)
        try:
            if len(fields) > 2 and len(kinds := _KINDS.intersection(fields)) > 1 and kinds != _WHOLE:
                # one of them would be passed over in silence
                raise RequestError("entry has more than one of open, chunk, control, response, call")
            if keys.RESPONSE in fields or keys.CALL in fields:
                return self._whole(entry, request_id, opened, status)
            if keys.OPEN in fields:
                return self._open(entry, request_id, opened, status)
            if opened is None:
                return self._not_open(entry, status)
            return self._live(entry, opened)
        except RequestError as error:
            return self.fail(opened.state if opened else None, error, status=status, entry=entry)

    def fail(
        self,
        state: RequestState | None,
        error: RequestError,
        *,
        status: str | None = None,
        entry: Entry | None = None,
    ) -> Outcome:
        """End a request with an error reply and tell the engine's side; the entry goes to the dead letters.

        state: of the request, if it is open; status: of one that is not. entry: the one that failed; a call that waits
        for its answer elsewhere is answered there, and its caller's mistakes are not kept.
        """
        if entry is not None and (answer_to := _answer_to(entry)) is not None:
            reply = Reply(1, {keys.ERROR: _encode(error.body()), keys.DONE: keys.STATUS_FAILED.encode()})
            dead = error.message if error.code >= 500 else None
            kind = type(error).__name__
            return Outcome(replies=[reply], reply_to=answer_to, private=True, dead=dead, error=kind)
        if state is None and status in keys.CLOSED:
            return Outcome(dead=error.message)
        outcome = self._end(state, error.body(), type(error).__name__, dead=error.message, cancel=state is not None)
        if state is None and entry is not None:
            outcome.reply_to = _named_reply_to(entry)
        return outcome

    def _end(
        self, state: RequestState | None, body: ErrorBody, kind: str, *, dead: str | None = None, cancel: bool = False
    ) -> Outcome:
        number = (state.replies if state else 0) + 1
        return Outcome(
            replies=[Reply(number, {keys.ERROR: _encode(body), keys.DONE: keys.STATUS_FAILED.encode()})],
            signals=[Signal(keys.STATUS_FAILED)] if cancel else [],
            closed=keys.STATUS_FAILED,
            dead=dead,
            reply_to=state.reply_to if state else None,
            error=kind,
        )

    def _not_open(self, entry: Entry, status: str | None) -> Outcome:
        """An entry that is not `open`, of a request that is not open either."""
        if status in keys.CLOSED or entry.fields.get(keys.CONTROL) == keys.CONTROL_TIMEOUT:
            return Outcome(dropped="closed")
        if entry.fields.get(keys.CONTROL) == keys.CONTROL_ABORT and keys.SEQ not in entry.fields:
            # Whole work that its client does not wait for any more: what it will say is dropped.
            return Outcome(closed=keys.STATUS_ABORTED, signals=[Signal("abort")])
        if keys.SEQ in entry.fields:  # a numbered request whose open was lost: its reader is told
            return self._end(
                None,
                RequestError("the request was not opened: its first entry is missing").body(),
                RequestError.__name__,
                dead="request is not open",
            )
        return Outcome(dead="request is not open")

    # --- open ---------------------------------------------------------------------------------------------------------

    def _context(self, entry: Entry, request_id: str) -> tuple[RequestContext, PreparedRequest, int]:
        context = validate.decode(_context_decoder, entry.fields[keys.OPEN], self.limits)
        if context.reply_to is not None and not keys.valid_reply_to(context.reply_to):
            raise RequestError("reply_to has to match [A-Za-z0-9._-]{1,64}", param="reply_to")
        created = entry.time_ms // 1000 if context.created is None else context.created
        request = self.core.prepare(self.models(context.model), context, request_id=request_id, created=created)
        return context, request, created

    def _open(self, entry: Entry, request_id: str, opened: Open | None, status: str | None) -> Outcome:
        seq = _integer(entry, keys.SEQ)
        digest = context_digest(entry.fields[keys.OPEN])
        if opened is not None:
            if opened.state.digest != digest:
                raise RequestError("the request is open with another context")
            return Outcome(open=opened, dropped="duplicate")
        if status in keys.CLOSED:
            # A numbered open is a retry of one whose answer was lost; an unnumbered one may be a second use of the id.
            return Outcome(dropped="closed") if seq is not None else Outcome(dead="request id was used before")
        if seq not in (None, 0):
            raise RequestError(f"open has to be entry 0 of its request, not {seq}", param="seq")
        context, request, created = self._context(entry, request_id)
        prompts, n = _counts(context)
        asked = _asked(context)
        state = RequestState(
            version=REQUEST_STATE_VERSION,
            digest=digest,
            created=created,
            active=entry.time_ms,
            prompts=prompts,
            n=n,
            seq=seq,
            usage_due=bool(asked and asked.stream_options and asked.stream_options.include_usage),
            reply_to=context.reply_to,
            prompt_tokens=sum(context.prompt_tokens)
            if isinstance(context.prompt_tokens, list)
            else context.prompt_tokens,
        )
        return Outcome(open=Open(state, request), opened=entry.fields[keys.OPEN], reply_to=context.reply_to)

    def resume(self, request_id: str, state: RequestState, context: bytes) -> Open:
        """An open request from what was stored. Raises RequestError when it cannot be prepared here."""
        decoded = validate.decode(_context_decoder, context, self.limits)
        model = self.models(decoded.model)
        return Open(state, self.core.prepare(model, decoded, request_id=request_id, created=state.created))

    # --- an entry of an open request ----------------------------------------------------------------------------------

    def _live(self, entry: Entry, opened: Open) -> Outcome:
        state, request = opened
        seq = _integer(entry, keys.SEQ) if keys.SEQ in entry.fields else None
        if state.seq is not None and seq is not None:
            if seq <= state.seq:
                return Outcome(open=opened, dropped="duplicate")
            if seq != state.seq + (len(entry.parts) or 1):
                raise RequestError(f"entries of the request were lost: {seq} follows {state.seq}", param="seq")
        elif state.seq is not None and keys.CHUNK in entry.fields:
            raise RequestError("the request numbers its entries, but this one has no seq", param="seq")
        if entry.fields.get(keys.CONTROL) == keys.CONTROL_TIMEOUT:
            return self._timeout(entry, opened)
        run = _Run(self.core, request, state, seq=seq, time_ms=entry.time_ms)
        payload = entry.fields.get(keys.CHUNK)
        if payload is not None and payload.strip() != b"[DONE]":
            if (error := self._chunk(run, entry, payload)) is not None:
                return self._end(run.state, error, ENGINE_ERROR, dead=error.error.message)
            return run.outcome(keys.STATUS_FINISHED if run.complete and not run.usage_due else None)
        control = keys.CONTROL_DONE if payload is not None else entry.fields.get(keys.CONTROL)
        match control:
            case keys.CONTROL_DONE | keys.CONTROL_ABORT:
                # An engine that stops without a finish reason gave up: said, not passed over in silence.
                aborted = run.abort()
                run.usage()
                if control == keys.CONTROL_ABORT:
                    run.signals.append(Signal("abort"))
                return run.outcome(keys.STATUS_ABORTED if aborted else keys.STATUS_FINISHED)
            case keys.CONTROL_ERROR:
                body = _engine_error(entry.fields.get(keys.ERROR, b'{"error": null}'))
                if body is None:
                    raise SchemaError("error has to be an error object", param="error")
                return self._end(run.state, body, ENGINE_ERROR)
            case None:
                raise RequestError("entry has none of open, chunk, control, response, call")
            case _:
                raise RequestError("control has to be done, abort or error", param="control")

    def _timeout(self, entry: Entry, opened: Open) -> Outcome:
        if _integer(entry, keys.ACTIVE) != opened.state.active:
            return Outcome(open=opened, dropped="active again")
        idle_s = (entry.time_ms - opened.state.active) // 1000
        error = IdleTooLong(f"the engine sent nothing for {idle_s} s")
        return self._end(opened.state, error.body(), type(error).__name__, cancel=True)

    def _chunk(self, run: _Run, entry: Entry, payload: bytes) -> ErrorBody | None:
        """Step through the choices of one engine event. Returns the engine's error, if it is one."""
        try:
            chunk = validate.decode(_chunk_decoder, payload, self.limits)
        except SchemaError:
            if (error := _engine_error(payload)) is not None:
                return error
            raise
        prompt = _integer(entry, keys.PROMPT) or 0 if keys.PROMPT in entry.fields else 0
        prompts, n = run.before.prompts, run.before.n
        if prompt >= prompts:
            raise RequestError(f"prompt {prompt} is out of range: the request has {prompts}", param="prompt")
        choices = chunk.choices
        if not choices:
            run.usage_event(chunk, prompt)
            return None
        for choice in choices:
            if choice.index >= n:
                raise RequestError(f"choice index {choice.index} is out of range: the request has n = {n}")
        if len(choices) > 1:
            for choice in choices[:-1]:
                run.step(replace(chunk, choices=[choice], usage=None, metrics=None), choice, prompt)
            chunk = replace(chunk, choices=[choices[-1]])
        run.step(chunk, choices[-1], prompt)
        return None

    # --- whole work ---------------------------------------------------------------------------------------------------

    def _whole(self, entry: Entry, request_id: str, opened: Open | None, status: str | None) -> Outcome:
        call = entry.fields.get(keys.CALL)
        if call is not None and (answer_to := _answer_to(entry)) is not None:
            reply = self._answered(entry, request_id, call)
            return Outcome(replies=[reply], reply_to=answer_to, private=True)
        if opened is not None:  # leave the open request alone: not even its state is written again
            return Outcome(dead="request id is in use")
        if status in keys.CLOSED:
            return Outcome(dropped="closed")
        if call is not None:
            return Outcome(replies=[self._answered(entry, request_id, call)], closed=keys.STATUS_FINISHED)
        if keys.OPEN not in entry.fields:
            raise RequestError("a response needs its context in the same entry", param="open")
        context, request, _ = self._context(entry, request_id)
        payload = entry.fields[keys.RESPONSE]
        if payload.lstrip().startswith(b"[") and context.kind == "completion":
            responses = validate.decode(_responses_decoder, payload, self.limits)
            answer = _encode(self.core.derender_completions(request, responses))
        else:
            responses = [validate.decode(_response_decoder, payload, self.limits)]
            answer = _encode(self.core.derender(request, responses[0]))
        ids = [choice.token_ids for response in responses for choice in response.choices]
        return Outcome(
            replies=[_last_reply(answer)],
            closed=keys.STATUS_FINISHED,
            reply_to=context.reply_to,
            tokens=sum(len(one or ()) for one in ids),
            unknown=sum(_unknown(request, one) for one in ids),
        )

    def _answered(self, entry: Entry, request_id: str, call: bytes) -> Reply:
        endpoint = entry.fields.get(keys.ENDPOINT, b"").decode("utf-8", "replace") or None
        if endpoint is not None and endpoint in self.others:
            return _last_reply(self.others[endpoint](endpoint, call, request_id=request_id, limits=self.limits))
        created = entry.time_ms // 1000
        if endpoint == INSPECT:
            return _last_reply(
                self.core.inspect_call(self.models, call, request_id=request_id, created=created, limits=self.limits)
            )
        answer = self.core.derender_call(
            self.models, call, endpoint=endpoint, request_id=request_id, created=created, limits=self.limits
        )
        return _last_reply(answer)


def _last_reply(answer: bytes) -> Reply:
    return Reply(1, {keys.RESPONSE: answer, keys.DONE: keys.STATUS_FINISHED.encode()})


def _named_reply_to(entry: Entry) -> str | None:
    """Second stream of a context that was refused: whoever waits there hears of the refusal."""
    try:
        name = _address_decoder.decode(entry.fields.get(keys.OPEN, b"{}")).reply_to
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return name if name is not None and keys.valid_reply_to(name) else None


def _answer_to(entry: Entry) -> str | None:
    """Where a call wants its answer; None: on its reply stream (an impossible name too)."""
    name = entry.fields.get(keys.ANSWER_TO, b"").decode("ascii", "replace")
    return name if keys.CALL in entry.fields and keys.valid_reply_to(name) else None


class _Run:
    """The work of one entry: replies so far, and what of the state they change.

    before: the state that the entry found; `state` is the one after it, made once.
    """

    # fmt: off
    __slots__ = (
        "active", "before", "choices", "core", "number", "replies", "request", "seq", "signals", "tokens", "unknown",
        "usage_due",
    )
    # fmt: on

    def __init__(
        self, core: Core, request: PreparedRequest, before: RequestState, *, seq: int | None, time_ms: int
    ) -> None:
        self.core = core
        self.request = request
        self.before = before
        self.seq = before.seq if seq is None or before.seq is None else seq
        self.active = max(before.active, time_ms)
        self.choices = before.choices
        self.number = before.replies
        self.usage_due = before.usage_due
        self.replies: list[Reply] = []
        self.signals: list[Signal] = []
        self.tokens = self.unknown = 0

    @property
    def state(self) -> RequestState:
        return replace(
            self.before,
            seq=self.seq,
            active=self.active,
            choices=self.choices,
            replies=self.number,
            usage_due=self.usage_due,
        )

    @property
    def complete(self) -> bool:
        """Every choice of every prompt has finished."""
        choices = self.choices
        if len(choices) != self.before.prompts * self.before.n:
            return False
        return "" not in [state.finish for state in choices.values()]

    def step(self, chunk: GenerateChunk, choice: GenerateStreamChoice, prompt: int) -> None:
        """One step of one choice; a choice that has finished only counts."""
        flat = prompt * self.before.n + choice.index
        before = self.choices.get(flat)
        reply, after = self.core.derender_step(self.request, chunk, before, prompt=prompt)
        self.choices = {**self.choices, flat: after}
        self.tokens += len(choice.token_ids or ())
        self.unknown += _unknown(self.request, choice.token_ids)
        if reply.choices:
            self._reply(reply, flat, after)
        if after.stopped and not (before and before.stopped):
            self.signals.append(Signal("stop", flat))

    def usage_event(self, chunk: GenerateChunk, prompt: int) -> None:
        """An event without choices. With several prompts each engine stream has its own; the sum is sent at the end."""
        if self.before.prompts > 1 and chunk.usage is not None:
            return
        if chunk.usage is None and chunk.metrics is None:
            return
        reply, _ = self.core.derender_step(self.request, chunk, None, prompt=prompt)
        self._reply(reply, None, None)
        if chunk.usage is not None:
            self.usage_due = False

    def abort(self) -> bool:
        """Finish every choice that has not finished, with "abort". Says whether there was one."""
        found = False
        for flat in range(self.before.prompts * self.before.n):
            state = self.choices.get(flat)
            if state is not None and state.finish:
                continue
            found = True
            prompt, index = divmod(flat, self.before.n)
            choice = GenerateStreamChoice(index=index, token_ids=[], finish_reason="abort")
            self.step(GenerateChunk(choices=[choice]), choice, prompt)
        return found

    def usage(self) -> None:
        """The usage chunk that was asked for and that the engine has not sent, from our own counts."""
        if not self.usage_due:
            return
        completion = sum(state.tokens for state in self.choices.values())
        prompt = self.before.prompt_tokens or 0
        usage = step.usage_of(prompt, completion)
        reply, _ = self.core.derender_step(self.request, GenerateChunk(choices=[], usage=usage), None)
        self._reply(replace(reply, usage=usage), None, None)  # the step knows one prompt, this is the sum of all
        self.usage_due = False

    def _reply(self, reply: ChatCompletionChunk | CompletionChunk, flat: int | None, state: StreamState | None) -> None:
        self.number += 1
        fields = {keys.CHUNK: _encode(_for_clients(reply))}
        if flat is not None:
            fields[keys.INDEX] = b"%d" % flat
            fields[keys.STREAM_STATE] = _encode(state)
        self.replies.append(Reply(self.number, fields))

    def outcome(self, closed: str | None) -> Outcome:
        """What the entry changes. With several prompts, the usage is sent once all of them have finished."""
        if closed is None and self.before.prompts > 1 and self.complete:
            self.usage()
            closed = keys.STATUS_FINISHED
        if closed is not None:
            self.replies[-1].fields[keys.DONE] = closed.encode()
        return Outcome(
            open=Open(self.state, self.request) if closed is None else None,
            replies=self.replies,
            signals=self.signals,
            closed=closed,
            reply_to=self.before.reply_to,
            tokens=self.tokens,
            unknown=self.unknown,
        )


def _unknown(request: PreparedRequest, ids: Sequence[int] | None) -> int:
    """How many ids lie beyond the vocabulary: engines with padded embeddings may sample them."""
    size = request.model.vocabulary.size
    return sum(id_ >= size for id_ in ids) if ids and max(ids) >= size else 0


def _for_clients(reply: ChatCompletionChunk | CompletionChunk) -> ChatCompletionChunk | CompletionChunk:
    """A chunk, which has one choice at most, as streaming clients merge it: deltas of calls without nulls."""
    if isinstance(reply, CompletionChunk) or not reply.choices:
        return reply
    [choice] = reply.choices
    if choice.delta.tool_calls is UNSET:
        return reply
    pieces: list[ToolCallDelta] = [
        ToolCallPiece(
            index=call.index,
            function=FunctionCallPiece(call.function.name, call.function.arguments),
            id=call.id,
            type=call.type,
        )
        for call in choice.delta.tool_calls
    ]
    return replace(reply, choices=[replace(choice, delta=replace(choice.delta, tool_calls=pieces))])


def _asked(context: RequestContext) -> ChatRequest | CompletionRequest | None:
    """What the client sent: of its kind, whatever else the context carries."""
    return context.chat_request if context.kind == "chat" else context.completion_request


def _counts(context: RequestContext) -> tuple[int, int]:
    """Number of prompts, and of choices for each."""
    prompts = 1
    if isinstance(context.prompt_tokens, list):
        prompts = len(context.prompt_tokens)
    elif context.prompt_token_ids and not isinstance(context.prompt_token_ids[0], int):
        prompts = len(context.prompt_token_ids)
    if prompts != 1 and context.kind == "chat":
        raise RequestError("a chat has one prompt", param="prompt_token_ids")
    asked = _asked(context)
    n = (asked.n if asked else None) or 1
    if prompts < 1 or n < 1 or prompts * n > MAX_CHOICES:
        raise RequestError(f"a request may have 1 to {MAX_CHOICES} choices over all prompts")
    return prompts, n
