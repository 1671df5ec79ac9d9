"""A request, checked against the model that serves it and compiled for the steps of its choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.openai import ChatRequest, CompletionRequest
from schemas.request import RequestContext
from worker.core import validate
from worker.core.assemble import CallPolicy
from worker.core.errors import RequestError
from worker.core.model import Model
from worker.core.parse import Parser
from worker.core.stop import StopTokens

Ids = Sequence[int]


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request, checked and compiled for its model. Immutable: may be cached for as long as the request lives.

    request_id: OpenAI id of the response, and what call ids are derived from. created: unix seconds.
    prompts: ids of each prompt, None where they are not known. parser: None on the plain path.
    stops: stop strings. skip_special: special tokens are no text; a parser gets every token, whatever was asked.
    keep_candidates: logprob candidates that go out, None for all.
    """

    model: Model
    kind: Literal["chat", "completion"]
    request_id: str
    created: int
    chat: ChatRequest | None
    completion: CompletionRequest | None
    prompts: tuple[Ids | None, ...]
    prompt_tokens: tuple[int | None, ...]
    parser: Parser | None
    calls: CallPolicy
    forced: bool
    history_calls: int
    stops: tuple[str, ...]
    stop_tokens: StopTokens
    min_tokens: int
    skip_special: bool
    keep_candidates: int | None
    return_token_ids: bool
    hide_metadata: bool

    @property
    def choices_per_prompt(self) -> int:
        return (self.completion.n if self.completion else None) or 1

    def prompt_ids(self, prompt: int, said: Ids | None) -> Ids | None:
        """Ids of a prompt: the request's own, else those that the engine's message says (S5); None: not known."""
        own = self.prompts[prompt] if prompt < len(self.prompts) else None
        return said if own is None else own


def prepare(model: Model, context: RequestContext, *, request_id: str, created: int) -> PreparedRequest:
    """Check a request against its model and compile what its steps need.

    Raises RequestError: a rule of the request is broken, a bound is passed, or the model's parser lacks `chat_request`.
    """
    if context.fingerprint is not None and context.fingerprint != model.fingerprint:
        raise RequestError(
            f"the request expects configuration {context.fingerprint}, but this worker serves {model.name!r} with"
            f" {model.fingerprint}: tokenizer, template or parser options differ"
        )
    prompts = _prompts(context.prompt_token_ids)
    for ids in prompts:
        validate.check_prompt_ids(ids, model.limits)
    counts = context.prompt_tokens
    chat = context.chat_request if context.kind == "chat" else None
    completion = context.completion_request if context.kind == "completion" else None
    request = chat or completion
    if chat is not None:
        validate.check_chat(chat)
    if completion is not None:
        validate.check_completion(completion)
    parser = None
    if context.kind == "chat" and model.parsers.active:
        if chat is None:
            raise RequestError("chat_request is required: this model has a tool or reasoning parser configured")
        parser = Parser.for_request(model, chat)
    ignore_eos = request is not None and request.ignore_eos
    others = frozenset((request.stop_token_ids if request else None) or ())
    return PreparedRequest(
        model=model,
        kind=context.kind,
        request_id=request_id,
        created=created,
        chat=chat,
        completion=completion,
        prompts=prompts,
        prompt_tokens=tuple(counts) if isinstance(counts, list) else (counts,),
        parser=parser,
        calls=_call_policy(model, chat, parser),
        forced=_is_forced(chat),
        history_calls=_history_calls(chat),
        stops=_stop_strings(request),
        stop_tokens=StopTokens(
            primary=None if ignore_eos else model.eos_token_id,
            others=others if ignore_eos else others | model.model_eos_ids,
            include=request is not None and request.include_stop_str_in_output,
        ),
        min_tokens=request.min_tokens if request else 0,
        skip_special=parser is None and (request is None or request.skip_special_tokens is not False),
        keep_candidates=_chat_cut(chat) if context.kind == "chat" else _completion_cut(completion),
        return_token_ids=bool(request and request.return_token_ids),
        hide_metadata=parser is not None and chat is not None and not chat.include_reasoning,
    )


def _prompts(ids: Sequence[int | list[int] | None] | None) -> tuple[Ids | None, ...]:
    """One prompt's ids, or a list of ids (or null) for each of several prompts."""
    if ids is None:
        return (None,)
    flat = [id_ for id_ in ids if isinstance(id_, int)]
    if len(flat) == len(ids):
        return (flat,)
    if flat:
        raise RequestError("prompt_token_ids mixes ids and lists of ids", param="prompt_token_ids")
    return tuple(one if isinstance(one, list) else None for one in ids)


def _stop_strings(request: ChatRequest | CompletionRequest | None) -> tuple[str, ...]:
    if request is None or request.stop is None:
        return ()
    strings = [request.stop] if isinstance(request.stop, str) else request.stop
    return tuple(string for string in strings if string)


def _is_forced(chat: ChatRequest | None) -> bool:
    return chat is not None and (chat.tool_choice == "required" or isinstance(chat.tool_choice, dict))


def _call_policy(model: Model, chat: ChatRequest | None, parser: Parser | None) -> CallPolicy:
    if chat is None or parser is None:
        return CallPolicy()
    return CallPolicy(
        keep=parser.keeps_calls,
        parallel=chat.parallel_tool_calls is not False,
        complete=model.parsers.tool_call_streaming == "complete",
        named=isinstance(chat.tool_choice, dict),
        reasoning=chat.include_reasoning,
    )


def _history_calls(chat: ChatRequest | None) -> int:
    if chat is None:
        return 0
    return sum(len(message.tool_calls or ()) for message in chat.messages if message.role == "assistant")


def _chat_cut(chat: ChatRequest | None) -> int | None:
    if chat is None or not chat.logprobs or chat.logprob_token_ids or chat.top_logprobs == -1:
        return None
    return chat.top_logprobs or 0


def _completion_cut(completion: CompletionRequest | None) -> int | None:
    if completion is None or completion.logprobs in (None, -1) or completion.logprob_token_ids:
        return None
    return (completion.logprobs or 0) + 1
