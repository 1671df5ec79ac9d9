"""The generated pages say what the code does, and forget no name."""

from __future__ import annotations

import pytest

from tests.core.grammars.tables import MODELS, PAGES, REASONING_LIMITS, TOOL_LIMITS
from tests.shared_data import ROOT
from worker.core import grammars


@pytest.mark.parametrize("path", PAGES)
def test_page_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == PAGES[path](), "run python -m tests.core.grammars.tables"


def test_every_name_is_described() -> None:
    assert set(MODELS) == {*grammars.REASONING_NAMES, *grammars.TOOL_NAMES}
    assert set(REASONING_LIMITS) <= set(grammars.REASONING_NAMES)
    assert set(TOOL_LIMITS) <= set(grammars.TOOL_NAMES)


def test_the_names_of_vllm_serve() -> None:
    """42 reasoning and 58 tool names, 66 of them distinct."""
    both = {*grammars.REASONING_NAMES, *grammars.TOOL_NAMES}
    assert (len(grammars.REASONING_NAMES), len(grammars.TOOL_NAMES), len(both)) == (42, 58, 66)
