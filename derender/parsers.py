"""`derender parsers`: the names that --reasoning-parser and --tool-call-parser take."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping

WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from worker.core.grammars import REASONING_NAMES, TOOL_NAMES

    for option, names in (("--reasoning-parser", REASONING_NAMES), ("--tool-call-parser", TOOL_NAMES)):
        listed = textwrap.fill(
            ", ".join(names), WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
        sys.stdout.write(f"{option}\n{listed}\n\n")
    sys.stdout.write("auto: by the chat template. The models of each name are in docs/families.md\n")
    return 0
