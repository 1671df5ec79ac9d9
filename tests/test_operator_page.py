"""What docs/operator.md says of options: which verbs have them, and which environment names mean several things."""

from __future__ import annotations

import argparse
import re
from importlib import import_module

from derender.__main__ import VERBS
from tests.shared_data import ROOT
from worker.settings import flag

PAGE = (ROOT / "docs" / "operator.md").read_text("utf-8")
BESIDES = {"call", "demo", "doctor", "replay"}
"""They take a worker's options as well, for the same purpose: to be one, or to look at what one would do."""


def offered() -> dict[str, set[str]]:
    """Verbs by the name of an option."""
    found: dict[str, set[str]] = {}
    for verb in VERBS:
        parser = argparse.ArgumentParser()
        import_module(f"derender.{verb}").add_arguments(parser)
        for action in parser._actions:
            if "[DERENDER_" in (action.help or ""):
                found.setdefault(action.dest, set()).add(verb)
    return found


def test_the_table_names_the_verbs_of_each_option() -> None:
    options = {flag(name): verbs for name, verbs in offered().items()}
    rows = re.findall(r"^\| (`--\S.*?) \| ([a-z, ]+) \|", PAGE, re.M)
    said = {option: set(verbs.split(", ")) for names, verbs in rows for option in re.findall(r"--[a-z-]+", names)}
    every = options["--redis-url"]
    assert len(said) > 10
    assert said == {option: {"all"} if options[option] == every else options[option] - BESIDES for option in said}


def test_environment_names_of_several_verbs_are_told() -> None:
    """Those of gateway, bridge and engine: of the others a name means one thing wherever it is read."""
    [paragraph] = re.findall(r"^\*\*One name, several verbs\.\*\*.*?\n\n", PAGE, re.M | re.S)
    fronts = {"gateway", "bridge", "engine"}
    shared = {name for name, verbs in offered().items() if verbs & fronts and len(verbs) > 1}
    assert set(re.findall(r"DERENDER_([A-Z_]+)", paragraph)) == {name.upper() for name in shared}
