"""`auto`: the family whose signs a chat template has; never a guess where two fit."""

from __future__ import annotations

import pytest

from tests.core.test_response_template import LISTED, TAGGED
from worker.core import grammars
from worker.core.choose import REASONING_SIGNS, TOOL_SIGNS, Choice, choose, fitting
from worker.core.errors import GrammarError

QWEN3 = '{%- if enable_thinking is false %}<think>\n\n</think>{% endif %}<tool_call>\n{"name": "{{ n }}", "arguments": '
CODER = "<tool_call>\n<function={{ name }}>\n<parameter={{ key }}>"
GLM = "<think></think>{% if enable_thinking %}<tool_call>{{ name }}\n<arg_key>{{ k }}</arg_key><arg_value>"


@pytest.mark.parametrize(
    ("template", "tool", "reasoning"),
    [
        (QWEN3, "hermes", "qwen3"),
        (CODER, "qwen3_coder", None),
        (CODER + "<think>{{ enable_thinking }}", "qwen3_coder", "qwen3"),
        (GLM, "glm45", "glm45"),
        ("<|tool_calls_section_begin|><think></think>", "kimi_k2", "kimi_k2"),
        ("<｜tool▁calls▁begin｜>function<｜tool▁sep｜>x\n```json\n<think>", "deepseek_v3", "deepseek_r1"),
        ("<｜tool▁calls▁begin｜>{% if thinking %}<think>{% else %}</think>", "deepseek_v31", "deepseek_v3"),
        ("<｜DSML｜tool_calls><think></think>", "deepseek_v4", "deepseek_v4"),
        ("<｜DSML｜ calls><think></think>", "deepseek_v41", "deepseek_v41"),
        ("[TOOL_CALLS]{{ name }}[ARGS][THINK]", "mistral", "mistral"),
        ("<|tool_call>call:{{ name }}<tool_call|><|channel>thought<channel|>", "gemma4", "gemma4"),
        ("<|start|>assistant<|channel|>analysis to=functions.{{ name }}<|call|>", "openai", "openai_gptoss"),
        ("<seed:think><seed:tool_call><function=x>", "seed_oss", "seed_oss"),
        ("<minimax:tool_call><invoke name=><think></think>", "minimax_m2", "minimax_m2"),
        ("]<]minimax[>[<tool_call><mm:think>", "minimax_m3", "minimax_m3"),
        ('<tool_call>{"name": x, "arguments": y}<think><response>', "ernie45", "ernie45"),
        ("<tool_calls:x><tool_call:x>n<arg_key:x><think:x>", "hy_v4", "hy_v4"),
        ("<ifm|tool_calls><ifm|think>", "k2_horizon", "k2_horizon"),
        ("<assistant><tool_call>n<arg_key><think>", "poolside_v1", "poolside_v1"),
        ("<|message|> to=self to=commentary<atem:function_calls>", "muse", "muse"),
        ("<|START_THINKING|><|START_TEXT|><|START_ACTION|>", "cohere_command4", "cohere_command4"),
        ("<function_calls><think>", "olmo3", "olmo3"),
        ("<tool_calls><think><answer>", "hunyuan_a13b", "hunyuan_a13b"),
    ],
)
def test_one_family_fits(template: str, tool: str, reasoning: str | None) -> None:
    assert choose("tool", template).name == tool
    assert choose("reasoning", template).name == reasoning


def test_why_is_said() -> None:
    assert choose("tool", CODER) == Choice("qwen3_coder", "the chat template writes <tool_call> and <function=")
    assert choose("reasoning", CODER).why == "the chat template writes no reasoning that is known here"


def test_two_that_fit_are_not_guessed_at() -> None:
    with pytest.raises(GrammarError) as error:
        choose("tool", "[TOOL_CALLS] and functools[")
    assert str(error.value) == (
        "tool parser auto: the chat template fits mistral ([TOOL_CALLS]); phi4_mini_json (functools); name one of them"
    )
    with pytest.raises(GrammarError) as error:
        choose("reasoning", "[THINK] or <seed:think>")
    assert str(error.value) == (
        "reasoning parser auto: the chat template fits mistral ([THINK]); seed_oss (<seed:think>); name one of them"
    )


def test_no_tool_parser_that_fits_is_an_error() -> None:
    with pytest.raises(GrammarError) as error:
        choose("tool", "{{ messages }}")
    assert str(error.value) == (
        "tool parser auto: the chat template writes no calls that are known here; name the parser"
    )


def test_a_response_template_goes_first() -> None:
    assert choose("tool", QWEN3, TAGGED).name == "hf"
    assert choose("reasoning", QWEN3, TAGGED).name == "hf"
    assert choose("reasoning", QWEN3, LISTED).name == "qwen3"
    with pytest.raises(GrammarError) as error:
        choose("tool", QWEN3, {"fields": {}})
    assert str(error.value) == "response_template: start_anchor: it is needed"


def test_signs_are_of_known_names_and_each_fits_itself() -> None:
    for kind, signs, known in (
        ("tool", TOOL_SIGNS, grammars.TOOLS),
        ("reasoning", REASONING_SIGNS, grammars.REASONING),
    ):
        assert [one.name for one in signs if one.name not in known] == []
        assert len({one.name for one in signs}) == len(signs)
        for one in signs:
            assert one in fitting(kind, " ".join(one.holds))  # type: ignore[arg-type]
