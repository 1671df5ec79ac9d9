"""Fixed outputs to measure with: the same ids on every machine, made from texts by the tokenizer that ships with us."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import AddedToken, Tokenizer

from schemas.request import RequestContext
from worker.core.model import Model, ParserConfig
from worker.core.prepare import PreparedRequest, prepare
from worker.core.vocabulary import Vocabulary

TOKENIZER = Path(__file__).parent.parent / "derender" / "data" / "smollm2" / "tokenizer.json"
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

PROSE = "The quick brown fox jumps over the lazy dog, 7 times in 1984: naïve, café, 東京 and 🦊. "
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write_file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "mode": {"type": "integer"}},
            },
        },
    }
]


_PLAIN = ParserConfig()


@dataclass(frozen=True)
class Workload:
    """One kind of output. head: how the output begins; body: what is repeated to the length that is asked for."""

    name: str
    head: str
    body: str
    parsers: ParserConfig = _PLAIN
    logprobs: bool = False

    def ids(self, length: int) -> list[int]:
        """`length` token ids of a generation that has not ended."""
        head = _encode(self.head)
        body = _encode(self.body)
        return (head + body * (length // len(body) + 1))[:length]

    def chunk(self, ids: list[int]) -> bytes:
        """The engine's event for these ids, as it comes over the wire."""
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": None,
            "stop_reason": None,
            "token_ids": ids,
            "routed_experts": None,
            "sampling_mask": None,
            "weight_versions": None,
            "logprobs": None,
        }
        if self.logprobs:
            entries = [
                {
                    "token_id": id_,
                    "logprob": -0.5,
                    "rank": 1,
                    "top_logprobs": [
                        {"token_id": id_ + offset, "logprob": -0.5 - offset, "rank": 1 + offset} for offset in range(3)
                    ],
                }
                for id_ in ids
            ]
            choice["logprobs"] = {"content": entries}
        return msgspec.json.encode(
            {"request_id": "generate-tokens-1", "usage": None, "output_mode": "tokens", "choices": [choice]}
        )

    def response(self, length: int) -> bytes:
        """The engine's whole answer of `length` tokens."""
        choice = {"index": 0, "finish_reason": "length", "stop_reason": None, "token_ids": self.ids(length)}
        return msgspec.json.encode({"request_id": "generate-tokens-1", "output_mode": "tokens", "choices": [choice]})

    def context(self) -> bytes:
        """The request as its producer publishes it."""
        chat: dict[str, Any] = {"messages": [{"role": "user", "content": "go"}], "tools": TOOLS, "stream": True}
        if self.logprobs:
            chat |= {"logprobs": True, "top_logprobs": 2}
        prompt = _encode("<|im_start|>assistant\n")
        return msgspec.json.encode({"kind": "chat", "chat_request": chat, "prompt_token_ids": prompt})

    def request(self) -> PreparedRequest:
        context = msgspec.json.decode(self.context(), type=RequestContext)
        return prepare(self.model(), context, request_id="bench-1", created=1_700_000_000)

    def model(self) -> Model:
        return Model("bench", _vocabulary(), eos_token_id=2, model_type="qwen3", parsers=self.parsers)


@cache
def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in MARKERS])
    return tokenizer


@cache
def _vocabulary() -> Vocabulary:
    return Vocabulary(_tokenizer())


def _encode(text: str) -> list[int]:
    return list(_tokenizer().encode(text, add_special_tokens=False).ids)


_JSON_TOOLS = ParserConfig("hermes", "qwen3", enable_auto_tool_choice=True)
_XML_TOOLS = ParserConfig("qwen3_coder", "qwen3", enable_auto_tool_choice=True)

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("plain", "", PROSE),
        Workload("logprobs", "", PROSE, logprobs=True),
        Workload("reasoning", "<think>\n", PROSE, _JSON_TOOLS),
        Workload(
            "json_call",
            'I see.\n</think>\n\n<tool_call>\n{"name": "write_file", "arguments": {"path": "a.txt", "text": "',
            PROSE,
            _JSON_TOOLS,
        ),
        Workload(
            "reasoning_call",
            "<think>\n" + PROSE * 4 + "\n</think>\n\n"
            '<tool_call>\n{"name": "write_file", "arguments": {"path": "a.txt", "text": "',
            PROSE,
            _JSON_TOOLS,
        ),
        Workload(
            "xml_call",
            "I see.\n</think>\n\n<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n"
            "<parameter=text>\n",
            PROSE,
            _XML_TOOLS,
        ),
    )
}
