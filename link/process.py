"""What every process does at its start, and what it says of itself. Imports nothing heavy."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version


def set_up_logging(level: str) -> None:
    """Our loggers at `level`; arq's, which name jobs and arguments, at warnings."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level.upper())
    logging.getLogger("arq").setLevel(logging.WARNING if level != "debug" else logging.DEBUG)


def own_version() -> str:
    """Version of the installed package; of a checkout that is not installed, none is known."""
    try:
        return version("derender")
    except PackageNotFoundError:
        return "not installed"
