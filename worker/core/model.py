"""A served model as the core sees it: vocabulary, limits, end-of-sequence ids, parser configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from worker.core.response_template import Imported
from worker.core.vocabulary import Vocabulary


@dataclass(frozen=True)
class ParserConfig:
    """Parser options, with the meaning they have on `vllm serve`.

    tool_call_streaming: `eager` sends a call as it is written, `complete` when its closer was seen.
    forced_tool_format: what a `required` or named choice looks like, the family's own markup or bare JSON.
    stop_scope: where stop strings are searched: the whole output text, or content only.
    """

    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    enable_auto_tool_choice: bool = False
    default_chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    tool_call_streaming: Literal["eager", "complete"] = "eager"
    forced_tool_format: Literal["native", "json"] = "native"
    stop_scope: Literal["output", "content"] = "output"

    @property
    def active(self) -> bool:
        """Whether chat requests go through the parser: a tool parser counts only with auto tool choice."""
        return self.reasoning_parser is not None or (self.tool_call_parser is not None and self.enable_auto_tool_choice)


@dataclass(frozen=True)
class Limits:
    """Bounds that are checked before any work. Counts; payloads in bytes; None: no limit."""

    max_model_len: int | None = None
    max_logprobs: int | None = 20
    max_sequences: int = 16_384
    max_payload_bytes: int = 64 * 1024 * 1024
    max_json_depth: int = 64


@dataclass(frozen=True)
class Model:
    """Everything `derender_step` needs to know about a served model.

    eos_token_id: the tokenizer's own end-of-sequence id; model_eos_ids: those of the generation config.
    template_digest: of chat template and response template. imported: grammars of the response template.
    """

    name: str
    vocabulary: Vocabulary
    eos_token_id: int | None = None
    model_eos_ids: frozenset[int] = frozenset()
    model_type: str | None = None
    parsers: ParserConfig = ParserConfig()
    limits: Limits = Limits()
    template_digest: str = ""
    imported: Imported | None = None

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of name, tokenizer, template and parsers: states of another configuration are refused."""
        parts = (self.name, self.vocabulary.fingerprint, self.template_digest, self.model_type, self.parsers)
        return blake2b(msgspec.json.encode(parts, order="deterministic"), digest_size=8).hexdigest()
