"""The parsing engine: pieces in, events out, all that is remembered in one small `ParserState`.

One engine runs every family's declaration (`grammars/`). Text is consumed by searches over the step's own text and a
bounded held rest, so a step costs the same at token 3 and at token 30,000, and where chunks end makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal

from msgspec import UNSET

from schemas.openai import ChatRequest
from schemas.state import ParserState
from worker.core import (
    element_regions,
    json_regions,
    literal_regions,
    message_regions,
    param_regions,
    python_regions,
    text_regions,
)
from worker.core.compiled import Compiled, to_portable
from worker.core.errors import GrammarError, StateMismatch
from worker.core.events import CallArguments, Content, Event, Piece, Reasoning
from worker.core.fit import fitted
from worker.core.grammar import Grammar, Literals, Members, Messages, Tools
from worker.core.grammar import Reasoning as ReasoningGrammar
from worker.core.grammars import TEMPLATE_DRIVEN, reasoning_grammar, tool_grammar
from worker.core.json_scan import STRING
from worker.core.model import Model
from worker.core.run import RequestView, Run
from worker.core.run_constants import (
    AFTER,
    AFTER_CALL,
    BETWEEN,
    BODY_CONTENT,
    BODY_DROPPED,
    BODY_REASONING,
    CONTENT,
    ELEMENTS,
    FRESH,
    GOOD,
    HEADER,
    JSON,
    KEY,
    LABEL,
    LARGE_SLICE,
    LINE,
    LITERALS,
    LONG,
    MEMBERS,
    MESSAGE_HEADER,
    OPEN,
    OPENED,
    OPENER,
    PARAMS,
    PYTHON,
    REASONING,
    SECTION,
    SEEN,
    SEEN_REASONING,
    SKIPPING,
    STREAMING,
    STRIP,
    TO_VALUE,
    UNDECIDED,
    VALUE,
    WROTE,
)
from worker.core.start import start_region
from worker.core.vocabulary import Vocabulary

_REGIONS: dict[int, Callable[[Run], bool]] = {
    REASONING: text_regions.text,
    CONTENT: text_regions.text,
    LABEL: text_regions.label,
    OPENED: text_regions.opened,
    SECTION: text_regions.section,
    HEADER: text_regions.header,
    AFTER: text_regions.after,
    JSON: json_regions.object_,
    MEMBERS: json_regions.members,
    PARAMS: param_regions.params,
    KEY: param_regions.key,
    TO_VALUE: param_regions.to_value,
    VALUE: param_regions.value,
    LITERALS: literal_regions.literals,
    PYTHON: python_regions.python,
    MESSAGE_HEADER: message_regions.header,
    BETWEEN: message_regions.between,
    BODY_REASONING: message_regions.body,
    BODY_CONTENT: message_regions.body,
    BODY_DROPPED: message_regions.body,
    ELEMENTS: element_regions.elements,
}
_HANDLERS = tuple(_REGIONS[region] for region in range(len(_REGIONS)))

_PLAIN = '[^"\\\\\x00-\x1f\ud800-\udfff]*+'
_STRING_TEXT = re.compile(rf'{_PLAIN}(?:\\["\\/bfnrt]{_PLAIN})*+')
_TEXT_FLAGS = STRIP | LONG | AFTER_CALL | OPENER

_FUNCTIONS_MODELS = frozenset({"kimi_k2", "kimi_k25", "kimi_k3"})
_ALPHANUMERICS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

_FORCED = Tools(
    source="the generic form of a required choice: a list of objects, without markup",
    call=(),
    arguments=Members(array=True),
    unmarked=True,
    gap="keep",
)


@lru_cache(maxsize=256)
def _compile(
    vocabulary: Vocabulary,
    reasoning: ReasoningGrammar | None,
    tools: Tools | None,
    messages: Messages | None,
    inert: tuple[Grammar, ...],
    forced: str,
) -> Compiled:
    reasoning = fitted(reasoning, vocabulary) if reasoning else None
    tools = fitted(tools, vocabulary) if tools else None
    return Compiled(vocabulary, reasoning, tools, messages, inert, forced)


def _uncapped(run: Run) -> bool:
    """Whether the region, as it is, decides nothing by how long something is, or the same at whatever length it asks.

    It gets long slices then, and must return as soon as it goes on to what a cap holds for.
    """
    region, flags = run.region, run.flags
    if region == CONTENT:
        return bool(flags & SEEN) and not flags & _TEXT_FLAGS
    if region == REASONING:
        return bool(flags & SEEN_REASONING) and not flags & (STRIP | LONG)
    if region == JSON:
        return bool(flags & WROTE)
    if region == MEMBERS:
        return run.phase == json_regions.ARGUMENTS and bool(flags & OPEN) and not flags & UNDECIDED
    if region == LITERALS:
        return run.phase == literal_regions.STRING and not run.c.decoded
    if region == PYTHON:
        return run.phase == python_regions.VALUE
    if region == BODY_CONTENT:
        return bool(flags & SEEN)
    if region == BODY_REASONING:
        return bool(flags & SEEN_REASONING)
    return region in (VALUE, ELEMENTS, BODY_DROPPED)


def template_kwargs(defaults: Mapping[str, Any], request: ChatRequest) -> dict[str, Any]:
    """Template arguments as parsers see them: the server's, the request's, and what the request implies."""
    merged = {**defaults, **(request.chat_template_kwargs or {})}
    if request.reasoning_effort is not None:
        merged["reasoning_effort"] = request.reasoning_effort
        if "enable_thinking" not in (request.chat_template_kwargs or {}):
            merged["enable_thinking"] = request.reasoning_effort != "none"
    return merged


def tool_choice(request: ChatRequest) -> tuple[str, str]:
    """Kind of the request's tool choice (none, auto, required, named), and the name of a named one."""
    choice = request.tool_choice
    if choice is UNSET:
        return ("auto" if request.tools else "none"), ""
    match choice:
        case None:
            return "none", ""
        case "none" | "auto" | "required":
            return choice, ""
        case {"function": {"name": str() as name}}:
            return "named", name
    return "auto", ""


def _imported(model: Model, part: Literal["reasoning", "tools"]) -> ReasoningGrammar | Tools | None:
    """Grammar from the tokenizer's response template, for the parser names that mean it."""
    name = model.parsers.reasoning_parser if part == "reasoning" else model.parsers.tool_call_parser
    if name not in TEMPLATE_DRIVEN:
        return None
    if model.imported is None:
        raise GrammarError(f"parser {name!r} needs the tokenizer's response_template, and this tokenizer has none")
    grammar = model.imported.reasoning if part == "reasoning" else model.imported.tools
    if grammar is None:
        field = "reasoning" if part == "reasoning" else "tool_calls"
        raise GrammarError(f"parser {name!r}: the tokenizer's response_template has no field for {field}")
    return grammar


class Parser:
    """Immutable: grammars, vocabulary and request, ready to step states.

    keeps_calls: False: calls are parsed, consumed and not said (no tools are wanted).
    """

    __slots__ = ("compiled", "ids", "keeps_calls", "kwargs", "view", "vocabulary")

    def __init__(self, compiled: Compiled, view: RequestView, kwargs: Mapping[str, Any], ids: str) -> None:
        self.compiled = compiled
        self.view = view
        self.kwargs = kwargs
        self.ids = ids
        self.keeps_calls = view.keeps_calls
        self.vocabulary = compiled.vocabulary

    @classmethod
    def for_request(cls, model: Model, request: ChatRequest) -> Parser:
        """Parser for one request to a model; raises GrammarError for a parser name that is not known."""
        config = model.parsers
        reasoning: Grammar | None = None
        tools: Grammar | None = None
        if config.reasoning_parser:
            reasoning = _imported(model, "reasoning") or reasoning_grammar(config.reasoning_parser)
        choice, name = tool_choice(request)
        if config.tool_call_parser and (config.enable_auto_tool_choice or choice in ("required", "named")):
            tools = _imported(model, "tools") or tool_grammar(config.tool_call_parser)
        messages = next((grammar for grammar in (reasoning, tools) if isinstance(grammar, Messages)), None)
        running = tools if isinstance(tools, Tools) and request.tools else None
        forced = ""
        if choice in ("required", "named") and config.forced_tool_format == "json" and messages is None:
            native = isinstance(tools, Tools) and tools.always_native
            if not native:
                running, forced = (_FORCED, "list") if choice == "required" else (None, "object")
        inert = (tools,) if tools is not None and running is not tools and messages is None else ()
        compiled = _compile(
            model.vocabulary,
            reasoning if isinstance(reasoning, ReasoningGrammar) and messages is None else None,
            running if messages is None else None,
            messages,
            inert,
            forced,
        )
        offered = request.tools or []
        keeps = bool(offered) and (
            choice in ("required", "named")
            or (choice == "auto" and config.enable_auto_tool_choice and config.tool_call_parser is not None)
        )
        schemas = {tool.function.name: tool.function.parameters for tool in offered}
        ids = tools.ids if tools is not None and not isinstance(tools, ReasoningGrammar) else "default"
        if model.model_type in _FUNCTIONS_MODELS:
            ids = "functions"
        kwargs = template_kwargs(config.default_chat_template_kwargs, request)
        view = RequestView(keeps or bool(forced), schemas, name, config.reasoning_parser is not None)
        return cls(compiled, view, kwargs, ids)

    def start(self, prompt_token_ids: Sequence[int], history_calls: int = 0) -> ParserState:
        """State before the first chunk.

        prompt_token_ids: of the rendered prompt, its end is enough; [] if it is not known.
        history_calls: number of tool calls in earlier turns.
        """
        region, flags, name, held = start_region(self.compiled, self.view, self.kwargs, prompt_token_ids)
        return ParserState(region=region, flags=flags, held=to_portable(held), history=history_calls, name=name)

    def step(self, state: ParserState, pieces: Sequence[Piece]) -> tuple[list[Event], ParserState]:
        """Events of the next pieces, and the state after them."""
        compiled = self.compiled
        text = compiled.symbols.read(pieces)
        if not text:
            return [], state
        region, flags = state.region, state.flags
        if not state.held:  # the common steps, in which the state stays as it is
            if region == CONTENT:
                plain = flags & SEEN and not flags & _TEXT_FLAGS and not text[-1].isspace()
                if plain and compiled.in_content.stop.search(text) is None:
                    return [Content(text)], state
            elif region == REASONING:
                plain = flags & SEEN_REASONING and not flags & (STRIP | LONG) and not text[-1].isspace()
                if plain and compiled.in_reasoning.stop.search(text) is None:
                    return [Reasoning(text)], state
            elif flags & OPEN and self._within(region, state, text):
                return ([CallArguments(state.calls - 1, text)] if self.keeps_calls else []), state
        self.check(state)
        run = Run(compiled, self.view, state)
        at, size = 0, len(text)
        while at < size:
            begin, room = at, run.room(size - at)
            large = room < size - at and _uncapped(run)
            at += min(size - at, LARGE_SLICE) if large else room
            run.take(text[begin:at])
            while _HANDLERS[run.region](run):
                if large and not _uncapped(run):
                    at -= run.give_back(at - begin)
                    large = False
        run.flush()
        return run.events, run.state()

    def _within(self, region: int, state: ParserState, text: str) -> bool:
        """Whether text lies wholly inside a string of the arguments and is passed on as it is."""
        if region == VALUE:
            plain = state.flags & STREAMING and not state.flags & (FRESH | SKIPPING | LINE)
            params = self.compiled.params
            return bool(plain) and params is not None and params.value_stop.search(text) is None
        inside = region == JSON or (region == MEMBERS and state.phase == json_regions.ARGUMENTS)
        return inside and state.mode == STRING and _STRING_TEXT.fullmatch(text) is not None

    def finish(self, state: ParserState, finish_reason: str) -> tuple[list[Event], ParserState]:
        """Events of the end of the output: what was held is said or dropped, an open call is ended."""
        self.check(state)
        run = Run(self.compiled.at_end, self.view, state)
        run.take("")
        run.ending = True
        run.reason = finish_reason
        if run.buf or run.region in (LABEL, VALUE):
            while _HANDLERS[run.region](run):
                pass
        region = run.region
        if region in (REASONING, CONTENT):
            text_regions.finish_text(run)
        elif region == MEMBERS:
            json_regions.finish_members(run)
        elif region == PYTHON and run.flags & UNDECIDED:
            python_regions.finish_undecided(run)
        elif self.compiled.messages is not None:
            message_regions.finish_body(run)
        run.held = ""
        needs_closer = self.compiled.tools is not None and isinstance(self.compiled.tools.arguments, Literals)
        whole = bool(run.flags & GOOD) and finish_reason in ("stop", "tool_calls") and not needs_closer
        run.end(whole)
        return run.events, run.state()

    def check(self, state: ParserState) -> None:
        """Refuse a state that this grammar cannot have written. Raises StateMismatch."""
        if state.region not in self.compiled.regions or (state.flags & OPEN and not state.calls):
            raise StateMismatch("stream_state does not add up: the parser's region or call is not one of this grammar")

    def call_id(
        self, request_id: str, choice_index: int, call_index: int, name: str, model_id: str | None, history: int = 0
    ) -> str:
        """Id of a call: the model's own, else derived from where the call stands, so that a retry gives the same.

        history: `ParserState.history`.
        """
        if self.ids == "nine":
            if model_id and len(model_id) == 9 and model_id.isalnum() and model_id.isascii():
                return model_id
            number = int.from_bytes(_digest(request_id, choice_index, call_index, 16), "big")
            chars = []
            for _ in range(9):
                number, index = divmod(number, len(_ALPHANUMERICS))
                chars.append(_ALPHANUMERICS[index])
            return "".join(chars)
        if model_id:
            return model_id
        if self.ids == "functions":
            return f"functions.{name}:{history + call_index}"
        return "chatcmpl-tool-" + _digest(request_id, choice_index, call_index, 8).hex()


def _digest(request_id: str, choice_index: int, call_index: int, size: int) -> bytes:
    return blake2b(f"{request_id}\0{choice_index}\0{call_index}".encode(), digest_size=size).digest()
