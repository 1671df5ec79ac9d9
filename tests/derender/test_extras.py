"""Verbs run with the extras that they need and no others; of one that is missing, one line says which."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import free_port
from tests.shared_data import ROOT

WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
from derender.__main__ import main
sys.exit(main({argv!r}))
"""
WORKER = ("tokenizers", "transformers", "jinja2", "uvloop")
GATEWAY = ("starlette", "uvicorn", "httpx", "prometheus_client")
OTHERS = ("fakeredis", "lupa", "rich")


def run(*argv: str, without: tuple[str, ...]) -> tuple[int, str]:
    """Exit code and standard error of a verb in a process that lacks some modules."""
    code = WITHOUT.format(blocked=without, argv=list(argv))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("argv", "without"),
    [
        (["bridge", "--engine", "http://127.0.0.1:9"], (*WORKER, *OTHERS)),
        (["gateway"], (*WORKER, *OTHERS)),
        (["tail", "r"], (*WORKER, *GATEWAY, *OTHERS)),
        (["replay"], (*WORKER, *GATEWAY, *OTHERS)),
        (["record", "x"], (*WORKER, *GATEWAY, *OTHERS)),
        (["dead", "list"], (*WORKER, *GATEWAY, *OTHERS)),
        (["top"], (*WORKER, *GATEWAY, "fakeredis", "lupa")),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_verb_needs_its_own_extras_only(argv: list[str], without: tuple[str, ...]) -> None:
    """It comes as far as the Redis that is not there."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    code, error = run(*argv, "--redis-url", url, without=without)
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith(f"derender {argv[0]}: cannot reach Redis at {url}: ")


@pytest.mark.parametrize(
    ("argv", "module", "extra"),
    [
        (["worker", "--tokenizer", "x"], "tokenizers", "worker"),
        (["call", "--tokenizer", "x"], "tokenizers", "worker"),
        (["demo"], "tokenizers", "worker"),
        (["demo"], "fakeredis", "embedded"),
        (["bridge", "--engine", "http://x"], "httpx", "gateway"),
        (["gateway"], "starlette", "gateway"),
        (["top"], "rich", "console"),
    ],
    ids=["worker", "call", "demo", "demo-embedded", "bridge", "gateway", "top"],
)
def test_a_missing_extra_is_one_line(argv: list[str], module: str, extra: str) -> None:
    assert run(*argv, without=(module,)) == (
        1,
        f"derender {argv[0]}: {module} is missing, of the extra {extra}: pip install -e '.[{extra}]' in the checkout\n",
    )


def test_the_parser_names_need_no_extra() -> None:
    code, error = run("parsers", without=(*WORKER, *GATEWAY, *OTHERS))
    assert (code, error) == (0, "")
