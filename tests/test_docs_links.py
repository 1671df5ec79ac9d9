"""Every page is found from the index, and every relative link of every page leads to a file and a heading."""

from __future__ import annotations

import re

import pytest

from tests.shared_data import ROOT
from tests.test_project import tracked

LINK = re.compile(r"\]\(<?(?![a-z]+:)([^)>\s]*)>?\)")
PAGES = sorted(name for name in tracked() if name.endswith(".md"))
USERS = {"docs/engine.md", "docs/batch.md", "docs/replay.md", "docs/operator.md"}


def text_of(page: str) -> str:
    """The page without its code, where brackets and parentheses mean other things."""
    return re.sub(r"^```.*?^```$", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)


def targets(page: str) -> list[tuple[str, str]]:
    """(file from the root, heading or "") of each relative link."""
    found = []
    for link in LINK.findall(text_of(page)):
        path, _, heading = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        found.append((str(target.resolve().relative_to(ROOT.resolve())), heading))
    return found


def headings_as_written(page: str) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", text_of(page), re.M))


def headings(page: str) -> set[str]:
    """As GitHub names them: lower case, without punctuation, - for blanks."""
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings_as_written(page)}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    missing = [
        (path, heading)
        for path, heading in targets(page)
        if not (ROOT / path).exists() or (heading and heading not in headings(path))
    ]
    assert missing == []


def test_the_index_names_every_page() -> None:
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {path for path, _ in targets("docs/README.md")} == {"docs/README.md"}


def test_the_readme_names_the_index_and_the_pages_of_the_four_users() -> None:
    wanted = USERS | {"docs/README.md", "docs/wire.md"}
    assert wanted - {path for path, _ in targets("README.md")} == set()


def test_links_are_found() -> None:
    text = "[a](b.md) [c](../d.md#e) [f](https://g.h) ![i](j/k.png) [l](#m)"
    assert LINK.findall(text) == ["b.md", "../d.md#e", "j/k.png", "#m"]
