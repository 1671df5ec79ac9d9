"""Small models and requests for the tests of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import AddedToken, Tokenizer, decoders, models

from schemas.generate import GenerateChunk, GenerateLogprobs, GenerateStreamChoice
from schemas.request import RequestContext
from schemas.state import StreamState
from tests.shared_data import ROOT
from worker.core.model import Limits, Model, ParserConfig
from worker.core.prepare import PreparedRequest, prepare
from worker.core.step import Chunk, derender_step
from worker.core.vocabulary import Vocabulary

SMOLLM2 = ROOT / "derender" / "data" / "smollm2"

_encode = msgspec.json.Encoder().encode
_states = msgspec.json.Decoder(StreamState)
_contexts = msgspec.json.Decoder(RequestContext)


@cache
def vocabulary(folder: Path, added: tuple[str, ...], special: tuple[str, ...]) -> Vocabulary:
    """Vocabulary of a tokenizer, with tokens appended."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in added])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    return Vocabulary(tokenizer)


def smollm2(added: tuple[str, ...] = ()) -> Vocabulary:
    return vocabulary(SMOLLM2, added, ())


def _with_special(tokenizer: Tokenizer) -> Vocabulary:
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens(["<mark>"])
    return Vocabulary(tokenizer)


@cache
def byte_level() -> Vocabulary:
    """Ids 0 to 255 are the bytes in the order of the byte alphabet; then some words, `<s>`, `</s>`, `<mark>`."""
    alphabet = sorted(pre_tokenizers_alphabet())
    words = ["hello", "Ġworld", "Ġ", "ðŁ", "ĺĢ", "ï¿½", "aâ"]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*alphabet, *words]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=None))
    tokenizer.decoder = decoders.ByteLevel()
    return _with_special(tokenizer)


def pre_tokenizers_alphabet() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet: list[str] = ByteLevel.alphabet()
    return alphabet


def _byte_fallback(*more: Any) -> Vocabulary:
    tokens = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁hello",
        "▁world",
        "▁",
        "ok",
        "😀",
        "\ufffd",
        "<0xZZ>",
    ]
    tokenizer = Tokenizer(models.BPE(vocab={token: n for n, token in enumerate(tokens)}, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *more],
    )
    return _with_special(tokenizer)


@cache
def byte_fallback() -> Vocabulary:
    """SentencePiece with byte fallback that keeps a leading space; byte b is id 1 + b."""
    return _byte_fallback()


@cache
def stripping() -> Vocabulary:
    """The same with a decoder that strips one leading space."""
    return _byte_fallback(decoders.Strip(" ", 1, 0))


@cache
def word_piece() -> Vocabulary:
    tokens = ["[UNK]", "un", "##able", "to", "say", ".", ",", "'", "s", "##s", "don", "t", "\ufffd", "é", "##é"]
    tokenizer = Tokenizer(models.WordPiece(vocab={t: n for n, t in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return _with_special(tokenizer)


@cache
def metaspace() -> Vocabulary:
    tokens = ["<unk>", "▁hello", "▁world", "▁", "lo", "▁a", "b", "\ufffd", "▁\ufffd", "é", "😀"]
    tokenizer = Tokenizer(models.WordLevel(vocab={t: n for n, t in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    return _with_special(tokenizer)


SMALL: dict[str, Callable[[], Vocabulary]] = {
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "stripping": stripping,
    "word_piece": word_piece,
    "metaspace": metaspace,
}


def byte_ids(of: Vocabulary, data: bytes) -> list[int]:
    """Ids that stand for one byte each."""
    if of.kind == "byte_fallback":
        return [1 + byte for byte in data]
    by_byte = {of.bytes_of(id_): id_ for id_ in range(256)}
    return [by_byte[bytes([byte])] for byte in data]


def id_of(of: Vocabulary, token: str) -> int:
    """Id of a token as the vocabulary writes it."""
    id_ = of.tokenizer.token_to_id(token)
    assert id_ is not None, token
    return int(id_)


def model(vocabulary: Vocabulary | None = None, **fields: Any) -> Model:
    """A served model; `limits` and `parsers` may be given as dicts."""
    for name, type_ in (("limits", Limits), ("parsers", ParserConfig)):
        if isinstance(fields.get(name), dict):
            fields[name] = type_(**fields[name])
    return Model(**{"name": "m", "vocabulary": vocabulary or byte_level()} | fields)


def request(served: Model, kind: str = "chat", **context: Any) -> PreparedRequest:
    """A prepared request; `chat_request` and `completion_request` as JSON objects."""
    decoded = _contexts.decode(_encode({"kind": kind} | context))
    return prepare(served, decoded, request_id="r", created=1)


def chunk(ids: Sequence[int] | None = (), finish: str | None = None, *, index: int = 0, **fields: Any) -> GenerateChunk:
    """One engine event with one choice; `logprobs`, `stop_reason` go to the choice, the rest to the event."""
    own = {name: fields.pop(name) for name in ("logprobs", "stop_reason") if name in fields}
    if isinstance(own.get("logprobs"), dict | list):
        content = own["logprobs"]
        own["logprobs"] = msgspec.convert(
            {"content": content} if isinstance(content, list) else content, GenerateLogprobs
        )
    ids = None if ids is None else list(ids)
    choice = GenerateStreamChoice(index=index, token_ids=ids, finish_reason=finish, **own)
    return GenerateChunk(choices=[choice], **fields)


def through_bytes(state: StreamState) -> StreamState:
    return _states.decode(_encode(state))


def run(
    prepared: PreparedRequest, chunks: Iterable[GenerateChunk], seen: Callable[[StreamState], None] | None = None
) -> tuple[list[Chunk], StreamState | None]:
    """All chunks in order, the state through bytes between any two. seen: gets every state."""
    state: StreamState | None = None
    answers = []
    for one in chunks:
        answer, state = derender_step(prepared, one, state)
        state = through_bytes(state)
        if seen:
            seen(state)
        answers.append(answer)
    return answers, state


def text_of(answers: Iterable[Chunk]) -> str:
    parts = []
    for answer in answers:
        for choice in answer.choices:
            parts.append(
                (getattr(choice, "delta", None) and choice.delta.content) or getattr(choice, "text", None) or ""
            )  # type: ignore[union-attr]
    return "".join(parts)
