"""Every family's samples, in one chunk, token by token and in random cuts, with markers as ids and as plain text."""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import resources

import pytest
from tokenizers import AddedToken, Tokenizer

from tests.core.grammars import cases
from tests.core.grammars.samples import SAMPLES, TOOLS, Sample
from tests.core.harness import cuts, parser_for, run, strict
from worker.core import grammars
from worker.core.grammar import Messages, Reasoning, Tools
from worker.core.vocabulary import Vocabulary

TEXT_ONLY = {
    "functools[",
    "```json",
    "\n",
    ">",
    "{",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<invoke name=",
}


def markers_of(*declarations: Reasoning | Tools | Messages | None) -> list[str]:
    """Literals that a model of the family has as one token."""
    found: list[str] = []
    for grammar in declarations:
        if isinstance(grammar, Reasoning):
            found += [*grammar.atoms] if grammar.atoms else [*grammar.open[:1], *grammar.close[:1]]
        elif isinstance(grammar, Tools):
            openers = (*grammar.call, *grammar.section)
            dsml = [atom for atom in grammar.atoms if atom in "".join(openers)]
            dsml = dsml if all(any(atom in opener for atom in dsml) for opener in openers) else []
            found += [*dsml] if dsml else [*grammar.markers]
        elif grammar is not None:
            found += grammar.markers
    inner = ("</inv", "<param", "<steptml", "</steptml")
    return [m for m in dict.fromkeys(found) if m not in TEXT_ONLY and " " not in m and not m.startswith(inner)]


@cache
def smollm2(markers: tuple[str, ...]) -> Vocabulary:
    data = (resources.files("derender") / "data/smollm2/tokenizer.json").read_bytes()
    tokenizer = Tokenizer.from_buffer(data)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in markers])
    return Vocabulary(tokenizer)


def declarations(sample: Sample) -> tuple[Reasoning | Messages | None, Tools | Messages | None]:
    return (
        grammars.REASONING[sample.reasoning] if sample.reasoning else None,
        grammars.TOOLS[sample.tool] if sample.tool else None,
    )


CASES = [
    pytest.param(sample, form, id=f"{sample.id}-{form}")
    for sample in SAMPLES
    for form in ("ids", "text")
    if sample.only in ("", form)
]


@pytest.mark.parametrize(("sample", "form"), CASES)
def test_sample(sample: Sample, form: str) -> None:
    voc = smollm2(tuple(markers_of(*declarations(sample))) if form == "ids" else ())
    parser = parser_for(voc, sample.tool, sample.reasoning, tools=TOOLS, chat_template_kwargs=sample.kwargs or None)
    prompt = voc.tokenizer.encode(sample.prompt, add_special_tokens=False).ids
    ids = voc.tokenizer.encode(sample.raw, add_special_tokens=False).ids
    for cut, chunks in cuts(ids, voc, sample.id):
        message = run(parser, chunks, sample.finish, prompt)
        assert (message.content or None, message.reasoning or None) == (sample.content, sample.thought), cut
        calls = [(call.name, strict(call.text)) for call in message.calls if call.complete]
        assert calls == sample.calls, cut
        assert any(call.complete is False for call in message.calls) == sample.cut, cut
        if sample.ids:
            assert tuple(call.id for call in message.calls) == sample.ids, cut


def test_every_name_has_three_samples() -> None:
    """Aliases of one declaration count together, and so do the numbered cases."""
    samples = [*SAMPLES, *cases.SAMPLES]
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
