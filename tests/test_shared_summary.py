"""The plugin is run as a user runs it: in a process of its own, on a tiny project."""

from pathlib import Path

import pytest

from tests import shared_data

ALL = "".join(f"    shared_data.count({kind!r}, {n})\n" for n, kind in enumerate(shared_data.KINDS, 1))
COUNTED = "cases that ran: golden: 1, corpus: 2, faults: 3, recordings: 4"
NOTHING = "cases that ran: golden: 0, corpus: 0, faults: 0, recordings: 0"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """run(body, *args, ci=…, shared=…) -> pytest's result for one test with that body."""

    def run_one(body: str, *args: str, ci: bool, shared: Path | str) -> pytest.RunResult:
        monkeypatch.setenv("PYTHONPATH", str(shared_data.ROOT))
        monkeypatch.setenv("DERENDER_SHARED", str(shared))
        monkeypatch.setenv("CI", "true" if ci else "")
        pytester.makeini("[pytest]\nmarkers =\n    shared\n    chaos\n")
        pytester.makepyfile(f"import pytest\nfrom tests import shared_data\n\n{body}")
        return pytester.runpytest_subprocess("-p", "tests.shared_summary", *args)

    return run_one


TEST = "def test_it():\n"
NEEDY = f"@pytest.mark.shared\n{TEST}    pass\n"


@pytest.mark.parametrize(
    ("body", "args", "ci", "exit_code", "line"),
    [
        pytest.param(TEST + ALL, [], True, 0, COUNTED, id="ci-every-kind-ran"),
        pytest.param(TEST + ALL, [], False, 0, COUNTED, id="desk-every-kind-ran"),
        pytest.param(TEST + "    pass\n", [], True, 1, NOTHING, id="ci-none-ran"),
        pytest.param(TEST + "    shared_data.count('golden')\n", [], True, 1, None, id="ci-one-kind-ran"),
        pytest.param(TEST + "    pass\n", [], False, 0, NOTHING, id="desk-none-ran"),
        pytest.param(TEST + "    pass\n", ["-k", "it"], True, 0, None, id="ci-selected-by-name"),
        pytest.param(TEST + "    pass\n", ["."], True, 0, None, id="ci-selected-by-path"),
        pytest.param(TEST + "    assert False\n", [], True, 1, NOTHING, id="ci-a-failure-stays-one"),
    ],
)
def test_exit_code(run, body, args, ci, exit_code, line, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """On CI a whole run in which a kind ran no case fails; a partial run and a run at the desk do not."""
    result = run(body, *args, ci=ci, shared=tmp_path)
    assert result.ret == exit_code
    if line is not None:
        assert [out for out in result.outlines if out.startswith("cases that ran")] == [line]


@pytest.mark.parametrize(("ci", "outcome"), [(False, {"skipped": 1}), (True, {"errors": 1})], ids=["desk", "ci"])
def test_marker_shared(run, ci, outcome) -> None:  # type: ignore[no-untyped-def]
    """A test marked `shared` is skipped where the data is absent, and fails on CI."""
    assert run(NEEDY, ci=ci, shared="/nonexistent").parseoutcomes() == outcome
