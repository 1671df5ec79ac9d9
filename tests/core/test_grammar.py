"""A wrong declaration fails when it is defined, and the message says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from worker.core import grammars
from worker.core.errors import GrammarError
from worker.core.grammar import Header, Json, Literals, Members, Messages, Params, Python, Reasoning, Tools

NAME = Header(until=(">",))
MESSAGES: dict[str, Any] = {"source": "s", "start": "<s>", "channel": "<c>", "message": "<m>", "constrain": "<k>"}


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: Reasoning(source="s", open="<think>"),  # type: ignore[arg-type]
         'Reasoning.open: write a tuple of literals, ("<think>",), not one string'),
        (lambda: Reasoning(source="s", close=()),
         'Reasoning.close: write the literal that ends reasoning, such as ("</think>",)'),
        (lambda: Reasoning(source="s", open=("x",), close=("x",)),
         "Reasoning: open and close share a literal; write what tells them apart"),
        (lambda: Reasoning(source="s", open=(), start="content"),
         'Reasoning: without open, reasoning is never entered; write start="reasoning"'),
        (lambda: Reasoning(source="s", close=("",)),
         "Reasoning.close: an empty literal matches everywhere; leave it out"),
        (lambda: Reasoning(source="s", close=("</think>\n",)),
         "Reasoning.close: '</think>\\n' has outer whitespace; write '</think>'"),
        (lambda: Reasoning(source="s", close=("x" * 61,)),
         f"Reasoning.close: {'x' * 61!r} has more than 60 characters; write less"),
        (lambda: Reasoning(source="s", open=("<think>",), close=("<think>s",)),
         "Reasoning: '<think>' is part of '<think>s'; write only one of them, or both in full"),
        (lambda: Header(until=()), 'Header.until: write the literals that end the header, such as (">",)'),
        (lambda: Header(until=(">",), pattern="("),
         "Header.pattern: '(' is no regular expression: missing ), unterminated subpattern at position 0"),
        (lambda: Header(until=(">",), pattern=".*"), "Header.pattern: name what it captures, (?P<name>…)"),
        (lambda: Members(name=()), 'Members: write the keys, such as name=("name",), arguments=("arguments",)'),
        (lambda: Members(arguments=("name",)),
         "Members: a key cannot hold both the name and the arguments; write different keys"),
        (lambda: Members(opened=True), "Members.opened: only an array has an opening bracket; write array=True"),
        (lambda: Params(open="<p", until=">", close="</p>", pattern=".*"),
         "Params.pattern: name what it captures, (?P<key>…)"),
        (lambda: Params(open="<p", until=">", close="</p>", typing="attribute"),
         "Params.pattern: typing by attribute needs it captured, (?P<type>…)"),
        (lambda: Literals(""), "Literals.delimiter: an empty literal matches everywhere; leave it out"),
        (lambda: Tools(source="s", call=(), arguments=Members()),
         "Tools.call: write the literal that opens a call, or unmarked=True"),
        (lambda: Tools(source="s", call=("<c>",), arguments=Members(), section=("<s>",)),
         "Tools: section and section_close belong together; write both or neither"),
        (lambda: Tools(source="s", call=("<c>",), arguments=Members(), gap="x"),
         "Tools.gap: 'x' is not whitespace; write \"strip\", \"keep\" or the separator"),
        (lambda: Tools(source="s", call=("<c>",), arguments=Members(), header=NAME),
         "Tools.header: these arguments hold the name themselves; leave header out"),
        (lambda: Tools(source="s", call=("<c>",), arguments=Json()),
         "Tools.header: the name has to come from somewhere; write Header(until=(…,))"),
        (lambda: Tools(source="s", call=("<c>",), header=NAME, arguments=Literals("'")),
         "Tools.close: values of this kind need the call's own closer; write it"),
        (lambda: Tools(source="s", call=("<c>",), header=NAME, arguments=Json(), unmarked=True),
         "Tools.unmarked: only Members or Python can be told from text without an opener"),
        (lambda: Tools(source="s", call=("<c>", "<c>d"), arguments=Python()),
         "Tools: '<c>' is part of '<c>d'; write only one of them, or both in full"),
        (lambda: Tools(source="s", call=("<c>",), header=NAME, arguments=Json(), close="</<c>"),
         "Tools: '<c>' is part of '</<c>'; write only one of them, or both in full"),
        (lambda: Tools(source="s", call=("<c>",), header=NAME, arguments=Json(), noise=("<c",)),
         "Tools: '<c' is part of '<c>'; write only one of them, or both in full"),
        (lambda: Tools(source="s", call=("<c",), header=NAME, arguments=Params("<p", ">", "</p><c"), close="<e>"),
         "Params: '<c' is part of '</p><c'; write only one of them, or both in full"),
        (lambda: Tools(source="s", call=("<c>",), header=Header(until=("<c>>",)), arguments=Json()),
         "Tools.header: '<c>' is part of '<c>>'; write what tells them apart"),
        (lambda: Params(open="<p", until=">", close="</p>", type_open="<t>"),
         "Params: type_open and type_close need each other and value_open; write all three"),
        (lambda: Reasoning(source="s", inline="<think>"),
         "Reasoning.inline: nothing is told apart then; leave open and start out"),
        (lambda: Tools(source="s", call=("<c>",), arguments=Python(), tentative=True),
         "Tools.tentative: only Members can be told from text after an opener; leave it out"),
        (lambda: Messages(source="s", start="<s>", ends=("<e>",)),
         "Messages: bodies begin after a header's `message` or after one of `kinds`; write one"),
        (lambda: Messages(source="s", start="<s>", ends=("<e>",), message="<m>"),
         "Messages: a body is told by its `channel` or by its `recipients`; write one"),
        (lambda: Messages(source="s", start="<s>", ends=("<e>",), kinds=(("<k>", "tools"),)),
         "Messages.tools: write the grammar of tools' bodies"),
        (lambda: Messages(**MESSAGES, ends=(), reasoning=("a",), content=("b",)),
         'Messages.ends: write what ends a body, such as ("<|end|>",)'),
        (lambda: Messages(**MESSAGES, ends=("<e>",), reasoning=("a",), content=("a",)),
         "Messages: a channel is reasoning or content, not both; write it once"),
    ],
)  # fmt: skip
def test_wrong_declaration(define: Callable[[], Any], message: str) -> None:
    with pytest.raises(GrammarError) as error:
        define()
    assert str(error.value) == message


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(GrammarError) as error:
        grammars.tool_grammar("herms")
    assert str(error.value) == f"tool parser 'herms' is not known; known are: {', '.join(grammars.TOOL_NAMES)}"
    with pytest.raises(GrammarError) as error:
        grammars.reasoning_grammar("")
    assert str(error.value) == f"reasoning parser '' is not known; known are: {', '.join(grammars.REASONING_NAMES)}"


def test_every_declaration_names_its_source() -> None:
    declared = [*grammars.REASONING.values(), *grammars.TOOLS.values()]
    assert [grammar for grammar in declared if not grammar.source] == []


def test_declarations_do_not_change() -> None:
    with pytest.raises(AttributeError):
        grammars.TOOLS["hermes"].call = ()  # type: ignore[misc, union-attr]
