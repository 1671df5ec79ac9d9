"""Every family with the parsers it is used with, and how its parser is driven piece by piece."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from schemas.state import ParserState
from tests.core.harness import Message, parser_for, through_bytes
from tests.core.support import smollm2
from worker.core import grammars
from worker.core.events import Piece
from worker.core.grammar import Messages, Reasoning, Tools
from worker.core.parse import Parser
from worker.core.vocabulary import Vocabulary

PAIRS: dict[str, str | None] = {
    "apertus": None,
    "cohere_command3": "cohere_command3",
    "cohere_command4": "cohere_command4",
    "deepseek_v3": "deepseek_r1",
    "deepseek_v31": "deepseek_v3",
    "deepseek_v32": "deepseek_v3",
    "deepseek_v4": "deepseek_v4",
    "deepseek_v41": "deepseek_v41",
    "dots": "holo2",
    "ernie45": "ernie45",
    "functiongemma": None,
    "gemma4": "gemma4",
    "gigachat3": None,
    "glm45": "glm45",
    "granite": "granite",
    "granite-20b-fc": None,
    "hermes": "qwen3",
    "hunyuan_a13b": "hunyuan_a13b",
    "hy_v3": "hy_v3",
    "hy_v4": "hy_v4",
    "inkling": "inkling",
    "internlm": None,
    "jamba": None,
    "k2_horizon": "k2_horizon",
    "kimi_k2": "kimi_k2",
    "kimi_k3": "kimi_k3",
    "lfm2": None,
    "llama3_json": None,
    "llama4_pythonic": None,
    "longcat": None,
    "mimo": "minicpmv",
    "minicpm5": None,
    "minimax_m2": "minimax_m2",
    "minimax_m3": "minimax_m3",
    "mistral": "mistral",
    "muse": "muse",
    "muse_glimmer": "muse_glimmer",
    "olmo3": "olmo3",
    "openai": "openai_gptoss",
    "phi4_mini_json": None,
    "plamo3": "plamo3",
    "poolside_v1": "poolside_v1",
    "pythonic": None,
    "qwen3_coder": "qwen3",
    "seed_oss": "seed_oss",
    "step3": "step3",
    "step5": "step3p5",
    "xlam": "deepseek_r1",
}
FAMILIES = sorted(PAIRS)
PROPERTIES: dict[str, Any] = {
    "s": {"type": "string"},
    "n": {"type": "integer"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "l": {"type": ["array", "null"]},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": PROPERTIES}}}
    for name in ("f", "get_it", "a-b.c")
]


def family(name: str, form: str) -> tuple[Parser, Vocabulary, Reasoning | None, Tools | Messages]:
    reasoning = grammars.REASONING[PAIRS[name]] if PAIRS[name] else None  # type: ignore[index]
    tools = grammars.TOOLS[name]
    voc = smollm2(tuple(markers_of(reasoning, tools)) if form == "ids" else ())
    kwargs = {"thinking": True, "enable_thinking": True, "reasoning_effort": "high", "thinking_mode": "enabled"}
    parser = parser_for(voc, name, PAIRS[name], tools=TOOLS, chat_template_kwargs=kwargs)
    return parser, voc, reasoning if isinstance(reasoning, Reasoning) else None, tools


def fold(
    parser: Parser, chunks: list[list[Piece]], finish: str = "stop", *, check: Callable[[ParserState], None]
) -> Message:
    """Parse pieces in chunks, the state passed through bytes at every cut. check: what is asked of every state."""
    message = Message()
    state = parser.start([], 0)
    for chunk in chunks:
        events, state = parser.step(state, chunk)
        message.take(events)
        check(state)
        state = through_bytes(state)
    message.take(parser.finish(state, finish)[0])
    return message


Summary = tuple[str, str, list[tuple[str, str, bool | None]]]


def summary(message: Message) -> Summary:
    """Content, reasoning, and (name, arguments as they were written, complete) of each call."""
    return message.content, message.reasoning, [(call.name, call.text, call.complete) for call in message.calls]


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


def json_object(text: str) -> dict[str, Any]:
    """The JSON object of a text. It may repeat a key: what the model repeats in its own JSON cannot be taken back."""

    def constant(name: str) -> Any:
        raise AssertionError(f"{name} in {text}")

    value = json.loads(text, parse_constant=constant)
    assert isinstance(value, dict), text
    return value
