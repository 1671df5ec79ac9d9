"""Where the code sends a person: every file and section of `docs/` and `deploy/` that a text in it names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from derender.doctor import ROLES
from derender.reach import needed
from tests.shared_data import ROOT
from tests.test_docs_links import headings_as_written
from tests.test_layers import MODULES

POINTER = re.compile(r"\b((?:docs|deploy|benchmarks)/[\w./{}-]*[\w}])(?:, ([A-Z][\w ]*\w))?")
"""`docs/operator.md, Dead letters`: a path from the root of a checkout, and a section of it."""


def texts(source: str) -> Iterator[str]:
    """Every text of a module, docstrings included; a value in a text is {}."""
    tree = ast.parse(source)
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def lost(text: str) -> list[str]:
    """Pointers of a text that lead nowhere. Where a path has a value in it, some file has to fit."""
    found = []
    for path, section in POINTER.findall(text):
        files = list(ROOT.glob(path.replace("{}", "*")))
        if not files or (section and section not in headings_as_written(path)):
            found.append(f"{path}, {section}" if section else path)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_pointers_of_a_module_lead_somewhere(name: str) -> None:
    assert [one for text in texts(MODULES[name].read_text("utf-8")) for one in lost(text)] == []


def test_every_role_that_is_named_has_its_file() -> None:
    """`reaching` and `doctor` put the role into the path."""
    roles = set(ROLES.values())
    for name, path in MODULES.items():
        if name.startswith("derender."):
            roles |= set(re.findall(r'reaching\(.*"(\w+)"', path.read_text("utf-8")))
    assert {role for role in roles if lost(needed(role))} == set()
    assert roles == {"worker", "operator", "reader", "producer", "bridge", "gateway"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('x = "see docs/operator.md, Dead letters"', []),
        ('x = "see docs/operator.md, Lost letters"', ["docs/operator.md, Lost letters"]),
        ('x = f"see docs/none.md, and {y}"', ["docs/none.md"]),
        ('x = f"as deploy/acl/{role}.acl"', []),
        ('x = f"as deploy/acl/{role}.txt"', ["deploy/acl/{}.txt"]),
        ('"""See benchmarks/none.py."""', ["benchmarks/none.py"]),
        ('x = "in docs/families.md"', []),
    ],
)
def test_the_check_finds_what_is_lost(source: str, expected: list[str]) -> None:
    assert [one for text in texts(source) for one in lost(text)] == expected
