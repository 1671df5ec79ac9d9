"""What the corpus' messages say in every other family's format, and messages made up of awkward text, are read back."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests import shared_data
from tests.core import templates
from tests.core.harness import same_json, strict, vocabulary
from tests.core.templates import TEMPLATES, Template, Turn
from tests.core.test_conformance import SWITCH, bodies, request_of, streamed

pytestmark = pytest.mark.shared

Message = tuple[Turn, list[dict[str, Any]]]
"""A turn and the tools that were offered."""

WORDS = [
    "a", "Zoë ", "\n", "  ", "    ", '"q"', "\\", "\\n", '{"a": 1}', "[1, 2]", "null", "true", "12", "1.50", "<b>",
    "</b>", "x < y && z", "&amp;", "```json\n", "```", "\t", "，", "\U0001f469\u200d\U0001f467", "\u2028", "%", "#",
    "'", "it's", "(", ")", "=", ",", ":", "call:f{", "functions.f:0", "<arg_key>", '<|"|', "<parameter=x>",
    "</function>", 'name="x"', "[TOOL_CALLS]",
]  # fmt: skip
MARKERS = ["<tool_call>", "</think>", "<think>", "<function="]
"""In prose these are what they look like; in a value they are text."""
NO_TEXT = re.compile(r"(?m)^(?:<parameter=x>|</function>)|\A\s*null\s*\Z")
"""As a tagged value this is markup, and the null."""
SCHEMA: dict[str, Any] = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "real": {"type": "number"},
    "yes": {"type": "boolean"},
    "items": {"type": "array"},
    "object": {"type": "object"},
    "either": {"type": ["string", "null"]},
    "any-of": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
}
NAMES = ["do_it", "get-thing", "Tool2"]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": SCHEMA}}}
    for name in NAMES
]


def prose(source: random.Random, words: list[str]) -> str:
    return "".join(source.choice(words) for _ in range(source.randint(1, 8)))


def value(source: random.Random, type_: str, words: list[str], depth: int = 0) -> Any:
    inner = ["string", "integer", "number", "boolean", "null", *(["array", "object"] if depth < 2 else [])]
    match type_:
        case "string":
            return prose(source, words)
        case "integer":
            return source.choice([0, -1, 7, 2**53, 10**25])
        case "number":
            return source.choice([0, -0.5, 1e-07, 3.25, 1e21])
        case "boolean":
            return source.random() < 0.5
        case "array":
            return [value(source, source.choice(inner), words, depth + 1) for _ in range(source.randint(0, 3))]
        case "object":
            keys = source.sample(["k", "two words", "a-b", "x.y", "é"], source.randint(0, 3))
            return {key: value(source, source.choice(inner), words, depth + 1) for key in keys}
    return None


def made_up(seed: int, said: Sequence[str] = (), valued: Sequence[str] = MARKERS) -> Message:
    """said, valued: words for prose and for values, besides those for both."""
    in_prose, in_values = [*WORDS, *said], [*WORDS, *valued]
    source = random.Random(seed)
    calls = []
    for _ in range(source.choice([0, 1, 1, 2, 3])):
        args: dict[str, Any] = {}
        for key, schema in SCHEMA.items():
            types = schema.get("type") or [one["type"] for one in schema["anyOf"]]
            type_ = types if isinstance(types, str) else source.choice(types)
            if source.random() < 0.4:
                args[key] = value(source, type_, in_values)
        for key in ("text", "either"):
            if isinstance(args.get(key), str) and NO_TEXT.search(args[key]):
                del args[key]
        calls.append((source.choice(NAMES), args))
    thought = prose(source, in_prose).strip() if source.random() < 0.6 else ""
    content = prose(source, in_prose).strip() if source.random() < 0.6 else ""
    return Turn(thought or None, content, calls), TOOLS


def from_corpus() -> list[Message]:
    """Whole messages with declared parameters (elsewhere tagged values are strings) and no quotes in their keys."""
    messages = []
    for record in shared_data.corpus():
        expected = record.get("expected")
        if not expected or record["truncated"]:
            continue
        schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in record["tools"] or []}
        calls = [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
        declared = all(args.keys() <= schemas[name].get("properties", {}).keys() for name, args in calls)
        if not declared or any('"' in key for _, args in calls for key in args):
            continue
        thought, content = (expected[key] or "" for key in ("reasoning_content", "content"))
        messages.append((Turn(thought.strip() or None, content.strip(), calls), record["tools"] or []))
    return messages


def check(template: Template, message: Message, seed: int) -> bool:
    """Whole and in random groups of tokens; False where the template cannot write this message."""
    turn, tools = message
    thinks = turn.thought is not None and bool(template.thinking)
    prompt = template.thinking if thinks else template.plain
    if not prompt:
        return False
    turn = turn._replace(thought=turn.thought if thinks else None, prefilled=prompt.endswith(("<think>", "<think>\n")))
    parts = template.write(turn)
    if parts is None or not "".join(parts):
        return False
    local = template.model.replace("meta-llama/", "unsloth/").replace("/", "--")
    ids = templates.encode(vocabulary("conformance/tokenizers/" + local), template, parts)
    family = next((name for name in SWITCH if name in template.model.lower()), "")
    record = {
        "family": family,
        "models": [template.model],
        "tools": tools,
        "tokenizer": {"local": local},
        "generation_prompt": prompt,
        "thinking": thinks if template.thinking and template.switch else None,
        "truncated": False,
    }
    source = random.Random(seed)
    groups, start = [], 0
    while start < len(ids):
        end = start + source.randint(1, 8)
        groups.append(ids[start:end])
        start = end
    for mode, cut in (("complete", [ids]), ("eager", groups)):
        got = streamed(request_of(record, mode), bodies(record, cut))
        raw = "".join(parts)
        assert (got.text, got.reasoning) == (turn.content, turn.thought or ""), raw
        calls = [{"name": call["name"], "arguments": strict(call["arguments"])} for call in got.calls]
        assert same_json(calls, [{"name": name, "arguments": args} for name, args in turn.calls]), raw
        assert got.finish_reason == ("tool_calls" if turn.calls else "stop"), raw
    return True


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.model)
def test_messages_of_the_corpus(template: Template) -> None:
    """Every family's messages, in this one's format."""
    messages = from_corpus()
    assert len(messages) == 213
    assert sum(check(template, message, seed) for seed, message in enumerate(messages)) > 50


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.model)
def test_messages_of_awkward_text(template: Template) -> None:
    assert sum(check(template, made_up(seed), seed) for seed in range(60)) > 15
