"""Who may import whom: `schemas ◀ link ◀ worker, producer`, `worker.core ◀ worker`, `producer ◀ gateway`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("schemas", "link", "worker", "producer", "gateway", "derender")

OWN = {
    "schemas": {"schemas"},
    "link": {"schemas", "link"},
    "worker.core": {"schemas", "worker.core"},
    "worker": {"schemas", "link", "worker"},
    "producer": {"schemas", "link", "producer"},
    "gateway": {"schemas", "link", "producer", "gateway"},
    "derender": set(PACKAGES),
}
"""Layer → what it may import of this project, subpackages included."""

FOREIGN_ALLOWED = {"schemas": {"msgspec"}, "worker.core": {"msgspec", "tokenizers"}}
"""Layers that may import nothing else from outside the standard library."""

ONLY_IN = {
    "arq": {"worker.jobs"},
    "redis": {"link.redis", "worker.streams"},
    "hiredis": {"link.redis"},
    "fakeredis": {"worker.streams"},
}
"""Library → the modules that may import it: whatever replaces it one day has one place to go."""

TOKENIZER_LIBRARIES = {"transformers", "tokenizers"}
WITHOUT_TOKENIZERS = {"link", "producer", "gateway"}

# fmt: off
IMPURE = {
    "asyncio", "concurrent", "contextvars", "datetime", "getpass", "http", "io", "locale", "logging",
    "multiprocessing", "os", "pathlib", "platform", "random", "secrets", "select", "shutil", "signal", "socket",
    "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "warnings",
}
# fmt: on
PURE_PARTS = {"os.path.commonprefix", "warnings.catch_warnings", "warnings.simplefilter"}
"""Names of impure modules that the core may import all the same: they leave nothing behind."""

IMPURE_CALLS = {"breakpoint", "exec", "eval", "input", "open", "print"}


def module_names() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = module_names()


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def layer_of(name: str) -> str:
    return max((layer for layer in OWN if inside(name, layer)), key=len)


def imported(name: str, tree: ast.AST, *, is_package: bool = False) -> list[str]:
    """Dotted names that a module imports, wherever in it; `from a import b` is `a.b` where that is a module."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            for full in (f"{module}.{alias.name}" for alias in node.names):
                names.append(full if full in MODULES or full in PURE_PARTS else module)
    return names


def faults(name: str, source: str, *, is_package: bool = False) -> list[str]:
    """What is wrong with the imports (and in the core, the calls) of one module; empty when nothing is."""
    tree, layer, found = ast.parse(source), layer_of(name), []
    for target in imported(name, tree, is_package=is_package):
        top = target.partition(".")[0]
        if top in PACKAGES:
            if not any(inside(target, package) for package in OWN[layer]):
                found.append(f"{layer} imports {target}")
        elif top in sys.stdlib_module_names:
            if layer == "worker.core" and top in IMPURE and target not in PURE_PARTS:
                found.append(f"the pure core imports {top}")
        elif top not in FOREIGN_ALLOWED.get(layer, {top}):
            found.append(f"{layer} imports {top}")
        elif name not in ONLY_IN.get(top, {name}):
            found.append(f"{top} outside {', '.join(sorted(ONLY_IN[top]))}")
        elif layer in WITHOUT_TOKENIZERS and top in TOKENIZER_LIBRARIES:
            found.append(f"{layer} imports {top}")
    if layer == "worker.core":
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        found += [f"the pure core calls {f.id}" for f in calls if isinstance(f, ast.Name) and f.id in IMPURE_CALLS]
    return found


@pytest.mark.parametrize("name", MODULES)
def test_module_keeps_to_its_layer(name: str) -> None:
    path = MODULES[name]
    assert faults(name, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("schemas.keys", "import msgspec\nimport re\nfrom schemas.state import X", []),
        ("schemas.keys", "from worker.core import errors", ["schemas imports worker.core.errors"]),
        ("schemas.keys", "import redis", ["schemas imports redis"]),
        ("worker.core.step", "from .errors import DerenderError\nfrom tokenizers import Tokenizer", []),
        ("worker.core.step", "from ..drain import x", ["worker.core imports worker.drain"]),
        ("worker.core.step", "def f():\n    import time", ["the pure core imports time"]),
        ("worker.core.step", "import os.path", ["the pure core imports os"]),
        ("worker.core.step", "from os.path import commonprefix", []),
        ("worker.core.step", "from os.path import commonprefix, exists", ["the pure core imports os"]),
        ("worker.core.step", "import redis.asyncio", ["worker.core imports redis"]),
        ("worker.core.step", "print(1)", ["the pure core calls print"]),
        ("worker.drain", "from worker import core", []),
        ("worker.drain", "from producer.publish import x", ["worker imports producer.publish"]),
        ("worker.drain", "from redis.exceptions import X", ["redis outside link.redis, worker.streams"]),
        ("worker.streams", "import redis.asyncio as r, fakeredis", []),
        ("worker.streams", "from arq import Retry", ["arq outside worker.jobs"]),
        ("producer.publish", "from schemas import keys\nfrom link.redis import x", []),
        ("producer.read", "import redis", ["redis outside link.redis, worker.streams"]),
        ("link.redis", "import redis.asyncio, hiredis", []),
        ("link.tasks", "from worker.streams import x", ["link imports worker.streams"]),
        ("producer.publish", "import transformers", ["producer imports transformers"]),
        (
            "producer.publish",
            "if TYPE_CHECKING:\n    from worker.core.model import M",
            ["producer imports worker.core.model"],
        ),
        ("gateway.app", "from producer import x\nfrom derender import y", ["gateway imports derender"]),
        ("derender.demo", "import worker.main, producer, rich", []),
    ],
)
def test_the_check_finds_what_is_wrong(name: str, source: str, expected: list[str]) -> None:
    assert faults(name, source) == expected


def test_relative_imports_of_a_package_count_from_the_package() -> None:
    assert imported("worker.core", ast.parse("from .errors import X\nfrom ..jobs import Y"), is_package=True) == [
        "worker.core.errors",
        "worker.jobs",
    ]


@pytest.mark.parametrize(
    ("package", "unwanted"),
    [
        ("schemas", ["arq", "redis", "tokenizers", "transformers", "worker", "producer"]),
        ("worker.core", ["arq", "redis", "fakeredis", "transformers", "producer"]),
        ("link", ["tokenizers", "transformers", "worker", "producer"]),
        ("producer", ["tokenizers", "transformers", "worker"]),
    ],
)
def test_what_a_fresh_process_loads(package: str, unwanted: list[str]) -> None:
    """All modules of a package are imported in a new process; nothing unwanted came along, at any depth."""
    names = [name for name in MODULES if inside(name, package)]
    script = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) & set(unwanted) == set()
