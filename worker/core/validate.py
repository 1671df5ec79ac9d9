"""Checks of a request before any work: the rules of the OpenAI request, and the bounds of this server.

Every function raises RequestError (or SchemaError) with the field that is wrong. Source: reference E1 to E23.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from schemas.generate import GenerateChunk, GenerateLogprobs, GenerateResponse
from schemas.openai import ChatRequest, CompletionRequest, StopStrings
from worker.core.errors import RequestError, SchemaError
from worker.core.logprobs import token_id
from worker.core.model import Limits
from worker.core.stop import MAX_STOP_CHARS

T = TypeVar("T")

MAX_N = 16_384
"""Choices of one prompt that a request may ask for, as many as a response may hold."""

_PATH = re.compile(r" - at `\$(.*)`$")
_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(.{1,200})`")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"')
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b'[]{}"'))


def decode(decoder: msgspec.json.Decoder[T], data: bytes, limits: Limits, *, deep: bool = True) -> T:
    """Decode JSON from outside. Raises SchemaError that names the field, before unbounded work.

    deep: also bound the nesting (bodies with free-form members); a fixed schema bounds itself.
    """
    if len(data) > limits.max_payload_bytes:
        raise SchemaError(f"payload of {len(data)} bytes is over the limit of {limits.max_payload_bytes} bytes")
    if deep and data.count(b"[") + data.count(b"{") > limits.max_json_depth:
        check_depth(data, limits.max_json_depth)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise schema_error(error) from None
    except RecursionError:
        raise SchemaError("JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"invalid JSON: {error}") from None


def check_depth(data: bytes, limit: int) -> None:
    """Refuse JSON nested deeper than `limit` levels, in a bounded number of passes over its brackets."""
    brackets = _ESCAPE.sub(b"", data).translate(_TO_SQUARE, _NO_BRACKET)
    brackets = _STRING.sub(b"", brackets)
    for _ in range(limit):
        if b"[]" not in brackets:
            return  # not balanced: the decoder says where
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise SchemaError(f"JSON is nested deeper than {limit} levels")


def schema_error(error: msgspec.ValidationError) -> SchemaError:
    """msgspec's message and path, with the path as the reference writes it: `body.choices.0.index`."""
    message = str(error)
    match = _PATH.search(message)
    path = "body"
    if match:
        path += re.sub(r"\[(\d+|\.\.\.)\]", r".\1", match[1])
        message = message[: match.start()]
    if field := _FIELD.match(message):
        path += "." + field[1]
    return SchemaError(f"{path}: {message}", param=path)


def check_chat(request: ChatRequest) -> None:
    """Rules within a chat request (E5)."""
    if request.tools is not None and not request.tools:
        raise RequestError("tools must not be an empty list: leave it out instead", param="tools")
    _check_tool_choice(request)
    if request.top_logprobs is not None:
        if request.top_logprobs < -1:
            raise RequestError("top_logprobs must be -1 or at least 0", param="top_logprobs")
        if request.top_logprobs != 0 and not request.logprobs:
            raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    if request.logprob_token_ids and not request.logprobs:
        raise RequestError("logprob_token_ids needs logprobs to be true", param="logprob_token_ids")
    _check_stream_options(request)
    if request.prompt_logprobs is not None and request.stream:
        raise RequestError("prompt_logprobs are not available with stream: true", param="prompt_logprobs")
    if request.continue_final_message is True and request.add_generation_prompt is True:
        raise RequestError(
            "continue_final_message and add_generation_prompt exclude each other", param="continue_final_message"
        )
    if request.structured_outputs is not None:
        kinds = [kind for kind in ("json", "regex", "choice") if request.structured_outputs.get(kind) is not None]
        if len(kinds) > 1:
            raise RequestError(f"structured_outputs takes one of {', '.join(kinds)}", param="structured_outputs")
    _check_stop(request.stop)


def check_count(n: int | None) -> None:
    if n is not None and not 1 <= n <= MAX_N:
        raise RequestError(f"n must be from 1 to {MAX_N}", param="n")


def check_completion(request: CompletionRequest) -> None:
    """Rules within a completion request (E6)."""
    if not request.prompt and not request.prompt_embeds:
        raise RequestError("prompt must not be empty", param="prompt")
    if request.logprobs is not None and request.logprobs < -1:
        raise RequestError("logprobs must be -1 or at least 0", param="logprobs")
    if request.logprob_token_ids and request.logprobs is None:
        raise RequestError("logprob_token_ids needs logprobs", param="logprob_token_ids")
    check_count(request.n)
    _check_stream_options(request)
    _check_stop(request.stop)


def _check_stream_options(request: ChatRequest | CompletionRequest) -> None:
    options = request.stream_options
    if options is not None and not request.stream:
        raise RequestError("stream_options is only allowed with stream: true", param="stream_options")


def _check_stop(stop: StopStrings) -> None:
    for string in [stop] if isinstance(stop, str) else stop or ():
        if len(string) > MAX_STOP_CHARS:
            raise RequestError(
                f"stop string of {len(string)} characters is over the limit of {MAX_STOP_CHARS}", param="stop"
            )


def _check_tool_choice(request: ChatRequest) -> None:
    choice: Any = request.tool_choice
    if choice is UNSET or choice is None or choice == "none":
        return

    def wrong(message: str, field: str = "") -> RequestError:
        return RequestError(message, param="tool_choice" + field)

    if isinstance(choice, str):
        if choice not in ("auto", "required"):
            raise wrong(f"tool_choice {choice!r}: use none, auto, required or a named function")
        if not request.tools:
            raise wrong(f"tool_choice {choice!r} needs tools")
        return
    if not isinstance(choice, dict):
        raise wrong("tool_choice must be a string or an object that names a function")
    if not request.tools:
        raise wrong("a named tool_choice needs tools")
    function = choice.get("function")
    if not isinstance(function, dict):
        raise wrong("a named tool_choice needs a function object", ".function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise wrong("a named tool_choice needs the function's name", ".function.name")
    if all(tool.function.name != name for tool in request.tools):
        raise wrong(f"tool_choice names {name!r}, which is not among the tools")


def check_output_mode(message: GenerateChunk | GenerateResponse) -> None:
    if message.output_mode != "tokens":
        raise RequestError(f"output_mode {message.output_mode!r} cannot be derendered: only tokens can")


def check_prompt_ids(ids: Sequence[int] | None, limits: Limits) -> None:
    _check_length("prompt_token_ids", ids, "ids", limits)


def _check_length(what: str, values: Sequence[object] | None, unit: str, limits: Limits) -> None:
    """Nothing that has a value for each token is longer than the model's context."""
    limit = limits.max_model_len
    if limit is not None and values is not None and len(values) > limit:
        raise RequestError(f"{what} has {len(values)} {unit}, over the model's limit of {limit}")


def check_ids_present(response: GenerateResponse, *, of: str = "") -> None:
    """Every finished choice has ids (E16). of: names the response in a message."""
    for choice in response.choices:
        if not choice.token_ids:
            raise RequestError(f"choice {choice.index}{of} has no token_ids")


def check_responses(responses: Sequence[GenerateResponse], limits: Limits) -> None:
    """The bounds of several responses, one per prompt (E9 to E13)."""
    if len(responses) > limits.max_sequences:
        raise RequestError(f"{len(responses)} responses are over the limit of {limits.max_sequences}")
    for response in responses:
        check_response_size(response, limits)


def check_response_size(response: GenerateResponse, limits: Limits) -> None:
    """The bounds of a whole response (E9 to E13): they come before what the model's parsers require of the request."""
    check_output_mode(response)
    if len(response.choices) > limits.max_sequences:
        raise RequestError(f"response has {len(response.choices)} choices, over the limit of {limits.max_sequences}")
    for choice in response.choices:
        _check_length(f"choice {choice.index}", choice.token_ids, "token ids", limits)
        check_logprobs(choice.logprobs, limits)
    _check_length("prompt_logprobs", response.prompt_logprobs, "entries", limits)
    check_prompt_ids(response.prompt_token_ids, limits)


def check_logprobs(logprobs: GenerateLogprobs | None, limits: Limits) -> None:
    if logprobs is None or logprobs.content is None:
        return
    _check_length("logprobs", logprobs.content, "entries", limits)
    if limits.max_logprobs is None or limits.max_logprobs < 0:
        return
    for entry in logprobs.content:
        candidates = entry.top_logprobs
        if candidates is None or len(candidates) <= limits.max_logprobs:
            continue
        # the engine puts the sampled token in front of the k candidates that were asked for
        count = len(candidates) - (token_id(candidates[0]) == token_id(entry))
        if count > limits.max_logprobs:
            raise RequestError(f"a position has {count} logprob candidates, over the limit of {limits.max_logprobs}")
