"""One step in a process of its own: bytes in, bytes out; nothing but the request, the chunk and the state.

Reads one JSON object (`tokenizer`, `context`, `chunk`, `state`) on standard input and writes `{"reply", "state"}`.
"""

from __future__ import annotations

import sys

import msgspec
from tokenizers import Tokenizer

from schemas.generate import GenerateChunk
from schemas.request import RequestContext
from schemas.state import StreamState
from worker.core.model import Model
from worker.core.step import Chunk, derender_step, prepare
from worker.core.vocabulary import Vocabulary


class Given(msgspec.Struct):
    """What crosses the border of the process."""

    tokenizer: str
    context: RequestContext
    chunk: GenerateChunk
    state: StreamState | None


class Said(msgspec.Struct):
    reply: Chunk
    state: StreamState


def main() -> None:
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Given)
    vocabulary = Vocabulary(Tokenizer.from_file(given.tokenizer))
    model = Model(name=given.context.model or "m", vocabulary=vocabulary, eos_token_id=2, model_eos_ids=frozenset({2}))
    request = prepare(model, given.context, request_id="r", created=1)
    reply, state = derender_step(request, given.chunk, given.state)
    sys.stdout.buffer.write(msgspec.json.encode(Said(reply, state)))


if __name__ == "__main__":
    main()
