"""Hostile and half-hostile inputs from a seed: entries of requests, and calls that carry their own state.

Most are made from valid parts with one thing wrong, so that they get past the decoders; the rest are broken as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

WEIRD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 1.5, -0.0, 1e308, "",
    "0", "-1", "\x00", "{}", "a" * 300, "\ud83d", "\udc00x", "🙂\u200d", "\n2", "</think>", "<tool_call>", [], {},
    [[]], [None], [0] * 40, {"": None}, {"a": {"b": [1]}}, "NaN", "derender:{0}:open", "\r\nXADD",
)  # fmt: skip

TEXTS = (
    "Hello, wörld. ", '<tool_call>\n{"name": "f", "arguments": {"x": "1", "y": [1, {"z": "</tool_call>"}]}}\n',
    "</tool_call>", "<think>\n", "</think>\n\n", "日本語🙂", '{"name": "f", "parameters": {"x": 1}}', "[f(x=1, y='a')]",
    "<function=f>\n<parameter=x>\n1\n</parameter>\n</function>", "<｜tool▁calls▁begin｜>", "<|channel|>analysis",
    "<|python_tag|>", "[TOOL_CALLS]f[ARGS]{", '"', "\\", "}}}}", "]", "\n2", "zebra", "ze",
)  # fmt: skip

MODELS = ("plain", "hermes", "qwen", "deepseek", "llama", "pythonic", "gptoss", "mistral", "unknown")


class Inputs:
    """A source of inputs. Equal seeds give equal inputs.

    encode: ids of a text. vocab: size of the vocabulary.
    """

    def __init__(self, seed: int, encode: Any, vocab: int) -> None:
        self.random = Random(seed)
        self.vocab = vocab
        self._ids = [encode(text) for text in TEXTS]

    # --- ids and chunks -----------------------------------------------------------------------------------------------

    def ids(self) -> list[Any]:
        random = self.random
        kind = random.random()
        if kind < 0.6:
            ids = [id_ for _ in range(random.randrange(1, 3)) for id_ in random.choice(self._ids)]
            begin = random.randrange(len(ids))
            return ids[begin : begin + random.randrange(1, 12)] if random.random() < 0.5 else ids
        if kind < 0.9:
            return [random.randrange(self.vocab) for _ in range(random.randrange(0, 6))]
        if kind < 0.96:
            return [random.randrange(0, 20) for _ in range(random.randrange(0, 6))]
        if kind < 0.99:
            return [random.choice((self.vocab, self.vocab + 7, 2**31 - 1, 0)) for _ in range(random.randrange(1, 4))]
        return [random.choice((-1, 2**31, 2**40, 1.5, "7", None))]

    def logprobs(self, ids: Sequence[Any]) -> Any:
        random = self.random

        def token(id_: Any) -> str:
            return f"token_id:{id_}" if random.random() < 0.995 else random.choice(("token_id:", "x", "token_id:-1"))

        content = [
            {
                "token": token(id_),
                "logprob": -random.random() * 9,
                "top_logprobs": [
                    {"token": token(random.randrange(self.vocab)), "logprob": -1.0} for _ in range(random.randrange(4))
                ],
            }
            for id_ in (ids if random.random() < 0.95 else ids[:-1])
        ]
        return {"content": content}

    def choice(self, *, whole: bool = False) -> dict[str, Any]:
        random, ids = self.random, self.ids()
        finish = (
            random.choice((None, "stop", "length", "abort", "tool_calls")) if random.random() < 0.2 or whole else None
        )
        choice: dict[str, Any] = {"index": 0 if random.random() < 0.95 else random.choice((1, 1, 2)), "token_ids": ids}
        if finish is not None:
            choice["finish_reason"] = finish
            choice["stop_reason"] = random.choice((None, 2, "x"))
        if random.random() < 0.2:
            choice["logprobs"] = self.logprobs(ids)
        return choice

    def chunk(self) -> dict[str, Any]:
        random = self.random
        chunk: dict[str, Any] = {
            "choices": [self.choice() for _ in range(random.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0)))]
        }
        if random.random() < 0.3:
            chunk["request_id"] = "engine"
        if not chunk["choices"] or random.random() < 0.1:
            chunk["usage"] = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
        return chunk

    def response(self) -> dict[str, Any]:
        return {
            "request_id": "engine",
            "choices": [self.choice(whole=True) for _ in range(self.random.choice((1, 1, 2)))],
        }

    # --- requests -----------------------------------------------------------------------------------------------------

    def asked(self, kind: str) -> dict[str, Any]:
        random = self.random
        asked: dict[str, Any] = {"stream": True, "n": random.choice((1, 1, 1, 2, 3))}
        if kind == "chat":
            asked["messages"] = [{"role": "user", "content": "hi"}]
            if random.random() < 0.6:
                parameters = {"type": "object", "properties": {"x": {"type": random.choice(("integer", "string"))}}}
                asked["tools"] = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
                named = {"type": "function", "function": {"name": random.choice(("f", "g"))}}
                asked["tool_choice"] = random.choice(("auto", "auto", "none", "required", named))
            if random.random() < 0.2:
                asked |= {"logprobs": True, "top_logprobs": random.choice((0, 2, 20, 21))}
            if random.random() < 0.2:
                asked["chat_template_kwargs"] = {"enable_thinking": random.random() < 0.5}
        else:
            asked["prompt"] = "hi"
            asked["logprobs"] = random.choice((None, None, 1))
        if random.random() < 0.4:
            asked["stop"] = random.choice(("zebra", ["\n2", "zeb"], ["qq"], "", [""], "</tool_call>"))
            asked["include_stop_str_in_output"] = random.random() < 0.3
        if random.random() < 0.3:
            asked["stream_options"] = {"include_usage": True, "continuous_usage_stats": random.random() < 0.5}
        if random.random() < 0.1:
            asked |= {"skip_special_tokens": False, "return_token_ids": True, "min_tokens": 3, "stop_token_ids": [2, 5]}
        return asked

    def context(self) -> dict[str, Any]:
        random = self.random
        kind = random.choice(("chat", "chat", "chat", "completion"))
        context: dict[str, Any] = {"kind": kind, f"{kind}_request": self.asked(kind), "model": self.model()}
        if random.random() < 0.95:  # parsers need it
            context["prompt_token_ids"] = [random.randrange(self.vocab) for _ in range(random.randrange(1, 9))]
        if random.random() < 0.5:
            context["prompt_tokens"] = random.randrange(100)
        if random.random() < 0.3:
            context |= {"created": 5, "reply_to": random.choice(("gateway-1", "a" * 65, "{1}", "a\nb"))}
        return context

    def model(self) -> str:
        return self.random.choice(MODELS[:-1]) if self.random.random() < 0.98 else MODELS[-1]

    def call(self) -> dict[str, Any]:
        """A self-contained call."""
        random = self.random
        kind = random.choice(("chat", "completion"))
        body: dict[str, Any] = {"model": self.model(), f"{kind}_request": self.asked(kind), "endpoint": kind}
        if random.random() < 0.6:
            body |= {"stream": True, "generate_chunk": self.chunk()}
            if random.random() < 0.95:
                body["prompt_token_ids"] = [random.randrange(self.vocab) for _ in range(random.randrange(1, 9))]
        elif kind == "chat":
            body["generate_response"] = self.response()
        else:
            body["generate_responses"] = [self.response() for _ in range(random.choice((1, 2)))]
        return body

    # --- damage -------------------------------------------------------------------------------------------------------

    def weird(self) -> Any:
        return deepcopy(self.random.choice(WEIRD))  # it may be mutated later

    def mutated(self, value: Any) -> Any:
        """The value with one node replaced, left out, doubled or added."""
        places = list(_places(value))
        if not places:
            return self.weird()
        holder, key = self.random.choice(places)
        kind = self.random.random()
        if kind < 0.6:
            holder[key] = self.weird()
        elif kind < 0.75:
            del holder[key]
        elif kind < 0.85 and isinstance(holder, list):
            holder.insert(key, holder[key])
        elif kind < 0.95 and isinstance(holder, dict):
            holder[self.random.choice(("", "x", "\x00", "index", "token_ids"))] = self.weird()
        else:
            holder[key] = nested(self.random.choice((3, 60, 70, 400)))
        return value

    def damaged(self, data: bytes) -> bytes:
        """The bytes with some of them changed, so mostly no JSON any more."""
        random, raw = self.random, bytearray(data)
        kind = random.random()
        if kind < 0.3:
            return bytes(raw[: random.randrange(len(raw) + 1)])
        if kind < 0.6 and raw:
            for _ in range(random.randrange(1, 4)):
                raw[random.randrange(len(raw))] = random.randrange(256)
            return bytes(raw)
        if kind < 0.9:
            at = random.randrange(len(raw) + 1)
            raw[at:at] = random.choice(
                (
                    b"\xff",
                    b"\xed\xa0\x80",
                    b"\x00",
                    b"[" * 500,
                    b'{"a":' * 300,
                    b"9" * 400,
                    b"1e999",
                    b'"\\ud800"',
                    b"NaN",
                )
            )
            return bytes(raw)
        return random.choice((b"", b"null", b"[]", b"[DONE]", b" ", b"0", b'"x"', b"[" * 100_000, b"\xef\xbb\xbf{}"))

    def encoded(self, value: Any) -> bytes:
        """JSON of a valid value, of one with something wrong, or of neither."""
        kind = self.random.random()
        if kind < 0.2:
            value = self.mutated(value)
        data = json.dumps(value, ensure_ascii=self.random.random() < 0.5).encode("utf-8", "surrogatepass")
        return self.damaged(data) if kind > 0.97 else data


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth // 2):
        value = {"a": [value]}
    return value


def _places(value: Any) -> Any:
    """Every place in a JSON value, as (container, key)."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield value, key
        yield from _places(child)
