"""Steps in a process of its own: bytes in, bytes out; nothing but requests, chunks and states.

Reads a JSON object (`tokenizer`, `steps`) on standard input and writes a list of `{"reply", "state"}`. Each step is of
another stream.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from tokenizers import Tokenizer

from schemas.generate import GenerateChunk
from schemas.request import RequestContext
from schemas.state import StreamState
from worker.core.model import Model, ParserConfig
from worker.core.prepare import prepare
from worker.core.step import Chunk, derender_step
from worker.core.vocabulary import Vocabulary


class Step(msgspec.Struct):
    """One step, and how its model is served."""

    context: RequestContext
    chunk: GenerateChunk
    state: StreamState | None
    parsers: dict[str, Any] = {}
    eos_token_id: int | None = 2


class Given(msgspec.Struct):
    """What crosses the border of the process."""

    tokenizer: str
    steps: list[Step]


class Said(msgspec.Struct):
    reply: Chunk
    state: StreamState


def run(vocabulary: Vocabulary, step: Step) -> Said:
    eos = step.eos_token_id
    model = Model(
        name=step.context.model or "m",
        vocabulary=vocabulary,
        eos_token_id=eos,
        model_eos_ids=frozenset() if eos is None else frozenset({eos}),
        parsers=ParserConfig(**step.parsers),
    )
    request = prepare(model, step.context, request_id="r", created=1)
    return Said(*derender_step(request, step.chunk, step.state))


def main() -> None:
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Given)
    vocabulary = Vocabulary(Tokenizer.from_file(given.tokenizer))
    sys.stdout.buffer.write(msgspec.json.encode([run(vocabulary, step) for step in given.steps]))


if __name__ == "__main__":
    main()
