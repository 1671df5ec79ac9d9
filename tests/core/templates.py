"""Messages as the models' own chat templates write them, for the nine families of the conformance corpus.

Written from the corpus' outputs, not from this project's declarations (as `writer.py` is): what both misread would
show here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from worker.core.vocabulary import Vocabulary


class Marker(str):
    """A control token. Where a family has them, the same text as ordinary tokens is no marker."""


Part = str
"""Text, or a `Marker`."""


class Turn(NamedTuple):
    """An assistant's message; `thought` and `content` without outer whitespace; calls as (name, arguments)."""

    thought: str | None
    content: str
    calls: Sequence[tuple[str, dict[str, Any]]]
    prefilled: bool = False
    """The prompt has opened the reasoning."""


@dataclass(frozen=True)
class Template:
    """How a model writes a turn. plain, thinking: ends of its prompts, `thinking` "" where it cannot think.

    by_id: its markers are control tokens; the same text as ordinary tokens is text.
    """

    model: str
    write: Callable[[Turn], Sequence[Part] | None]
    plain: str
    thinking: str = ""
    switch: bool = True
    by_id: bool = False


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _qwen_thought(turn: Turn) -> str:
    if turn.thought is None:
        return ""
    return ("" if turn.prefilled else "<think>\n") + turn.thought + "\n</think>\n\n"


def hermes(turn: Turn) -> list[Part]:
    calls = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {dumps(args)}}}\n</tool_call>' for name, args in turn.calls
    ]
    return [_qwen_thought(turn) + "\n".join([turn.content] * bool(turn.content) + calls)]


def qwen_xml(turn: Turn) -> list[Part]:
    calls = []
    for name, args in turn.calls:
        parameters = "".join(f"<parameter={key}>\n{_raw(value)}\n</parameter>\n" for key, value in args.items())
        calls.append(f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
    gap = "\n\n" if turn.content and calls else ""
    return [_qwen_thought(turn) + turn.content + gap + "\n".join(calls)]


def _thought(turn: Turn) -> str:
    return "" if turn.thought is None else turn.thought + "</think>"


def deepseek_v3(turn: Turn) -> list[Part]:
    calls = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dumps(args)}\n```<｜tool▁call▁end｜>"
        for name, args in turn.calls
    )
    return [turn.content + (f"<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>" if calls else "")]


def deepseek_v31(turn: Turn) -> list[Part]:
    calls = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumps(args)}<｜tool▁call▁end｜>" for name, args in turn.calls
    )
    section = f"<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>" if calls else ""
    return [_thought(turn) + turn.content + section]


def dsml(section: str, space: str) -> Callable[[Turn], list[Part]]:
    def write(turn: Turn) -> list[Part]:
        mark = "｜DSML｜" + space
        calls = ""
        for name, args in turn.calls:
            parameters = [
                f'<{mark}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{_raw(value)}'
                f"</{mark}parameter>"
                for key, value in args.items()
            ]
            calls += f'<{mark}invoke name="{name}">\n' + "\n".join(parameters) + f"\n</{mark}invoke>\n"
        written = f"\n\n<{mark}{section}>\n{calls}</{mark}{section}>" if calls else ""
        return [_thought(turn) + turn.content + written]

    return write


def kimi_k2(turn: Turn) -> list[Part]:
    calls = "".join(
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{dumps(args)}<|tool_call_end|>"
        for number, (name, args) in enumerate(turn.calls)
    )
    section = f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>" if calls else ""
    return [_thought(turn) + turn.content + section]


def kimi_k3(turn: Turn) -> list[Part]:
    def begin(header: str) -> list[Part]:
        return [Marker("<|open|>"), header, Marker("<|sep|>")]

    def end(name: str) -> list[Part]:
        return [Marker("<|close|>"), name, Marker("<|sep|>")]

    def attribute(text: str) -> str:
        return text.replace("&", "&amp;").replace('"', "&quot;")

    def type_of(value: Any) -> str:
        types = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
        return types.get(type(value), "null")

    out = [] if turn.thought is None else [turn.thought, *end("think")]
    out += [*begin("response"), turn.content, *end("response")]
    if turn.calls:
        out += begin("tools")
        for number, (name, args) in enumerate(turn.calls, 1):
            out += begin(f'call tool="{attribute(name)}" index="{number}"')
            for key, value in args.items():
                header = f'argument key="{attribute(key)}" type="{type_of(value)}"'
                out += [*begin(header), _raw(value), *end("argument")]
            out += end("call")
        out += end("tools")
    return [*out, *end("message")]


def glm45(turn: Turn) -> list[Part]:
    out = f"\n<think>{turn.thought or ''}</think>"
    if turn.content:
        out += "\n" + turn.content
    for name, args in turn.calls:
        pairs = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_raw(value)}</arg_value>\n" for key, value in args.items()
        )
        out += f"\n<tool_call>{name}\n{pairs}</tool_call>"
    return [out]


def glm47(turn: Turn) -> list[Part]:
    out = _thought(turn) + turn.content
    for name, args in turn.calls:
        pairs = "".join(f"<arg_key>{key}</arg_key><arg_value>{_raw(value)}</arg_value>" for key, value in args.items())
        out += f"<tool_call>{name}{pairs}</tool_call>"
    return [out]


def harmony(turn: Turn) -> list[Part]:
    messages: list[list[Part]] = []
    if turn.thought is not None:
        messages.append([Marker("<|channel|>"), "analysis", Marker("<|message|>"), turn.thought])
    if turn.content or not turn.calls:
        channel = "commentary" if turn.calls else "final"
        messages.append([Marker("<|channel|>"), channel, Marker("<|message|>"), turn.content])
    for name, args in turn.calls:
        header: list[Part] = [f" to=functions.{name}", Marker("<|channel|>"), "commentary ", Marker("<|constrain|>")]
        messages.append([*header, "json", Marker("<|message|>"), dumps(args)])
    out = messages[0]
    for message in messages[1:]:
        out = [*out, Marker("<|end|>"), Marker("<|start|>"), "assistant", *message]
    return out


def llama3(turn: Turn) -> list[Part] | None:
    if len(turn.calls) > 1:
        return None
    calls = [f'{{"name": "{name}", "parameters": {dumps(args)}}}' for name, args in turn.calls]
    tag = "<|python_tag|>" if turn.content and calls else ""
    return [turn.content + tag + "".join(calls)]


def llama4(turn: Turn) -> list[Part] | None:
    if not turn.calls:
        return [turn.content]
    if turn.content or not all(key.replace("-", "_").isidentifier() for _, args in turn.calls for key in args):
        return None
    calls = [f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})" for name, args in turn.calls]
    return [f"[{', '.join(calls)}]"]


def _gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma_value(one)}" for key, one in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma_value, value)) + "]"
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else dumps(value)


def gemma4(turn: Turn) -> list[Part]:
    thought = "" if turn.thought is None else f"<|channel>thought\n{turn.thought}\n<channel|>"
    calls = "".join(f"<|tool_call>call:{name}{_gemma_value(args)}<tool_call|>" for name, args in turn.calls)
    return [thought + calls + turn.content]


def mistral(turn: Turn) -> list[Part]:
    out: list[Part] = [] if turn.thought is None else [Marker("[THINK]"), turn.thought, Marker("[/THINK]")]
    out.append(turn.content)
    for name, args in turn.calls:
        out += [Marker("[TOOL_CALLS]"), name, Marker("[ARGS]"), dumps(args)]
    return out


def mistral_v3(turn: Turn) -> list[Part]:
    calls = ", ".join(f'{{"name": "{name}", "arguments": {dumps(args)}}}' for name, args in turn.calls)
    return [turn.content, Marker("[TOOL_CALLS]"), f" [{calls}]"] if calls else [turn.content]


QWEN = "<|im_start|>assistant\n"
EMPTY = QWEN + "<think>\n\n</think>\n\n"
KIMI = "<|im_assistant|>assistant<|im_middle|>"
K3 = '<|open|>message role="assistant"<|sep|>'
TEMPLATES = [
    Template("Qwen/Qwen3-4B-Instruct-2507", hermes, QWEN),
    Template("Qwen/Qwen3-0.6B", hermes, EMPTY, QWEN),
    Template("Qwen/Qwen3-4B-Thinking-2507", hermes, "", QWEN + "<think>\n"),
    Template("Qwen/Qwen3-Coder-30B-A3B-Instruct", qwen_xml, QWEN),
    Template("Qwen/Qwen3.8-27B", qwen_xml, EMPTY, QWEN + "<think>\n"),
    Template("deepseek-ai/DeepSeek-V3-0324", deepseek_v3, "<｜Assistant｜>"),
    Template("deepseek-ai/DeepSeek-V3.1", deepseek_v31, "<｜Assistant｜></think>", "<｜Assistant｜><think>"),
    Template(
        "deepseek-ai/DeepSeek-V3.2", dsml("function_calls", ""), "<｜Assistant｜></think>", "<｜Assistant｜><think>"
    ),
    Template(
        "deepseek-ai/DeepSeek-V4-Flash", dsml("tool_calls", ""), "<｜Assistant｜></think>", "<｜Assistant｜><think>"
    ),
    Template(
        "deepseek-ai/DeepSeek-V4.1-Flash", dsml("calls", " "), "<｜Assistant｜></think>", "<｜Assistant｜><think>"
    ),
    Template("moonshotai/Kimi-K2-Instruct-0905", kimi_k2, KIMI),
    Template("moonshotai/Kimi-K2.6", kimi_k2, KIMI + "<think></think>", KIMI + "<think>"),
    Template("moonshotai/Kimi-K3", kimi_k3, K3, K3 + "<|open|>think<|sep|>", by_id=True),
    Template("zai-org/GLM-4.5", glm45, "<|assistant|>", "<|assistant|>"),
    Template("zai-org/GLM-4.7", glm47, "<|assistant|></think>", "<|assistant|><think>"),
    Template("openai/gpt-oss-20b", harmony, "<|start|>assistant", "<|start|>assistant", switch=False, by_id=True),
    Template("meta-llama/Llama-3.3-70B-Instruct", llama3, "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    Template("meta-llama/Llama-4-Scout-17B-16E-Instruct", llama4, "<|header_start|>assistant<|header_end|>\n\n"),
    Template("google/gemma-4-31B-it", gemma4, "<|turn>model\n<|channel>thought\n<channel|>", "<|turn>model\n"),
    Template("mistralai/Mistral-7B-Instruct-v0.3", mistral_v3, "[/INST]", by_id=True),
    Template("mistralai/Mistral-Small-3.2-24B-Instruct-2506", mistral, "[/INST]", by_id=True),
    Template("mistralai/Magistral-Small-2509", mistral, "[/INST]", "[/INST]", by_id=True),
]


def encode(vocabulary: Vocabulary, template: Template, parts: Sequence[Part]) -> list[int]:
    """Ids of a turn."""
    tokenizer = vocabulary.tokenizer
    if not template.by_id:
        return list(tokenizer.encode("".join(parts), add_special_tokens=False).ids)
    ids: list[int] = []
    tokenizer.encode_special_tokens = True
    try:
        for part in parts:
            marker = isinstance(part, Marker)
            ids += [vocabulary.id_of[part]] if marker else tokenizer.encode(part, add_special_tokens=False).ids
    finally:
        tokenizer.encode_special_tokens = False
    return ids
