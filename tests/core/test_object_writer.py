"""Members of an object that is written while they are read."""

from __future__ import annotations

from schemas.state import ParserState
from tests.core.test_parse_properties import family
from worker.core.events import CallArguments
from worker.core.object_writer import is_new, write_end, write_key
from worker.core.run import RequestView, Run
from worker.core.run_constants import MAX_KEYS, OPEN


def begun() -> Run:
    return Run(family("hermes", "ids")[0].compiled, RequestView(True, {}), ParserState(flags=OPEN, calls=1))


def written(run: Run) -> list[object]:
    run.flush()
    return list(run.events)


def test_members() -> None:
    run = begun()
    for key, value in (("a", "1"), ('b"\n', "[]")):
        write_key(run, key)
        run.write(value)
    write_end(run)
    assert written(run) == [CallArguments(0, '{"a": 1, "b\\"\\n": []}')]


def test_no_member() -> None:
    run = begun()
    write_end(run)
    assert written(run) == [CallArguments(0, "{}")]


def test_repeated_keys_and_too_many() -> None:
    run = begun()
    assert [is_new(run, key) for key in ("a", "b", "a", "\ud800")] == [True, True, False, True]
    assert [is_new(run, str(number)) for number in range(MAX_KEYS)] == [True] * (MAX_KEYS - 3) + [False] * 3
