"""Logprobs: ids to strings, byte repair, the candidate cut, and the two response shapes.

Source: reference behaviour S16 to S23. Both generations of the engine's format are read: integer `token_id`, and the
placeholder string `token_id:<n>` of older builds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite

from schemas.generate import MAX_TOKEN_ID, GenerateLogprob, GenerateLogprobEntry, GenerateLogprobs
from schemas.openai import ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob
from worker.core.detokenize import new_text
from worker.core.errors import SchemaError
from worker.core.vocabulary import REPLACEMENT, Vocabulary

CONTEXT_IDS = 4
"""Sampled ids that may stand before a token that is part of a character: the longest UTF-8 character has 4 bytes."""

_PLACEHOLDER = re.compile(r"token_id:([0-9]{1,10})")

FLOOR = -9999.0
"""What engines report in place of -inf and NaN; JSON has neither."""

Resolved = tuple[str, list[int] | None]
"""Text of a token and its UTF-8 bytes; None for an id without a vocabulary entry."""


def token_id(entry: GenerateLogprob | GenerateLogprobEntry) -> int:
    """Id of an entry, in either form. Raises SchemaError for an entry that names none."""
    if entry.token_id is not None:
        return entry.token_id
    match = _PLACEHOLDER.fullmatch(entry.token or "")
    if match is None or int(match[1]) > MAX_TOKEN_ID:
        raise SchemaError("a logprob entry needs an integer token_id or a token of the form token_id:<id>")
    return int(match[1])


def finite(logprob: float) -> float:
    return logprob if isfinite(logprob) else FLOOR


def resolve(vocabulary: Vocabulary, id_: int, context: Sequence[int]) -> Resolved:
    """Text of one token; context: ids sampled before it, to complete a character that tokens split."""
    text, data = resolved = vocabulary.alone(id_)
    if data is None or not text.endswith(REPLACEMENT):
        return resolved
    text = _repair(vocabulary, id_, context)
    return text, list(text.encode())


def _repair(vocabulary: Vocabulary, id_: int, context: Sequence[int]) -> str:
    for length in range(1, min(CONTEXT_IDS, len(context)) + 1):
        left = context[-length:]
        whole = vocabulary.decode((*left, id_))
        if whole.endswith(REPLACEMENT):
            continue
        complete = length
        while complete and vocabulary.decode((left[complete - 1],)).endswith(REPLACEMENT):
            complete -= 1
        said = vocabulary.decode(left[:complete])
        return new_text(said, whole)
    return ""


def chat_logprobs(
    vocabulary: Vocabulary, logprobs: GenerateLogprobs, context: Sequence[int], keep: int | None
) -> ChatLogprobs:
    """keep: number of candidates that go out, in the engine's order; None: all."""
    if logprobs.content is None:
        return ChatLogprobs(None)
    before = tuple(context)
    result: list[TokenLogprob] = []
    for entry in logprobs.content:
        sampled = token_id(entry)
        text, data = resolve(vocabulary, sampled, before)
        top = [_candidate(vocabulary, one, before) for one in (entry.top_logprobs or ())[:keep]]
        result.append(TokenLogprob(text, finite(entry.logprob), data, top))
        before = (*before, sampled)[-CONTEXT_IDS:]
    return ChatLogprobs(result)


def _candidate(vocabulary: Vocabulary, candidate: GenerateLogprob, context: Sequence[int]) -> TopLogprob:
    text, data = resolve(vocabulary, token_id(candidate), context)
    return TopLogprob(text, finite(candidate.logprob), data)


def completion_logprobs(
    vocabulary: Vocabulary, logprobs: GenerateLogprobs, context: Sequence[int], keep: int | None, offset: int
) -> tuple[CompletionLogprobs, int]:
    """The flat lists and the next `text_offset`; offset: code points of all tokens before."""
    result = CompletionLogprobs([], [], [], [])
    before = tuple(context)
    for entry in logprobs.content or ():
        sampled = token_id(entry)
        text, _ = resolve(vocabulary, sampled, before)
        result.text_offset.append(offset)
        result.token_logprobs.append(finite(entry.logprob))
        result.tokens.append(text)
        result.top_logprobs.append(_candidates(vocabulary, entry, before, keep))
        offset += len(text)
        before = (*before, sampled)[-CONTEXT_IDS:]
    return result, offset


def _candidates(
    vocabulary: Vocabulary, entry: GenerateLogprobEntry, context: Sequence[int], keep: int | None
) -> dict[str, float] | None:
    """A map by text: candidates of equal text collapse (the shape forces it), the last one stays, as in engines."""
    if not entry.top_logprobs:
        return None
    return {
        resolve(vocabulary, token_id(candidate), context)[0]: finite(candidate.logprob)
        for candidate in entry.top_logprobs[:keep]
    }
