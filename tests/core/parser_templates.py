"""Messages as the templates of the models write them, for the parsers whose families the conformance corpus lacks.

Written from descriptions of the formats, not from this project's declarations (as `writer.py` is): what both misread
would show here. A writer returns None for a message that its format cannot say, or cannot say apart from another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from tests.core.templates import Turn, deepseek_v3, dumps, glm47, hermes, qwen_xml

Writer = Callable[[Turn], str | None]


@dataclass(frozen=True)
class Format:
    """plain, thinking: ends of prompts without and with reasoning; no `thinking` where there is none.

    kwargs: arguments of the chat template; switch: and those that let it think.
    ids: its markers are one token each in models; text: and where they are not, they are read as text.
    ends: those of them that a value cannot hold, other than as ordinary tokens.
    typed: ordinary tokens are no markers where the vocabulary has these. after: text may follow calls.
    fit: makes a message into one that the format can say.
    """

    tool: str
    reasoning: str | None
    write: Writer
    plain: str = "<|im_start|>assistant\n"
    thinking: Sequence[str] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    switch: dict[str, Any] = field(default_factory=dict)
    ids: Sequence[str] = ()
    text: bool = True
    ends: Sequence[str] = ()
    typed: bool = True
    after: bool = True
    fit: Callable[[Turn], Turn] = lambda turn: turn
    label: str = ""

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.tool, self.reasoning, self.label)))


def pretty(value: Any) -> str:
    return json.dumps(value, indent=4)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def raw(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def thought(turn: Turn, open_: str = "<think>", close: str = "</think>", inner: str = "\n", after: str = "\n\n") -> str:
    if turn.thought is None:
        return ""
    return ("" if turn.prefilled else open_ + inner) + turn.thought + inner + close + after


def one(write: Writer) -> Writer:
    """The format holds one call."""
    return lambda turn: write(turn) if len(turn.calls) < 2 else None


def whole(write: Callable[[Turn], Sequence[str]]) -> Writer:
    """The parts of a template of the corpus, as one text."""
    return lambda turn: "".join(write(turn))


def either(write: Writer) -> Writer:
    """A message is text or calls."""
    return lambda turn: write(turn) if not (turn.calls and turn.content) else None


def unless(says: Callable[[Turn], bool], write: Writer) -> Writer:
    return lambda turn: None if says(turn) else write(turn)


def ends_in_opener(turn: Turn) -> bool:
    """Such text is a call that was cut."""
    return turn.content.endswith(("```json", "[TOOL_CALLS]", "<tool_call>"))


def escaped_newline(turn: Turn) -> bool:
    """It is read as a newline."""
    return r"\n" in turn.content


def padded(turn: Turn) -> bool:
    """Whitespace around a value is layout there."""
    return any(isinstance(one, str) and one != one.strip() for _, args in turn.calls for one in args.values())


def tagged(
    open_: str,
    close: str,
    args_key: str = "arguments",
    before: str = "",
    between: str = "",
    json_of: Callable[[Any], str] = dumps,
    swap: bool = False,
) -> Writer:
    """A tag and an object for each call; swap: its name comes last."""

    def write(turn: Turn) -> str:
        calls = []
        for name, args in turn.calls:
            members: dict[str, Any] = {"name": name, args_key: args}
            calls.append(open_ + json_of(dict(reversed(members.items())) if swap else members) + close)
        gap = before if turn.content and calls else ""
        return turn.content + gap + between.join(calls)

    return write


def listed(
    turn: Turn, open_: str, close: str, args_key: str = "arguments", json_of: Callable[[Any], str] = dumps
) -> str:
    calls = [{"name": name, args_key: args} for name, args in turn.calls]
    return open_ + json_of(calls) + close if calls else ""


def array(open_: str, close: str, args_key: str = "arguments", json_of: Callable[[Any], str] = dumps) -> Writer:
    """One tag and a list of objects."""
    return lambda turn: thought(turn) + turn.content + listed(turn, open_, close, args_key, json_of)


def granite(turn: Turn) -> str:
    phrases = {"open_": "Here is my thought process:", "close": "Here is my response:", "inner": "\n\n"}
    return thought(turn, **phrases) + turn.content + listed(turn, "<|tool_call|>", "")


def hunyuan(turn: Turn) -> str:
    answer = turn.content + listed(turn, "\n<tool_calls>", "</tool_calls>")
    if turn.thought is None:
        return answer
    return f"<think>\n{turn.thought}\n</think>\n<answer>\n{answer}\n</answer>"


def apertus(turn: Turn) -> str:
    calls = ", ".join(f"{{{dumps(name)}: {dumps(args)}}}" for name, args in turn.calls)
    return turn.content + (f"<|tools_prefix|>[{calls}]<|tools_suffix|>" if calls else "")


def cohere(begin: str, end: str) -> Writer:
    def write(turn: Turn) -> str:
        out = thought(turn, "<|START_THINKING|>", "<|END_THINKING|>", inner="", after="")
        if not turn.calls:
            return f"{out}{begin}{turn.content}{end}"
        calls = [
            f'    {{"tool_call_id": "{number}", "tool_name": "{name}", "parameters": {dumps(args)}}}'
            for number, (name, args) in enumerate(turn.calls)
        ]
        return f"{out}<|START_ACTION|>[\n" + ",\n".join(calls) + "\n]<|END_ACTION|>"

    return either(write)


def ernie(turn: Turn) -> str:
    out = thought(turn, after="\n\n")
    if turn.content:
        out += f"<response>\n{turn.content}\n</response>\n"
    return out + "".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {dumps(args)}}}\n</tool_call>\n' for name, args in turn.calls
    )


def tags(
    outer: tuple[str, str],
    function: tuple[str, str],
    parameter: tuple[str, str],
    *,
    lines: str = "\n",
    each: bool = False,
    before: str = "\n",
    value: Callable[[Any], str] = raw,
    said: Writer = lambda turn: thought(turn) + turn.content,
) -> Writer:
    """Parameters in tags, `@` is a name. each: every call has the outer tag, otherwise all have one."""

    def write(turn: Turn) -> str | None:
        calls = []
        for name, args in turn.calls:
            written = [parameter[0].replace("@", key) + value(one) + parameter[1] + lines for key, one in args.items()]
            calls.append(function[0].replace("@", name) + lines + "".join(written) + function[1] + lines)
        if each:
            calls = [outer[0] + lines + call + outer[1] for call in calls]
        elif calls:
            calls = [outer[0] + lines + "".join(calls) + outer[1]]
        out = said(turn)
        if out is None:
            return None
        return out + (before if turn.content and calls else "") + lines.join(calls)

    return write


INVOKE = ('<invoke name="@">', "</invoke>")
PARAMETER = ('<parameter name="@">', "</parameter>")
minimax_m2 = tags(("<minimax:tool_call>", "</minimax:tool_call>"), INVOKE, PARAMETER)
dots = tags(("<dots_function_call>", "</dots_function_call>"), INVOKE, PARAMETER)
step3 = tags(
    ("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
    (
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="@">',
        "</steptml:invoke><｜tool_call_end｜>",
    ),
    ('<steptml:parameter name="@">', "</steptml:parameter>"),
    lines="",
)


def seed_thought(turn: Turn) -> str:
    return thought(turn, "<seed:think>", "</seed:think>", inner="", after="") + turn.content


seed_oss = tags(
    ("<seed:tool_call>", "</seed:tool_call>"),
    ("<function=@>", "</function>"),
    ("<parameter=@>\n", "\n</parameter>"),
    each=True,
    said=seed_thought,
)
step5 = tags(
    ("<tool_call>", "</tool_call>"),
    ("<function=@>", "</function>"),
    ("<parameter=@>\n", "\n</parameter>"),
    each=True,
    before="",
)
mimo = tags(
    ("<tool_call>", "</tool_call>"), ("<function=@>", "</function>"), ("<parameter=@>", "</parameter>"), each=True
)


def cdata(value: Any) -> str:
    text = raw(value)
    return f"<![CDATA[{text}]]>" if isinstance(value, str) and "]]>" not in text else escape(text)


def minicpm5(value: Callable[[Any], str]) -> Writer:
    function, parameter = ('<function name="@">', ""), ('<param name="@">', "</param>")
    return tags(("", "</function>"), function, parameter, lines="", each=True, before="\n", value=value)


def closes(turn: Turn) -> bool:
    """A value has what closes a call whose last value was left open."""
    said = dumps([args for _, args in turn.calls])
    return re.search(r"</(ifm\|)?tool_call[^>]*>(\\n|\s)*</?(ifm\|)?tool_call", said) is not None


def pairs(
    wrap: tuple[str, str] = ("", ""), sep: str = "\n", lines: str = "\n", suffix: str = "", before: str = "\n"
) -> Writer:
    """Keys and values in tags of their own."""

    def write(turn: Turn) -> str:
        calls = ""
        for name, args in turn.calls:
            written = "".join(
                f"<arg_key{suffix}>{key}</arg_key{suffix}>{lines}<arg_value{suffix}>{raw(value)}</arg_value{suffix}>{lines}"
                for key, value in args.items()
            )
            calls += f"<tool_call{suffix}>{name}{sep}{written}</tool_call{suffix}>{lines}"
        out = thought(turn, f"<think{suffix}>", f"</think{suffix}>", inner=lines, after=lines) + turn.content
        return out + (before * bool(turn.content) + wrap[0] + lines * bool(wrap[0]) + calls + wrap[1] if calls else "")

    return write


def ifm(format_: str, think: str) -> Writer:
    def type_of(value: Any) -> str:
        types = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
        return types.get(type(value), "null")

    def call(name: str, args: dict[str, Any]) -> str:
        if format_ == "json":
            return f'{{"name": "{name}", "arguments": {dumps(args)}}}'
        out = name
        for key, value in args.items():
            typed = f"<ifm|arg_type>{type_of(value)}</ifm|arg_type>" if format_ == "xml_typed" else ""
            out += f"<ifm|arg_key>{key}</ifm|arg_key>{typed}<ifm|arg_value>{raw(value)}</ifm|arg_value>"
        return out

    def write(turn: Turn) -> str:
        calls = "".join(f"<ifm|tool_call>{call(name, args)}</ifm|tool_call>" for name, args in turn.calls)
        section = f"<ifm|tool_calls>{calls}</ifm|tool_calls>" if calls else ""
        return thought(turn, f"<ifm|{think}>", f"</ifm|{think}>", inner="", after="") + turn.content + section

    return write


def pythonic(open_: str, close: str, between: str = ", ", value: Callable[[Any], str] = repr) -> Writer:
    def write(turn: Turn) -> str | None:
        if not all(key.replace("-", "_").isidentifier() for _, args in turn.calls for key in args):
            return None
        calls = [
            f"{name}({', '.join(f'{key}={value(one)}' for key, one in args.items())})" for name, args in turn.calls
        ]
        return thought(turn) + turn.content + (open_ + between.join(calls) + close if calls else "")

    return write


def functiongemma(bare: bool) -> Writer:
    def value(one: Any) -> str:
        scalar = one is None or isinstance(one, int | float)
        return dumps(one) if bare and scalar else f"<escape>{raw(one)}<escape>"

    def write(turn: Turn) -> str | None:
        if any(is_json(one) for _, args in turn.calls for one in args.values() if isinstance(one, str)):
            return None  # whatever is JSON is read as that
        out = turn.content
        for name, args in turn.calls:
            members = ",".join(f"{key}:{value(one)}" for key, one in sorted(args.items()))
            out += f"<start_function_call>call:{name}{{{members}}}<end_function_call>"
        return out

    return write


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


MINIMAX = "]<]minimax[>["


def spoken(turn: Turn) -> Turn:
    """Of what no schema describes, only texts and objects with plain keys that are not empty can be said."""

    def inner(value: Any) -> Any:
        if isinstance(value, dict) and value:
            return {key.replace(" ", "_"): inner(one) for key, one in value.items()}
        return raw(value)

    def outer(value: Any) -> Any:
        if isinstance(value, dict):
            return inner(value) if value else value
        return [inner(one) for one in value] if isinstance(value, list) else value

    calls = [(name, {key.replace(" ", "_"): outer(one) for key, one in args.items()}) for name, args in turn.calls]
    return turn._replace(calls=calls)


def minimax_m3(turn: Turn) -> str:
    def element(tag: str, value: Any) -> str:
        body = raw(value)
        if isinstance(value, dict):
            body = "".join(element(key, inner) for key, inner in value.items())
        elif isinstance(value, list):
            body = "".join(element("item", inner) for inner in value)
        return f"{MINIMAX}<{tag}>{body}{MINIMAX}</{tag}>"

    calls = [
        f'{MINIMAX}<invoke name="{name}">{"".join(element(*item) for item in args.items())}{MINIMAX}</invoke>\n'
        for name, args in turn.calls
    ]
    out = thought(turn, "<mm:think>", "</mm:think>", inner="", after="") + turn.content
    return out + (f"{MINIMAX}<tool_call>\n{''.join(calls)}{MINIMAX}</tool_call>" if calls else "")


def muse(says: Callable[[Any], bool] = lambda value: True) -> Writer:
    def write(turn: Turn) -> str | None:
        if not all(says(value) for _, args in turn.calls for value in args.values()):
            return None
        messages = [] if turn.thought is None else [f" to=self<|message|>{turn.thought}"]
        if turn.content:
            messages.append(f" to=user<|message|>{turn.content}")
        for name, args in turn.calls:
            parameters = "".join(
                f'<atem:parameter name="{key}">{raw(value)}</atem:parameter>\n' for key, value in args.items()
            )
            body = f'<atem:invoke name="{name}">\n{parameters}</atem:invoke>'
            messages.append(f" to={name}<|message|><atem:function_calls>\n{body}\n</atem:function_calls>")
        return "<|eom|><|start|>assistant".join(messages) + "<|eot|>"

    return write


def inkling(turn: Turn) -> str:
    messages = [] if turn.thought is None else [f"<|content_thinking|>{turn.thought}"]
    if turn.content:
        messages.append(f"<|content_text|>{turn.content}")
    for name, args in turn.calls:
        messages.append(f'<|content_invoke_tool_json|>{{"name": "{name}", "args": {dumps(args)}}}')
    return "<|end_message|><|message_model|>".join(messages) + "<|end_message|>"


def plamo(turn: Turn) -> str:
    def tag(word: str) -> str:
        return f"<|plamo:{word}:plamo|>"

    calls = "".join(
        f"{tag('begin_tool_request')}{tag('begin_tool_name')}{name}{tag('end_tool_name')}"
        f"{tag('begin_tool_arguments')}<|plamo:constrain|>json<|plamo:msg|>{dumps(args)}{tag('end_tool_arguments')}"
        f"{tag('end_tool_request')}"
        for name, args in turn.calls
    )
    section = f"{tag('begin_tool_requests')}{calls}{tag('end_tool_requests')}" if calls else ""
    return thought(turn, tag("begin_think"), tag("end_think"), inner="", after="") + turn.content + section


def r1(turn: Turn) -> str:
    return thought(turn) + "".join(deepseek_v3(turn))


IM = "<|im_start|>assistant\n"
EMPTY = IM + "<think>\n\n</think>\n\n"
THINK = ("<think>", "</think>")
OPENED = (IM + "<think>\n",)
BOTH = (IM + "<think>\n", IM)
QWEN = (*THINK, "<tool_call>", "</tool_call>")
PAIRS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")


def suffixed(suffix: str) -> tuple[str, ...]:
    names = ("think", "tool_call", "arg_key", "arg_value", "tool_calls")
    return (*(f"<{slash}{name}{suffix}>" for name in names for slash in ("", "/")), f"<tool_sep{suffix}>")


COHERE = ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>")
ACTION = ("<|action_start|>", "<|plugin|>", "<|action_end|>")
INKLING = (
    "<|message_model|>",
    "<|content_thinking|>",
    "<|content_text|>",
    "<|content_invoke_tool_json|>",
    "<|end_message|>",
)
IFM = ("tool_calls", "tool_call", "arg_key", "arg_value", "arg_type", "think", "think_fast")
IFM_IDS = tuple(f"<{slash}ifm|{name}>" for name in IFM for slash in ("", "/"))
IFM_ENDS = ("</ifm|arg_value>", "</ifm|tool_calls>")
HY = ("</arg_value>", "</tool_calls>")
SECTION = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
STEP = (
    "<｜tool_calls_begin｜>",
    "<｜tool_calls_end｜>",
    "<｜tool_call_begin｜>",
    "<｜tool_call_end｜>",
    "<｜tool_sep｜>",
)
MUSE = ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>")


def no_json_text(value: Any) -> bool:
    return not (isinstance(value, str) and is_json(value))


FORMATS = [
    Format("granite", "granite", granite, thinking=(IM,), ids=("<|tool_call|>",)),
    Format("granite", None, array("<tool_call>", ""), label="3.1"),
    Format("granite4", None, tagged("<tool_call>\n", "\n</tool_call>", before="\n", between="\n"), ids=QWEN),
    Format("granite4", None, tagged("<tool_call>", "</tool_call>", json_of=compact, swap=True), ids=QWEN,
           label="swap"),
    Format("hermes", None, tagged("<tool_call>\n", "\n</tool_call>", before="\n", json_of=pretty), ids=QWEN,
           label="pretty"),
    Format("granite-20b-fc", None, tagged("<function_call> ", "", before="\n", between="\n")),
    Format("qwen3_coder", "granite_thinking_parser", whole(qwen_xml), EMPTY, BOTH, ids=QWEN),
    Format("qwen3_json", "deepseek_r1", whole(hermes), EMPTY, BOTH, ids=QWEN),
    Format("qwen3_json", "holo2", whole(hermes), EMPTY, BOTH, ids=QWEN),
    Format("qwen3_xml", "nemotron_v3", whole(qwen_xml), EMPTY, BOTH, ids=QWEN),
    Format("qwen3_coder", "minicpmv", unless(escaped_newline, whole(qwen_xml)), EMPTY, BOTH, ids=QWEN),
    Format("step3p5", "step3p5", whole(qwen_xml), EMPTY, BOTH, ids=QWEN),
    Format("step5", "step5", step5, EMPTY, BOTH, ids=QWEN),
    Format("mimo", "mimo", mimo, EMPTY, BOTH, ids=QWEN),
    Format("seed_oss", "seed_oss", seed_oss, IM + "<seed:think></seed:think>", (IM + "<seed:think>", IM),
           ids=("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>")),
    Format("minimax_m2", "minimax_m2", minimax_m2, EMPTY, OPENED,
           ids=(*THINK, "<minimax:tool_call>", "</minimax:tool_call>")),
    Format("minimax_m3", "minimax_m3", unless(lambda turn: spoken(turn) != turn, minimax_m3), IM,
           (IM + "<mm:think>", IM), switch={"thinking_mode": "enabled"}, ids=("<mm:think>", "</mm:think>", MINIMAX),
           ends=(MINIMAX,), typed=False, fit=spoken),
    Format("step3", "step3", unless(padded, step3), EMPTY, BOTH[:1], ids=(*THINK, *STEP)),
    Format("dots", "holo2", dots, EMPTY, BOTH, ids=THINK),
    Format("minicpm5", "qwen3", minicpm5(cdata), EMPTY, BOTH, ids=THINK, label="cdata"),
    Format("minicpm5", "qwen3", unless(padded, minicpm5(lambda value: escape(raw(value)))), EMPTY, BOTH, ids=THINK,
           label="entities"),
    Format("muse", "muse", muse(), "<|start|>assistant", ("<|start|>assistant",), ids=MUSE, after=False),
    Format("musespark1x", "musespark1x", muse(), "<|start|>assistant", ("<|start|>assistant",), ids=MUSE,
           after=False),
    Format("muse_glimmer", "muse_glimmer", muse(no_json_text), "<|start|>assistant", ("<|start|>assistant",),
           ids=MUSE, after=False),
    Format("inkling", "inkling", inkling, "<|message_model|>", ("<|message_model|>",), ids=INKLING, ends=INKLING,
           after=False),
    Format("cohere_command3", "cohere_command3", cohere("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
           thinking=(IM, IM + "<|START_THINKING|>"), ids=(*COHERE, "<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    Format("cohere_command4", "cohere_command4", cohere("<|START_TEXT|>", "<|END_TEXT|>"),
           thinking=(IM, IM + "<|START_THINKING|>"), ids=(*COHERE, "<|START_TEXT|>", "<|END_TEXT|>")),
    Format("glm47", "ling3", unless(closes, whole(glm47)), EMPTY, OPENED, ids=(*QWEN, *PAIRS), ends=PAIRS[3:],
           label="ling3"),
    Format("ling3", "ling3", unless(closes, pairs()), EMPTY, BOTH, ids=(*QWEN, *PAIRS), ends=PAIRS[3:]),
    Format("poolside_v1", "poolside_v1", unless(closes, pairs()), "<assistant>\n</think>\n",
           ("<assistant>\n<think>\n",), switch={"enable_thinking": True}, ids=(*QWEN, *PAIRS), ends=PAIRS[3:]),
    Format("hy_v3", "hy_v3", unless(closes, pairs(("<tool_calls>", "</tool_calls>"), "<tool_sep>\n")),
           IM + "<think></think>", (IM + "<think>",), switch={"reasoning_effort": "high"}, ids=suffixed(""), ends=HY),
    Format("hy_v3", "hy_v3",
           unless(closes, pairs(("<tool_calls:opensource>", "</tool_calls:opensource>"), "<tool_sep:opensource>\n",
                                suffix=":opensource")),
           IM + "<think:opensource></think:opensource>", (IM + "<think:opensource>",),
           switch={"reasoning_effort": "high"}, ids=suffixed(":opensource"),
           ends=[f"{marker[:-1]}:opensource>" for marker in HY], text=False, label="suffix"),
    Format("hy_v4", "hy_v4", unless(closes, pairs(("<tool_calls>", "</tool_calls>"), "", "")), IM + "<think></think>",
           (IM + "<think>",), switch={"reasoning_effort": "high"}, ids=suffixed(""), ends=HY),
    *(Format("k2_horizon", "k2_horizon", unless(closes, ifm(format_, "think")), IM + "<ifm|think></ifm|think>",
             (IM + "<ifm|think>", IM), {"tool_call_format": format_}, {"reasoning_effort": "high"}, ids=IFM_IDS,
             ends=IFM_ENDS, label=format_)
      for format_ in ("xml", "xml_typed", "json")),
    Format("k2_horizon", "k2_horizon", unless(closes, ifm("xml", "think_fast")),
           IM + "<ifm|think_fast></ifm|think_fast>", (IM + "<ifm|think_fast>", IM),
           switch={"reasoning_effort": "medium"}, ids=IFM_IDS, ends=IFM_ENDS, label="fast"),
    Format("plamo3", "plamo3", plamo, IM + "<|plamo:begin_think:plamo|><|plamo:end_think:plamo|>",
           (IM + "<|plamo:begin_think:plamo|>", IM)),
    Format("longcat", None, tagged("<longcat_tool_call>\n", "\n</longcat_tool_call>", before="\n", between="\n"),
           ids=("<longcat_tool_call>", "</longcat_tool_call>")),
    Format("ernie45", "ernie45", ernie, EMPTY, BOTH, ids=(*QWEN, "<response>", "</response>")),
    Format("internlm", None, one(tagged("<|action_start|><|plugin|>\n", "<|action_end|>", "parameters")), ids=ACTION),
    Format("gigachat3", None, one(tagged("<|function_call|>", "")), ids=("<|function_call|>",)),
    Format("gigachat3", None, one(tagged("<|message_sep|>\n\nfunction call<|role_sep|>\n", "")), label="words",
           ids=("<|message_sep|>", "<|role_sep|>")),
    Format("jamba", None, array("<tool_calls>", "</tool_calls>", json_of=pretty),
           ids=("<tool_calls>", "</tool_calls>")),
    Format("hunyuan_a13b", "hunyuan_a13b", hunyuan, thinking=(IM,)),
    Format("phi4_mini_json", None, either(array("functools", ""))),
    Format("phi4_mini_json", None, either(array("functools", "", "parameters", compact)), label="parameters"),
    Format("deepseek_v3", "deepseek_r1", r1, "<｜Assistant｜><think>\n\n</think>\n\n",
           ("<｜Assistant｜><think>\n", "<｜Assistant｜>"), ids=(*THINK, *SECTION)),
    Format("apertus", None, apertus, ids=("<|tools_prefix|>", "<|tools_suffix|>")),
    Format("xlam", "deepseek_r1", unless(ends_in_opener, either(array("", ""))), EMPTY, BOTH, ids=THINK),
    Format("xlam", None, unless(ends_in_opener, array("```json\n", "\n```")), label="fence"),
    Format("xlam", None, unless(ends_in_opener, array("<tool_call>", "</tool_call>")), label="tag"),
    Format("xlam", None, unless(ends_in_opener, array("[TOOL_CALLS]", "")), label="word"),
    Format("pythonic", None, either(pythonic("[", "]"))),
    Format("llama4_pythonic", None, either(pythonic("<|python_start|>[", "]<|python_end|>")), label="tags",
           ids=("<|python_start|>", "<|python_end|>")),
    Format("lfm2", None, pythonic("<|tool_call_start|>[", "]<|tool_call_end|>"),
           ids=("<|tool_call_start|>", "<|tool_call_end|>")),
    Format("olmo3", "olmo3", pythonic("<function_calls>", "</function_calls>", "\n", dumps), EMPTY, BOTH),
    Format("functiongemma", None, functiongemma(bare=False),
           ids=("<start_function_call>", "<end_function_call>", "<escape>"), ends=("<escape>",)),
    Format("functiongemma", None, functiongemma(bare=True), label="bare"),
]  # fmt: skip
