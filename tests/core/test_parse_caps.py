"""What lies beyond a cap is decided at one character, however the output is cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.state import ParserState
from tests.core import families
from tests.core.families import FAMILIES, PAIRS, TOOLS, Summary, family, json_object, summary
from tests.core.harness import parser_for
from tests.core.support import smollm2
from tests.core.writer import SIZES, cut_pieces, pieces_of, write_message, write_messages
from worker.core import parse
from worker.core.compiled import from_portable
from worker.core.events import TEXT, Piece
from worker.core.grammar import Messages
from worker.core.run import Run
from worker.core.run_constants import (
    LARGE_SLICE,
    MAX_HEADER,
    MAX_SCALAR_VALUE,
    MAX_SPACE,
    MAX_UNDECIDED,
    MAX_VALUE,
    SLICE,
)

MAX_WAITING = MAX_HEADER + 2 * MAX_SPACE
"""Code points of `held`: a header with what ends it, or a closer, whitespace around it, and what may follow."""


def check_bounds(state: ParserState) -> None:
    sizes = {
        field: len(from_portable(getattr(state, field))) for field in ("held", "key", "name", "id", "raw", "value")
    }
    assert sizes["held"] <= MAX_WAITING, sizes
    assert max(sizes["key"], sizes["name"], sizes["id"]) <= MAX_HEADER, sizes
    assert max(sizes["raw"], sizes["value"]) <= MAX_VALUE, sizes
    assert len(state.stack) <= 256
    assert len(state.scalar) <= 7
    assert len(state.seen) <= 64


fold = partial(families.fold, check=check_bounds)


def singles(pieces: list[Piece]) -> list[list[Piece]]:
    """One character or one added token at a time."""
    return [
        [(char, TEXT)] if id_ == TEXT else [(text, id_)]
        for text, id_ in pieces
        for char in (text if id_ == TEXT else [text])
    ]


# --- every family, over all caps -------------------------------------------------------------------------------------

UNITS = [" ", "\n", "x", "é", "7", "ab ", "\t\u3000", "[1,", '{"a":', '"k": "v", ', "\\", '"', "<", "\x01", "]", "{s:"]
SHORT = [MAX_SPACE - 1, MAX_SPACE, MAX_SPACE + 1, 80, MAX_HEADER - 8, MAX_HEADER, MAX_HEADER + 1, 300, 700]
LONG = [LARGE_SLICE - 1, LARGE_SLICE + 1, MAX_VALUE - 1, MAX_VALUE, MAX_VALUE + 1, MAX_VALUE + 300]
ARGUMENTS: dict[str, Any] = {"s": "one <b> two", "n": 12, "o": {"x": [1, "y"], "z": {}}, "l": [True, None], "b": False}


def written(name: str, form: str) -> list[Piece]:
    """A turn of the family with two calls, in pieces."""
    _, voc, reasoning, tools = family(name, form)
    calls = [("f", ARGUMENTS), ("get_it", {"n": 5})]
    thought = "Think\ntwice." if PAIRS[name] else ""
    if isinstance(tools, Messages):
        return pieces_of(write_messages(tools, thought, "Some text.", calls), voc)
    return pieces_of(write_message(reasoning, tools, thought, "" if tools.unmarked else "Some text.", calls), voc)


def inflated(pieces: list[Piece], source: random.Random, lengths: list[int]) -> list[Piece]:
    """The pieces with runs of text inside them that are as long as a cap, about."""
    pieces = list(pieces)
    for _ in range(source.randint(1, 2)):
        unit, length = source.choice(UNITS), source.choice(lengths)
        run = (unit * (length // len(unit) + 1))[:length]
        at = source.randrange(len(pieces) + 1)
        if at < len(pieces) and pieces[at][1] == TEXT:
            text = pieces[at][0]
            cut = source.randint(0, len(text))
            pieces[at] = (text[:cut] + run + text[cut:], TEXT)
        elif at < len(pieces) and source.random() < 0.2:
            pieces[at : at + 1] = [pieces[at]] * length
        else:
            pieces.insert(at, (run, TEXT))
    return pieces


def check_cuts(name: str, form: str, source: random.Random, lengths: list[int], one_by_one: bool) -> None:
    parser = family(name, form)[0]
    pieces = inflated(written(name, form), source, lengths)
    finish = source.choice(["stop", "length"])
    whole = fold(parser, [pieces], finish)
    for sizes in (SIZES, [MAX_SPACE, MAX_HEADER, LARGE_SLICE, 3 * LARGE_SLICE]):
        chunks = cut_pieces(pieces, source, sizes)
        assert summary(fold(parser, chunks, finish)) == summary(whole), pieces
    if one_by_one:
        assert summary(fold(parser, singles(pieces), finish)) == summary(whole), pieces
    for call in whole.calls:
        if call.complete:
            json_object(call.text)


@pytest.mark.parametrize("form", ["ids", "text"])
@pytest.mark.parametrize("name", FAMILIES)
@given(seed=st.integers(0, 2**48))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_cuts_make_no_difference_at_short_caps(name: str, form: str, seed: int) -> None:
    check_cuts(name, form, random.Random(seed), SHORT, one_by_one=True)


@pytest.mark.parametrize("name", FAMILIES)
@given(seed=st.integers(0, 2**48))
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_cuts_make_no_difference_at_long_caps(name: str, seed: int) -> None:
    source = random.Random(seed)
    check_cuts(name, source.choice(["ids", "text"]), source, LONG, one_by_one=False)


@pytest.mark.parametrize("name", FAMILIES)
def test_long_slices_reach_only_what_no_cap_holds_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long text and long strings go through in few calls; whatever comes after them is cut back to a slice."""
    parser, voc, reasoning, tools = family(name, "ids")
    calls = [("f", {"n": 1, "s": "word " * 3_000}), *[("get_it", {"s": "x"})] * 20]
    long, thought = "so " * 20_000 + "on", "why " * 20_000 + "not" if PAIRS[name] else ""
    if isinstance(tools, Messages):
        raws = [write_messages(tools, thought, long, calls)]
    else:
        raws = [write_message(reasoning, tools, thought, long, [] if tools.unmarked else calls)]
        raws += [write_message(reasoning, tools, "", "", calls)] if tools.unmarked else []
    sizes: list[int] = []

    def watched(handler: Callable[[Run], bool]) -> Callable[[Run], bool]:
        def handle(run: Run) -> bool:
            sizes.append(len(run.buf) - run.pos)
            assert sizes[-1] <= SLICE + MAX_WAITING or parse._uncapped(run)
            return handler(run)

        return handle

    monkeypatch.setattr(parse, "_HANDLERS", tuple(map(watched, parse._HANDLERS)))
    for raw in raws:
        fold(parser, [pieces_of(raw, voc)])
    assert max(sizes) >= LARGE_SLICE
    assert len(sizes) < 3 * sum(map(len, raws)) // LARGE_SLICE + 600


# --- each cap: one below, at it, one above ---------------------------------------------------------------------------


def call(text: str, name: str = "f") -> list[tuple[str, str, bool | None]]:
    return [(name, text, True)]


QWEN = "<tool_call>\n<function=f>\n"
QWEN_END = "\n</function>\n</tool_call>"
HERMES = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


def undecided(n: int) -> str:
    return '{"type":' + " " * (n - 29) + '"function","name": "f", "parameters": {}}'


# id, tool parser, cap, output for n code points, outcome up to the cap, outcome beyond it
CAPS: list[tuple[str, str, int, Callable[[int], str], Callable[[int], Summary], Callable[[int], Summary]]] = [
    (
        "whitespace before a call is a separator",
        "hermes",
        MAX_SPACE,
        lambda n: "x" + " " * n + HERMES,
        lambda n: ("x", "", call("{}")),
        lambda n: ("x" + " " * n, "", call("{}")),
    ),
    (
        "whitespace behind an opener",
        "hermes",
        MAX_SPACE,
        lambda n: "x<tool_call>" + " " * n + HERMES.removeprefix("<tool_call>"),
        lambda n: ("x", "", call("{}")),
        lambda n: ("x<tool_call>" + " " * n + HERMES.removeprefix("<tool_call>"), "", []),
    ),
    (
        "whitespace behind a closer in a value",
        "qwen3_coder",
        MAX_SPACE,
        lambda n: QWEN + "<parameter=s>v</parameter>" + " " * n + QWEN_END.strip(),
        lambda n: ("", "", call('{"s": "v"}')),
        lambda n: ("", "", [("f", '{"s": "v</parameter>' + " " * n + "</function>\\n</tool_call>", False)]),
    ),
    (
        "a function's name in a tag",
        "qwen3_coder",
        MAX_HEADER,
        lambda n: "<tool_call>\n<function=" + "f" * n + ">" + QWEN_END,
        lambda n: ("", "", call("{}", "f" * n)),
        lambda n: ("", "", []),
    ),
    (
        "a parameter's name in a tag",
        "qwen3_coder",
        MAX_HEADER,
        lambda n: QWEN + "<parameter=" + "k" * n + ">v</parameter>" + QWEN_END,
        lambda n: ("", "", call('{"' + "k" * n + '": "v"}')),
        lambda n: ("", "", call("{}")),
    ),
    (
        "a name in JSON, with its quotes",
        "hermes",
        MAX_HEADER,
        lambda n: '<tool_call>{"name": "' + "f" * (n - 2) + '", "arguments": {}}</tool_call>',
        lambda n: ("", "", call("{}", "f" * (n - 2))),
        lambda n: ("", "", []),
    ),
    (
        "text that may be a call, before the quote that ends the name",
        "llama3_json",
        MAX_UNDECIDED,
        lambda n: undecided(n),
        lambda n: ("", "", call("{}")),
        lambda n: (undecided(n), "", []),
    ),
    (
        "an integer in a tag",
        "qwen3_coder",
        MAX_SCALAR_VALUE,
        lambda n: QWEN + "<parameter=n>" + "7" * n + "</parameter>" + QWEN_END,
        lambda n: ("", "", call('{"n": ' + "7" * n + "}")),
        lambda n: ("", "", call('{"n": "' + "7" * n + '"}')),
    ),
    (
        "an object in a tag",
        "qwen3_coder",
        MAX_VALUE,
        lambda n: QWEN + '<parameter=o>{"a":"' + "x" * (n - 8) + '"}</parameter>' + QWEN_END,
        lambda n: ("", "", call('{"o": {"a":"' + "x" * (n - 8) + '"}}')),
        lambda n: ("", "", call('{"o": "{\\"a\\":\\"' + "x" * (n - 8) + '\\"}"}')),
    ),
    (
        "arguments before their name",
        "hermes",
        MAX_VALUE,
        lambda n: '<tool_call>{"arguments": {"a":"' + "x" * (n - 8) + '"}, "name": "f"}</tool_call>',
        lambda n: ("", "", call('{"a":"' + "x" * (n - 8) + '"}')),
        lambda n: ("", "", []),
    ),
    (
        "JSON in a string",
        "hermes",
        MAX_VALUE,
        lambda n: '<tool_call>{"name": "f", "arguments": "{\\"a\\":1' + " " * (n - 11) + '}"}</tool_call>',
        lambda n: ("", "", call('{"a":1' + " " * (n - 11) + "}")),
        lambda n: ("", "", [("f", "", False)]),
    ),
    (
        "brackets",
        "hermes",
        256,
        lambda n: HERMES.replace("{}", '{"a":' + "[" * (n - 1) + "]" * (n - 1) + "}"),
        lambda n: ("", "", call('{"a":' + "[" * (n - 1) + "]" * (n - 1) + "}")),
        lambda n: ("", "", [("f", '{"a":' + "[" * (n - 2), False)]),
    ),
    (
        "parameters of a call",
        "qwen3_coder",
        64,
        lambda n: QWEN + "\n".join(f"<parameter=k{i}>v</parameter>" for i in range(n)) + QWEN_END,
        lambda n: ("", "", call("{" + ", ".join(f'"k{i}": "v"' for i in range(n)) + "}")),
        lambda n: ("", "", call("{" + ", ".join(f'"k{i}": "v"' for i in range(64)) + "}")),
    ),
    (
        "a bare word",
        "gemma4",
        MAX_HEADER,
        lambda n: "<|tool_call>call:f{a:" + "x" * n + "}<tool_call|>",
        lambda n: ("", "", call('{"a": "' + "x" * n + '"}')),
        lambda n: ("", "", [("f", '{"a": ', False)]),
    ),
    (
        "a bare key",
        "gemma4",
        MAX_HEADER,
        lambda n: "<|tool_call>call:f{" + "k" * n + ":1}<tool_call|>",
        lambda n: ("", "", call('{"' + "k" * n + '": 1}')),
        lambda n: ("", "", [("f", "{", False)]),
    ),
    (
        "a literal that holds JSON",
        "functiongemma",
        MAX_VALUE,
        lambda n: "<start_function_call>call:f{a:<escape>" + "x" * n + "<escape>}<end_function_call>",
        lambda n: ("", "", call('{"a": "' + "x" * n + '"}')),
        lambda n: ("", "", [("f", '{"a": ', False)]),
    ),
    (
        "a Python argument",
        "pythonic",
        MAX_VALUE,
        lambda n: "[f(a='" + "x" * (n - 2) + "')]",
        lambda n: ("", "", call('{"a": "' + "x" * (n - 2) + '"}')),
        lambda n: ("", "", [("f", "{}", False)]),
    ),
    (
        "a message's header",
        "openai",
        MAX_HEADER,
        lambda n: "<|channel|>final" + " " * (n - 6) + "<|message|>text",
        lambda n: ("text", "", []),
        lambda n: ("", "", []),
    ),
]


def every_cut(pieces: list[Piece]) -> Iterator[list[list[Piece]]]:
    yield [pieces]
    yield singles(pieces)
    for seed in range(6):
        yield cut_pieces(pieces, random.Random(seed))


@pytest.mark.parametrize("above", [-1, 0, 1], ids=["below", "at", "above"])
@pytest.mark.parametrize(
    ("tool", "cap", "output", "within", "beyond"), [row[1:] for row in CAPS], ids=[r[0] for r in CAPS]
)
def test_cap(
    tool: str,
    cap: int,
    output: Callable[[int], str],
    within: Callable[[int], Summary],
    beyond: Callable[[int], Summary],
    above: int,
) -> None:
    markers = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>") if tool == "openai" else ()
    voc = smollm2(markers)
    parser = parser_for(voc, tool, None, tools=TOOLS)
    pieces = pieces_of(output(cap + above), voc)
    expected = (beyond if above > 0 else within)(cap + above)
    for chunks in every_cut(pieces):
        assert summary(fold(parser, chunks)) == expected


@pytest.mark.parametrize(
    ("number", "complete"),
    [
        ("7" * 5000, True),
        ("-0." + "1" * 300 + "e+" + "9" * 100, True),
        ("7" * 100 + "ab", False),
        ("0" * 70, False),
        ("1" * 70 + ".", False),
        ("1." + "0" * 70 + ".5", False),
        ("t" + "r" * 70, False),
        ("7" * 100 + " ab", False),
        ("7" * 100 + "{", False),
        ("NaN", False),
        ("-Infinity", False),
    ],
    ids=lambda value: value[:3] + value[-3:] if isinstance(value, str) else None,
)
def test_numbers_are_checked_at_any_length(number: str, complete: bool) -> None:
    parser = parser_for(smollm2(()), "hermes", None, tools=TOOLS)
    pieces = pieces_of(HERMES.replace("{}", '{"x": ' + number + "}"), smollm2(()))
    for chunks in every_cut(pieces):
        assert [one.complete for one in fold(parser, chunks).calls] == [complete]


@pytest.mark.parametrize(
    ("tool", "output", "expected"),
    [
        ("hermes", HERMES.replace('"f"', '"f\\ud800"'), call("{}", "f\ufffd")),
        ("hermes", HERMES.replace("{}", '"{\\"a\\": 1e999}"'), call('{"a": 1e999}')),
        ("hermes", HERMES.replace("{}", '"{\\"a\\": NaN}"'), [("f", '"{\\"a\\": NaN}"', False)]),
        ("pythonic", "[f(a='\\ud800')]", call('{"a": "\\ud800"}')),
        ("pythonic", "[f(a=1e999)]", [("f", "{}", False)]),
        ("pythonic", "[f(a=[nan])]", [("f", "{}", False)]),
        ("gemma4", "<|tool_call>call:f{a:NaN,b:1e999}<tool_call|>", call('{"a": "NaN", "b": 1e999}')),
        (
            "qwen3_coder",
            QWEN + "<parameter=l>[NaN]</parameter>" + QWEN_END,
            call('{"l": "[NaN]"}'),
        ),
        (
            "qwen3_coder",
            QWEN + "<parameter=l>" + "[" * 257 + "]" * 257 + "</parameter>" + QWEN_END,
            call('{"l": "' + "[" * 257 + "]" * 257 + '"}'),
        ),
        (
            "qwen3_coder",
            QWEN + "<parameter=l>" + "[" * 256 + "]" * 256 + "</parameter>" + QWEN_END,
            call('{"l": ' + "[" * 256 + "]" * 256 + "}"),
        ),
        (
            "qwen3_coder",
            QWEN + "<parameter=l>[" + "9" * 5000 + "]</parameter>" + QWEN_END,
            call('{"l": [' + "9" * 5000 + "]}"),
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_only_json_reaches_the_client(tool: str, output: str, expected: list[tuple[str, str, bool | None]]) -> None:
    parser = parser_for(smollm2(()), tool, None, tools=TOOLS)
    for chunks in every_cut(pieces_of(output, smollm2(()))):
        message = fold(parser, chunks)
        assert summary(message) == ("", "", expected)
        message.content.encode()
        assert [one.name.encode().decode() for one in message.calls] == [name for name, _, _ in expected]
