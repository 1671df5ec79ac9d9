"""Messages in the formats of the families that the corpus lacks are read back, with markers as ids and as text."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from itertools import islice
from typing import Any, Literal

import pytest

from tests.core.harness import parser_for, run, same_json, strict
from tests.core.parser_templates import FORMATS, IM, Format
from tests.core.support import smollm2
from tests.core.templates import Turn
from tests.core.test_templates import MARKERS, Message, from_corpus, made_up
from worker.core.vocabulary import Vocabulary

Form = Literal["ids", "text", "typed"]
"""Markers are tokens; they are text; they are tokens, and texts have the same words as ordinary tokens."""

ALL = tuple(dict.fromkeys(marker for form in FORMATS if form.label != "suffix" for marker in form.ids))
"""For one vocabulary: to make one takes most of a second."""
CUT = "\ue000"
"""In a word, it keeps the word from being one token. Nothing reads it."""


EARLIER = Turn("Hm.", "", [("do_it", {"text": "a"})])
"""Of the conversation."""


def vocabulary_of(template: Format, form: Form) -> Vocabulary:
    return smollm2(() if form == "text" else tuple(template.ids) if template.label == "suffix" else ALL)


def awkward(template: Format, form: Form, seed: int) -> Message:
    if form == "typed":
        words = [marker[:1] + CUT + marker[1:] for marker in template.ids]
        turn, tools = made_up(seed, words, [*MARKERS, *words])
    else:
        turn, tools = made_up(seed, (), [*MARKERS, *(word for word in template.ids if word not in template.ends)])
    return template.fit(turn), tools


def uncut(value: Any) -> Any:
    return json.loads(json.dumps(value, ensure_ascii=False).replace(CUT, ""))


def check(template: Format, form: Form, message: Message, seed: int) -> bool:
    """Whole and in random groups of tokens; False where the template cannot write this message."""
    turn, tools = message
    source = random.Random(seed)
    thinks = bool(template.thinking) and (turn.thought is not None or source.random() < 0.2)
    prompt = source.choice(template.thinking) if thinks else template.plain
    prefilled = bool(thinks and re.search(r"(?i)think[^/]*[|>]\s*$", prompt))
    if prompt.startswith(IM) and source.random() < 0.3:
        earlier = template.write(EARLIER if template.thinking else EARLIER._replace(thought=None))
        prompt = f"{IM}{earlier}<|im_end|>\n<|im_start|>user\nAgain.<|im_end|>\n{prompt}"
    turn = turn._replace(thought=(turn.thought or "") if thinks else None, prefilled=prefilled)
    raw = template.write(turn)
    if not raw:
        return False
    tail = source.choice(["", " Then.", "\n\nThen."]) if turn.calls and template.after else ""
    raw += tail
    turn = turn._replace(content=turn.content + tail.lstrip("\n"))
    vocabulary = vocabulary_of(template, form)
    encode = vocabulary.tokenizer.encode
    parts = raw.replace(r"\ue000", CUT).split(CUT)
    ids = [id_ for part in parts for id_ in encode(part, add_special_tokens=False).ids]
    groups, at = [], 0
    while at < len(ids):
        size = source.randint(1, 8)
        groups.append(ids[at : at + size])
        at += size
    kwargs = {"enable_thinking": thinks, **template.kwargs, **(template.switch if thinks else {})}
    parser = parser_for(vocabulary, template.tool, template.reasoning, tools=tools, chat_template_kwargs=kwargs)
    start = encode(prompt, add_special_tokens=False).ids
    for cut in ([ids], groups):
        got = run(parser, cut, "stop", start)
        assert [got.content, got.reasoning] == uncut([turn.content, turn.thought or ""]), (prompt, raw)
        assert all(call.complete for call in got.calls), raw
        calls = [{"name": call.name, "arguments": strict(call.text)} for call in got.calls]
        assert same_json(calls, uncut([{"name": name, "arguments": args} for name, args in turn.calls])), raw
    return True


CASES = [
    pytest.param(template, form, number, id=f"{template.name}-{form}")
    for number, template in enumerate(FORMATS)
    for form in ("ids", "text", "typed")
    if (template.text if form == "text" else template.ids and (template.typed or form == "ids"))
]


def typed(message: Message) -> bool:
    """Some families read a value of no declared type as JSON."""
    turn, tools = message
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    keys = [schemas[name]["properties"][key].keys() for name, args in turn.calls for key in args]
    return all({"type", "anyOf"} & given for given in keys)


@cache
def corpus() -> list[Message]:
    return [message for message in from_corpus() if typed(message)]


@pytest.mark.shared
@pytest.mark.parametrize(("template", "form", "number"), [case for case in CASES if case.values[1] != "typed"])
def test_messages_of_the_corpus(template: Format, form: Form, number: int) -> None:
    """Other messages for every template: all together say them all."""
    messages = corpus()[number % 13 :: 13]
    assert sum(check(template, form, message, seed) for seed, message in enumerate(messages)) > 5


@pytest.mark.parametrize(("template", "form", "number"), CASES)
def test_messages_of_awkward_text(template: Format, form: Form, number: int) -> None:
    seeds = range(100 * number, 100 * number + 60)
    said = (seed for seed in seeds if check(template, form, awkward(template, form, seed), seed))
    assert len(list(islice(said, 8))) == 8
