"""Every sample at every cut that it names, with the family's markers as ids and as plain text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from tests.core.families import markers_of
from tests.core.grammars.cases import CASES, MISSING, OF_REASONING, OF_TOOLS, REASONING_ROWS, TOOL_ROWS
from tests.core.grammars.cases import SAMPLES as NUMBERED
from tests.core.grammars.samples import SAMPLES, TOOLS, Sample
from tests.core.harness import cuts, parser_for, run
from tests.core.support import smollm2
from worker.core import grammars
from worker.core.vocabulary import Vocabulary

Cuts = Callable[[Sequence[int], Vocabulary, str], Iterator[tuple[str, list[list[int]]]]]

_PLAIN = re.compile("⟪(.*?)⟫", re.DOTALL)


def encode(text: str, voc: Vocabulary) -> list[int]:
    """Ids of a sample: between ⟪ and ⟫ as the tokenizer without the family's tokens writes it."""
    ids: list[int] = []
    for number, part in enumerate(_PLAIN.split(text)):
        ids += (smollm2() if number % 2 else voc).tokenizer.encode(part, add_special_tokens=False).ids
    return ids


def every_cut(ids: Sequence[int], voc: Vocabulary, seed: str) -> Iterator[tuple[str, list[list[int]]]]:
    """The graded groupings, and every way to cut in two."""
    yield from cuts(ids, voc, seed)
    for at in range(1, len(ids)):
        yield f"at {at}", [list(ids[:at]), list(ids[at:])]


def tokens_of(sample: Sample) -> tuple[str, ...]:
    if sample.tokens is not None:
        return sample.tokens
    reasoning, tools = grammars.REASONING.get(sample.reasoning or ""), grammars.TOOLS.get(sample.tool or "")
    return tuple(markers_of(reasoning, tools))


def check(sample: Sample, form: str, groupings: Cuts) -> None:
    voc = smollm2(tokens_of(sample) if form == "ids" else ())
    parser = parser_for(voc, sample.tool, sample.reasoning, tools=TOOLS, chat_template_kwargs=sample.kwargs or None)
    prompt = encode(sample.prompt, voc)
    for cut, chunks in groupings(encode(sample.raw, voc), voc, sample.id):
        message = run(parser, chunks, sample.finish, prompt)
        assert message.said() == (sample.content, sample.thought, sample.calls), cut
        assert any(call.complete is False for call in message.calls) == sample.cut, cut
        if sample.ids:
            assert tuple(call.id for call in message.calls) == sample.ids, cut


def params(samples: Iterable[Sample]) -> list[Any]:
    return [pytest.param(sample, form, id=f"{sample.id}-{form}") for sample in samples for form in sample.forms]


@pytest.mark.parametrize(("sample", "form"), params(NUMBERED.values()))
def test_what_every_family_has_to_show(sample: Sample, form: str) -> None:
    check(sample, form, every_cut)


@pytest.mark.parametrize(("sample", "form"), params(SAMPLES))
def test_what_is_peculiar_to_a_family(sample: Sample, form: str) -> None:
    check(sample, form, cuts)


def test_every_pair_is_a_sample_or_has_a_reason() -> None:
    wanted = [(name, number) for name in grammars.REASONING_NAMES for number in OF_REASONING]
    wanted += [(name, number) for name in grammars.TOOL_NAMES for number in OF_TOOLS]
    assert Counter(wanted) == Counter([*NUMBERED, *MISSING])
    assert {number for _, number in wanted} == set(CASES)
    assert all(MISSING.values())


@pytest.mark.parametrize("rows", [TOOL_ROWS, REASONING_ROWS], ids=["tools", "reasoning"])
def test_a_name_is_in_one_row(rows: Sequence[Any]) -> None:
    assert [name for name, count in Counter(name for row in rows for name in row.names).items() if count > 1] == []


def test_every_name_has_three_samples() -> None:
    """Aliases of one declaration count together, and so do the numbered cases."""
    samples = [*SAMPLES, *NUMBERED.values()]
    tools = Counter(id(grammars.TOOLS[sample.tool]) for sample in samples if sample.tool)
    reasoning = Counter(id(grammars.REASONING[sample.reasoning]) for sample in samples if sample.reasoning)
    few = [name for name, grammar in grammars.TOOLS.items() if tools[id(grammar)] < 3]
    few += [name for name, grammar in grammars.REASONING.items() if reasoning[id(grammar)] < 3]
    assert few == []


def test_aliases_share_one_declaration() -> None:
    for one, other in [
        ("hermes", "qwen3_json"),
        ("qwen3_coder", "qwen3_xml"),
        ("llama3_json", "llama4_json"),
        ("glm45", "glm47"),
    ]:
        assert grammars.TOOLS[one] is grammars.TOOLS[other]


def test_reasoning_that_stays_in_the_content() -> None:
    """minimax_m2_append_think: no reasoning field, the opener that the template wrote comes first."""
    for tokens in (("<think>", "</think>"), ()):
        voc = smollm2(tokens)
        parser = parser_for(voc, None, "minimax_m2_append_think")
        for cut, chunks in cuts(encode("why\n</think>\n\nso", voc), voc, "append"):
            assert run(parser, chunks, "stop").said() == ("<think>why\n</think>\n\nso", "", []), cut
