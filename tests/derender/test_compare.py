"""Comparing two runs: which request, which reply, which field; and nothing that differs by chance."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from derender.compare import read_run, report, run_of, write_run
from producer.read import Reply


def chunk(content: str | None, *, finish: str | None = None, created: int = 1, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": {"role": None, "content": content, **delta}, "finish_reason": finish}
    return json.dumps({"id": f"run-{created}", "created": created, "model": "m", "choices": [choice]}).encode()


def replies(*chunks: bytes) -> list[Reply]:
    return [
        Reply(f"{n}-0", chunk=one, done="finished" if n == len(chunks) else None) for n, one in enumerate(chunks, 1)
    ]


def compare(expected: list[Reply], found: list[Reply]) -> tuple[int, list[str]]:
    out = io.StringIO()
    wrong = report(run_of([("r", expected)]), run_of([("r", found)]), out)
    return wrong, out.getvalue().splitlines()


SAME = "1 of 1 request answers as in the earlier run"
NOT = "0 of 1 request answers as in the earlier run"


def call(id_: str) -> list[Any]:
    return [{"index": 0, "id": id_, "function": {"name": "f", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("expected", "found", "lines"),
    [
        ([chunk("a"), chunk("b")], [chunk("a", created=2), chunk("b", created=2)], [SAME]),
        ([chunk(None, tool_calls=call("x"))], [chunk(None, tool_calls=call("y"))], [SAME]),
        (
            [chunk("ab"), chunk("c", finish="stop")],
            [chunk("a"), chunk("bc", finish="stop")],
            [
                'r: reply 1, chunk.choices.0.delta.content: expected "ab", found "a"',
                'r: reply 2, chunk.choices.0.delta.content: expected "c", found "bc"',
                "r: the whole message is the same: only its cut differs",
                NOT,
            ],
        ),
        (
            [chunk("a"), chunk("b", finish="stop")],
            [chunk("a", finish="length")],
            [
                'r: reply 1, chunk.choices.0.finish_reason: expected null, found "length"',
                'r: reply 1, done: expected nothing, found "finished"',
                "r: 2 replies expected, 1 found",
                'r: whole message, choices.0.delta.content: expected "ab", found "a"',
                'r: whole message, choices.0.finish_reason: expected "stop", found "length"',
                NOT,
            ],
        ),
    ],
    ids=["created and id", "call ids", "another cut", "cut short"],
)
def test_report(expected: list[bytes], found: list[bytes], lines: list[str]) -> None:
    assert compare(replies(*expected), replies(*found)) == (int(lines[-1] == NOT), lines)


def test_a_request_of_one_run_only_and_long_values() -> None:
    out = io.StringIO()
    one, other = run_of([("a", replies(chunk("x" * 200)))]), run_of([("b", replies(chunk("y")))])
    assert report(one, other, out) == 2
    assert out.getvalue().splitlines()[:2] == ["a: only in the earlier run", "b: only in this run"]
    wrong, lines = compare(replies(chunk("x" * 200)), replies(chunk("y")))
    assert (wrong, lines[0]) == (
        1,
        f'r: reply 1, chunk.choices.0.delta.content: expected "{"x" * 79}…, found "y"',
    )


def test_many_differences_are_counted() -> None:
    expected, found = replies(*[chunk("a")] * 40), replies(*[chunk("b")] * 40)
    out = io.StringIO()
    report({**run_of([("r", expected)]), **run_of([("s", expected)])}, {**run_of([("r", found), ("s", found)])}, out)
    lines = out.getvalue().splitlines()
    assert (len(lines), lines[-2:]) == (
        52,
        ["… and 32 more differences", "0 of 2 requests answer as in the earlier run"],
    )


def test_a_run_is_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run = run_of([("r", replies(chunk("a"))), ("s", [Reply("1-0", error=b'{"error":{}}', done="failed")])])
    write_run(path, run)
    assert read_run(path) == run
    path.write_text('{"request_id": 1}\n')
    with pytest.raises(ValueError, match=r"run\.jsonl, line 1: Expected `str`"):
        read_run(path)
