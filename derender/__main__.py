"""The command line: `derender <verb>`, one module for each verb."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

from link.process import own_version
from worker.core.names import did_you_mean
from worker.settings import SettingsError

VERBS = {
    "worker": "drain partitions: token ids in, OpenAI-compatible replies out",
    "replay": "publish a recorded generation",
    "tail": "follow the replies of requests",
    "top": "watch partitions, workers and models",
    "doctor": "check Redis, workers, tokenizers and permissions, and say what to mend",
    "demo": "replay real generations through an embedded Redis and a worker, in one process",
    "dead": "list, show and requeue the entries that could not be processed",
    "call": "derender JSON lines without Redis",
    "gateway": "HTTP front doors: derender, render, an OpenAI-compatible API, resumable streams",
    "bridge": "call a token-in / token-out engine for requests of the gateway",
    "engine": "stand in for an engine: answer a bridge from a recording",
    "record": "store live chunk streams as a recording",
    "parsers": "list the names of reasoning and tool parsers",
}
"""Verb -> what it does; `derender/<verb>.py` has `add_arguments(parser)` and `run(args, environ)`."""


EXTRAS = {
    "tokenizers": "worker",
    "transformers": "worker",
    "jinja2": "worker",
    "fakeredis": "embedded",
    "lupa": "embedded",
    "starlette": "gateway",
    "uvicorn": "gateway",
    "httpx": "gateway",
    "prometheus_client": "gateway",  # a worker says itself that it needs it, and for what
    "rich": "console",
}
"""Module -> the extra that brings it. What a verb needs beyond the base, it imports when it runs."""

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the system says of a file that cannot grow, and of nothing else: never of a connection or of what is read."""


class Verb(Protocol):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace, environ: Mapping[str, str]) -> int:
        """Exit code. Raises CommandError or SettingsError."""
        ...


class CommandError(Exception):
    """The command cannot do its work; the message is one line for whoever typed it."""


def usage() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, text in VERBS.items()]
    return (
        "usage: derender <verb> [options]\n\n"
        + "\n".join(lines)
        + "\n\nderender <verb> --help shows its options; derender --version\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verb; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # here, where a pipe that nobody reads any more is no traceback
    except BrokenPipeError:
        _discard_output()  # whoever read it has what it wanted
        return 141
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        _discard_output()
        name = " ".join(["derender", *(word for word in arguments[:1] if word in VERBS)])
        sys.stderr.write(f"{name}: cannot write the output: {error.strerror}\n")
        return 1


def _discard_output() -> None:
    """What is left to say at exit goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        sys.stdout.write(f"derender {own_version()}\n")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in VERBS:
        sys.stderr.write(f"derender: no verb {name!r}{did_you_mean(name, VERBS)}\n\n{usage()}")
        return 2
    try:
        verb = cast(Verb, import_module(f"derender.{name}"))  # only this one: tail does not need tokenizers
        parser = argparse.ArgumentParser(prog=f"derender {name}", description=VERBS[name], allow_abbrev=False)
        verb.add_arguments(parser)
        return verb.run(parser.parse_args(rest), os.environ)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        missing = f"{module} is missing, of the extra {EXTRAS[module]}"
        sys.stderr.write(f"derender {name}: {missing}: pip install -e '.[{EXTRAS[module]}]' in the checkout\n")
        return 1
    except SettingsError as error:
        sys.stderr.write(f"derender {name}: {error}\n")
        return 2
    except CommandError as error:
        sys.stderr.write(f"derender {name}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    # `python -m derender` runs this file as __main__; the verbs raise the errors of derender.__main__.
    from derender.__main__ import main as imported_main

    sys.exit(imported_main())
