"""Response templates: imported and run, compared with the library they are written for, and refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.grammars.samples import TOOLS
from tests.core.harness import chat_request, cuts, run, strict
from tests.core.support import smollm2
from worker.core.errors import GrammarError
from worker.core.grammar import Json, Literals, Members, Params, Python
from worker.core.model import Model, ParserConfig
from worker.core.parse import Parser
from worker.core.response_template import import_template
from worker.core.vocabulary import Vocabulary

ANCHOR = "<|im_start|>assistant\n"
THINKING = {"open": "<think>", "close": "</think>"}

TAGGED: dict[str, Any] = {
    "start_anchor": ANCHOR,
    "defaults": {"role": "assistant"},
    "fields": {
        "reasoning_content": THINKING,
        "content": {"close": "<|im_end|>"},
        "tool_calls": {
            "open": "<call>", "close": "</call>", "content": "json", "repeats": True,
            "transform": {"type": "function", "id": "{content.id}", "function": "{content.function}"},
        },
    },
}  # fmt: skip
"""A nested call: name and arguments are members of an object inside the call's object."""

PARAMETERS: dict[str, Any] = {
    "start_anchor_pattern": r"<\|im_start\|>assistant\n",
    "fields": {
        "thinking": {"open_pattern": r"<think>\s*", "close_pattern": r"\s*</think>"},
        "content": {},
        "tool_calls": {
            "open_pattern": r"<tool>\s*<do name=(?P<name>[^>\s]+)>",
            "close_pattern": r"</do>\s*</tool>",
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<put (?P<key>\w+)>\n?(?P<value>.*?)\n?</put>"},
            "repeats": True,
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
PUT = PARAMETERS["fields"]["tool_calls"]["content_args"]
LISTED: dict[str, Any] = {
    "start_anchor": ANCHOR,
    "fields": {
        "content": {},
        "tool_calls": {
            "open": ["<|calls|>", "<|more|>"], "close": "<|end_calls|>", "content": "python-call-list",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}},
            "transform_each": True,
        },
    },
}  # fmt: skip
BRACES: dict[str, Any] = {
    "start_anchor": ANCHOR,
    "fields": {
        "content": {},
        "tool_calls": {
            "open_pattern": r"<\|call>call:(?P<name>\w+)", "close": "<call|>", "content": "json", "repeats": True,
            "content_args": {"unquoted_keys": True, "string_delims": [["<|q|>", "<|q|>"]]},
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}  # fmt: skip
SEPARATED: dict[str, Any] = {
    "start_anchor": ANCHOR,
    "fields": {
        "content": {},
        "tool_calls": {
            "open_pattern": r"\[CALL\](?P<name>\w+)#(?P<id>\w+)\[WITH\]", "close": "[DONE]", "content": "json",
            "repeats": True,
            "transform": {"id": "{id}", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}  # fmt: skip

OUTPUTS = [
    ("tagged-plain", TAGGED, "Hello.<|im_end|>"),
    ("tagged-thinks", TAGGED, "<think>\nwhy\n</think>\n\nso"),
    ("tagged-call", TAGGED, '<think>a</think>Go.\n<call>{"id": "c1", "function": {"name": "weather", "arguments": '
     '{"city": "Rom", "o": {"a": [1, {"b": null}]}}}}</call>'),
    ("tagged-two", TAGGED, '<call>{"id": "c1", "function": {"name": "now", "arguments": {}}}</call>\n<call>{"id": '
     '"c2", "function": {"arguments": {"n": 1.5}, "name": "now"}}</call><|im_end|>'),
    ("parameters-call", PARAMETERS, "<think>\nwhy\n</think>\nGo.\n<tool>\n<do name=weather>\n<put city>\nRom\n</put>\n"
     "<put days>2</put>\n</do>\n</tool>"),
    ("parameters-two", PARAMETERS, "<tool><do name=now></do></tool>\n<tool><do name=weather><put city>a\nb</put>"
     "</do></tool>"),
    ("listed", LISTED, "Go. <|calls|>[weather(city=\"Rom\", days=-2), now(a=[True, None, {'k': 1.5}])]<|end_calls|>"),
    ("listed-other-opener", LISTED, "<|more|>[now()]<|end_calls|>"),
    ("braces", BRACES, "Go.<|call>call:weather{city:<|q|>Rom, \"}\"<|q|>,days:2,o:{x:[true,null]}}<call|>"),
    ("separated", SEPARATED, 'Go.[CALL]weather#a1[WITH]{"city": "Rom"}[DONE][CALL]now#a2[WITH]{}[DONE]'),
]  # fmt: skip
TOKENS = ("<think>", "</think>", "<call>", "</call>", "<tool>", "</tool>", "<|calls|>", "<|more|>", "<|end_calls|>")
TOKENS += ("<|call>", "<call|>", "<|q|>", "[CALL]", "[WITH]", "[DONE]")


def parser_of(template: dict[str, Any], voc: Vocabulary, name: str = "hf") -> Parser:
    imported = import_template(template)
    config = ParserConfig(
        reasoning_parser=name if imported.reasoning else None, tool_call_parser=name, enable_auto_tool_choice=True
    )
    model = Model(name="m", vocabulary=voc, parsers=config, imported=imported)
    return Parser.for_request(model, chat_request(tools=TOOLS))


def library(template: dict[str, Any], raw: str, prefix: str) -> tuple[str, str, list[tuple[str, Any]], list[Any]]:
    from transformers.utils.chat_parsing import parse_response

    message = parse_response(raw, template, prefix=prefix, tools=TOOLS)
    thought = message.get("reasoning_content") or message.get("thinking") or ""
    calls = message.get("tool_calls") or []
    functions = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return message.get("content") or "", thought, functions, [call.get("id") for call in calls]


@pytest.mark.parametrize("form", ["ids", "text"])
@pytest.mark.parametrize(("template", "raw"), [pytest.param(*rest, id=id_) for id_, *rest in OUTPUTS])
def test_whole_outputs_are_the_librarys(template: dict[str, Any], raw: str, form: str) -> None:
    """At every cut; outer whitespace of content, which the library strips, aside."""
    voc = smollm2(TOKENS if form == "ids" else ())
    parser = parser_of(template, voc)
    wanted = library(template, raw, ANCHOR)
    prompt = voc.tokenizer.encode(ANCHOR, add_special_tokens=False).ids
    for cut, chunks in cuts(voc.tokenizer.encode(raw, add_special_tokens=False).ids, voc, raw):
        message = run(parser, chunks, "stop", prompt)
        calls = [(call.name, strict(call.text)) for call in message.calls if call.complete]
        assert (message.content.strip(), message.reasoning, calls) == wanted[:3], cut
        assert [call.id for call in message.calls] == wanted[3], cut


@pytest.mark.parametrize(
    ("prompt", "reasoning"),
    [
        (f"{ANCHOR}<think>\n", "why"),
        (f"<|im_start|>user\n<think><|im_end|>\n{ANCHOR}", ""),
        (f"{ANCHOR}<think>\n\n</think>\n\n", ""),
        ("", ""),
    ],
    ids=["opened", "opened in another turn", "closed", "unknown"],
)
@pytest.mark.parametrize("form", ["ids", "text"])
def test_the_prompt_tells_where_the_output_starts(prompt: str, reasoning: str, form: str) -> None:
    voc = smollm2(TOKENS if form == "ids" else ())
    raw = "why</think>so" if reasoning else "so"
    ids = voc.tokenizer.encode(raw, add_special_tokens=False).ids
    message = run(parser_of(TAGGED, voc, "beam"), [ids], "stop", voc.tokenizer.encode(prompt).ids)
    assert (message.reasoning, message.content) == (reasoning, "so")
    if prompt:
        assert library(TAGGED, raw, prompt)[:2] == ("so", reasoning)


def test_what_is_imported() -> None:
    kinds = {
        "tagged": TAGGED, "parameters": PARAMETERS, "listed": LISTED, "braces": BRACES, "separated": SEPARATED,
    }  # fmt: skip
    shapes = {}
    for name, template in kinds.items():
        tools = import_template(template).tools
        assert tools is not None
        shapes[name] = type(tools.arguments)
    assert shapes == {
        "tagged": Members, "parameters": Params, "listed": Python, "braces": Literals, "separated": Json
    }  # fmt: skip


def changed(template: dict[str, Any], field: str = "", **values: Any) -> dict[str, Any]:
    """A copy with members of a field (or of the template) set, or removed where the value is None."""
    copy: dict[str, Any] = json.loads(json.dumps(template))
    target = copy["fields"].setdefault(field, {}) if field else copy
    for key, value in values.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
    return copy


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ([], "fields: a mapping of fields is needed"),
        (changed(TAGGED, version=2), "version: 2 is not known; 1 is"),
        (changed(TAGGED, extra=1), "extra: this key is not known"),
        (changed(TAGGED, start_anchor=None), "start_anchor: it is needed"),
        (changed(TAGGED, start_anchor=[]), "start_anchor: a literal, or a list of literals, is needed"),
        (changed(TAGGED, start_anchor="\n"), "start_anchor: a marker of whitespace alone cannot be told from text"),
        (TAGGED | {"fields": {"content": 5}}, "field 'content': it is no mapping"),
        (PARAMETERS | {"start_anchor_pattern": r"a(?P<b>c)"},
         "start_anchor_pattern: 'a(?P<b>c)' is more than one literal with whitespace around it"),
        (PARAMETERS | {"start_anchor_pattern": 5}, "start_anchor_pattern: a regular expression is needed"),
        (changed(TAGGED, "reasoning_content", transform="{content}"),
         "field 'reasoning_content': a transform of reasoning"),
        (changed(TAGGED, "tool_calls", transform="{content.x}"),
         "field 'tool_calls': the transform '{content.x}' does not tell name and arguments"),
        (changed(LISTED, "tool_calls", transform={"name": "{who}", "arguments": "{arguments}"}),
         "field 'tool_calls': a list of Python calls has name and arguments of its own"),
        (changed(PARAMETERS, "tool_calls", transform={"name": "{name}", "arguments": "{name}"}),
         "field 'tool_calls': the name has to be captured by open_pattern, and the arguments be the content"),
        (changed(SEPARATED, "tool_calls", transform={"id": "{content.id}", "name": "{name}", "arguments": "{content}"}),
         "field 'tool_calls': with a captured name the id has to be captured, too"),
        (changed(BRACES, "tool_calls", open_pattern=r"<call:(?P<name>\w+)-"),
         "field 'tool_calls': bare keys need the arguments right after the name"),
        (changed(TAGGED, "tool_calls", content_args={"unquoted_keys": True}),
         "field 'tool_calls': JSON with 'unquoted_keys' that holds the name"),
        (changed(PARAMETERS, "tool_calls", content_args={
            **PARAMETERS["fields"]["tool_calls"]["content_args"], "value_parser": {"name": "yaml"}}),
         "field 'tool_calls': tag_pattern: values that are 'yaml'"),
        (changed(TAGGED, "image"),
         "field 'image': only reasoning, content and tool_calls can be imported; other text has no place"),
        (changed(TAGGED, "content", colour=1), "field 'content': the key 'colour' is not known"),
        (changed(TAGGED, "content", open="<c>"),
         "field 'content': content that a marker opens; text outside every field would have to be dropped"),
        (changed(TAGGED, "content", content="int"),
         "field 'content': content has to be decoded as text, without a transform"),
        (changed(TAGGED, "reasoning_content", open=None),
         "field 'reasoning_content': reasoning has to be opened by a marker; as the implicit field it would take the"
         " content"),
        (changed(TAGGED, "reasoning_content", close=None),
         "field 'reasoning_content': reasoning has to be closed by a marker"),
        (changed(TAGGED, "reasoning_content", content="json"),
         "field 'reasoning_content': reasoning has to be decoded as text"),
        (changed(PARAMETERS, "thinking", close_pattern="</think>|<end>"),
         "field 'thinking': close_pattern: '|' in '</think>|<end>' has no bounded form outside a named part"),
        (changed(PARAMETERS, "thinking", close_pattern=r"\w</think>"),
         "field 'thinking': close_pattern: \\w in '\\\\w</think>' has no bounded form outside a named part"),
        (changed(PARAMETERS, "thinking", close_pattern="</think>\\"),
         "field 'thinking': close_pattern: '\\\\' in '</think>\\\\' has no bounded form outside a named part"),
        (changed(PARAMETERS, "thinking", close_pattern="</think>+"),
         "field 'thinking': close_pattern: '+' in '</think>+' repeats a literal"),
        (changed(PARAMETERS, "tool_calls", close_pattern=r"(?P<end>\w+)</do>"),
         "field 'tool_calls': a named part in close_pattern comes after the arguments; the name is needed before them"),
        (changed(PARAMETERS, "tool_calls", content_args={"tag_pattern": "<put (?P<key>.*?)>"}),
         "field 'tool_calls': tag_pattern: it has to be a tag with `key`, a `value`, and a literal that closes it"),
        (changed(PARAMETERS, "tool_calls", content_args={"merge_duplicates": True}),
         "field 'tool_calls': tag_pattern: merge_duplicates would have to take back what was sent"),
        (changed(PARAMETERS, "tool_calls", content="kv-lines"),
         "field 'tool_calls': arguments that are 'kv-lines' have no streaming form"),
        (changed(PARAMETERS, "tool_calls", close_pattern=None), "field 'tool_calls': these arguments need a close"),
        (changed(TAGGED, "tool_calls", content="xml-inline"),
         "field 'tool_calls': the name is a member of the content, but that is 'xml-inline', not 'json'"),
        (changed(TAGGED, "tool_calls", open=None), "field 'tool_calls': calls have to be opened by a marker"),
        (changed(TAGGED, "tool_calls", transform={"function": {"name": "f", "arguments": "{content}"}}),
         "field 'tool_calls': the transform has to give name and arguments as placeholders"),
        (changed(TAGGED, "tool_calls", transform={"function": {"name": "{content.a.b.c}", "arguments": "{content.a}"}}),
         "field 'tool_calls': name and arguments have to be members of one object, at most one level down"),
        (changed(SEPARATED, "tool_calls", open_pattern=r"(?P<name>\w+)\[WITH\]"),
         "field 'tool_calls': open_pattern has to be a literal and then the named part"),
        (changed(BRACES, "tool_calls", content_args={"string_delims": [["<", ">"]]}),
         "field 'tool_calls': string_delims has to be one pair of the same literal"),
        (changed(BRACES, "tool_calls", content_args={"string_delims": [[1, 1]]}),
         "field 'tool_calls': string_delims has to be one pair of the same literal"),
        (changed(BRACES, "tool_calls", content_args={"unquoted_keys": True, "string_delims": 1}),
         "field 'tool_calls': string_delims has to be one pair of the same literal"),
        (changed(BRACES, "tool_calls", content_args=["x"]), "field 'tool_calls': content_args: it is no mapping"),
        (changed(PARAMETERS, "tool_calls", content_args={**PUT, "value_parser": "json"}),
         "field 'tool_calls': tag_pattern: value_parser: it is no mapping"),
        (changed(PARAMETERS, "tool_calls", close_pattern=r"\s*"),
         "field 'tool_calls': close_pattern: it has no literal"),
        (changed(LISTED, "content", close="alls|>"),
         "'alls|>' is part of '<|calls|>'; write only one of them, or both in full"),
        (changed(LISTED, "thinking", open="<|", close="|>"),
         "'<|' is part of '<|calls|>'; write only one of them, or both in full"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused(template: Any, message: str) -> None:
    with pytest.raises(GrammarError) as error:
        import_template(template)
    assert str(error.value) == f"response_template: {message}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "parser 'hf' needs the tokenizer's response_template, and this tokenizer has none"),
        (LISTED, "parser 'hf': the tokenizer's response_template has no field for reasoning"),
    ],
)
def test_a_name_without_its_template_is_refused(template: Any, message: str) -> None:
    config = ParserConfig(reasoning_parser="hf")
    imported = import_template(template) if template else None
    with pytest.raises(GrammarError) as error:
        Parser.for_request(
            Model(name="m", vocabulary=smollm2(()), parsers=config, imported=imported), chat_request(tools=None)
        )
    assert str(error.value) == message
