"""Writes docs/families.md and docs/cases.md from the registry and the numbered cases.

python -m tests.core.grammars.tables
"""

from __future__ import annotations

from collections.abc import Callable

from tests.core.grammars.cases import CASES, MISSING, OF_REASONING, OF_TOOLS, SAMPLES
from tests.shared_data import ROOT
from worker.core import grammars
from worker.core.choose import REASONING_SIGNS, TOOL_SIGNS
from worker.core.grammar import Elements, Grammar, Json, Literals, Members, Messages, Params, Python, Reasoning, Tools
from worker.core.run_constants import MAX_VALUE

MODELS = {
    "apertus": "Apertus",
    "beam": "Beam",
    "cohere_command3": "Command A Reasoning",
    "cohere_command4": "Command A+",
    "deepseek_r1": "DeepSeek R1, QwQ, R1 distills",
    "deepseek_v3": "DeepSeek V3-0324, R1 (calls); V3.1, V3.2 (reasoning)",
    "deepseek_v31": "DeepSeek V3.1",
    "deepseek_v32": "DeepSeek V3.2",
    "deepseek_v4": "DeepSeek V4",
    "deepseek_v41": "DeepSeek V4.1",
    "dots": "dots",
    "ernie45": "ERNIE 4.5",
    "functiongemma": "FunctionGemma 270M",
    "gemma4": "Gemma 4",
    "gigachat3": "GigaChat 3",
    "glm45": "GLM 4.5, 4.6",
    "glm47": "GLM 4.7, 5.x",
    "granite": "Granite 3.0, 3.1 (calls); 3.2 (reasoning)",
    "granite-20b-fc": "Granite 20B function calling",
    "granite4": "Granite 4.0",
    "granite_thinking_parser": "Granite 4.2",
    "hermes": "Hermes 2 and 3, Qwen2.5, QwQ, Qwen3",
    "hf": "any tokenizer with a response template",
    "holo2": "Holo2",
    "hunyuan_a13b": "Hunyuan A13B",
    "hy_v3": "HY 3",
    "hy_v4": "HY 4",
    "inkling": "Inkling",
    "internlm": "InternLM 2.5",
    "jamba": "Jamba 1.5",
    "k2_horizon": "K2 Horizon",
    "kimi_k2": "Kimi K2, K2 Thinking, K2.5, K2.6",
    "kimi_k3": "Kimi K3",
    "lfm2": "LFM2",
    "ling3": "Ling 3, Ring 3",
    "llama3_json": "Llama 3.1 to 3.3",
    "llama4_json": "Llama 4 with the JSON template",
    "llama4_pythonic": "Llama 4",
    "longcat": "LongCat Flash",
    "mimo": "MiMo",
    "minicpm5": "MiniCPM 5",
    "minicpmv": "MiniCPM-V thinking",
    "minimax_m2": "MiniMax M2, M2.x",
    "minimax_m2_append_think": "MiniMax M2",
    "minimax_m3": "MiniMax M3",
    "mistral": "Mistral, Magistral, Ministral, every tokenizer generation",
    "muse": "Muse Spark",
    "muse_glimmer": "Muse Glimmer",
    "musespark1x": "Muse Spark 1.x",
    "nemotron_v3": "Nemotron 3",
    "olmo3": "OLMo 3",
    "openai": "gpt-oss",
    "openai_gptoss": "gpt-oss",
    "phi4_mini_json": "Phi-4-mini",
    "plamo3": "PLaMo 3",
    "poolside_v1": "Laguna",
    "pythonic": "Llama 3.2 small, ToolACE",
    "qwen3": "Qwen3, Qwen3.5 and later, Qwen3-Next",
    "qwen3_coder": "Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Granite 4.2",
    "qwen3_json": "Qwen3",
    "qwen3_xml": "Qwen3-Coder, Qwen3.5 and later",
    "seed_oss": "Seed-OSS",
    "step3": "Step-3",
    "step3p5": "Step 3.5, 3.7",
    "step5": "Step 5",
    "xlam": "xLAM",
}

REASONING_LIMITS = {
    "beam": "refused at the start where the template cannot be imported; beam's own rules for structured outputs are not",
    "granite": "the first phrase alone makes reasoning, as in vLLM's streams",
    "hf": "refused at the start where the template cannot be imported",
    "hunyuan_a13b": "the label `助手：` stays in the content",
    "k2_horizon": "any of the three closers ends any of the three openers",
    "minimax_m2_append_think": "by design: reasoning is content",
    "nemotron_v3": "reasoning never becomes the content afterwards (`force_nonempty_content`): a stream cannot take it back",
}
TOOL_LIMITS = {
    "beam": REASONING_LIMITS["beam"],
    "cohere_command3": "citation spans in a response are text",
    "cohere_command4": "citation spans in a response are text",
    "dots": "typed by the shared rules, not by its own for `null` and booleans",
    "functiongemma": "values that read as JSON are JSON, whatever the schema says",
    "granite4": "streams where vLLM waits for the closer",
    "hf": REASONING_LIMITS["hf"],
    "hunyuan_a13b": "a block in a think tag is a call where no reasoning parser runs",
    "hy_v4": "no validation levels; typed by the shared rules",
    "hy_v3": "typed by the shared rules",
    "inkling": "scalars are not coerced by the schema",
    "k2_horizon": "a block with a mistake in it is not turned back into content",
    "lfm2": "no repair of unescaped quotes or leading zeros",
    "minicpm5": "no repair of broken tags, no check against the schema",
    "minimax_m3": "of a repeated top-level parameter the first stays",
    "muse": "typed by the schema, JSON where it does not say",
    "phi4_mini_json": "streams where vLLM does not",
    "xlam": "`</think>` is not looked for where no reasoning parser runs",
}

_ALIAS = "the same grammar as "


def shape(grammar: Grammar | None) -> str:
    match grammar:
        case None:
            return "from the tokenizer"
        case Reasoning(inline=inline) if inline:
            return "none: all is content"
        case Reasoning(open=(first, *_), close=(last, *_)):
            return f"`{first}` … `{last}`"
        case Reasoning(close=(last, *_)):
            return f"… `{last}`"
        case Messages(kinds=kinds) if kinds:
            return "messages of kinds"
        case Messages(recipients=recipients) if recipients:
            return "messages by recipient, " + _arguments(grammar.tools)
        case Messages():
            return "messages by channel"
        case Tools():
            return _arguments(grammar)
        case _:
            raise TypeError(grammar)


def _arguments(tools: Tools | None) -> str:
    match tools and tools.arguments:
        case Json():
            return "header, JSON"
        case Members(keyed=True):
            return "list of JSON objects, the key is the name"
        case Members(array=True):
            return "list of JSON objects"
        case Members():
            return "JSON object"
        case Params():
            return "parameters in tags"
        case Literals():
            return "object syntax of its own"
        case Python():
            return "Python calls"
        case Elements():
            return "nested elements"
        case other:
            raise TypeError(other)


def granularity(grammar: Grammar | None) -> str:
    """What the smallest piece is that an eager stream sends."""
    tools = grammar.tools if isinstance(grammar, Messages) else grammar
    match tools.arguments if isinstance(tools, Tools) else None:
        case _ if isinstance(grammar, Reasoning):
            return "as written"
        case Params(typing="json"):
            return "a value"
        case Params():
            return "strings as written, other values whole"
        case Literals(decoded=True):
            return "a value"
        case Literals():
            return "strings as written, words whole"
        case Python():
            return "an argument"
        case Elements():
            return "strings as written, other parameters whole"
        case _:
            return "as written" if grammar else "as the template's shape"


def bound(grammar: Grammar | None) -> str:
    """Largest state of the parser: markers, headers, brackets and keys, and the buffers that the shape may fill."""
    tools = grammar.tools if isinstance(grammar, Messages) else grammar
    buffers = 0
    match tools.arguments if isinstance(tools, Tools) else None:
        case Members() as members:
            buffers = 2 if isinstance(tools, Tools) and (tools.unmarked or tools.tentative) and members else 1
        case Params() | Python():
            buffers = 1
        case Literals(decoded=decoded):
            buffers = int(decoded)
        case Elements():
            buffers = 2
    if isinstance(tools, Tools) and tools.or_members:
        buffers = 1
    if isinstance(grammar, Reasoning):
        return "0.5 KiB"
    return (
        "2 KiB" + (f" + {buffers} × {MAX_VALUE // 1024} KiB" if buffers else "")
        if grammar
        else "as the template's shape"
    )


def _rows(
    names: tuple[str, ...], registry: dict[str, Reasoning | Messages] | dict[str, Tools | Messages],
    limits: dict[str, str], automatic: set[str],
) -> list[str]:  # fmt: skip
    owners: dict[int, str] = {}
    for name in (*(name for name in names if name in automatic), *names):
        if name in registry:
            owners.setdefault(id(registry[name]), name)
    rows = ["| name | models | shape | smallest piece | state | auto | limits |", "|---|---|---|---|---|---|---|"]
    for name in names:
        grammar = registry.get(name)
        owner = owners[id(grammar)] if grammar is not None else name
        notes = [limits[name]] if name in limits else []
        if owner != name:
            notes.insert(0, f"{_ALIAS}`{owner}`")
        text = "; ".join(notes)
        cells = [f"`{name}`", MODELS[name], shape(grammar), granularity(grammar), bound(grammar)]
        cells += ["yes" if name in automatic else "", text]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def families() -> str:
    reasoning = {one.name for one in REASONING_SIGNS} | {"hf"}
    tools = {one.name for one in TOOL_SIGNS} | {"hf"}
    lines = [
        "# Parser names",
        "",
        "Written by `python -m tests.core.grammars.tables`; do not edit.",
        "",
        "The names are those of `vllm serve`. *Smallest piece*: what an eager stream sends at a time. *State*: the largest",
        "parser state, in characters; most outputs need about 100. *Auto*: `--reasoning-parser auto` and `--tool-call-parser auto`",
        "can choose the name from a chat template. Limits that all families share are in [parsing](parsing.md).",
        "",
        f"## Reasoning ({len(grammars.REASONING_NAMES)})",
        "",
        *_rows(grammars.REASONING_NAMES, grammars.REASONING, REASONING_LIMITS, reasoning),
        "",
        f"## Tools ({len(grammars.TOOL_NAMES)})",
        "",
        *_rows(grammars.TOOL_NAMES, grammars.TOOLS, TOOL_LIMITS, tools),
        "",
        "## `hf` and `beam`",
        "",
        "The tokenizer's `response_template` is read when the model is loaded. What is imported: reasoning between literals;",
        "implicit content; calls that are JSON with name and arguments as members (also of an inner object, also in a list),",
        "or a name captured by `open_pattern` before JSON, before Gemma's object syntax (`unquoted_keys`, `string_delims`) or",
        "before tags (`xml-inline`); `python-call-list`. Patterns may hold literals, optional whitespace and named parts.",
        "",
        "What is refused, with a message that names the field: other regular expressions, a name captured after the arguments,",
        "`merge_duplicates`, `kv-lines`, a marker inside another one, reasoning or content without a marker of its own, fields",
        "other than reasoning, content and `tool_calls`, content that a marker opens.",
        "",
        "Whole results differ from transformers in this: outer whitespace of content stays; a field that comes twice is joined,",
        "not replaced; a call that was cut is no call; a closer inside a value is text.",
        "",
    ]
    return "\n".join(lines)


def _matrix(names: tuple[str, ...], numbers: tuple[int, ...]) -> list[str]:
    rows = ["| name | " + " | ".join(map(str, numbers)) + " |", "|---|" + "---|" * len(numbers)]
    notes = list(dict.fromkeys(MISSING.values()))
    for name in names:
        cells = ["sample" if (name, n) in SAMPLES else f"({'abcdef'[notes.index(MISSING[name, n])]})" for n in numbers]
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return rows


def cases() -> str:
    notes = list(dict.fromkeys(MISSING.values()))
    lines = [
        "# Cases",
        "",
        "Written by `python -m tests.core.grammars.tables`; do not edit.",
        "",
        "Every parser name in every case: a sample in `tests/core/grammars/cases.py`, or the reason why there is none (not",
        "applicable, or known broken). A pair that is neither fails the tests. Each sample is run whole, token by token, in",
        "random cuts and in every cut in two, the state through bytes, with the markers as ids and as plain text.",
        "",
        *(f"{number}. {title}" for number, title in CASES.items()),
        "",
        "## Reasoning",
        "",
        *_matrix(grammars.REASONING_NAMES, OF_REASONING),
        "",
        "## Tools",
        "",
        *_matrix(grammars.TOOL_NAMES, OF_TOOLS),
        "",
        *(f"({letter}) {note}" for letter, note in zip("abcdef", notes, strict=False)),
        "",
    ]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {"docs/families.md": families, "docs/cases.md": cases}

if __name__ == "__main__":
    for path, page in PAGES.items():
        (ROOT / path).write_text(page(), encoding="utf-8")
