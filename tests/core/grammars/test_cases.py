"""Every parser name in every numbered case, at every cut, with the family's markers as ids and as plain text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.core.grammars.cases import CASES, MISSING, OF_REASONING, OF_TOOLS, SAMPLES, TOOLS, Case
from tests.core.grammars.test_families import smollm2
from tests.core.harness import Message, cuts, parser_for, run, strict
from worker.core import grammars
from worker.core.parse import Parser
from worker.core.vocabulary import Vocabulary

_PLAIN = re.compile("⟪(.*?)⟫", re.DOTALL)


def bare(text: str) -> str:
    return text.replace("⟪", "").replace("⟫", "")


def encode(text: str, voc: Vocabulary) -> list[int]:
    """Ids of a sample: between ⟪ and ⟫ as the tokenizer without the family's tokens writes it."""
    ids: list[int] = []
    for number, part in enumerate(_PLAIN.split(text)):
        ids += (smollm2(()) if number % 2 else voc).tokenizer.encode(part, add_special_tokens=False).ids
    return ids


def every_cut(ids: Sequence[int], voc: Vocabulary, case: Case) -> Iterator[tuple[str, list[list[int]]]]:
    """The graded groupings, and every way to cut in two."""
    yield from cuts(ids, voc, case.id)
    for at in range(1, len(ids)):
        yield f"at {at}", [list(ids[:at]), list(ids[at:])]


def said(message: Message) -> tuple[str, str, list[tuple[str, object]]]:
    calls = [(call.name, strict(call.text)) for call in message.calls if call.complete]
    return message.content, message.reasoning, calls


def prepare(case: Case, form: str) -> tuple[Parser, list[int], list[int]]:
    voc = smollm2(case.tokens if form == "ids" else ())
    parser = parser_for(voc, case.tool, case.reasoning, tools=TOOLS, chat_template_kwargs=case.kwargs)
    return parser, encode(case.raw, voc), encode(case.prompt, voc)


def forms(case: Case) -> tuple[str, ...]:
    """As plain text, a marker that is quoted as plain text is the marker itself."""
    return (*(("ids",) if case.tokens else ()), *(("text",) if "⟪" not in case.raw else ()))


PARAMS = [pytest.param(case, form, id=f"{case.id}-{form}") for case in SAMPLES for form in forms(case)]


@pytest.mark.parametrize(("case", "form"), PARAMS)
def test_case(case: Case, form: str) -> None:
    parser, ids, prompt = prepare(case, form)
    calls = [(name, {key: bare_value(one) for key, one in args.items()}) for name, args in case.calls]
    wanted = (case.content, case.thought, calls)
    for cut, chunks in every_cut(ids, parser.vocabulary, case):
        message = run(parser, chunks, case.finish, prompt)
        assert said(message) == wanted, cut
        assert any(call.complete is False for call in message.calls) == case.cut, cut


def bare_value(value: object) -> object:
    return bare(value) if isinstance(value, str) else value


def test_every_pair_is_a_sample_or_has_a_reason() -> None:
    written = Counter((case.name, case.number) for case in SAMPLES)
    wanted = [(name, number) for name in grammars.REASONING_NAMES for number in OF_REASONING]
    wanted += [(name, number) for name in grammars.TOOL_NAMES for number in OF_TOOLS]
    assert [pair for pair in wanted if not written[pair] and pair not in MISSING] == []
    assert [pair for pair in written if written[pair] and pair in MISSING] == []
    assert {number for _, number in wanted} == set(CASES)
    assert all(MISSING.values())


def test_reasoning_that_stays_in_the_content() -> None:
    """minimax_m2_append_think: no reasoning field, the opener that the template wrote comes first."""
    for tokens in (("<think>", "</think>"), ()):
        voc = smollm2(tokens)
        parser = parser_for(voc, None, "minimax_m2_append_think")
        ids = encode("why\n</think>\n\nso", voc)
        for cut, chunks in cuts(ids, voc, "append"):
            assert said(run(parser, chunks, "stop")) == ("<think>why\n</think>\n\nso", "", []), cut
