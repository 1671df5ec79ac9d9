"""Requests into prompts: chat template and tokenizer, giving the generate request that an engine is sent.

The counterpart of derendering, for the round trip render -> generate -> derender. It runs where the tokenizers are, on
a worker; templates run in the sandbox that transformers gives them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from schemas.generate import GenerateRequest, TokenId
from schemas.openai import ChatRequest, CompletionRequest
from worker.core import validate
from worker.core.errors import RequestError
from worker.core.grammars import REASONING_NAMES, TOOL_NAMES
from worker.core.model import Limits, Model

CHAT = "/v1/chat/completions/render"
COMPLETION = "/v1/completions/render"
MODELS = "/v1/models"
PARSERS = "/v1/parsers"
ENDPOINTS = frozenset((CHAT, COMPLETION, MODELS, PARSERS))

MAX_PROMPTS = 1024
COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for completions; for chats it is what the model's length leaves."""

T = TypeVar("T")

_SAMPLING = (
    "n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
    "seed", "stop", "stop_token_ids", "bad_words", "include_stop_str_in_output", "ignore_eos", "min_tokens",
    "skip_special_tokens", "spaces_between_special_tokens", "logprob_token_ids", "logit_bias", "prompt_logprobs",
)  # fmt: skip
"""Sampling parameters that have the name of the request's field; null and absent ones are left to the engine."""

_GENERATION_CONFIG = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
"""Defaults that a model's generation_config.json may set, as `vllm serve` applies them."""


class _Options(Struct, kw_only=True, frozen=True):
    """What both kinds of request may say about sampling and transport."""

    model: str | None = None
    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    bad_words: list[str] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    logprob_token_ids: list[TokenId] | None = None
    logit_bias: dict[str, float] | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    add_special_tokens: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    cache_salt: str | None = None
    priority: int | None = None
    kv_transfer_params: dict[str, Any] | None = None


class _Chat(_Options, frozen=True):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = UNSET
    parallel_tool_calls: bool | None = True
    include_reasoning: bool = True
    logprobs: bool | None = False
    top_logprobs: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class _Completion(_Options, frozen=True):
    prompt: str | list[str | TokenId | list[TokenId]] | None = None
    prompt_embeds: Any = None
    logprobs: int | None = None
    max_tokens: int | UnsetType | None = UNSET
    echo: bool | None = False
    suffix: str | None = None


class _ModelCard(Struct, frozen=True):
    id: str
    max_model_len: int | None
    object: str = "model"
    owned_by: str = "derender"


class _ModelList(Struct, frozen=True):
    data: list[_ModelCard]
    object: str = "list"


class _ParserNames(Struct, frozen=True):
    reasoning: tuple[str, ...] = REASONING_NAMES
    tool: tuple[str, ...] = TOOL_NAMES


_chat_schema = msgspec.json.Decoder(ChatRequest, strict=False)
_completion_schema = msgspec.json.Decoder(CompletionRequest, strict=False)
_chat = msgspec.json.Decoder(_Chat, strict=False)
_completion = msgspec.json.Decoder(_Completion, strict=False)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Template:
    """How a model's prompts are written.

    source: the chat template; None: the model has none, so chats cannot be rendered. tool_source: another one for
        requests with tools, where the model has two.
    tokens: the special tokens that templates name (`bos_token`, …), as text.
    generation_config: sampling defaults of the model's generation_config.json.
    """

    source: str | None = None
    tool_source: str | None = None
    tokens: Mapping[str, str] = field(default_factory=dict)
    generation_config: Mapping[str, Any] = field(default_factory=dict)


def _render_jinja() -> Callable[..., Any]:
    """The function that renders a template in a sandbox. Importing it costs half a second."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it says at import that PyTorch is missing
    from transformers.utils.chat_template_utils import render_jinja_template

    function: Callable[..., Any] = render_jinja_template
    return function


class Renderer:
    """Answers what only a worker knows and needs no generated ids: the two of `render`, `/v1/models`, `/v1/parsers`.

    lengths: served name -> longest prompt + output, in tokens. template: how the prompts of a model (by its own name)
    are written. lookup: the model of a name that a request may use.
    """

    def __init__(
        self,
        lengths: Mapping[str, int | None],
        template: Callable[[str], Template],
        lookup: Callable[[str | None], Model],
    ) -> None:
        self._lengths = lengths
        self._template = template
        self._lookup = lookup
        _render_jinja()  # now, and not while live tokens wait

    def __call__(self, endpoint: str, body: bytes, *, request_id: str, limits: Limits) -> bytes:
        """The JSON answer to one call. Raises RequestError."""
        match endpoint:
            case "/v1/parsers":
                return _encode(_ParserNames())
            case "/v1/models":
                cards = [_ModelCard(name, length) for name, length in self._lengths.items()]
                return _encode(_ModelList(cards))
            case "/v1/chat/completions/render":
                return _encode(self._render_chat(body, request_id, limits))
            case "/v1/completions/render":
                return _encode(self._render_completion(body, request_id, limits))
        raise RequestError(f"endpoint {endpoint[:200]!r} is not known")

    def _render_chat(self, body: bytes, request_id: str, limits: Limits) -> GenerateRequest:
        validate.check_chat(validate.decode(_chat_schema, body, limits))
        request = validate.decode(_chat, body, limits)
        validate.check_count(request.n)
        model = self._lookup(request.model)
        template = self._template(model.name)
        kwargs = _template_kwargs(model, request)
        text = _apply(template, request, kwargs)
        ids = model.vocabulary.tokenizer.encode(text, add_special_tokens=bool(request.add_special_tokens)).ids
        params = _sampling(request, template)
        if request.logprobs:
            params["logprobs"] = request.top_logprobs or 0
        asked = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
        params["max_tokens"] = _max_tokens(len(ids), asked, model.limits)
        choice = ("auto" if request.tools else "none") if request.tool_choice is UNSET else request.tool_choice
        parse_context = {
            "tools": request.tools,
            "tool_choice": choice,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "include_reasoning": request.include_reasoning,
            "chat_template_kwargs": kwargs,
            "history_tool_call_cnt": sum(len(message.get("tool_calls") or ()) for message in request.messages),
        }
        return _generate_request(request, model, ids, params, request_id, parse_context)

    def _render_completion(self, body: bytes, request_id: str, limits: Limits) -> list[GenerateRequest]:
        validate.check_completion(validate.decode(_completion_schema, body, limits))
        request = validate.decode(_completion, body, limits)
        for name, value in (("prompt_embeds", request.prompt_embeds), ("suffix", request.suffix)):
            if value:
                raise RequestError(f"{name} is not supported", param=name)
        if request.echo:
            raise RequestError("echo is not supported", param="echo")
        model = self._lookup(request.model)
        prompts = _prompts(request.prompt)
        if len(prompts) > MAX_PROMPTS:
            raise RequestError(f"{len(prompts)} prompts are over the limit of {MAX_PROMPTS}", param="prompt")
        template = self._template(model.name)
        special = request.add_special_tokens is not False
        rendered = []
        for number, prompt in enumerate(prompts):
            ids = prompt
            if isinstance(ids, str):
                ids = model.vocabulary.tokenizer.encode(ids, add_special_tokens=special).ids
            if not ids:
                raise RequestError("prompt must not be empty", param="prompt")
            params = _sampling(request, template)
            if request.logprobs is not None:
                params["logprobs"] = request.logprobs
            asked = COMPLETION_MAX_TOKENS if request.max_tokens is UNSET else request.max_tokens
            params["max_tokens"] = _max_tokens(len(ids), asked, model.limits)
            rendered.append(_generate_request(request, model, ids, params, f"{request_id}-{number}", None))
        return rendered


# --- prompts --------------------------------------------------------------------------------------------------------


def _prompts(prompt: str | list[str | int | list[int]] | None) -> list[str | list[int]]:
    """One prompt or several, each text or ids: `"a"`, `["a", "b"]`, `[1, 2]`, `[[1, 2], [3]]`."""
    if isinstance(prompt, str):
        return [prompt]
    ids = [part for part in prompt or () if isinstance(part, int)]
    several = [part for part in prompt or () if not isinstance(part, int)]
    if ids and several:
        raise RequestError("prompt mixes token ids with prompts", param="prompt")
    return [ids] if ids else several


def _template_kwargs(model: Model, request: _Chat) -> dict[str, Any]:
    """Arguments of the template: the server's, overridden by the request's own, overridden by what its fields say."""
    kwargs = {**model.parsers.default_chat_template_kwargs, **(request.chat_template_kwargs or {})}
    if request.reasoning_effort is not None:
        kwargs["reasoning_effort"] = request.reasoning_effort
        if "enable_thinking" not in (request.chat_template_kwargs or {}):
            kwargs["enable_thinking"] = request.reasoning_effort != "none"
    reserved = {"messages", "tools", "chat_template", "tokenize"} & kwargs.keys()
    if reserved:
        raise RequestError(
            f"chat_template_kwargs may not set {', '.join(sorted(reserved))}", param="chat_template_kwargs"
        )
    kwargs["add_generation_prompt"] = request.add_generation_prompt and not request.continue_final_message
    kwargs["continue_final_message"] = request.continue_final_message
    return kwargs


def _apply(template: Template, request: _Chat, kwargs: Mapping[str, Any]) -> str:
    if request.chat_template is not None:
        # A template is a program; the operator's own is run, a client's is not.
        raise RequestError("chat_template is set by the server", param="chat_template")
    source = template.tool_source if request.tools and template.tool_source else template.source
    if source is None:
        raise RequestError("this model has no chat template: use /v1/completions/render")
    if not request.messages:
        raise RequestError("messages must not be empty", param="messages")
    messages = [_message(message, f"messages.{i}") for i, message in enumerate(request.messages)]
    try:
        rendered, _ = _render_jinja()(
            [messages],
            tools=request.tools,
            documents=request.documents,
            chat_template=source,
            **{**template.tokens, **kwargs},
        )
    except Exception as error:  # noqa: BLE001  a template fails with whatever its expressions raise
        raise RequestError(f"the chat template refuses these messages: {error}"[:500], param="messages") from None
    return str(rendered[0])


def _message(message: dict[str, Any], path: str) -> dict[str, Any]:
    """A message as templates want it: content as text, the arguments of earlier calls as objects."""
    if not isinstance(message.get("role"), str):
        raise RequestError("role has to be a string", param=f"{path}.role")
    known = dict(message)
    if isinstance(content := message.get("content"), list):
        texts = []
        for part in content:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
                texts.append(part["text"])
            else:
                raise RequestError("only text parts are supported", param=f"{path}.content")
        known["content"] = "\n".join(texts)
    elif content is not None and not isinstance(content, str):
        raise RequestError("content has to be a string, a list of parts or null", param=f"{path}.content")
    if calls := message.get("tool_calls"):
        known["tool_calls"] = [_call(call, f"{path}.tool_calls.{i}") for i, call in enumerate(calls)]
    return known


def _call(call: Any, path: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError("a tool call needs a function with a name", param=path)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except ValueError:
            raise RequestError("arguments of a tool call have to be JSON", param=f"{path}.function.arguments") from None
    return {**call, "function": {**function, "arguments": arguments if arguments is not None else {}}}


# --- sampling -------------------------------------------------------------------------------------------------------


def _sampling(request: _Chat | _Completion, template: Template) -> dict[str, Any]:
    defaults = template.generation_config
    params = {name: defaults[name] for name in _GENERATION_CONFIG if defaults.get(name) is not None}
    for name in _SAMPLING:
        value = getattr(request, name)
        if value is not None:
            params[name] = [value] if name == "stop" and isinstance(value, str) else value
    if structured := request.structured_outputs or _structure(request.response_format):
        params["structured_outputs"] = structured
    return params


def _structure(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    match response_format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"json_object": True}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"json": schema}
    raise RequestError(
        "response_format has to be text, json_object or json_schema with a schema", param="response_format"
    )


def _max_tokens(prompt: int, asked: int | None, limits: Limits) -> int | None:
    """Tokens that may be generated; None: as many as the engine's model has room for."""
    if asked is not None and asked < 1:
        raise RequestError("max_tokens has to be at least 1", param="max_tokens")
    if limits.max_model_len is None:
        return asked
    room = limits.max_model_len - prompt
    if room < 1:
        raise RequestError(f"the prompt has {prompt} tokens, which leaves no room in {limits.max_model_len}")
    return room if asked is None else min(asked, room)


def _generate_request(
    request: _Chat | _Completion,
    model: Model,
    ids: list[int],
    params: dict[str, Any],
    request_id: str,
    parse_context: dict[str, Any] | None,
) -> GenerateRequest:
    return GenerateRequest(
        request_id=request_id,
        token_ids=ids,
        sampling_params=params,
        model=request.model or model.name,
        return_token_ids=request.return_token_ids,
        parse_context=parse_context,
        stream=bool(request.stream),
        stream_options=request.stream_options,
        cache_salt=request.cache_salt,
        priority=request.priority or 0,
        kv_transfer_params=request.kv_transfer_params,
    )
