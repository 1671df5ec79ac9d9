"""Stop tokens and stop strings (S10 to S13)."""

from __future__ import annotations

from typing import Any

import pytest

from worker.core.events import TEXT, Piece
from worker.core.stop import StopTokens, ends_by_token, feed, pack, unpack

TOKENS = StopTokens(primary=2, others=frozenset({7, 9}), include=False)


@pytest.mark.parametrize(
    ("ids", "finish", "reason", "ends"),
    [
        pytest.param([1, 2], "stop", None, True, id="primary"),
        pytest.param([1, 9], "stop", None, True, id="another"),
        pytest.param([1, 5], "stop", 5, True, id="named-by-the-engine"),
        pytest.param([1, 2], "stop", 5, False, id="engine-names-another"),
        pytest.param([2, 1], "stop", None, False, id="not-the-last"),
        pytest.param([1, 2], "stop", "x", False, id="engine-names-a-string"),
        pytest.param([1, 2], "length", None, False, id="length"),
        pytest.param([1, 2], None, None, False, id="goes-on"),
        pytest.param([], "stop", None, False, id="no-ids"),
        pytest.param([], "stop", 2, False, id="no-ids-but-a-reason"),
    ],
)
def test_ends_by_token(ids: list[int], finish: str | None, reason: Any, ends: bool) -> None:
    assert ends_by_token(TOKENS, ids, finish, reason) is ends


def test_no_primary_token() -> None:
    assert ends_by_token(StopTokens(None, frozenset(), False), [2], "stop", None) is False


def text(*parts: str) -> list[Piece]:
    return [(part, TEXT) for part in parts]


@pytest.mark.parametrize(
    ("strings", "held", "new", "out", "rest", "found"),
    [
        pytest.param(["END"], "", "a END b", "a ", "", "END", id="found"),
        pytest.param(["END"], "a E", "ND", "a ", "", "END", id="over-a-cut"),
        pytest.param(["END"], "", "a EN", "a ", "EN", None, id="held"),
        pytest.param(["END"], "EN", "x", "ENx", "", None, id="disproved"),
        pytest.param(["aab"], "a", "aa", "a", "aa", None, id="part-of-it-disproved"),
        pytest.param(["abc", "b"], "", "abc", "a", "", "b", id="ends-first-wins"),
        pytest.param(["bc", "abc"], "", "abc", "a", "", "bc", id="tie-first-of-the-list"),
        pytest.param(["abc", "bc"], "", "abc", "", "", "abc", id="tie-other-order"),
        pytest.param(["x", "xy"], "", "axy", "a", "", "x", id="beginning-of-another"),
        pytest.param(["ENDING", "END"], "", "EN", "", "EN", None, id="longest-beginning"),
        pytest.param(["a" * 9], "", "a" * 8, "", "a" * 8, None, id="repeats"),
        pytest.param(["END"], "EN", "", "", "EN", None, id="nothing-new"),
    ],
)
def test_feed(strings: list[str], held: str, new: str, out: str, rest: str, found: str | None) -> None:
    got, kept, match = feed(strings, text(held) if held else [], text(new) if new else [], search=True, include=False)
    assert ("".join(part for part, _ in got), "".join(part for part, _ in kept), match) == (out, rest, found)


def test_include_keeps_the_string() -> None:
    assert feed(["END"], [], text("a END b"), search=True, include=True) == (text("a END"), (), "END")


def test_text_of_the_first_tokens_may_only_begin_a_string() -> None:
    """S13: the match has to end after the first `min_tokens` ids."""
    out, held, found = feed(["END"], [], text("END E"), search=False, include=False)
    assert (out, held, found) == (text("END "), tuple(text("E")), None)
    assert feed(["END"], held, text("ND"), search=True, include=False) == ([], (), "END")


MARK: Piece = ("<mark>", 5)


@pytest.mark.parametrize(
    ("strings", "pieces", "out", "held", "found"),
    [
        pytest.param(["rk>x"], [("a", TEXT), MARK], text("a"), (MARK,), None, id="a-token-is-held-whole"),
        pytest.param(["zz"], [("a", TEXT), MARK], [("a", TEXT), MARK], (), None, id="a-token-passes"),
        pytest.param(["rk>x"], [("a", TEXT), MARK, ("x", TEXT)], text("a"), (), "rk>x", id="a-cut-token-is-left-out"),
        pytest.param(["a<mark>"], [("ba", TEXT), MARK], text("b"), (), "a<mark>", id="string-of-text-and-token"),
        pytest.param(["x"], [MARK, ("x", TEXT)], [MARK], (), "x", id="token-before-the-string"),
    ],
)
def test_pieces_with_tokens(
    strings: list[str], pieces: list[Piece], out: list[Piece], held: tuple[Piece, ...], found: str | None
) -> None:
    assert feed(strings, [], pieces, search=True, include=False) == (out, held, found)


@pytest.mark.parametrize(
    ("held", "packed"),
    [
        pytest.param((), ((), None), id="nothing"),
        pytest.param((("EN", TEXT),), ((), (1, 2)), id="text-is-two-numbers"),
        pytest.param((("E", TEXT), ("N", TEXT)), ((), (1, 2)), id="joined"),
        pytest.param((("a", TEXT), MARK), ((("a", TEXT), MARK), None), id="tokens-stay"),
    ],
)
def test_pack(held: tuple[Piece, ...], packed: Any) -> None:
    strings = ("xyz", "END")
    assert pack(strings, held) == packed
    assert "".join(part for part, _ in unpack(strings, *packed)) == "".join(part for part, _ in held)
