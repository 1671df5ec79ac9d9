"""Chooses parsers by what a chat template writes (`--reasoning-parser auto`, `--tool-call-parser auto`).

Each name has signs: literals that its template holds, and literals of other families that it does not. Where several
names fit, nothing is chosen: the error lists them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from worker.core.errors import GrammarError
from worker.core.grammars import Kind
from worker.core.response_template import import_template

AUTO = "auto"


@dataclass(frozen=True)
class Signs:
    """holds: every one of them is in the template. lacks: none of them is."""

    name: str
    holds: tuple[str, ...]
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """name: None where the model does not reason. why: for people."""

    name: str | None
    why: str


_XML = ("<function=",)
_GLM = ("<arg_key>",)

TOOL_SIGNS = (
    Signs(
        "hermes", ("<tool_call>", '"arguments"'), (*_XML, *_GLM, "<longcat_tool_call>", "<|tool_call|>", "<response>")
    ),
    Signs("ernie45", ("<tool_call>", '"arguments"', "<response>")),
    Signs("longcat", ("<longcat_tool_call>",)),
    Signs("qwen3_coder", ("<tool_call>", "<function="), ("<seed:tool_call>",)),
    Signs("seed_oss", ("<seed:tool_call>",)),
    Signs("glm45", ("<tool_call>", "<arg_key>"), ("<tool_calls>", "<assistant>", "<ifm|")),
    Signs("poolside_v1", ("<tool_call>", "<arg_key>", "<assistant>"), ("<tool_calls>",)),
    Signs("hy_v3", ("<tool_calls", "<arg_key", "<tool_sep")),
    Signs("hy_v4", ("<tool_calls", "<arg_key"), ("<tool_sep",)),
    Signs("k2_horizon", ("<ifm|tool_calls>",)),
    Signs("deepseek_v3", ("<｜tool▁calls▁begin｜>", "```json")),
    Signs("deepseek_v31", ("<｜tool▁calls▁begin｜>",), ("```json",)),
    Signs("deepseek_v32", ("｜DSML｜", "function_calls")),
    Signs("deepseek_v4", ("｜DSML｜", "tool_calls>"), ("｜DSML｜ calls", "function_calls")),
    Signs("deepseek_v41", ("｜DSML｜ calls",), ("function_calls",)),
    Signs("kimi_k2", ("<|tool_calls_section_begin|>",)),
    Signs("kimi_k3", ("<|open|>", "<|close|>", "<|sep|>")),
    Signs("plamo3", ("<|plamo:begin_tool_request",)),
    Signs("minimax_m2", ("<minimax:tool_call>",)),
    Signs("minimax_m3", ("]<]minimax[>[",)),
    Signs("dots", ("<dots_function_call>",)),
    Signs("step3", ("<｜tool_calls_begin｜>", "steptml")),
    Signs("minicpm5", ("<function name=", "<param name=")),
    Signs("mistral", ("[TOOL_CALLS]",)),
    Signs("gemma4", ("<|tool_call>", "<tool_call|>")),
    Signs("functiongemma", ("<start_function_call>",)),
    Signs("openai", ("<|channel|>", "functions.", "<|call|>")),
    Signs("muse", ("<atem:function_calls>", "to=commentary")),
    Signs("muse_glimmer", ("<atem:function_calls>",), ("to=commentary",)),
    Signs("inkling", ("<|content_invoke_tool_json|>",)),
    Signs("cohere_command3", ("<|START_ACTION|>", "<|START_RESPONSE|>")),
    Signs("cohere_command4", ("<|START_ACTION|>", "<|START_TEXT|>")),
    Signs("granite", ("<|tool_call|>",)),
    Signs("phi4_mini_json", ("functools",)),
    Signs("jamba", ("<tool_calls>",), ("<arg_key", "<answer>")),
    Signs("hunyuan_a13b", ("<tool_calls>", "<answer>")),
    Signs("apertus", ("<|tools_prefix|>",)),
    Signs("internlm", ("<|action_start|>", "<|plugin|>")),
    Signs("gigachat3", ("<|role_sep|>", "function call")),
    Signs("granite-20b-fc", ("<function_call>",)),
    Signs("lfm2", ("<|tool_call_start|>",)),
    Signs("olmo3", ("<function_calls>",)),
    Signs("llama4_pythonic", ("<|python_start|>",)),
    Signs("llama3_json", ("<|python_tag|>", '"parameters"')),
)

_PLAIN = (
    "<|tool_calls_section_begin|>",
    "｜",
    "[THINK]",
    "<|open|>",
    *_GLM,
    "<minimax",
    "<response>",
    "<answer>",
    "<assistant>",
    "<ifm|",
    "<atem:",
    "<function_calls>",
)

_NOT_R1 = (*(sign for sign in _PLAIN if sign != "｜"), "enable_thinking", "｜DSML｜", "thinking")

REASONING_SIGNS = (
    Signs("qwen3", ("<think>", "enable_thinking"), _PLAIN),
    Signs(
        "deepseek_r1",
        ("<think>",),
        _NOT_R1,
    ),
    Signs("deepseek_v3", ("</think>", "<｜tool▁calls▁begin｜>", "thinking")),
    Signs("deepseek_v4", ("</think>", "｜DSML｜"), ("｜DSML｜ calls", "function_calls")),
    Signs("deepseek_v41", ("</think>", "｜DSML｜ calls")),
    Signs("glm45", ("<think>", "<arg_key>"), ("<assistant>", "<tool_calls", "<ifm|")),
    Signs("poolside_v1", ("<think>", "<arg_key>", "<assistant>")),
    Signs("hy_v3", ("<think", "<tool_calls", "<arg_key", "<tool_sep")),
    Signs("hy_v4", ("<think", "<tool_calls", "<arg_key"), ("<tool_sep",)),
    Signs("kimi_k2", ("<think>", "<|tool_calls_section_begin|>")),
    Signs("kimi_k3", ("<|open|>", "<|close|>", "think")),
    Signs("minimax_m2", ("</think>", "<minimax:tool_call>")),
    Signs("minimax_m3", ("<mm:think>",)),
    Signs("mistral", ("[THINK]",)),
    Signs("gemma4", ("<|channel>", "<channel|>")),
    Signs("openai_gptoss", ("<|channel|>", "analysis")),
    Signs("muse", ("<|message|>", "to=self", "to=commentary")),
    Signs("muse_glimmer", ("<|message|>", "to=self"), ("to=commentary",)),
    Signs("inkling", ("<|content_thinking|>",)),
    Signs("granite", ("Here is my thought process:",)),
    Signs("seed_oss", ("<seed:think>",)),
    Signs("cohere_command3", ("<|START_THINKING|>", "<|START_RESPONSE|>")),
    Signs("cohere_command4", ("<|START_THINKING|>", "<|START_TEXT|>")),
    Signs("ernie45", ("<think>", "<response>")),
    Signs("hunyuan_a13b", ("<think>", "<answer>")),
    Signs("k2_horizon", ("<ifm|think>",)),
    Signs("plamo3", ("<|plamo:begin_think",)),
    Signs("olmo3", ("<think>", "<function_calls>")),
)


def fitting(kind: Kind, template: str) -> list[Signs]:
    """All signs of that kind that a template has."""
    signs = REASONING_SIGNS if kind == "reasoning" else TOOL_SIGNS
    return [one for one in signs if _all(one.holds, template) and not _any(one.lacks, template)]


def choose(kind: Kind, template: str, response_template: Any = None) -> Choice:
    """The parser whose signs a chat template has.

    template: its text; where a model has none, the texts of its added tokens.
    Raises GrammarError: several names fit, none of a tool parser does, or the response template cannot be imported.
    """
    if response_template:
        imported = import_template(response_template)
        if kind == "tool" and imported.tools is not None:
            return Choice("hf", "the tokenizer's response_template has a field tool_calls")
        if kind == "reasoning" and imported.reasoning is not None:
            return Choice("hf", "the tokenizer's response_template has a field for reasoning")
    fits = fitting(kind, template)
    if len(fits) == 1:
        return Choice(fits[0].name, f"the chat template writes {' and '.join(fits[0].holds)}")
    if fits:
        found = "; ".join(f"{one.name} ({' and '.join(one.holds)})" for one in fits)
        raise GrammarError(f"{kind} parser auto: the chat template fits {found}; name one of them")
    if kind == "reasoning":
        return Choice(None, "the chat template writes no reasoning that is known here")
    raise GrammarError("tool parser auto: the chat template writes no calls that are known here; name the parser")


def _all(literals: Iterable[str], text: str) -> bool:
    return all(literal in text for literal in literals)


def _any(literals: Iterable[str], text: str) -> bool:
    return any(literal in text for literal in literals)
