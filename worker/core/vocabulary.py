"""What a tokenizer's vocabulary means to us: ids to bytes, added and special tokens.

Two families of decoders cover every tokenizer we know: byte-level BPE, where each token is a run of bytes, and
SentencePiece with byte fallback, where a token is text or one byte. For both, decoding is a table and the state between
two ids is the bytes of an unfinished character. Any other decoder runs over a window of ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Literal

from tokenizers import Tokenizer

REPLACEMENT = "\ufffd"

DecoderKind = Literal["byte_level", "byte_fallback", "window"]


def _byte_level_alphabet() -> dict[str, int]:
    """The 256 printable characters that byte-level BPE writes bytes with (GPT-2's `bytes_to_unicode`, inverted)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(rest)}


_BYTE_OF = _byte_level_alphabet()


def _decoder_steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [step for part in decoder["decoders"] for step in _decoder_steps(part)]
    return [decoder]


class _Table(dict[int, bytes]):
    """What was looked up, and a look-up of the rest: every id of an output passes here, without a call of Python."""

    def __init__(self, look_up: Callable[[int], bytes]) -> None:
        self._look_up = look_up

    def __missing__(self, id_: int) -> bytes:
        return self._look_up(id_)


class Vocabulary:
    """A tokenizer, seen by the detokenizer and the parser. Immutable but for its caches.

    added: id -> text of every added token by itself, as it is decoded (Gemma's runs of spaces are spelled `▁▁`);
    id_of: added token as it is spelled, and as grammars name it -> id; special: ids whose own flag says special;
    size: number of ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self.special = frozenset(id_ for id_, token in added.items() if token.special)
        self.id_of: dict[str, int] = {token.content: id_ for id_, token in added.items()}
        definition = tokenizer.to_str()
        self.fingerprint = blake2b(definition.encode(), digest_size=8).hexdigest()
        steps = _decoder_steps(json.loads(definition)["decoder"])
        self.kind: DecoderKind = "window"
        self.strips_leading_space = False
        self._replace: tuple[str, str] | None = None
        match [step["type"] for step in steps]:
            case ["ByteLevel"]:
                self.kind = "byte_level"
            case ["Replace", "ByteFallback", "Fuse", *rest] if "String" in steps[0]["pattern"] and (
                not rest
                or (rest == ["Strip"] and (steps[3]["content"], steps[3]["start"], steps[3]["stop"]) == (" ", 1, 0))
            ):
                self.kind = "byte_fallback"
                self._replace = (steps[0]["pattern"]["String"], steps[0]["content"])
                self.strips_leading_space = bool(rest)
        self.size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self._bytes = _Table(self._look_up)
        self.bytes_of: Callable[[int], bytes] = self._bytes.__getitem__
        """Bytes that an id stands for; empty for an id without a vocabulary entry."""
        self._byte_ids: set[int] = set()
        self._alone: dict[int, tuple[str, list[int] | None]] = {}
        self.added: dict[int, str] = {id_: self.decode((id_,)) for id_ in added}

    def is_byte(self, id_: int) -> bool:
        """Whether the id is one byte of a byte-fallback run."""
        self.bytes_of(id_)
        return id_ in self._byte_ids

    def drop_caches(self) -> None:
        """Forget what was looked up: changes nothing but time, at any moment."""
        self._bytes.clear()
        self._byte_ids.clear()
        self._alone.clear()

    def known(self, id_: int) -> bool:
        return self.tokenizer.id_to_token(id_) is not None

    def alone(self, id_: int) -> tuple[str, list[int] | None]:
        """Text of one id by itself and its UTF-8 bytes (not to be changed); "" and None without a vocabulary entry."""
        found = self._alone.get(id_)
        if found is None:
            if not self.known(id_):
                return "", None  # not cached: ids beyond the vocabulary are unbounded
            text = self.decode((id_,))
            found = self._alone[id_] = text, list(text.encode())
        return found

    def _look_up(self, id_: int) -> bytes:
        token = self.tokenizer.id_to_token(id_)
        if token is None:
            return b""  # not cached: ids beyond the vocabulary are unbounded
        result = token.encode()
        if self.kind == "byte_level":
            if all(char in _BYTE_OF for char in token):
                result = bytes(_BYTE_OF[char] for char in token)
        elif self.kind == "byte_fallback":
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                try:
                    result = bytes([int(token[3:5], 16)])
                    self._byte_ids.add(id_)
                except ValueError:
                    pass  # a token that only looks like a byte, as <0xZZ>
            if self._replace and id_ not in self._byte_ids:
                result = token.replace(*self._replace).encode()
        self._bytes[id_] = result
        return result

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """Text of ids as the tokenizer decodes them in one go, a leading space included."""
        kept = [id_ for id_ in ids if not (skip_special and id_ in self.special)]
        if self.kind == "byte_level":
            return b"".join(map(self.bytes_of, kept)).decode("utf-8", "replace")
        if self.kind == "byte_fallback":
            return self._decode_runs(kept)
        return str(self.tokenizer.decode(kept, skip_special_tokens=False))

    def _decode_runs(self, ids: Sequence[int]) -> str:
        parts: list[str] = []
        run = b""
        for id_ in ids:
            data = self.bytes_of(id_)
            if id_ in self._byte_ids:
                run += data
                continue
            if run:
                parts.append(_decode_run(run))
                run = b""
            parts.append(data.decode("utf-8", "replace"))
        if run:
            parts.append(_decode_run(run))
        return "".join(parts)


def _decode_run(run: bytes) -> str:
    """A byte-fallback run decodes as a whole or not at all."""
    try:
        return run.decode()
    except UnicodeDecodeError:
        return REPLACEMENT * len(run)
