"""A small token-in / token-out engine on loopback, with the answers of the recorded one (`recordings/engine-*`).

It generates nothing: a script says which ids a prompt gives. Pauses, refusals, errors in mid-stream and broken
connections are part of the script, so that whoever calls an engine can be tried against them.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

STOP_REFUSED = (
    "stop strings are not supported on a --tokens-only server because detokenization is disabled. Check stop strings on"
    " the coordinator, or use stop_token_ids."
)


@dataclass
class Generation:
    """What one request gives.

    choices: ids per choice index. logprobs: entries per choice (`token_id`, `logprob`, `rank`, `top_logprobs`), sent
        when the request asks for them. per_chunk: ids in one event.
    pause_s: before each event. first_pause_s: before the first one.
    error_after: events until `data: {"error": …}` comes with HTTP 200. break_after: events until the connection drops.
    refuse: status and body in place of any event. order: choice index of each event in turn; default: round robin.
    """

    choices: Sequence[Sequence[int]]
    logprobs: Sequence[Sequence[dict[str, Any]]] = ()
    per_chunk: int = 1
    pause_s: float = 0.0
    first_pause_s: float = 0.0
    error_after: int | None = None
    break_after: int | None = None
    refuse: tuple[int, dict[str, Any]] | None = None
    order: Sequence[int] = ()


Script = Callable[[dict[str, Any]], Generation]
"""The body of a generate request → what it gives."""


@dataclass
class Engine:
    """The engine's state: what it was asked, and how each call ended (`finished`, `closed` by the client)."""

    script: Script
    eos: frozenset[int] = frozenset({2})
    created: int | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/inference/v1/generate", self.generate, methods=["POST"])])

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        if not body.get("token_ids"):
            return _json(400, _too_short())
        params = body.get("sampling_params") or {}
        if params.get("stop"):
            return _json(400, _error(STOP_REFUSED, "BadRequestError", 400))
        generation = self.script(body)
        if generation.refuse is not None:
            return _json(*generation.refuse)
        id_ = f"generate-tokens-{body.get('request_id', 'anonymous')}"
        choices = [
            _Choice(index, list(generation.choices[index]), params, self.eos, generation)
            for index in range(params.get("n") or 1)
        ]
        if body.get("stream"):
            return StreamingResponse(self._stream(id_, body, choices, generation), media_type="text/event-stream")
        self._enter()
        try:
            until = time.monotonic() + generation.first_pause_s
            until += generation.pause_s * max(map(len, generation.choices))
            while time.monotonic() < until:
                await asyncio.sleep(0.02)
                if await request.is_disconnected():
                    self.closed.append(id_)
                    return Response(status_code=499)
            self.finished.append(id_)
        finally:
            self.running -= 1
        return _json(200, self._whole(id_, body, choices))

    def _enter(self) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)

    def _whole(self, id_: str, body: dict[str, Any], choices: list[_Choice]) -> dict[str, Any]:
        prompt, ids = len(body["token_ids"]), sum(len(choice.ids) for choice in choices)
        return {
            "request_id": id_,
            "model": body.get("model"),
            "created": int(time.time()) if self.created is None else self.created,
            "usage": _usage(prompt, ids, details=True),
            "prompt_logprobs": None,
            "prompt_token_id_logprobs": None,
            "prompt_token_ids": body["token_ids"] if body.get("return_token_ids") else None,
            "mm_placeholders": None,
            "metrics": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "output_mode": "tokens",
            "choices": [choice.event(0, len(choice.ids)) for choice in choices],
        }

    async def _stream(
        self, id_: str, body: dict[str, Any], choices: list[_Choice], generation: Generation
    ) -> AsyncIterator[str]:
        options = body.get("stream_options") or {}
        prompt = len(body["token_ids"])
        sent = events = 0
        self._enter()
        ended = False
        try:
            for choice in _turns(choices, generation):
                await asyncio.sleep(generation.pause_s + (0.0 if events else generation.first_pause_s))
                if events == generation.error_after:
                    error = _error("the engine died", "InternalServerError", 500)
                    yield f"data: {_dump(error)}\n\n"
                    break
                if events == generation.break_after:
                    ended = True
                    raise ConnectionResetError("as scripted")
                begin = choice.sent
                choice.sent = min(len(choice.ids), begin + generation.per_chunk)
                sent += choice.sent - begin
                usage = None
                if options.get("continuous_usage_stats"):
                    usage = _usage(prompt, choice.sent, details=True)
                event: dict[str, Any] = {"request_id": id_, "usage": usage}
                if body.get("return_token_ids") and not events:
                    event["prompt_token_ids"] = body["token_ids"]
                event |= {"output_mode": "tokens", "choices": [choice.event(begin, choice.sent)]}
                events += 1
                yield f"data: {_dump(event)}\n\n"
            else:
                if options.get("include_usage"):
                    usage = _usage(prompt, sent, details=False)
                    last = {"request_id": id_, "usage": usage, "output_mode": "tokens", "choices": []}
                    yield f"data: {_dump(last)}\n\n"
            yield "data: [DONE]\n\n"
            ended = True
            self.finished.append(id_)
        finally:
            self.running -= 1
            if not ended:
                self.closed.append(id_)


class _Choice:
    """One choice: its ids as the sampling parameters cut them, and why it ended."""

    def __init__(
        self, index: int, ids: list[int], params: dict[str, Any], eos: frozenset[int], generation: Generation
    ) -> None:
        self.index = index
        self.sent = 0
        self.finish, self.reason = "length", None
        limit = params.get("max_tokens")
        limit = len(ids) if limit is None else limit
        stops = set(params.get("stop_token_ids") or ()) | (set() if params.get("ignore_eos") else eos)
        end = next((i for i, id_ in enumerate(ids[:limit]) if id_ in stops), None)
        if end is not None:
            self.finish, self.reason = "stop", ids[end]
            limit = end + 1
        self.ids = ids[:limit]
        self.logprobs = None
        if params.get("logprobs") is not None:
            self.logprobs = list(generation.logprobs[index] if generation.logprobs else map(_certain, self.ids))

    def event(self, begin: int, end: int) -> dict[str, Any]:
        last = end == len(self.ids)
        return {
            "index": self.index,
            "finish_reason": self.finish if last else None,
            "stop_reason": self.reason if last else None,
            "token_ids": self.ids[begin:end],
            "routed_experts": None,
            "sampling_mask": None,
            "weight_versions": [{"version": "default", "start": 0, "end": len(self.ids)}] if last else None,
            "logprobs": None if self.logprobs is None else {"content": self.logprobs[begin:end]},
        }


def _turns(choices: list[_Choice], generation: Generation) -> Iterator[_Choice]:
    """Whose event comes next, until every choice has ended."""
    for index in generation.order:
        yield choices[index]
    while open_ := [choice for choice in choices if choice.sent < len(choice.ids)]:
        yield from open_


def _certain(id_: int) -> dict[str, Any]:
    candidate = {"token_id": id_, "logprob": 0.0, "rank": 1}
    return {**candidate, "top_logprobs": [candidate]}


def _usage(prompt: int, completion: int, *, details: bool) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return counts | ({"prompt_tokens_details": None, "completion_tokens_details": None} if details else {})


def _error(message: str, kind: str, code: int, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _too_short() -> dict[str, Any]:
    message = (
        "1 validation error:\n  {'type': 'too_short', 'loc': 'body.token_ids', 'msg': 'List should have at least 1 item"
        " after validation, not 0', 'input': '<list of 0 items>', 'ctx': {'field_type': 'List', 'min_length': 1,"
        " 'actual_length': 0}}"
    )
    return _error(message, "Bad Request", 400, "body.token_ids")


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _json(status: int, body: dict[str, Any]) -> Response:
    return Response(_dump(body), status, media_type="application/json")


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    """Run an ASGI application in a thread; gives its base URL on a free loopback port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the test server did not start")
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
