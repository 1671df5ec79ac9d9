"""Many chunks of one request as one: what a reader who joins late is told first.

A client appends deltas, so one chunk whose deltas hold everything so far stands for all of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class Snapshot:
    """Chunks of one request, merged as they are added. Grows with the message, not with the number of chunks."""

    def __init__(self) -> None:
        self._chunk: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, chunk: bytes) -> None:
        """The JSON of a chat or completion chunk; in order."""
        new = _decode(chunk)
        for choice in new.pop("choices"):
            known = self._choices.get(choice["index"])
            if known is None:
                self._choices[choice["index"]] = choice
            else:
                _merge(known, choice)
        for name, value in new.items():
            if value is not None or name not in self._chunk:
                self._chunk[name] = value

    def chunk(self) -> bytes | None:
        """One chunk with everything so far; None: nothing was added."""
        if not self._chunk:
            return None
        choices = [self._choices[index] for index in sorted(self._choices)]
        names = list(self._chunk)
        names.insert(names.index("model") + 1 if "model" in names else len(names), "choices")
        return _encode({name: choices if name == "choices" else self._chunk[name] for name in names})


def _merge(known: dict[str, Any], new: dict[str, Any]) -> None:
    """Append a choice's delta to what came before."""
    for name, value in new.items():
        if value is None:
            continue
        before = known.get(name)
        match name:
            case "index":
                pass
            case "delta":
                _merge_delta(before or {}, value)
            case "text" | "token_ids":
                known[name] = value if before is None else before + value
            case "logprobs":
                known[name] = value if before is None else _joined(before, value)
            case _:
                known[name] = value


def _merge_delta(known: dict[str, Any], new: dict[str, Any]) -> None:
    for name, value in new.items():
        if value is None:
            continue
        before = known.get(name)
        if name == "tool_calls":
            known[name] = _merge_calls(before or [], value)
        elif name in ("content", "reasoning") and before is not None:
            known[name] = before + value
        else:
            known[name] = value


def _merge_calls(known: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls = {call["index"]: call for call in known}
    for call in new:
        before = calls.setdefault(call["index"], call)
        if before is call:
            continue
        arguments = call["function"].get("arguments")
        if arguments is not None:
            before["function"]["arguments"] = (before["function"].get("arguments") or "") + arguments
    return list(calls.values())


def _joined(before: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Logprobs are lists that run in parallel (`content`, or the four of a completion)."""
    return {name: [*(before.get(name) or ()), *(value or ())] for name, value in new.items()}
