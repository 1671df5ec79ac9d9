"""Registry: the parser names that servers know, and the declaration behind each."""

from __future__ import annotations

from worker.core.errors import GrammarError
from worker.core.grammar import Messages, Reasoning, Tools
from worker.core.grammars import (
    deepseek,
    gemma4,
    glm,
    gptoss,
    granite,
    hermes,
    kimi,
    llama,
    minimax,
    mistral,
    phi4,
    pythonic,
    qwen_xml,
    seed_oss,
    step3,
    think,
)

REASONING: dict[str, Reasoning | Messages] = {
    "deepseek_r1": think.DEEPSEEK_R1,
    "deepseek_v3": deepseek.REASONING_V3,
    "deepseek_v4": deepseek.REASONING_V4,
    "deepseek_v41": deepseek.REASONING_V4,
    "gemma4": gemma4.REASONING,
    "glm45": glm.REASONING,
    "glm47": glm.REASONING,
    "granite": granite.REASONING,
    "kimi_k2": kimi.REASONING_K2,
    "kimi_k3": kimi.REASONING_K3,
    "minimax_m2": minimax.REASONING,
    "mistral": mistral.REASONING,
    "openai_gptoss": gptoss.HARMONY,
    "qwen3": think.QWEN3,
    "seed_oss": seed_oss.REASONING,
    "step3": step3.REASONING,
}

TOOLS: dict[str, Tools | Messages] = {
    "deepseek_v3": deepseek.TOOLS_V3,
    "deepseek_v31": deepseek.TOOLS_V31,
    "deepseek_v32": deepseek.TOOLS_V32,
    "deepseek_v4": deepseek.TOOLS_V4,
    "deepseek_v41": deepseek.TOOLS_V41,
    "gemma4": gemma4.TOOLS,
    "glm45": glm.TOOLS,
    "glm47": glm.TOOLS,
    "granite": granite.TOOLS,
    "granite4": granite.TOOLS4,
    "hermes": hermes.TOOLS,
    "kimi_k2": kimi.TOOLS_K2,
    "kimi_k3": kimi.TOOLS_K3,
    "llama3_json": llama.TOOLS_JSON,
    "llama4_json": llama.TOOLS_JSON,
    "llama4_pythonic": pythonic.LLAMA4,
    "minimax_m2": minimax.TOOLS,
    "mistral": mistral.TOOLS,
    "openai": gptoss.HARMONY,
    "phi4_mini_json": phi4.TOOLS,
    "pythonic": pythonic.PYTHONIC,
    "qwen3_coder": qwen_xml.TOOLS,
    "qwen3_json": hermes.TOOLS,
    "qwen3_xml": qwen_xml.TOOLS,
    "seed_oss": seed_oss.TOOLS,
    "step3": step3.TOOLS,
}


def reasoning_grammar(name: str) -> Reasoning | Messages:
    """Declaration of a reasoning parser; raises GrammarError that lists the known names."""
    try:
        return REASONING[name]
    except KeyError:
        raise GrammarError(
            f"reasoning parser {name!r} is not known; known are: {', '.join(sorted(REASONING))}"
        ) from None


def tool_grammar(name: str) -> Tools | Messages:
    """Declaration of a tool parser; raises GrammarError that lists the known names."""
    try:
        return TOOLS[name]
    except KeyError:
        known = ", ".join(sorted(TOOLS))
        raise GrammarError(f"tool parser {name!r} is not known; known are: {known}") from None
