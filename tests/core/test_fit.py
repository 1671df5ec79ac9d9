"""Tags with the suffix of a checkpoint."""

from __future__ import annotations

import pytest

from tests.core.grammars.cases import NOW
from tests.core.grammars.samples import TOOLS
from tests.core.harness import cuts, parser_for, run
from tests.core.support import smollm2
from worker.core.fit import fitted
from worker.core.grammars import glm, hy

TAGS = ("think", "tool_calls", "tool_call", "tool_sep", "arg_key", "arg_value")


def tokens(suffix: str) -> tuple[str, ...]:
    return tuple(f"<{slash}{tag}{suffix}>" for tag in TAGS for slash in ("", "/"))


@pytest.mark.parametrize("suffix", ["", ":x1", ":opensource"])
def test_the_vocabulary_tells_the_suffix(suffix: str) -> None:
    voc = smollm2(tokens(suffix))
    parser = parser_for(voc, "hy_v4", "hy_v4", tools=TOOLS)
    raw = f"why</think{suffix}><tool_calls{suffix}><tool_call{suffix}>now</tool_call{suffix}></tool_calls{suffix}>"
    for cut, chunks in cuts(voc.tokenizer.encode(raw, add_special_tokens=False).ids, voc, suffix):
        assert run(parser, chunks, "stop").said() == ("", "why", [NOW]), cut


def test_what_has_no_suffix_stays() -> None:
    """No tags in the vocabulary, tags without a suffix, two suffixes, a family that has none: as declared."""
    assert fitted(hy.REASONING4, smollm2(())) is hy.REASONING4
    assert fitted(hy.TOOLS4, smollm2(tokens(""))) is hy.TOOLS4
    assert fitted(hy.TOOLS4, smollm2((*tokens(":a"), *tokens(":b")))) is hy.TOOLS4
    assert fitted(glm.TOOLS, smollm2(tokens(":a"))) is glm.TOOLS
    suffixed = fitted(hy.TOOLS4, smollm2(tokens(":a")))
    assert (suffixed.call, suffixed.close) == (("<tool_call:a>",), "</tool_call:a>")
    assert suffixed.header is not None
    assert suffixed.header.keep == ("<arg_key:a>", "</tool_call:a>")
