"""Registry: the parser names that servers know, and the declaration behind each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from worker.core.errors import GrammarError
from worker.core.grammar import Messages, Reasoning, Tools
from worker.core.grammars import (
    apertus,
    cohere,
    deepseek,
    dots,
    ernie,
    gemma4,
    gigachat,
    glm,
    gptoss,
    granite,
    hermes,
    hunyuan,
    hy,
    inkling,
    internlm,
    jamba,
    k2_horizon,
    kimi,
    lfm2,
    llama,
    longcat,
    minicpm,
    minimax,
    mistral,
    muse,
    olmo3,
    phi4,
    plamo,
    poolside,
    pythonic,
    qwen_xml,
    seed_oss,
    step3,
    think,
    xlam,
)
from worker.core.names import did_you_mean

Kind = Literal["reasoning", "tool"]

REASONING: dict[str, Reasoning | Messages] = {
    "cohere_command3": cohere.REASONING3,
    "cohere_command4": cohere.REASONING4,
    "deepseek_r1": think.DEEPSEEK_R1,
    "deepseek_v3": deepseek.REASONING_V3,
    "deepseek_v4": deepseek.REASONING_V4,
    "deepseek_v41": deepseek.REASONING_V4,
    "ernie45": ernie.REASONING,
    "gemma4": gemma4.REASONING,
    "glm45": glm.REASONING,
    "glm47": glm.REASONING,
    "granite": granite.REASONING,
    "granite_thinking_parser": think.QWEN3,
    "holo2": think.HOLO2,
    "hunyuan_a13b": hunyuan.REASONING,
    "hy_v3": hy.REASONING3,
    "hy_v4": hy.REASONING4,
    "inkling": inkling.MESSAGES,
    "k2_horizon": k2_horizon.REASONING,
    "kimi_k2": kimi.REASONING_K2,
    "kimi_k3": kimi.REASONING_K3,
    "ling3": glm.REASONING,
    "mimo": think.QWEN3,
    "minicpmv": minicpm.REASONING_V,
    "minimax_m2": minimax.REASONING,
    "minimax_m2_append_think": minimax.APPEND,
    "minimax_m3": minimax.REASONING_M3,
    "mistral": mistral.REASONING,
    "muse": muse.SPARK,
    "muse_glimmer": muse.GLIMMER,
    "musespark1x": muse.SPARK,
    "nemotron_v3": think.QWEN3,
    "olmo3": olmo3.REASONING,
    "openai_gptoss": gptoss.HARMONY,
    "plamo3": plamo.REASONING,
    "poolside_v1": poolside.REASONING,
    "qwen3": think.QWEN3,
    "seed_oss": seed_oss.REASONING,
    "step3": step3.REASONING,
    "step3p5": think.STEP3P5,
    "step5": think.DEEPSEEK_R1,
}

TOOLS: dict[str, Tools | Messages] = {
    "apertus": apertus.TOOLS,
    "cohere_command3": cohere.TOOLS3,
    "cohere_command4": cohere.TOOLS4,
    "deepseek_v3": deepseek.TOOLS_V3,
    "deepseek_v31": deepseek.TOOLS_V31,
    "deepseek_v32": deepseek.TOOLS_V32,
    "deepseek_v4": deepseek.TOOLS_V4,
    "deepseek_v41": deepseek.TOOLS_V41,
    "dots": dots.TOOLS,
    "ernie45": ernie.TOOLS,
    "functiongemma": gemma4.TOOLS_FUNCTION,
    "gemma4": gemma4.TOOLS,
    "gigachat3": gigachat.TOOLS,
    "glm45": glm.TOOLS,
    "glm47": glm.TOOLS,
    "granite": granite.TOOLS,
    "granite-20b-fc": granite.TOOLS_20B,
    "granite4": granite.TOOLS4,
    "hermes": hermes.TOOLS,
    "hunyuan_a13b": hunyuan.TOOLS,
    "hy_v3": hy.TOOLS3,
    "hy_v4": hy.TOOLS4,
    "inkling": inkling.MESSAGES,
    "internlm": internlm.TOOLS,
    "jamba": jamba.TOOLS,
    "k2_horizon": k2_horizon.TOOLS,
    "kimi_k2": kimi.TOOLS_K2,
    "kimi_k3": kimi.TOOLS_K3,
    "lfm2": lfm2.TOOLS,
    "ling3": glm.TOOLS,
    "llama3_json": llama.TOOLS_JSON,
    "llama4_json": llama.TOOLS_JSON,
    "llama4_pythonic": pythonic.LLAMA4,
    "longcat": longcat.TOOLS,
    "mimo": qwen_xml.MIMO,
    "minicpm5": minicpm.TOOLS,
    "minimax_m2": minimax.TOOLS,
    "minimax_m3": minimax.TOOLS_M3,
    "mistral": mistral.TOOLS,
    "muse": muse.SPARK,
    "muse_glimmer": muse.GLIMMER,
    "musespark1x": muse.SPARK,
    "olmo3": olmo3.TOOLS,
    "openai": gptoss.HARMONY,
    "phi4_mini_json": phi4.TOOLS,
    "plamo3": plamo.TOOLS,
    "poolside_v1": poolside.TOOLS,
    "pythonic": pythonic.PYTHONIC,
    "qwen3_coder": qwen_xml.TOOLS,
    "qwen3_json": hermes.TOOLS,
    "qwen3_xml": qwen_xml.TOOLS,
    "seed_oss": seed_oss.TOOLS,
    "step3": step3.TOOLS,
    "step3p5": qwen_xml.TOOLS,
    "step5": qwen_xml.STEP5,
    "xlam": xlam.TOOLS,
}

TEMPLATE_DRIVEN = ("beam", "hf")
"""Names whose grammar is in the tokenizer: `worker/core/response_template.py`."""

REASONING_NAMES = tuple(sorted((*REASONING, *TEMPLATE_DRIVEN)))
TOOL_NAMES = tuple(sorted((*TOOLS, *TEMPLATE_DRIVEN)))


NAMES: Mapping[Kind, tuple[str, ...]] = {"reasoning": REASONING_NAMES, "tool": TOOL_NAMES}


def wrong_name(kind: Kind, name: str) -> str | None:
    """How a message about a name that is no parser of this kind goes on; None: it is one."""
    if name in NAMES[kind]:
        return None
    other: Kind = "tool" if kind == "reasoning" else "reasoning"
    wrong = f"is a {other} parser" if name in NAMES[other] else "is not known"
    return wrong + did_you_mean(name, NAMES[kind])


def reasoning_grammar(name: str) -> Reasoning | Messages:
    """Declaration of a reasoning parser; raises GrammarError that lists the known names."""
    try:
        return REASONING[name]
    except KeyError:
        known = ", ".join(REASONING_NAMES)
        raise GrammarError(f"reasoning parser {name!r} is not known; known are: {known}") from None


def tool_grammar(name: str) -> Tools | Messages:
    """Declaration of a tool parser; raises GrammarError that lists the known names."""
    try:
        return TOOLS[name]
    except KeyError:
        known = ", ".join(TOOL_NAMES)
        raise GrammarError(f"tool parser {name!r} is not known; known are: {known}") from None
