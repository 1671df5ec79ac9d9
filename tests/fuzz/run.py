"""Feed inputs from `tests/fuzz/inputs.py` to every decoder and the step: `python -m tests.fuzz.run --inputs 1000000`.

An input is one entry of a request (open, chunk, control, whole response, call) or one self-contained call. It fails the
run when anything but an answer or a declared error comes out, or a state that is too large or does not round-trip.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from tokenizers import Tokenizer

from schemas import keys
from schemas.state import MAX_STATE_BYTES, StreamState
from tests.conftest import DATA
from tests.fuzz.inputs import MODELS, Inputs
from worker.core import calls
from worker.core.errors import RequestError
from worker.core.model import Model, ParserConfig
from worker.core.session import Core, Entry, Open, Session
from worker.core.versions import read_request_state
from worker.settings import ModelSettings
from worker.tokenizer_cache import ModelTable, load_model

OPEN_REQUESTS = 8
PARSERS = {
    "hermes": ("hermes", "qwen3"),
    "qwen": ("qwen3_coder", "qwen3"),
    "deepseek": ("deepseek_v3", "deepseek_r1"),
    "llama": ("llama3_json", None),
    "pythonic": ("pythonic", None),
    "gptoss": ("openai", "openai_gptoss"),
    "mistral": ("mistral", "mistral"),
}
"""Model of the inputs -> tool and reasoning parser."""

_state = msgspec.json.Decoder(StreamState)
_encode = msgspec.json.Encoder().encode


@dataclass
class Report:
    """What a run found. stepped: inputs that reached the step; slowest_s: of one input."""

    inputs: int = 0
    stepped: int = 0
    answered: int = 0
    refused: int = 0
    crashes: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    largest_state: int = 0


@cache
def model_table() -> ModelTable:
    plain = load_model(ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=("plain",), max_model_len=4096))
    models: list[tuple[Model, tuple[str, ...]]] = [(plain, ())]
    for name, (tools, reasoning) in PARSERS.items():
        parsers = ParserConfig(tool_call_parser=tools, reasoning_parser=reasoning, enable_auto_tool_choice=True)
        models.append((_with_parsers(plain, name, parsers), ()))
    assert [model.name for model, _ in models] == list(MODELS[:-1])
    return ModelTable(models)


def _with_parsers(model: Model, name: str, parsers: ParserConfig) -> Model:
    return Model(
        name=name, vocabulary=model.vocabulary, eos_token_id=model.eos_token_id, model_eos_ids=model.model_eos_ids,
        model_type=model.model_type, parsers=parsers, limits=model.limits, template_digest=model.template_digest,
    )  # fmt: skip


class Fuzz:
    """One run. Equal seeds and counts give equal runs."""

    def __init__(self, seed: int) -> None:
        tokenizer = Tokenizer.from_file(str(DATA / "smollm2" / "tokenizer.json"))
        self.inputs = Inputs(
            seed, lambda text: tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.get_vocab_size()
        )
        self.random = self.inputs.random
        self.report = Report()
        self.session = Session(model_table(), core=self._counting_core())
        self.open: dict[str, tuple[Open, int, bytes]] = {}  # with the last seq and the stored context
        self.calls: list[str] = []  # calls of client-carried streams, each with the state that it returned
        self._names = 0
        self._in_step = False

    def _counting_core(self) -> Core:
        core = Core()
        for name in ("derender_step", "derender", "derender_completions"):
            setattr(core, name, self._counted(getattr(Core, name)))
        return core

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._in_step = True
            return function(*args, **options)

        return call

    def run(self, inputs: int, progress: Callable[[Report], None] = lambda _: None) -> Report:
        originals = {name: getattr(calls, name) for name in ("derender_step", "derender", "derender_completions")}
        for name, function in originals.items():
            setattr(calls, name, self._counted(function))
        try:
            for number in range(inputs):
                self._in_step = False
                begin = time.perf_counter()
                seen: list[Any] = []
                try:
                    kind = self._one(seen)
                except Exception:  # noqa: BLE001  whatever it is, it is what we look for
                    kind = "crash"
                    self.report.crashes.append(f"input {number}: {seen!r:.4000}\n{traceback.format_exc()}")
                self.report.slowest_s = max(self.report.slowest_s, time.perf_counter() - begin)
                self.report.inputs += 1
                self.report.kinds[kind] += 1
                self.report.stepped += self._in_step
                if number % 50_000 == 49_999:
                    progress(self.report)
        finally:
            for name, function in originals.items():
                setattr(calls, name, function)
        return self.report

    def _one(self, seen: list[Any]) -> str:
        if self.random.random() < 0.25:
            return self._call(seen)
        return self._entry(seen)

    # --- self-contained calls -----------------------------------------------------------------------------------------

    def _call(self, seen: list[Any]) -> str:
        random = self.random
        if self.calls and random.random() < 0.7:  # the next chunk of a stream that its client carries
            body, state = json.loads(random.choice(self.calls))
            body["generate_chunk"] = self.inputs.chunk()
            forged = random.random() < 0.3
            body["stream_state"] = self.inputs.mutated(state) if forged else state
            if random.random() < 0.02:
                body["model"] = self.inputs.model()
        else:
            body = self.inputs.call()
        data = self.inputs.encoded(body)
        seen.append(data)
        try:
            answer = calls.derender_call(model_table(), data, created=1)
        except RequestError as error:
            _encode(error.body())
            self.report.refused += 1
            return "call refused"
        self.report.answered += 1
        decoded = json.loads(answer)
        if "stream_state" in decoded:
            self._check_state(_state.decode(_encode(decoded["stream_state"])))
            call = json.dumps([json.loads(data.decode("utf-8", "replace")), decoded["stream_state"]])
            self.calls = [*self.calls[-63:], call]
        return "call"

    def _check_state(self, state: StreamState) -> None:
        encoded = _encode(state)
        self.report.largest_state = max(self.report.largest_state, len(encoded))
        assert len(encoded) <= MAX_STATE_BYTES, f"state of {len(encoded)} bytes"
        assert _state.decode(encoded) == state

    # --- entries of requests ------------------------------------------------------------------------------------------

    def _entry(self, seen: list[Any]) -> str:
        random, inputs = self.random, self.inputs
        if len(self.open) < OPEN_REQUESTS or random.random() < 0.02:
            self._names += 1
            name, fields, kind = f"r-{self._names}", {keys.OPEN: inputs.encoded(inputs.context())}, "open"
        else:
            name = random.choice(list(self.open))
            fields, kind = self._next()
        opened, seq, context = self.open.get(name, (None, -1, b""))
        fields = {keys.REQUEST: self._id(name), **fields}
        if opened is None or opened.state.seq is not None or random.random() < 0.02:
            number = seq + 1 if random.random() < 0.98 else random.choice((seq, seq + 2, 0, 10**15, 10**30))
            fields[keys.SEQ] = (
                str(number).encode() if random.random() < 0.995 else random.choice((b"-1", b"", b"x", b"\xb2"))
            )
        seen.append(fields)
        entry = Entry(b"%d-0" % (1_700_000_000_000 + self.report.inputs), fields)
        if opened is not None and random.random() < 0.1:  # as another worker would go on
            stored = read_request_state(_encode(opened.state))
            assert stored == opened.state
            opened = self.session.resume(name, stored, context)
        outcome = self.session.fold(entry, opened, keys.STATUS_OPEN if opened else None)
        for reply in outcome.replies:
            msgspec.json.decode(
                reply.fields.get(keys.CHUNK) or reply.fields.get(keys.RESPONSE) or reply.fields[keys.ERROR]
            )
        if fields[keys.REQUEST] != name.encode():
            return "other request id"
        if outcome.open is not None:
            for state in outcome.open.state.choices.values():
                self._check_state(state)
            last = outcome.open.state.seq
            self.open[name] = (outcome.open, seq if last is None else last, outcome.opened or context)
        elif outcome.dropped is None and outcome.closed is not None:
            self.open.pop(name, None)
        failed = any(keys.ERROR in reply.fields for reply in outcome.replies)
        self.report.refused += failed or outcome.dead is not None
        self.report.answered += not failed and bool(outcome.replies)
        return f"{kind} {'refused' if failed or outcome.dead else 'dropped' if outcome.dropped else 'taken'}"

    def _id(self, name: str) -> bytes:
        if self.random.random() < 0.995:
            return name.encode()
        return self.random.choice(
            (b"", b"{0}", b"a\nb", b"a\x00", b"\xff\xfe", b"a" * 129, b"a b", b"{}:open", "ü".encode())
        )

    def _next(self) -> tuple[dict[bytes, bytes], str]:
        random, inputs = self.random, self.inputs
        kind = random.random()
        if kind < 0.9:
            fields = {keys.CHUNK: inputs.encoded(inputs.chunk())}
            if random.random() < 0.02:
                fields[keys.PROMPT] = random.choice((b"0", b"1", b"-1", b"x", b"9" * 20))
            return fields, "chunk"
        if kind < 0.92:
            return {keys.OPEN: inputs.encoded(inputs.context())}, "second open"
        if kind < 0.95:
            control = random.choice((b"done", b"abort", b"error", b"timeout", b"", b"\xff"))
            error = inputs.encoded({"error": {"message": "m", "code": 500}})
            return {keys.CONTROL: control, keys.ERROR: error, keys.ACTIVE: b"0"}, "control"
        if kind < 0.97:
            fields = {keys.OPEN: inputs.encoded(inputs.context()), keys.RESPONSE: inputs.encoded(inputs.response())}
            return fields, "response"
        if kind < 0.99:
            return {keys.CALL: inputs.encoded(inputs.call())}, "call entry"
        return {random.choice((b"", b"x", b"open\x00", b"\xff")): b"x"}, "unknown field"


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz every decoder and the step")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin = time.monotonic()

    def progress(report: Report) -> None:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{report.inputs} inputs, {report.stepped} in the step, {len(report.crashes)} crashes, {memory} MiB",
            flush=True,
        )

    report = Fuzz(options.seed).run(options.inputs, progress)
    for crash in report.crashes[:10]:
        print(crash)
    print(
        json.dumps(
            {
                "inputs": report.inputs, "seed": options.seed, "stepped": report.stepped, "answered": report.answered,
                "refused": report.refused, "crashes": len(report.crashes), "slowest_s": round(report.slowest_s, 3),
                "largest_state": report.largest_state, "took_s": round(time.monotonic() - begin),
                "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "kinds": report.kinds,
            }
        )
    )  # fmt: skip
    return 1 if report.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
