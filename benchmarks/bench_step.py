"""CPU of the pure step: decode the engine's event, derender, encode the reply and the state.

    python -m benchmarks.bench_step [--json FILE] [--repeat 7]

Cost at output token N is measured there and not on the way: the state at N is made once, then the next chunk is stepped
from it many times, with the state read back from its bytes (`cold`) or as the value it was (`warm`). A whole output is
one response of the engine.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import msgspec

from benchmarks.report import environment, options, table, write
from benchmarks.workloads import WORKLOADS, Workload
from schemas.generate import GenerateChunk, GenerateResponse
from schemas.state import StreamState
from worker.core.prepare import PreparedRequest
from worker.core.step import derender, derender_step

LENGTHS = (100, 1_000, 10_000, 30_000)
STEPS = 400
WHOLE = (500, 5_000)

_chunks = msgspec.json.Decoder(GenerateChunk)
_responses = msgspec.json.Decoder(GenerateResponse)
_states = msgspec.json.Decoder(StreamState)
_encoder = msgspec.json.Encoder()


def state_at(request: PreparedRequest, workload: Workload, ids: list[int]) -> StreamState:
    """The state after `ids`, in chunks of 64."""
    state: StreamState | None = None
    for start in range(0, len(ids), 64):
        _, state = derender_step(request, _chunks.decode(workload.chunk(ids[start : start + 64])), state)
    assert state is not None
    return state


def run_steps(request: PreparedRequest, chunks: list[bytes], state: StreamState, *, cold: bool) -> StreamState:
    """Step through `chunks`, bytes to bytes."""
    for chunk in chunks:
        if cold:
            state = _states.decode(_encoder.encode(state))
        reply, state = derender_step(request, _chunks.decode(chunk), state)
        _encoder.encode(reply)
        _encoder.encode(state)
    return state


def measure(workload: Workload, length: int, tokens: int, *, cold: bool, repeat: int) -> dict[str, Any]:
    request = workload.request()
    ids = workload.ids(length + STEPS * tokens)
    state = state_at(request, workload, ids[:length])
    chunks = [workload.chunk(ids[at : at + tokens]) for at in range(length, length + STEPS * tokens, tokens)]
    run_steps(request, chunks, state, cold=cold)
    times = []
    for _ in range(repeat):
        start = time.process_time_ns()
        run_steps(request, chunks, state, cold=cold)
        times.append((time.process_time_ns() - start) / STEPS / 1_000)
    return {
        "output": workload.name,
        "tokens/chunk": tokens,
        "at token": length,
        "state": "cold" if cold else "warm",
        "us/chunk": statistics.median(times),
        "min": min(times),
        "state bytes": len(_encoder.encode(state)),
    }


def measure_whole(workload: Workload, length: int, *, repeat: int) -> dict[str, Any]:
    request = workload.request()
    response = workload.response(length)
    rounds = STEPS * 20 // length
    times = []
    for _ in range(repeat + 1):  # the first one fills the caches
        start = time.process_time_ns()
        for _ in range(rounds):
            _encoder.encode(derender(request, _responses.decode(response)))
        times.append((time.process_time_ns() - start) / rounds / 1_000)
    median = statistics.median(times[1:])
    return {
        "output": workload.name,
        "tokens": length,
        "us/response": median,
        "ns/token": median / length * 1_000,
        "min": min(times),
    }


def main() -> None:
    parser = options(__doc__, "runs of which the median is printed")
    parser.add_argument("--only", action="append", choices=sorted(WORKLOADS), help="this output only; may be repeated")
    args = parser.parse_args()
    names = args.only or list(WORKLOADS)
    rows = [
        measure(WORKLOADS[name], length, tokens, cold=cold, repeat=args.repeat)
        for name in names
        for tokens in (1, 8)
        for length in LENGTHS
        for cold in (False, True)
    ]
    plain = [name for name in names if not WORKLOADS[name].logprobs]
    whole = [measure_whole(WORKLOADS[name], length, repeat=args.repeat) for name in plain for length in WHOLE]
    print(environment())
    table("CPU per chunk of the pure step, in microseconds", rows)
    table("CPU of a whole output, in microseconds", whole)
    write(args.json, "step", rows + whole)


if __name__ == "__main__":
    main()
