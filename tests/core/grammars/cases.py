"""What every family has to show alike: the numbered cases, and a sample of each for every parser name.

A row holds the parts of a family's format, of which its samples are put together. A pair of name and case is a sample,
or has its reason in `MISSING`: what is neither fails. What is peculiar to a family is in `samples.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.core.grammars.samples import Sample

CASES = {
    1: "reasoning only, cut by the length limit",
    2: "reasoning, then content",
    3: "reasoning that quotes its own markers as plain text",
    4: "reasoning, then a call",
    5: "one call",
    6: "two calls",
    7: "text before and after a call",
    8: "a call cut by the length limit, after a whole one",
    9: "a call's markers as plain text",
    10: "a marker inside a value",
    11: "a call without arguments",
}
OF_REASONING = (1, 2, 3, 4)
OF_TOOLS = (5, 6, 7, 8, 9, 10, 11)

PROMPT = "<|im_start|>assistant\n"
HEADER = "<|start|>assistant"

WEATHER: tuple[str, dict[str, Any]] = ("weather", {"city": "Rom", "days": 2})
NOW: tuple[str, dict[str, Any]] = ("now", {})


@dataclass(frozen=True)
class ToolRow:
    """Parts of a tool family's samples.

    around: what stands before the first and after the last call of a group. call: weather(city="Rom", days=2).
    none: now(). sep: between two calls. mark: put into the city. plain: text that is no call. gap: what stays of a
    blank line before a call. before, after: what stands around the call in case 7, of which `said` and `end` are content.
    tag: opener and closer that a call between texts needs. head: header of a content message.
    """

    names: tuple[str, ...]
    call: str
    none: str
    plain: str
    mark: str
    around: tuple[str, str] = ("", "")
    sep: str = ""
    tokens: tuple[str, ...] = ()
    gap: str = ""
    before: str = "Go.\n\n"
    tag: tuple[str, str] = ("", "")
    prompt: str = PROMPT
    after: str = " Done."
    said: str = "Go."
    end: str = " Done."
    head: str = ""

    def samples(self, name: str) -> Iterator[tuple[int, Sample]]:
        """The number of each case, and its sample."""
        begin, end = self.around
        one = begin + self.call + end
        at = self.call.index("Rom") + 2

        def sample(number: int, raw: str, **rest: Any) -> tuple[int, Sample]:
            common: dict[str, Any] = {"tokens": self.tokens, "prompt": self.prompt}
            return number, Sample(f"{number}-{name}", name, None, raw, **common, **rest)

        yield sample(5, one, calls=[WEATHER])
        yield sample(6, begin + self.none + self.sep + self.call + end, calls=[NOW, WEATHER])
        around = self.before + self.tag[0] + one + self.tag[1] + self.after
        yield sample(7, around, content=self.said + self.gap + self.end, calls=[WEATHER])
        cut = begin + self.none + self.sep + self.call[:at]
        yield sample(8, cut, calls=[NOW], cut=True, finish="length")
        yield sample(9, self.head + self.plain, content=_bare(self.plain))
        marked = [("weather", {"city": _bare(self.mark), "days": 2})]
        yield sample(10, begin + self.call.replace("Rom", self.mark) + end, calls=marked)
        yield sample(11, begin + self.none + end, calls=[NOW])


def _bare(text: str) -> str:
    return text.replace("⟪", "").replace("⟫", "")


def _json(args: str = "arguments", name: str = "name", more: str = "") -> tuple[str, str]:
    return (
        f'{{{more}"{name}": "weather", "{args}": {{"city": "Rom", "days": 2}}}}',
        f'{{{more}"{name}": "now", "{args}": {{}}}}',
    )


def _tagged(names: tuple[str, ...], begin: str, end: str, args: str = "arguments", **more: Any) -> ToolRow:
    call, none = _json(args)
    return ToolRow(names, begin + call + end, begin + none + end, **more)


_CALL, _NONE = _json()
_PAIRS = "<arg_key>city</arg_key>\n<arg_value>Rom</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
_GLM = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_HY = ("<tool_calls>", "</tool_calls>", *_GLM)
_IFM = tuple(
    f"<{slash}ifm|{tag}>"
    for tag in ("tool_calls", "tool_call", "arg_key", "arg_type", "arg_value")
    for slash in ("", "/")
)
_K3 = ("<|open|>", "<|close|>", "<|sep|>")
_INKLING = ("<|message_model|>", "<|end_message|>", "<|content_text|>", "<|content_thinking|>")
_INKLING += ("<|content_invoke_tool_json|>", "<|content_model_end_sampling|>")
_MUSE = ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>")
_HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
_V3 = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
_K2 = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>")
_K2 += ("<|tool_call_argument_begin|>", "<|tool_call_end|>")
_ACTION = ("<|START_ACTION|>", "<|END_ACTION|>", "<|START_THINKING|>", "<|END_THINKING|>")
_NS = "]<]minimax[>["
_XML = (
    "<function=weather>\n<parameter=city>\nRom\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>",
    "<function=now>\n</function>",
)
_MIMO = (
    "<function=weather><parameter=city>Rom</parameter><parameter=days>2</parameter></function>",
    "<function=now></function>",
)
_INVOKE = (
    '<invoke name="weather">\n<parameter name="city">Rom</parameter>\n<parameter name="days">2</parameter>\n</invoke>',
    '<invoke name="now">\n</invoke>',
)
_ATEM = (
    '<atem:invoke name="weather">\n<atem:parameter name="city">Rom</atem:parameter>\n'
    '<atem:parameter name="days">2</atem:parameter>\n</atem:invoke>',
    '<atem:invoke name="now">\n</atem:invoke>',
)


def _dsml(word: str) -> tuple[str, str]:
    bar = "｜DSML｜" + word
    return (
        f'<{bar}invoke name="weather">\n<{bar}parameter name="city" string="true">Rom</{bar}parameter>\n'
        f'<{bar}parameter name="days" string="false">2</{bar}parameter>\n</{bar}invoke>\n',
        f'<{bar}invoke name="now">\n</{bar}invoke>\n',
    )


TOOL_ROWS = [
    _tagged(("hermes", "qwen3_json", "granite4"), "<tool_call>\n", "\n</tool_call>", sep="\n", mark="a </tool_call> b",
            plain="⟪<tool_call>\n{}\n</tool_call>⟫", tokens=("<tool_call>", "</tool_call>")),
    _tagged(("ernie45",), "<tool_call>\n", "\n</tool_call>", sep="\n\n", mark="a </tool_call> b",
            plain="⟪a <tool_call> tag⟫", tokens=("<tool_call>", "</tool_call>")),
    _tagged(("longcat",), "<longcat_tool_call>\n", "\n</longcat_tool_call>", sep="\n", mark="a <longcat_tool_call> b",
            plain="⟪a <longcat_tool_call> tag⟫", tokens=("<longcat_tool_call>", "</longcat_tool_call>")),
    _tagged(("internlm",), "<|action_start|><|plugin|>\n", "<|action_end|>", args="parameters", sep="\n",
            mark="a <|action_end|> b", plain="⟪say <|action_start|><|plugin|> first⟫",
            tokens=("<|action_start|>", "<|plugin|>", "<|action_end|>")),
    _tagged(("gigachat3",), "<|function_call|>", "", sep="\n", mark="a <|function_call|> b",
            plain="⟪a <|function_call|> token, a function call<|role_sep|>⟫",
            tokens=("<|function_call|>", "<|role_sep|>", "<|message_sep|>")),
    _tagged(("granite-20b-fc",), "<function_call> ", "", sep="\n", mark="a <function_call> b",
            plain="a <function_call> tag"),
    ToolRow(("granite",), _CALL, _NONE, around=("<|tool_call|>[", "]"), sep=", ", mark="a ] <|tool_call|> b",
            plain="⟪a <|tool_call|> token⟫", tokens=("<|tool_call|>",)),
    ToolRow(("phi4_mini_json",), _CALL, _NONE, around=("functools[", "]"), sep=", ", mark="a ] functools[ b",
            plain="functools [1]"),
    ToolRow(("jamba",), _CALL, _NONE, around=("<tool_calls>[\n", "\n]</tool_calls>"), sep=",\n",
            mark="a ]</tool_calls> b", plain="⟪a <tool_calls> tag⟫", tokens=("<tool_calls>", "</tool_calls>")),
    ToolRow(("hunyuan_a13b",), _CALL, _NONE, around=("<tool_calls>\n[", "]\n</tool_calls>"), sep=", ",
            mark="a ]</tool_calls> b", plain="a <tool_calls> tag"),
    ToolRow(("apertus",), '{"weather": {"city": "Rom", "days": 2}}', '{"now": {}}',
            around=("<|tools_prefix|>[", "]<|tools_suffix|>"), sep=", ", mark="a ]<|tools_suffix|> b", gap="\n\n",
            plain="⟪a <|tools_prefix|> token⟫", tokens=("<|tools_prefix|>", "<|tools_suffix|>")),
    *(ToolRow((name,), *_json("parameters", "tool_name", '"tool_call_id": "0", '), sep=",\n", mark="a <|END_ACTION|> b",
              around=("<|START_ACTION|>[\n", "\n]<|END_ACTION|>"), gap="\n\n", plain="⟪a <|START_ACTION|> token⟫",
              tokens=(*_ACTION, f"<|START_{word}|>", f"<|END_{word}|>"), before=f"<|START_{word}|>Go.\n\n<|END_{word}|>")
      for name, word in (("cohere_command3", "RESPONSE"), ("cohere_command4", "TEXT"))),
    ToolRow(("xlam",), _CALL, _NONE, around=("[", "]"), sep=", ", mark="a ] b", plain="[1, 2] is a list",
            tag=("```json\n", "\n```")),
    ToolRow(("llama3_json", "llama4_json"), *_json("parameters"), sep="; ", mark="a } <|python_tag|> ; b", gap="\n\n",
            plain='⟪a <|python_tag|>{"name"⟫', tag=("<|python_tag|>", ""), tokens=("<|python_tag|>", "<|eom_id|>")),
    ToolRow(("pythonic",), 'weather(city="Rom", days=2)', "now()", around=("[", "]"), sep=", ", mark="a )] b",
            plain="[now] and now()", before="", said=""),
    ToolRow(("llama4_pythonic",), 'weather(city="Rom", days=2)', "now()", around=("[", "]"), sep=", ", gap="\n\n",
            mark="a )] b", plain="⟪<|python_start|>[now()]⟫", tag=("<|python_start|>", "<|python_end|>"),
            tokens=("<|python_start|>", "<|python_end|>")),
    ToolRow(("lfm2",), "weather(city='Rom', days=2)", "now()", around=("<|tool_call_start|>[", "]<|tool_call_end|>"),
            sep=", ", mark="a )]<|tool_call_end|> b", plain="⟪<|tool_call_start|>[now()]⟫",
            tokens=("<|tool_call_start|>", "<|tool_call_end|>")),
    ToolRow(("olmo3",), "weather(city='Rom', days=2)", "now()", around=("<function_calls>\n", "\n</function_calls>"),
            sep="\n", mark="a )\n</function_calls> b", plain="function_calls> and <function_"),
    *(ToolRow(names, *calls, around=(f"<{ns}tool_call>\n", f"\n</{ns}tool_call>"), sep="\n", gap=gap,
              mark=mark, plain=f"⟪a <{ns}tool_call> tag⟫", tokens=(f"<{ns}tool_call>", f"</{ns}tool_call>"))
      for names, calls, ns, mark, gap in (
          (("qwen3_coder", "qwen3_xml", "step3p5"), _XML, "", "a </parameter> b </function> c", ""),
          (("step5",), _XML, "", "a </parameter> b </function> c", "\n\n"),
          (("seed_oss",), _XML, "seed:", "a </parameter> b </seed:tool_call> c", ""),
          (("mimo",), _MIMO, "", "a </parameter> b </tool_call> c", ""))),
    ToolRow(("minimax_m2",), *_INVOKE, around=("<minimax:tool_call>\n", "\n</minimax:tool_call>"), sep="\n",
            mark="a </parameter> b", plain="⟪a <minimax:tool_call> tag⟫",
            tokens=("<minimax:tool_call>", "</minimax:tool_call>")),
    ToolRow(("dots",), *_INVOKE, around=("<dots_function_call>\n", "\n</dots_function_call>"), sep="\n",
            mark="a </parameter> b </invoke> c", plain="a dots_function_call> and <dots_function_"),
    ToolRow(("step3",), "<｜tool_call_begin｜>function<｜tool_sep｜>"
            '<steptml:invoke name="weather"><steptml:parameter name="city">Rom</steptml:parameter>'
            '<steptml:parameter name="days">2</steptml:parameter></steptml:invoke><｜tool_call_end｜>',
            '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="now"></steptml:invoke><｜tool_call_end｜>',
            around=("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"), sep="\n", mark="a </steptml:parameter> b",
            plain="⟪a <｜tool_calls_begin｜> token⟫", tokens=("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>",
            "<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_sep｜>")),
    ToolRow(("minicpm5",), '<function name="weather"><param name="city">Rom</param><param name="days">2</param>'
            "</function>", '<function name="now"></function>', sep="\n", mark="a </param> b", plain="a <function nam"),
    ToolRow(("minimax_m3",), f'{_NS}<invoke name="weather">{_NS}<city>Rom{_NS}</city>\n{_NS}<days>2{_NS}</days>\n'
            f"{_NS}</invoke>", f'{_NS}<invoke name="now">{_NS}</invoke>', sep="\n", mark="a </city> <x> ]<] b",
            around=(f"{_NS}<tool_call>\n", f"\n{_NS}</tool_call>"), plain=f"a <tool_call> and {_NS}", tokens=(_NS,)),
    ToolRow(("deepseek_v3",), '<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"city": "Rom", "days": 2}'
            "\n```<｜tool▁call▁end｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>",
            around=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"), sep="\n", mark="a ``` <｜tool▁sep｜> b", gap="\n\n",
            plain="⟪a <｜tool▁calls▁begin｜> token⟫", tokens=_V3),
    ToolRow(("deepseek_v31",), '<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rom", "days": 2}<｜tool▁call▁end｜>',
            "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>", around=("<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>"), mark="a <｜tool▁call▁end｜> b", gap="\n\n",
            plain="⟪a <｜tool▁calls▁begin｜> token⟫", tokens=_V3),
    *(ToolRow((name,), *_dsml(word), around=(f"<｜DSML｜{word}{section}>\n", f"</｜DSML｜{word}{section}>"),
              mark=f"a <｜DSML｜{word}invoke b", plain=f"⟪<｜DSML｜{word}{section}>\n<｜DSML｜{word}invoke name⟫",
              tokens=("｜DSML｜",))
      for name, word, section in (("deepseek_v32", "", "function_calls"), ("deepseek_v4", "", "tool_calls"),
                                  ("deepseek_v41", " ", "calls"))),
    ToolRow(("kimi_k2",), "<|tool_call_begin|>functions.weather:1<|tool_call_argument_begin|>"
            '{"city": "Rom", "days": 2}<|tool_call_end|>', "<|tool_call_begin|>functions.now:0"
            "<|tool_call_argument_begin|>{}<|tool_call_end|>", around=("<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>"), mark="a <|tool_call_end|> b", gap="\n\n",
            plain="⟪a <|tool_calls_section_begin|> token⟫", tokens=_K2),
    ToolRow(("kimi_k3",), '<|open|>call tool="weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>'
            'Rom<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|>'
            "<|close|>call<|sep|>", '<|open|>call tool="now" index="1"<|sep|><|close|>call<|sep|>',
            around=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"), mark="a ⟪<|close|>argument<|sep|>⟫ b", gap="\n\n",
            plain="⟪a <|open|>tools<|sep|> tag⟫", tokens=_K3),
    ToolRow(("plamo3",), "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>weather"
            "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
            '{"city": "Rom", "days": 2}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>',
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>now<|plamo:end_tool_name:plamo|>"
            "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{}"
            "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
            around=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"), gap="\n\n",
            mark="a <|plamo:end_tool_request:plamo|> b", plain="a <|plamo:begin_tool_ and plamo|>"),
    ToolRow(("glm45", "glm47", "ling3"), f"<tool_call>weather\n{_PAIRS}</tool_call>", "<tool_call>now</tool_call>",
            sep="\n", mark="a </tool_call> <arg_key> b", plain="⟪a <tool_call> tag⟫", tokens=_GLM),
    ToolRow(("poolside_v1",), f"<tool_call>weather\n{_PAIRS}</tool_call>", "<tool_call>now\n</tool_call>",
            sep="\n", mark="a </tool_call> <arg_key> b", plain="⟪a <tool_call> tag⟫", tokens=_GLM),
    ToolRow(("hy_v3",), f"<tool_call>weather<tool_sep>\n{_PAIRS}</tool_call>", "<tool_call>now<tool_sep></tool_call>",
            around=("<tool_calls>\n", "\n</tool_calls>"), sep="\n", mark="a </tool_call> b",
            plain="⟪a <tool_calls> tag⟫", tokens=(*_HY, "<tool_sep>")),
    ToolRow(("hy_v4",), f"<tool_call>weather{_PAIRS}</tool_call>", "<tool_call>now</tool_call>",
            around=("<tool_calls>\n", "\n</tool_calls>"), sep="\n", mark="a </tool_call> b",
            plain="⟪a <tool_calls> tag⟫", tokens=_HY),
    ToolRow(("k2_horizon",), "<ifm|tool_call>weather<ifm|arg_key>city</ifm|arg_key><ifm|arg_value>Rom</ifm|arg_value>"
            "<ifm|arg_key>days</ifm|arg_key><ifm|arg_value>2</ifm|arg_value></ifm|tool_call>",
            "<ifm|tool_call>now</ifm|tool_call>", around=("<ifm|tool_calls>", "</ifm|tool_calls>"),
            mark="a </ifm|tool_call> b", plain="⟪a <ifm|tool_calls> tag⟫", tokens=_IFM),
    ToolRow(("gemma4",), '<|tool_call>call:weather{city:<|"|>Rom<|"|>,days:2}<tool_call|>',
            "<|tool_call>call:now{}<tool_call|>", mark="a <tool_call|> } b", gap="\n\n", plain="⟪a <|tool_call> token⟫",
            tokens=("<|tool_call>", "<tool_call|>", '<|"|>')),
    ToolRow(("functiongemma",), "<start_function_call>call:weather{city:<escape>Rom<escape>,days:<escape>2<escape>}"
            "<end_function_call>", "<start_function_call>call:now{}<end_function_call>", gap="\n\n",
            mark="a <end_function_call> } b", plain="⟪a <start_function_call> token⟫",
            tokens=("<start_function_call>", "<end_function_call>", "<escape>")),
    ToolRow(("mistral",), '[TOOL_CALLS]weather[ARGS]{"city": "Rom", "days": 2}', "[TOOL_CALLS]now[ARGS]{}", gap="\n\n",
            mark="a ⟪[TOOL_CALLS]⟫ b", plain="⟪a [TOOL_CALLS]now[ARGS]{} b⟫",
            tokens=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")),
    ToolRow(("openai",), " to=functions.weather<|channel|>commentary <|constrain|>json<|message|>"
            '{"city": "Rom", "days": 2}<|call|>', " to=functions.now<|channel|>commentary<|message|>{}<|call|>",
            sep=HEADER, mark="a ⟪<|call|>⟫ b", head="<|channel|>final<|message|>", plain="⟪a <|call|> token⟫", gap="\n\n",
            before=f"<|channel|>final<|message|>Go.\n\n<|end|>{HEADER}", tokens=_HARMONY, prompt=HEADER,
            after=f"{HEADER}<|channel|>final<|message|> Done.<|return|>"),
    *(ToolRow(names, *_ATEM, around=(" to=tools<|message|><atem:function_calls>\n", "\n</atem:function_calls><|eom|>"),
              sep="\n", mark="a </atem:parameter> <|eom|> b", head=" to=user<|message|>", plain="⟪a <|eom|> token⟫", gap="\n\n",
              before=f" to=user<|message|>Go.\n\n<|eom|>{HEADER}", tokens=_MUSE, prompt=HEADER,
              after=f"{HEADER} to=user<|message|> Done.<|eot|>")
      for names in (("muse", "musespark1x"), ("muse_glimmer",))),
    ToolRow(("inkling",), '{"name": "weather", "args": {"city": "Rom", "days": 2}}', '{"name": "now", "args": {}}',
            around=("<|content_invoke_tool_json|>", "<|end_message|>"), mark="a ⟪<|end_message|>⟫ b",
            sep="<|end_message|><|message_model|><|content_invoke_tool_json|>", gap="\n\n",
            head="<|content_text|>", plain="⟪a <|end_message|> token⟫", before="<|content_text|>Go.\n\n<|end_message|>",
            after="<|message_model|><|content_text|> Done.<|end_message|>", tokens=_INKLING,
            prompt="<|message_model|>"),
]  # fmt: skip


@dataclass(frozen=True)
class ReasoningRow:
    """Parts of a reasoning family's samples.

    opened: what the prompt ends with. then: what stands between reasoning and content. quote: put into the reasoning.
    tool, call: the parser and the literal of a call of now() that follows. through: what closes the reasoning before
    that call ("" where the call does it).
    """

    names: tuple[str, ...]
    then: str
    quote: str
    tool: str
    call: str
    through: str
    opened: str = ""
    open: str = ""
    end: str = ""
    prompt: str = PROMPT
    tokens: tuple[str, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def samples(self, name: str) -> Iterator[tuple[int, Sample]]:
        """The number of each case, and its sample."""

        def sample(number: int, raw: str, tool: str | None = None, **rest: Any) -> tuple[int, Sample]:
            common = {"tokens": self.tokens, "prompt": self.prompt + self.opened, "kwargs": self.kwargs}
            return number, Sample(f"{number}-{name}", tool, name, raw, **common, **rest)

        quoted = _bare(f"why {self.quote} not")
        yield sample(1, f"{self.open}why ", thought="why ", finish="length")
        yield sample(2, f"{self.open}why{self.then}so{self.end}", thought="why", content="so")
        raw = f"{self.open}why {self.quote} not{self.then}so{self.end}"
        yield sample(3, raw, thought=quoted, content="so")
        call = f"{self.open}why{self.through}{self.call}"
        yield sample(4, call, tool=self.tool, thought="why", calls=[NOW])


_HERMES_NOW = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
_XML_NOW = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
_GLM_NOW = "<tool_call>now</tool_call>"
_THINK = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>")
_CLOSE = "⟪</think>⟫"
_V4_NOW = '<｜DSML｜tool_calls><｜DSML｜invoke name="now"></｜DSML｜invoke></｜DSML｜tool_calls>'


def _think(names: tuple[str, ...], tool: str, call: str, *, ends: bool = False, **more: Any) -> ReasoningRow:
    through = "\n" if ends else "\n</think>\n\n"
    values = {"then": "\n</think>\n\n", "quote": _CLOSE, "through": through, "tokens": _THINK} | more
    return ReasoningRow(names, tool=tool, call=call, **values)


REASONING_ROWS = [
    _think(("deepseek_r1", "step5"), "hermes", _HERMES_NOW),
    _think(("deepseek_v3", "poolside_v1"), "hermes", _HERMES_NOW, kwargs={"thinking": True}),
    _think(("holo2",), "hermes", _HERMES_NOW),
    _think(("deepseek_v4",), "deepseek_v4", _V4_NOW, ends=True, tokens=(*_THINK, "｜DSML｜"), opened="<think>"),
    _think(("deepseek_v41",), "deepseek_v41", '<｜DSML｜ calls><｜DSML｜ invoke name="now"></｜DSML｜ invoke></｜DSML｜ calls>',
           ends=True, tokens=(*_THINK, "｜DSML｜"), opened="<think>"),
    _think(("qwen3", "mimo", "nemotron_v3", "granite_thinking_parser", "step3p5", "minicpmv"), "qwen3_coder", _XML_NOW,
           ends=True, open="<think>\n"),
    _think(("glm45", "glm47", "ling3"), "glm45", _GLM_NOW, ends=True, open="\n<think>"),
    _think(("kimi_k2",), "kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
           "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>", ends=True,
           tokens=(*_THINK, *_K2)),
    _think(("minimax_m2",), "minimax_m2", '<minimax:tool_call><invoke name="now"></invoke></minimax:tool_call>',
           ends=True, tokens=(*_THINK, "<minimax:tool_call>", "</minimax:tool_call>")),
    _think(("step3",), "hermes", _HERMES_NOW),
    _think(("olmo3",), "olmo3", "<function_calls>\nnow()\n</function_calls>", tokens=(), quote="</thi nk>"),
    _think(("ernie45",), "ernie45", _HERMES_NOW, then="\n</think>\n\n<response>\n", end="\n</response>\n",
           tokens=(*_THINK, "<response>", "</response>")),
    _think(("hy_v3",), "hy_v3", "<tool_calls><tool_call>now<tool_sep></tool_call></tool_calls>",
           kwargs={"reasoning_effort": "high"}, tokens=(*_THINK, *_HY, "<tool_sep>")),
    _think(("hy_v4",), "hy_v4", "<tool_calls><tool_call>now</tool_call></tool_calls>", tokens=(*_THINK, *_HY)),
    _think(("seed_oss",), "seed_oss", "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>", ends=True,
           open="<seed:think>", then="</seed:think>", quote="⟪</seed:think>⟫",
           tokens=("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>")),
    _think(("minimax_m3",), "minimax_m3", f'{_NS}<tool_call>{_NS}<invoke name="now">{_NS}</invoke>{_NS}</tool_call>',
           open="<mm:think>", then="</mm:think>", through="</mm:think>", quote="</mm: think>",
           tokens=("<mm:think>", "</mm:think>", _NS)),
    ReasoningRow(("k2_horizon",), "</ifm|think_fast>", "⟪</ifm|think_fast>⟫", "k2_horizon",
                 "<ifm|tool_calls><ifm|tool_call>now</ifm|tool_call></ifm|tool_calls>", "", opened="<ifm|think_fast>",
                 tokens=("<ifm|think>", "</ifm|think>", "<ifm|think_fast>", "</ifm|think_fast>", *_IFM)),
    ReasoningRow(("plamo3",), "<|plamo:end_think:plamo|>", "<|plamo:end_thi", "plamo3",
                 "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>"
                 "now<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json"
                 "<|plamo:msg|>{}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
                 "<|plamo:end_tool_requests:plamo|>", "", open="<|plamo:begin_think:plamo|>"),
    ReasoningRow(("mistral",), "[/THINK]", "⟪[/THINK]⟫", "mistral", "[TOOL_CALLS]now[ARGS]{}", "[/THINK]",
                 open="[THINK]", tokens=("[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]")),
    ReasoningRow(("gemma4",), "\n<channel|>", "⟪<channel|>⟫", "gemma4", "<|tool_call>call:now{}<tool_call|>", "\n",
                 open="<|channel>thought\n", tokens=("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>')),
    ReasoningRow(("granite",), "\nHere is my response:\n", "Here is my answer:", "granite",
                 '<tool_call>[{"name": "now", "arguments": {}}]', "\nHere is my response:\n",
                 open="Here is my thought process:\n"),
    ReasoningRow(("hunyuan_a13b",), "\n</think>\n<answer>\n", "</thi nk>", "hunyuan_a13b",
                 '<tool_calls>[{"name": "now", "arguments": {}}]</tool_calls>\n</answer>', "\n</think>\n<answer>\n",
                 open="<think>\n", end="\n</answer>"),
    ReasoningRow(("cohere_command3",), "<|END_THINKING|><|START_RESPONSE|>", "⟪<|END_THINKING|>⟫", "cohere_command3",
                 '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "now", "parameters": {}}]<|END_ACTION|>',
                 "<|END_THINKING|>", open="<|START_THINKING|>", end="<|END_RESPONSE|>",
                 tokens=(*_ACTION, "<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    ReasoningRow(("cohere_command4",), "<|END_THINKING|><|START_TEXT|>", "⟪<|END_THINKING|>⟫", "cohere_command4",
                 '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "now", "parameters": {}}]<|END_ACTION|>',
                 "<|END_THINKING|>", open="<|START_THINKING|>", end="<|END_TEXT|>",
                 tokens=(*_ACTION, "<|START_TEXT|>", "<|END_TEXT|>")),
    ReasoningRow(("kimi_k3",), "<|close|>think<|sep|><|open|>response<|sep|>", "⟪<|close|>think<|sep|>⟫", "kimi_k3",
                 '<|open|>tools<|sep|><|open|>call tool="now" index="1"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
                 "<|close|>think<|sep|>", opened="<|open|>think<|sep|>",
                 end="<|close|>response<|sep|><|close|>message<|sep|>", tokens=_K3),
    ReasoningRow(("openai_gptoss",), f"<|end|>{HEADER}<|channel|>final<|message|>", "⟪<|end|>⟫", "openai",
                 " to=functions.now<|channel|>commentary<|message|>{}<|call|>", f"<|end|>{HEADER}",
                 open="<|channel|>analysis<|message|>", end="<|return|>", prompt=HEADER, tokens=_HARMONY),
    *(ReasoningRow(names, f"<|eom|>{HEADER} to=user<|message|>", "⟪<|eom|>⟫", names[0],
                   ' to=tools<|message|><atem:function_calls><atem:invoke name="now"></atem:invoke>'
                   "</atem:function_calls><|eot|>", f"<|eom|>{HEADER}", open=" to=self<|message|>", end="<|eot|>",
                   prompt=HEADER, tokens=_MUSE)
      for names in (("muse", "musespark1x"), ("muse_glimmer",))),
    ReasoningRow(("inkling",), "<|end_message|><|message_model|><|content_text|>", "⟪<|end_message|>⟫", "inkling",
                 '<|message_model|><|content_invoke_tool_json|>{"name": "now", "args": {}}<|end_message|>',
                 "\n<|end_message|>", open="<|content_thinking|>", end="<|end_message|>", prompt="<|message_model|>",
                 tokens=_INKLING),
]  # fmt: skip

_TEMPLATE = "its grammar comes from a template; samples are in tests/core/test_response_template.py"
_KEPT = "this parser keeps reasoning in the content; a sample of that is in tests/core/grammars/test_samples.py"
MISSING: dict[tuple[str, int], str] = {
    **{(name, number): _TEMPLATE for name in ("hf", "beam") for number in CASES},
    **{("minimax_m2_append_think", number): _KEPT for number in OF_REASONING},
}
"""(name, case) -> why there is no sample: not applicable, or known broken."""

SAMPLES: dict[tuple[str, int], Sample] = {
    (name, number): sample
    for rows in (TOOL_ROWS, REASONING_ROWS)
    for row in rows
    for name in row.names
    for number, sample in row.samples(name)
}
