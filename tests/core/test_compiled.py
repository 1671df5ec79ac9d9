"""What the engine searches for: literals, their beginnings, symbols of added tokens, regions of a grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.state import ParserState
from tests.core.support import smollm2
from tests.core.test_parse_properties import family
from worker.core.compiled import SYMBOL, Compiled, Markers, from_portable, has_symbols, partial, to_portable
from worker.core.errors import StateMismatch
from worker.core.grammar import Header, Json, Params, Reasoning, Tools
from worker.core.grammars import hermes
from worker.core.run_constants import (
    AFTER,
    CONTENT,
    HEADER,
    JSON,
    KEY,
    MEMBERS,
    OPENED,
    PARAMS,
    SECTION,
    TO_VALUE,
    VALUE,
)

FENCES = ("```", "```json", "<a>")


@pytest.mark.parametrize(
    ("text", "found", "at_end"),
    [
        pytest.param("x<a>```", "<a>", "<a>", id="leftmost"),
        pytest.param("```json", "```json", "```json", id="longest"),
        pytest.param("```j", None, "```", id="may-become-longer"),
        pytest.param("```", None, "```", id="all-of-it-may-too"),
        pytest.param("```jx", "```", "```", id="is-not-longer"),
        pytest.param("``", None, None, id="beginning"),
    ],
)
def test_markers(text: str, found: str | None, at_end: str | None) -> None:
    markers = Markers(FENCES)
    match, last = markers.find(text), markers.at_end().find(text)
    assert (match and match.group(), last and last.group()) == (found, at_end)


def test_markers_without_a_longer_one_have_no_other_end() -> None:
    markers = Markers(("<a>", "", "<b>", "<a>"))
    assert (markers.literals, markers.at_end() is markers) == (("<a>", "<b>"), True)


@given(st.text("<a>]", max_size=8), st.sampled_from(["<a>", "]]>", "<", "aa"]), st.integers(0, 8))
def test_what_may_become_a_literal(text: str, literal: str, pos: int) -> None:
    pos = min(pos, len(text))
    held = next(at for at in range(pos, len(text) + 1) if at == len(text) or literal[:-1].startswith(text[at:]))
    assert Markers((literal,)).hold(text, pos) == partial(text, pos, literal) == held


@given(st.text(st.sampled_from("a é\ufdd0\U0001f600\ud800\ud900\udfff\u4e00"), max_size=12))
def test_symbols_survive_utf_8(text: str) -> None:
    portable = to_portable(text)
    assert from_portable(portable.encode().decode()) == text
    assert has_symbols(text) == bool(SYMBOL.search(text))


def test_alternatives_that_are_only_text_are_off_where_one_is_an_id() -> None:
    reasoning = Reasoning("test", ("<think>", "<thought>"), ("</think>",))
    compiled = Compiled(smollm2(("<think>",)), reasoning, None, None)
    assert compiled.opens == (compiled.symbols.atoms["<think>"],)
    assert Compiled(smollm2(()), reasoning, None, None).opens == ("<think>", "<thought>")


HEADED = Tools("test", ("<call>",), Json(), "</call>", header=Header((">",)))
TAGGED = Tools("test", ("<call>",), Params("<p=", ">", "</p>"), "</call>", header=Header((">",), clean=True))
EITHER = Tools("test", ("<call>",), Params("<p=", ">", "</p>", json_body=True), "</call>", header=Header((">",)))
CALLS = {CONTENT, SECTION, AFTER}


@pytest.mark.parametrize(
    ("tools", "regions"),
    [
        pytest.param(None, {CONTENT}, id="no-tools"),
        pytest.param(hermes.TOOLS, CALLS | {OPENED, MEMBERS}, id="members"),
        pytest.param(HEADED, CALLS | {HEADER, JSON}, id="json"),
        pytest.param(TAGGED, CALLS | {OPENED, HEADER, PARAMS, KEY, TO_VALUE, VALUE}, id="params"),
        pytest.param(EITHER, CALLS | {HEADER, PARAMS, KEY, TO_VALUE, VALUE, JSON}, id="params-or-json"),
    ],
)
def test_regions_of_a_grammar(tools: Tools | None, regions: set[int]) -> None:
    assert Compiled(smollm2(()), None, tools, None).regions == regions


def test_a_state_in_a_region_of_another_grammar_is_refused() -> None:
    with pytest.raises(StateMismatch) as raised:
        family("hermes", "ids")[0].check(ParserState(region=HEADER))
    assert raised.value.message == (
        "stream_state does not add up: the parser's region or call is not one of this grammar"
    )
