"""A generation token by token: what the parser took each piece of text for, and what was sent when. Pure.

The same steps as always are run twice, once for the engine's events and once with one id each; nothing here knows how a
parser works. What became of a text is told from what was said: said text is found again in the output, what was passed
over in silence is a marker, or an argument where the parser was inside the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as with_fields
from itertools import groupby

import msgspec
from msgspec import UNSET, structs

from schemas.generate import GenerateChunk, GenerateStreamChoice
from schemas.inspect import (
    MAX_TOKENS,
    CallTrace,
    ChunkTrace,
    InspectAnswer,
    InspectRequest,
    Kind,
    ParserChoice,
    TokenTrace,
)
from schemas.openai import ChatChunkChoice, ChatDelta, CompletionChunkChoice
from schemas.state import StreamState
from worker.core import run_constants as regions
from worker.core import stop, validate
from worker.core.calls import Models
from worker.core.choose import AUTO
from worker.core.compiled import from_portable
from worker.core.detokenize import START, decode_pieces, flush, seed
from worker.core.errors import GrammarError, RequestError
from worker.core.grammars import Kind as ParserKind
from worker.core.grammars import wrong_name
from worker.core.json_regions import ARGUMENTS
from worker.core.model import Limits, Model, ParserConfig
from worker.core.prepare import PreparedRequest, prepare
from worker.core.step import derender_step

REGIONS = {
    regions.REASONING: "reasoning",
    regions.CONTENT: "content",
    regions.LABEL: "label",
    regions.OPENED: "call opened",
    regions.SECTION: "call section",
    regions.HEADER: "call header",
    regions.JSON: "arguments",
    regions.MEMBERS: "call object",
    regions.PARAMS: "parameters",
    regions.KEY: "parameter name",
    regions.TO_VALUE: "before a value",
    regions.VALUE: "value",
    regions.LITERALS: "literals",
    regions.PYTHON: "arguments",
    regions.AFTER: "after a call",
    regions.MESSAGE_HEADER: "message header",
    regions.BETWEEN: "between messages",
    regions.BODY_REASONING: "reasoning",
    regions.BODY_CONTENT: "content",
    regions.BODY_DROPPED: "dropped message",
    regions.ELEMENTS: "elements",
}

_IN_ARGUMENTS = frozenset((regions.JSON, regions.VALUE, regions.LITERALS, regions.PYTHON, regions.ELEMENTS))

_decoder = msgspec.json.Decoder(InspectRequest)
_encode = msgspec.json.Encoder().encode


def inspect_call(models: Models, body: bytes, *, request_id: str, created: int, limits: Limits) -> bytes:
    """Answer the inspector. body: JSON of an InspectRequest. Returns the JSON of an InspectAnswer.

    Raises RequestError; a parser name that is not known is one too.
    """
    asked = validate.decode(_decoder, body, limits)
    model = models(asked.context.model)
    if asked.parsers is not None:
        _check_names(asked.parsers)
        model = with_fields(model, parsers=ParserConfig(**structs.asdict(asked.parsers)))
    context = structs.replace(asked.context, fingerprint=None)
    try:
        request = prepare(model, context, request_id=request_id, created=created)
    except GrammarError as error:
        raise RequestError(str(error), param="parsers") from None
    return _encode(trace(request, asked.chunks, index=asked.index, prompt=asked.prompt))


def _check_names(parsers: ParserChoice) -> None:
    """Names as `derender worker` checks them, whether they come into effect or not. Raises RequestError."""
    given: tuple[tuple[ParserKind, str | None], ...] = (
        ("reasoning", parsers.reasoning_parser),
        ("tool", parsers.tool_call_parser),
    )
    for kind, name in given:
        if name == AUTO:
            raise RequestError(
                f"{kind} parser auto: a worker that is started with it chooses by the chat template, once; here name a"
                " parser, or take the model's own options",
                param="parsers",
            )
        if name and (wrong := wrong_name(kind, name)):
            message = f"{kind} parser {name[:100]!r} {wrong}; /v1/parsers lists the names"
            raise RequestError(message, param="parsers")


def trace(
    request: PreparedRequest, chunks: Sequence[GenerateChunk], *, index: int = 0, prompt: int = 0
) -> InspectAnswer:
    """One choice of a generation. Raises RequestError: more than MAX_TOKENS ids, or what a step refuses."""
    events = list(_of_choice(chunks, index))
    if sum(len(choice.token_ids or ()) for _, choice in events) > MAX_TOKENS:
        raise RequestError(f"the inspector takes at most {MAX_TOKENS} token ids")
    seen = [_traced(choice, answer, state) for choice, answer, state in _steps(request, events, prompt)]
    return InspectAnswer(
        model=request.model.name,
        fingerprint=request.model.fingerprint,
        parsers=_options(request.model),
        tokens=_tokens(request, events, prompt),
        chunks=seen,
        content="".join(one.delta.content or "" for one in seen),
        reasoning="".join(one.delta.reasoning or "" for one in seen),
        calls=_calls(seen),
        finish_reason=next((one.finish_reason for one in reversed(seen) if one.finish_reason), None),
    )


def _options(model: Model) -> ParserChoice:
    parsers = model.parsers
    return ParserChoice(
        tool_call_parser=parsers.tool_call_parser,
        reasoning_parser=parsers.reasoning_parser,
        enable_auto_tool_choice=parsers.enable_auto_tool_choice,
        default_chat_template_kwargs=dict(parsers.default_chat_template_kwargs),
        tool_call_streaming=parsers.tool_call_streaming,
        forced_tool_format=parsers.forced_tool_format,
        stop_scope=parsers.stop_scope,
    )


_Event = tuple[GenerateChunk, GenerateStreamChoice]


def _of_choice(chunks: Sequence[GenerateChunk], index: int) -> Iterator[_Event]:
    for chunk in chunks:
        for choice in chunk.choices:
            if choice.index == index:
                yield structs.replace(chunk, choices=[choice], usage=None, metrics=None), choice


def _steps(
    request: PreparedRequest, events: Sequence[_Event], prompt: int
) -> Iterator[tuple[GenerateStreamChoice, ChatDelta | None, StreamState]]:
    """What a client is sent for each event, None once the choice has finished, and the state after it."""
    state: StreamState | None = None
    for chunk, choice in events:
        answer, state = derender_step(request, chunk, state, prompt=prompt)
        said = answer.choices[0] if answer.choices else None
        yield _ending(choice, said), _delta(said), state


def _delta(said: ChatChunkChoice | CompletionChunkChoice | None) -> ChatDelta | None:
    if isinstance(said, CompletionChunkChoice):
        return ChatDelta(content=said.text)
    return said.delta if said is not None else None


def _ending(choice: GenerateStreamChoice, said: ChatChunkChoice | CompletionChunkChoice | None) -> GenerateStreamChoice:
    """The choice with the finish reason that the client is told."""
    if said is None:
        return structs.replace(choice, finish_reason=None, stop_reason=None)
    return structs.replace(choice, finish_reason=said.finish_reason, stop_reason=said.stop_reason)


def _traced(choice: GenerateStreamChoice, delta: ChatDelta | None, state: StreamState) -> ChunkTrace:
    return ChunkTrace(
        tokens=len(choice.token_ids or ()),
        delta=delta or ChatDelta(),
        finish_reason=choice.finish_reason,
        stop_reason=choice.stop_reason,
        state_bytes=len(_encode(state)),
    )


def _calls(seen: Sequence[ChunkTrace]) -> list[CallTrace]:
    calls: dict[int, CallTrace] = {}
    for one in seen:
        for piece in () if one.delta.tool_calls is UNSET else one.delta.tool_calls:
            old = calls.get(piece.index, CallTrace("", ""))
            calls[piece.index] = CallTrace(
                old.name + (piece.function.name or ""), old.arguments + (piece.function.arguments or "")
            )
    return [calls[index] for index in sorted(calls)]


# --- one id at a time -----------------------------------------------------------------------------------------------


def _single(events: Sequence[_Event]) -> Iterator[tuple[int, _Event]]:
    """The same events with one id each; finish and stop reason stay with the last id of an event."""
    for number, (chunk, choice) in enumerate(events):
        ids = choice.token_ids or []
        if len(ids) < 2:
            yield number, (chunk, choice)
            continue
        for position, id_ in enumerate(ids):
            part = GenerateStreamChoice(index=choice.index, token_ids=[id_])
            if position == len(ids) - 1:
                part = structs.replace(choice, token_ids=[id_], logprobs=None)
            yield number, (structs.replace(chunk, choices=[part]), part)


def _tokens(request: PreparedRequest, events: Sequence[_Event], prompt: int) -> list[TokenTrace]:
    output = _Output(request, events, prompt)
    found: list[TokenTrace] = []
    single = list(_single(events))
    before: StreamState | None = None
    for (number, (_, choice)), (ending, delta, state) in zip(
        single, _steps(request, [event for _, event in single], prompt), strict=True
    ):
        owner = len(found) if choice.token_ids else len(found) - 1
        ended_by_token = output.add(owner, choice)
        found_stop = isinstance(ending.stop_reason, str)
        output.step(delta, before, state, ended_by_token=ended_by_token, found_stop=found_stop)
        before = state
        if choice.token_ids:
            found.append(_token(request, choice.token_ids[0], number, delta, state))
        elif found:  # an end without an id: what it lets go is said with the last one
            found[-1] = structs.replace(found[-1], held="", state_bytes=len(_encode(state)))
    output.end()
    return [structs.replace(token, pieces=output.pieces(number)) for number, token in enumerate(found)]


def _token(request: PreparedRequest, id_: int, chunk: int, delta: ChatDelta | None, state: StreamState) -> TokenTrace:
    vocabulary = request.model.vocabulary
    return TokenTrace(
        id=id_,
        token=vocabulary.tokenizer.id_to_token(id_) or "",
        special=id_ in vocabulary.added,
        chunk=chunk,
        pieces=(),
        region=REGIONS[state.parser.region] if state.parser is not None else "",
        held=_held(request, state),
        delta=delta or ChatDelta(),
        state_bytes=len(_encode(state)),
    )


def _held(request: PreparedRequest, state: StreamState) -> str:
    """Text that no decision was made about: the detokenizer's, a stop string's beginning, the parser's."""
    parser = state.parser
    parsed = ""
    if parser is not None and request.parser is not None:
        # a marker that is one id is one character in the parser's text
        parsed = from_portable(parser.raw + parser.held).translate(request.parser.compiled.symbols.literal)
    waiting = stop.unpack(request.stops, state.stop_held, state.stop_begun)
    decoded = state.decode.held if state.decode is not None else ""
    return parsed + "".join(text for text, _ in waiting) + decoded


class _Output:
    """All text of a choice, and for each character which token brought it and what became of it."""

    def __init__(self, request: PreparedRequest, events: Sequence[_Event], prompt: int) -> None:
        self.request = request
        self.vocabulary = request.model.vocabulary
        ids = request.prompt_ids(prompt, events[0][0].prompt_token_ids if events else None)
        parsed = request.parser is not None
        self.decode = seed(self.vocabulary, ids, skip_special=request.skip_special, parsed=parsed)
        self.text = ""
        self.owner: list[int] = []
        self.kind: list[Kind] = []
        self.decided = 0
        self.call = 0  # where the text since the last content or reasoning begins

    def add(self, owner: int, choice: GenerateStreamChoice) -> bool:
        """Take in the text of an id. True: it is the stop token, which nobody is shown."""
        ids = choice.token_ids or ()
        pieces, self.decode = decode_pieces(self.vocabulary, self.decode, ids)
        text = "".join(piece for piece, _ in pieces)
        if choice.finish_reason:
            rest, self.decode = flush(self.vocabulary, self.decode) if self.decode != START else ("", START)
            text += rest
        self.text += text
        self.owner += [owner] * len(text)
        tokens = self.request.stop_tokens
        ends = stop.ends_by_token(tokens, ids, choice.finish_reason, choice.stop_reason)
        return bool(ids) and ends and not tokens.include

    def step(
        self,
        delta: ChatDelta | None,
        before: StreamState | None,
        after: StreamState,
        *,
        ended_by_token: bool,
        found_stop: bool,
    ) -> None:
        """Decide what can be decided once the step of the text's last id was made."""
        if delta is None:
            self._fill(len(self.text), "dropped")
            return
        own = self.owner[-1] if self.owner else 0
        silent = _silent(before, after)
        for kind, said in _said(delta):
            self._find(kind, said, silent)
        if ended_by_token:
            while self.decided < len(self.text) and self.owner[self.decided] != own:
                self._fill(self.decided + 1, silent)
            self._fill(len(self.text), "stop")
        elif after.finish:
            self._fill(len(self.text), "stop" if found_stop else "marker")
        else:
            self._fill(len(self.text) - len(_held(self.request, after)), silent)

    def end(self) -> None:
        """The events stopped before the end: what is held was said to nobody yet."""
        self._fill(len(self.text), "marker")

    def _fill(self, until: int, kind: Kind) -> None:
        if until > self.decided:
            self.kind += [kind] * (until - self.decided)
            self.decided = until

    def _find(self, kind: Kind, said: str, silent: Kind) -> None:
        """Mark where in the output a said text stands. Arguments may be written anew and not be found."""
        if kind == "name":
            at = self.text.rfind(said, self.call)
            for position in range(at, min(at + len(said), self.decided) if at >= 0 else at):
                self.kind[position] = "name"
            if at >= 0 and at + len(said) > self.decided:
                self._fill(at, silent)
                self._fill(at + len(said), "name")
            return
        at = self.text.find(said, self.decided)
        if at < 0:  # an opener that turned out to be text was passed over before
            at = self.text.find(said, self.call)
        if at < 0:
            return
        self._fill(at, "marker" if kind != "argument" else silent)
        for position in range(at, min(at + len(said), self.decided)):
            self.kind[position] = kind
        self._fill(at + len(said), kind)
        if kind in ("content", "reasoning"):
            self.call = self.decided

    def pieces(self, token: int) -> tuple[tuple[Kind, str], ...]:
        """Kinds and texts of one token, runs of one kind together."""
        first = next((at for at, owner in enumerate(self.owner) if owner == token), None)
        if first is None:
            return ()
        last = first
        while last < len(self.owner) and self.owner[last] == token:
            last += 1
        runs = groupby(range(first, last), key=lambda at: self.kind[at])
        return tuple((kind, "".join(self.text[at] for at in run)) for kind, run in runs)


def _silent(before: StreamState | None, after: StreamState) -> Kind:
    """What a text is that nothing was said for."""
    inside = [_in_arguments(state) for state in (before or after, after)]
    if all(inside):
        return "argument"
    parser = after.parser
    return "dropped" if parser is not None and parser.region == regions.BODY_DROPPED else "marker"


def _in_arguments(state: StreamState) -> bool:
    parser = state.parser
    if parser is None:
        return False
    return parser.region in _IN_ARGUMENTS or (parser.region == regions.MEMBERS and parser.phase == ARGUMENTS)


def _said(delta: ChatDelta) -> Iterator[tuple[Kind, str]]:
    if delta.reasoning:
        yield "reasoning", delta.reasoning
    if delta.content:
        yield "content", delta.content
    for piece in () if delta.tool_calls is UNSET else delta.tool_calls:
        if piece.function.name:
            yield "name", piece.function.name
        if piece.function.arguments:
            yield "argument", piece.function.arguments
