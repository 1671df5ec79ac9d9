"""What holds for every file of the repository."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest

from tests.shared_data import ROOT

MAX_MODULE_LINES = 699

# One bracket in each pattern keeps this file from finding itself.
FORBIDDEN = {
    "path of one machine": re.compile(r"(?<![\w.}/-])/(?:hom[e]|Users|roo[t]|wor[k])/\w|/tm[p]/w[t]?\b"),
    "host of a package registry": re.compile(
        r"\b(?:pyp[i]\.org|pythonhoste[d]\.org|registry\.npmj[s]\.|deb\.debia[n]\.org|crate[s]\.io|proxy\.golan[g]\.org)"
    ),
    "option of one machine's installer": re.compile(r"^--(?:extra-)?index-ur[l]|^--find-link[s]|file:/[/]", re.M),
}
BULK_DATA = (".jsonl", "tokenizer.json", "vocab.json", "merges.txt")


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def text_of(name: str) -> str:
    """Content of a text file; of one that is not text (a picture), nothing."""
    raw = (ROOT / name).read_bytes()
    return "" if b"\0" in raw else raw.decode()


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_speaks_of_one_machine(what: str) -> None:
    pattern = FORBIDDEN[what]
    names = [name for name in tracked() if not name.endswith(BULK_DATA)]
    assert len(names) > 20
    assert [(name, match.group()) for name in names for match in pattern.finditer(text_of(name))] == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("path of one machine", "see /hom" + "e/ada/notes"),
        ("path of one machine", '"/wor' + 'k/main"'),
        ("path of one machine", "/tm" + "p/w/venv"),
        ("host of a package registry", "https://files.pythonhoste" + "d.org/x"),
        ("option of one machine's installer", "a==1\n--index-ur" + "l x"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, text: str) -> None:
    assert FORBIDDEN[what].search(text) is not None


def test_modules_stay_small() -> None:
    lengths = {name: text_of(name).count("\n") for name in tracked() if name.endswith(".py")}
    assert len(lengths) > 20
    assert {name: lines for name, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


@pytest.mark.parametrize("name", ["base", "worker", "dev"])
def test_every_locked_package_has_a_version_and_a_hash(name: str) -> None:
    lines = [
        line for line in text_of(f"requirements/{name}.txt").splitlines() if line and not line.lstrip().startswith("#")
    ]
    packages = [line for line in lines if not line.startswith(" ")]
    assert [line for line in packages if not re.fullmatch(r"[a-z0-9-]+==\S+( ; .+)? \\", line)] == []
    assert [
        line for line in lines if line.startswith(" ") and not re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line)
    ] == []


def locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text_of(f"requirements/{name}.txt"), re.M))


def test_locks_agree() -> None:
    """One environment can hold all three: the smaller locks are parts of the larger ones."""
    assert locked("base").items() <= locked("worker").items() <= locked("dev").items()
    assert {"setuptools", "wheel", "redis", "arq", "msgspec"} <= locked("base").keys()


def test_locks_name_every_dependency() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]

    def names(*groups: list[str]) -> set[str]:
        return {re.match(r"[A-Za-z0-9-]+", line).group().lower() for group in groups for line in group}  # type: ignore[union-attr]

    assert names(project["dependencies"]) - locked("base").keys() == set()
    runtime = [group for extra, group in extras.items() if extra != "dev"]
    assert names(*runtime) - locked("worker").keys() == set()
    assert names(*extras.values()) - locked("dev").keys() == set()


def test_make_help_lists_every_verb_that_is_told_of() -> None:
    makefile = text_of("Makefile")
    listed = set(re.findall(r"^([a-z]+):.*## ", makefile, re.M))
    told = {verb for name in tracked() if name.endswith(".md") for verb in re.findall(r"`make ([a-z]+)", text_of(name))}
    assert len(told) > 5
    assert told - listed == set()
