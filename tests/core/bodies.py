"""Bodies of the four derender requests, and a small model that answers them."""

from __future__ import annotations

from typing import Any

from tests.core import golden_runner, support
from worker.core.model import Model

Body = dict[str, Any]

SERVED = support.model(
    name="m",
    limits={"max_model_len": 16, "max_logprobs": 2, "max_sequences": 3},
    eos_token_id=support.id_of(support.byte_level(), "</s>"),
)
H, J = (support.byte_ids(support.byte_level(), text)[0] for text in (b"h", b"i"))
USER = {"messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def choice(ids: Any = (H, J), index: Any = 0, **fields: Any) -> Body:
    return {"index": index, "token_ids": list(ids) if isinstance(ids, tuple) else ids} | fields


def response(*choices: Body, **fields: Any) -> Body:
    return {"request_id": "gen", "choices": list(choices or [choice()])} | fields


def chat(*choices: Body, of: Body | None = None, **fields: Any) -> Body:
    return {"generate_response": response(*choices, **(of or {}))} | fields


def asking(**fields: Any) -> Body:
    """A chat body whose chat request has these fields."""
    return chat(chat_request=USER | fields)


def completion(*responses: Body, **fields: Any) -> Body:
    return {"generate_responses": list(responses or [response()])} | fields


def prompted(**fields: Any) -> Body:
    return completion(completion_request={"prompt": "p"} | fields)


def chunk(*choices: Body, of: Body | None = None, **fields: Any) -> Body:
    return {"stream": True, "generate_chunk": response(*choices, **(of or {}))} | fields


def entry(*candidates: int) -> Body:
    return {"token_id": H, "logprob": -1, "top_logprobs": [{"token_id": id_, "logprob": -1} for id_ in candidates]}


def logprobs(*entries: Body) -> Body:
    return {"logprobs": {"content": list(entries)}}


def state(**fields: Any) -> Body:
    """A state that the first two ids of a stream leave, with some fields changed."""
    whole = {"version": 1, "fingerprint": SERVED.fingerprint, "index": 0, "tokens": 2, "role_sent": True}
    return whole | {"logprob_context": [H, J], "prompt": 1} | fields


def call(body: Body | bytes, served: Model = SERVED, endpoint: str = "chat") -> tuple[int, Body]:
    return golden_runner.call(served, endpoint, body)


LONG = tuple([H] * 17)
"""One id more than the model's limit."""


class FakeParser:
    """A parser that takes everything as content: for the rules around parsers, not for their work."""

    keeps_calls = True

    @classmethod
    def for_request(cls, model: Model, request: object) -> FakeParser:
        return cls()
