"""Pytest plugin: says how many cases of the large test data ran.

On CI a whole run in which a kind ran none fails.
"""

from __future__ import annotations

import pytest

from tests import shared_data

PLAIN_MARKERS = ("", "not chaos")


def is_whole_run(config: pytest.Config) -> bool:
    """Whether this run was asked for everything: no path, no selection, not a mere listing."""
    option = config.option
    return (
        config.args_source is not pytest.Config.ArgsSource.ARGS
        and not option.keyword
        and option.markexpr in PLAIN_MARKERS
        and not option.collectonly
    )


def missing_kinds() -> list[str]:
    return [kind for kind in shared_data.KINDS if not shared_data.executed[kind]]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("shared"):
        shared_data.require()


def pytest_sessionfinish(session: pytest.Session) -> None:
    passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if passed and shared_data.ON_CI and is_whole_run(session.config) and missing_kinds():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not is_whole_run(config):
        return
    counts = ", ".join(f"{kind}: {shared_data.executed[kind]}" for kind in shared_data.KINDS)
    terminalreporter.write_line(f"cases that ran: {counts}")
    if missing := ", ".join(missing_kinds()):
        why = "no test asked for them" if shared_data.PRESENT else shared_data.MISSING
        if shared_data.ON_CI:
            terminalreporter.write_line(f"FAILED: none ran of {missing}; on CI each kind must run ({why})", red=True)
        else:
            terminalreporter.write_line(f"SKIPPED: none ran of {missing} ({why})", yellow=True)
