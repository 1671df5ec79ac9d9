"""What is peculiar to a family: literal outputs, each with the message it stands for, written from its description.

What every family has to show alike is in `cases.py`, which makes the same kind of sample from a family's parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WEATHER = {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}}
NOTE = {
    "path": {"type": "string"},
    "text": {"type": "string"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "limit": {"type": ["number", "null"]},
    "label": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "meta": {"$ref": "#/$defs/Meta"},
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": WEATHER}}},
    {
        "type": "function",
        "function": {
            "name": "note",
            "parameters": {"type": "object", "properties": NOTE, "$defs": {"Meta": {"type": "object"}}},
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "get-it", "parameters": {"type": "object", "properties": {}}}},
]


@dataclass(frozen=True)
class Sample:
    """An output, and the message that it stands for.

    raw: text between ⟪ and ⟫ is encoded as ordinary tokens, whatever tokens the vocabulary has.
    calls: (name, arguments) of the whole ones. cut: one that an eager stream shows and no whole result has.
    only: "ids" or "text", where the sample does not hold in both vocabularies. ids: of the calls, where that matters.
    tokens: markers that a model of the family has as one token each; None: those of its declaration.
    """

    id: str
    tool: str | None
    reasoning: str | None
    raw: str
    content: str = ""
    thought: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    cut: bool = False
    finish: str = "stop"
    prompt: str = "<|im_start|>assistant\n"
    only: str = ""
    ids: tuple[str | None, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    tokens: tuple[str, ...] | None = None

    @property
    def forms(self) -> tuple[str, ...]:
        """Markers as ids, as text, or both. As text, a marker that is quoted as text would be the marker itself."""
        if self.only:
            return (self.only,)
        return (*(("ids",) if self.tokens != () else ()), *(("text",) if "⟪" not in self.raw else ()))


def _both(*names: str) -> Any:
    def add(id_: str, raw: str, reasoning: str | None = None, **rest: Any) -> list[Sample]:
        return [Sample(f"{name}-{id_}", name, reasoning, raw, **rest) for name in names]

    return add


hermes = _both("hermes", "qwen3_json", "granite4")
xml = _both("qwen3_coder", "qwen3_xml")
glm = _both("glm45", "glm47")
llama = _both("llama3_json", "llama4_json")
python = _both("pythonic", "llama4_pythonic")

SAMPLES: list[Sample] = [
    # --- reasoning by itself ----------------------------------------------------------------------------------------
    Sample("r1-always-thinks", None, "deepseek_r1", "why\n</think>\n\nso", content="so", thought="why"),
    Sample("r1-second-close-of-text-stays", None, "deepseek_r1", "a</think>b</think>c", content="b</think>c",
           thought="a", only="text"),
    Sample("r1-second-close-of-id-goes", None, "deepseek_r1", "a</think>b</think>c", content="bc", thought="a",
           only="ids"),
    Sample("r1-tool-opener-is-thought", "deepseek_v3", "deepseek_r1", "a <｜tool▁calls▁begin｜> b</think>c",
           content="c", thought="a <｜tool▁calls▁begin｜> b"),
    Sample("r1-cut-keeps-its-space", None, "deepseek_r1", "still ", thought="still ", finish="length"),
    Sample("qwen3-opener", None, "qwen3", "<think>\nhm\n</think>\n\nyes", content="yes", thought="hm"),
    Sample("qwen3-empty", None, "qwen3", "<think>\n\n</think>\n\nyes", content="yes"),
    Sample("qwen3-prompt-closed", None, "qwen3", "yes", content="yes",
           prompt="<|im_start|>assistant\n<think>\n\n</think>\n\n"),
    Sample("qwen3-switch-off", None, "qwen3", "yes", content="yes", kwargs={"enable_thinking": False}),
    Sample("qwen3-off-but-thinks", None, "qwen3", "<think>a</think>b", content="b", thought="a", only="ids",
           kwargs={"enable_thinking": False}),
    Sample("qwen3-history-is-not-the-turn", None, "qwen3", "a</think>b", content="b", thought="a",
           prompt="<|im_start|>assistant\n<think>\n\n</think>\n\nx<|im_end|>\n<|im_start|>assistant\n"),
    Sample("qwen3-tool-opener-ends-it", "qwen3_coder", "qwen3",
           "need it\n<tool_call>\n<function=now>\n</function>\n</tool_call>", thought="need it", calls=[("now", {})]),
    Sample("qwen3-opener-in-prose-does-not", "hermes", "qwen3", "a <tool_call> tag</think>b", content="b",
           thought="a <tool_call> tag"),
    Sample("v3-off-by-default", None, "deepseek_v3", "plain", content="plain"),
    Sample("v3-on", None, "deepseek_v3", "a</think>b", content="b", thought="a", kwargs={"thinking": True}),
    Sample("v3-prompt-open", None, "deepseek_v3", "a</think>b", content="b", thought="a", prompt="<think>"),
    Sample("v4-on-by-default", None, "deepseek_v4", "a</think>b", content="b", thought="a"),
    Sample("v4-reopens", None, "deepseek_v4", "a</think>b<think>c</think>d", content="bd", thought="ac"),
    Sample("v4-effort-none", None, "deepseek_v41", "b", content="b", kwargs={"reasoning_effort": "none"}),
    Sample("kimi_k2-section-ends-it", "kimi_k2", "kimi_k2",
           "a<|tool_calls_section_begin|><|tool_call_begin|>functions.now:3<|tool_call_argument_begin|>{}"
           "<|tool_call_end|><|tool_calls_section_end|>", thought="a", calls=[("now", {})], ids=("functions.now:3",)),
    Sample("minimax-never-opens", None, "minimax_m2", "a\n</think>\n\nb", content="b", thought="a"),
    Sample("mistral-two-spans", None, "mistral", "[THINK]a[/THINK]b[THINK]c[/THINK]d", content="bd", thought="ac"),
    Sample("mistral-plain-tags", None, "mistral", "<think>r</think>c", content="c", thought="r", only="text"),
    Sample("mistral-plain-tags-are-text-beside-ids", None, "mistral", "<think>r</think>c",
           content="<think>r</think>c", only="ids"),
    Sample("gemma4-label", None, "gemma4", "<|channel>thought\na\n<channel|>b", content="b", thought="a"),
    Sample("gemma4-no-label", None, "gemma4", "<|channel>though\na<channel|>b", content="b", thought="though\na"),
    Sample("gemma4-cut-in-label", None, "gemma4", "<|channel>th", finish="length"),
    Sample("gemma4-content-by-default", None, "gemma4", "b", content="b"),
    Sample("granite-phrases", None, "granite", "Here is my thought process: a\nHere is my response: b",
           content=" b", thought=" a"),
    Sample("granite-other-phrases", None, "granite", "Here's my thought process:\na\nHere's my response:\nb",
           content="b", thought="a"),
    Sample("granite-without", None, "granite", "Here is my answer", content="Here is my answer"),
    Sample("seed-tags", None, "seed_oss", "<seed:think>a</seed:think>b</think>", content="b</think>", thought="a"),
    Sample("step3-always-thinks", None, "step3", "a</think>b", content="b", thought="a"),
    Sample("glm45-newline-before-opener", None, "glm45", "\n<think>a</think>\nb", content="b", thought="a"),
    Sample("glm47-prompt-closed", None, "glm47", "b", content="b", prompt="<think></think>"),
    Sample("glm45-trailing-space", None, "glm45", "a \n</think>b", content="b", thought="a"),
    Sample("granite-cut", None, "granite", "Here is my thought process: a", thought=" a", finish="length"),
    Sample("granite-cut-in-a-phrase", None, "granite", "Here is my thought process: a\nHere is my", thought=" a",
           finish="length"),
    Sample("granite-ends-with-a-phrase's-words", None, "granite", "Here is my thought process: a\nHere is my",
           thought=" a\nHere is my"),
    Sample("seed_oss-off", None, "seed_oss", "b", content="b", kwargs={"enable_thinking": False}),
    Sample("seed_oss-prompt-open", None, "seed_oss", "a</seed:think>\n\nb", content="b", thought="a",
           prompt="<seed:think>"),
    Sample("step3-swallows-an-opener", None, "step3", "<think>a</think>b", content="b", thought="a"),
    Sample("step3-closed-in-an-earlier-turn", None, "step3", "a</think>b", content="b", thought="a",
           prompt="<|im_start|>assistant\nx</think>y<|im_end|>\n<|im_start|>assistant\n"),
    Sample("minimax-swallows-an-opener", None, "minimax_m2", "<think>\na</think>b", content="b", thought="a"),
    Sample("minimax-opener-ends-it", "minimax_m2", "minimax_m2", 'a\n<minimax:tool_call><invoke name="now"></invoke>'
           "</minimax:tool_call>", thought="a", calls=[("now", {})]),
    Sample("kimi_k2-off", None, "kimi_k2", "b", content="b", kwargs={"thinking": False}),
    Sample("kimi_k2-on", None, "kimi_k2", "a</think>b", content="b", thought="a", kwargs={"thinking": True}),
    Sample("glm47-either-switch", None, "glm47", "b", content="b", kwargs={"thinking": False}),
    # --- hermes -------------------------------------------------------------------------------------------------------
    *hermes("call", 'Sure.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rom", "days": 2}}\n</tool_call>',
            content="Sure.", calls=[("weather", {"city": "Rom", "days": 2})]),
    *hermes("two", '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n<tool_call>{"name": "now"}</tool_call>',
            calls=[("now", {}), ("now", {})]),
    *hermes("marker-in-string", '<tool_call>{"name": "note", "arguments": {"text": "a </tool_call> {<tool_call>"}}'
            "</tool_call> done", content=" done", calls=[("note", {"text": "a </tool_call> {<tool_call>"})]),
    *hermes("arguments-first", '<tool_call>{"arguments": {"name": "x"}, "name": "now"}</tool_call>',
            calls=[("now", {"name": "x"})]),
    *hermes("string-arguments", r'<tool_call>{"name": "now", "arguments": "{\"a\": 1}"}</tool_call>',
            calls=[("now", {"a": 1})]),
    *hermes("null-arguments", '<tool_call>{"name": "now", "arguments": null}</tool_call>', calls=[("now", {})]),
    *hermes("two-in-one", '<tool_call>{"name": "now"}\n{"name": "now", "arguments": {"a": 1}}</tool_call>',
            calls=[("now", {}), ("now", {"a": 1})]),
    *hermes("closer-missing", '<tool_call>{"name": "now"}\n<tool_call>{"name": "now"}</tool_call>',
            calls=[("now", {}), ("now", {})]),
    *hermes("extra-brace", '<tool_call>{"name": "now", "arguments": {}}}</tool_call>', calls=[("now", {})]),
    *hermes("closer-twice", '<tool_call>{"name": "now"}</tool_call>\n</tool_call> b', content=" b", calls=[("now", {})]),
    *hermes("raw-newline", '<tool_call>{"name": "note", "arguments": {"text": "a\nb"}}</tool_call>',
            calls=[("note", {"text": "a\nb"})]),
    *hermes("no-name", '<tool_call>{"tool": "now"}</tool_call>'),
    *hermes("broken", 'a<tool_call>{"name": "now", "arguments": {"a": }}</tool_call>b', content="ab", cut=True),
    *hermes("prose", "Use `<tool_call>` to call.", content="Use `<tool_call>` to call."),
    *hermes("stop-after-json", '<tool_call>{"name": "now", "arguments": {"a": 1}}', calls=[("now", {"a": 1})]),
    *hermes("length-after-json", '<tool_call>{"name": "now", "arguments": {"a": 1}}', cut=True, finish="length"),
    *hermes("length-at-opener", "Hm.\n<tool_call>", content="Hm.", finish="length"),
    *hermes("escaped-name", r'<tool_call>{"n\u0061me": "n\u006fw", "arguments": {"a": "\ud83d\ude00"}}</tool_call>',
            calls=[("now", {"a": "😀"})]),
    # --- parameters in tags -------------------------------------------------------------------------------------------
    *xml("types", "<tool_call>\n<function=weather>\n<parameter=city>\n42\n</parameter>\n<parameter=days>\n007\n"
         "</parameter>\n<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>",
         calls=[("weather", {"city": "42", "days": 7, "exact": True})]),
    *xml("nulls", "<tool_call><function=note><parameter=limit>None</parameter><parameter=label>null</parameter>"
         "<parameter=text>null</parameter></function></tool_call>",
         calls=[("note", {"limit": None, "label": None, "text": "null"})]),
    *xml("containers", '<tool_call><function=note><parameter=tags>["a", "b"]</parameter><parameter=meta>{"k": 1}'
         "</parameter></function></tool_call>", calls=[("note", {"tags": ["a", "b"], "meta": {"k": 1}})]),
    *xml("quoted-tags", "<tool_call>\n<function=note>\n<parameter=text>\nuse </parameter>, </function>, <function=x>"
         " and <tool_call></tool_call>\n</parameter>\n</function>\n</tool_call>",
         calls=[("note", {"text": "use </parameter>, </function>, <function=x> and <tool_call></tool_call>"})]),
    *xml("one-newline-is-markup", "<tool_call><function=note><parameter=text>\n\n  a\n\n</parameter></function></tool_call>",
         calls=[("note", {"text": "\n  a\n"})]),
    *xml("opener-missing", "On it. <function=now>\n</function>\n</tool_call>\nWait.", content="On it.Wait.",
         calls=[("now", {})]),
    *xml("closer-missing-before-next", "<tool_call>\n<function=note>\n<parameter=path>\na\n<parameter=text>\nb\n"
         "</parameter>\n</function>\n</tool_call>", calls=[("note", {"path": "a", "text": "b"})]),
    *xml("closer-missing-before-end", "<tool_call>\n<function=note>\n<parameter=path>\na\n</function>\n</tool_call>",
         calls=[("note", {"path": "a"})]),
    *xml("function-closer-missing", "<tool_call>\n<function=now>\n</tool_call>", calls=[("now", {})]),
    *xml("two-in-a-block", "<tool_call><function=now></function><function=now></function></tool_call>",
         calls=[("now", {}), ("now", {})]),
    *xml("repeated-key", "<tool_call><function=note><parameter=path>a</parameter><parameter=path>b</parameter>"
         "</function></tool_call>", calls=[("note", {"path": "a"})]),
    *xml("cut-in-value", "<tool_call>\n<function=note>\n<parameter=text>\nrm -rf /", cut=True, finish="length"),
    *xml("quotes", '<tool_call><function=note><parameter=text>say "hi" \\ \t</parameter></function></tool_call>',
         calls=[("note", {"text": 'say "hi" \\ \t'})]),
    *xml("prose", "A <tool_call> tag.", content="A <tool_call> tag."),
    Sample("seed_oss-tool", "seed_oss", "seed_oss", "<seed:think>a</seed:think>b\n<seed:tool_call>\n<function=weather>\n"
           "<parameter=days>\n3\n</parameter>\n</function>\n</seed:tool_call>", content="b", thought="a",
           calls=[("weather", {"days": 3})]),
    Sample("seed_oss-other-tag-is-text", "seed_oss", None, "<tool_call>", content="<tool_call>"),
    Sample("seed_oss-two", "seed_oss", None, "<seed:tool_call><function=now></function></seed:tool_call>\n"
           "<seed:tool_call><function=now></function></seed:tool_call>", calls=[("now", {}), ("now", {})]),
    Sample("minimax-call", "minimax_m2", "minimax_m2", 'why</think>go\n<minimax:tool_call>\n<invoke name="note">\n'
           '<parameter name="text">\n a </parameter>\n<parameter name="limit">1.50</parameter>\n</invoke>\n'
           "</minimax:tool_call>", content="go", thought="why", calls=[("note", {"text": "\n a ", "limit": 1.5})]),
    Sample("minimax-two-invokes", "minimax_m2", None, '<minimax:tool_call><invoke name="now"></invoke>'
           "<invoke name='now'></invoke></minimax:tool_call>after", content="after", calls=[("now", {}), ("now", {})]),
    Sample("minimax-closer-in-value", "minimax_m2", None, '<minimax:tool_call><invoke name="note"><parameter name="text">'
           "<parameter>x</parameter></parameter></invoke></minimax:tool_call>",
           calls=[("note", {"text": "<parameter>x</parameter>"})]),
    Sample("minimax-unclosed-parameter", "minimax_m2", None, '<minimax:tool_call>\n<invoke name="note">\n'
           '<parameter name="path">a\n<parameter name="text">b</parameter>\n</invoke>\n</minimax:tool_call>',
           calls=[("note", {"path": "a\n", "text": "b"})]),
    Sample("step3-call", "step3", "step3", "r</think>c<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
           '<steptml:invoke name="weather"><steptml:parameter name="city"> Rom </steptml:parameter>'
           '<steptml:parameter name="days">3</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
           content="c", thought="r", calls=[("weather", {"city": "Rom", "days": 3})]),
    Sample("step3-empty", "step3", None, '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>'
           '<steptml:invoke name="now"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>x', content="x",
           calls=[("now", {})]),
    Sample("step3-cut", "step3", None, '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>'
           '<steptml:invoke name="note"><steptml:parameter name="text">a', cut=True, finish="length"),
    # --- keys and values ----------------------------------------------------------------------------------------------
    *glm("lines", "One moment, please. <tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>00501</arg_value>\n"
         "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", content="One moment, please.",
         calls=[("weather", {"city": "00501", "days": 3})]),
    *glm("compact", "<tool_call>weather<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"
         "<tool_call>now</tool_call>", calls=[("weather", {"days": 3}), ("now", {})]),
    *glm("value-is-verbatim", "<tool_call>note<arg_key>text</arg_key><arg_value> <tool_call>\n</tool_call> <arg_key>\n"
         "</arg_value></tool_call>", calls=[("note", {"text": " <tool_call>\n</tool_call> <arg_key>\n"})]),
    *glm("value-closer-missing", "<tool_call>note<arg_key>text</arg_key><arg_value>a</tool_call>",
         calls=[("note", {"text": "a"})]),
    *glm("text-after", "First, <tool_call>now</tool_call> then.", content="First, then.",
         calls=[("now", {})]),
    *glm("call-closer-missing", "<tool_call>note<arg_key>text</arg_key><arg_value>a</arg_value>", cut=True,
         finish="length"),
    *glm("prose", "the <tool_call> tag opens", content="the <tool_call> tag opens"),
    # --- DeepSeek -----------------------------------------------------------------------------------------------------
    Sample("deepseek_v3-fence", "deepseek_v3", None, "go<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n"
           '```json\n{"text": "``` <｜tool▁sep｜>"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n'
           "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", content="go",
           calls=[("note", {"text": "``` <｜tool▁sep｜>"}), ("now", {})]),
    Sample("deepseek_v3-brace-missing", "deepseek_v3", None, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
           'note\n```json\n{"text": "a"\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>', cut=True),
    Sample("deepseek_v3-empty-section", "deepseek_v3", None, "a<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>", content="a"),
    Sample("deepseek_v31-call", "deepseek_v31", "deepseek_v3", "why</think>go<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now"
           "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", content="go", thought="why", calls=[("now", {})],
           kwargs={"thinking": True}),
    Sample("deepseek_v31-no-brace", "deepseek_v31", None, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>x"
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>b", content="b"),
    Sample("deepseek_v31-closers-swapped", "deepseek_v31", None, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}"
           "<｜tool▁calls▁end｜><｜tool▁call▁end｜>b", content="b", calls=[("now", {})]),
    Sample("deepseek_v31-no-separator", "deepseek_v31", None, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now"
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>b", content="b"),
    Sample("deepseek_v31-two", "deepseek_v31", None, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{\"a\": [1]}"
           "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
           calls=[("now", {"a": [1]}), ("now", {})]),
    Sample("deepseek_v32-block", "deepseek_v32", None, 'go\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="note">\n'
           '<｜DSML｜parameter name="text" string="true"> 5\n</｜DSML｜parameter>\n<｜DSML｜parameter name="limit" '
           'string="false">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>', content="go",
           calls=[("note", {"text": " 5\n", "limit": 5})]),
    Sample("deepseek_v32-other-word-is-text", "deepseek_v32", None, "a<｜DSML｜tool_calls>b", content="a<｜DSML｜tool_calls>b"),
    Sample("deepseek_v32-bad-json-is-text", "deepseek_v32", None, '<｜DSML｜function_calls><｜DSML｜invoke name="note">'
           '<｜DSML｜parameter name="limit" string="false">five</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>',
           calls=[("note", {"limit": "five"})]),
    Sample("deepseek_v4-self-closing", "deepseek_v4", None, '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="now"/>\n'
           "</｜DSML｜tool_calls>", calls=[("now", {})]),
    Sample("deepseek_v4-json-body", "deepseek_v4", None, '<｜DSML｜tool_calls><｜DSML｜invoke name="note">{"text": "a"}'
           "</｜DSML｜invoke></｜DSML｜tool_calls>", calls=[("note", {"text": "a"})]),
    Sample("deepseek_v4-bare-invoke", "deepseek_v4", None, 'a\n\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\nb',
           content="ab", calls=[("now", {})]),
    Sample("deepseek_v4-ends-reasoning", "deepseek_v4", "deepseek_v4", 'why\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke '
           'name="now">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', thought="why", calls=[("now", {})]),
    Sample("deepseek_v41-space", "deepseek_v41", None, '<｜DSML｜ calls>\n<｜DSML｜ invoke name="note">\n<｜DSML｜ parameter '
           'name="text" string="true">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>',
           calls=[("note", {"text": "x"})]),
    Sample("deepseek_v41-without-space-is-text", "deepseek_v41", None, "<｜DSML｜calls>", content="<｜DSML｜calls>"),
    Sample("deepseek_v41-cut", "deepseek_v41", None, 'a\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="note">\n<｜DSML｜ parameter '
           'name="text" string="true">x', content="a", cut=True, finish="length"),
    # --- bare JSON ----------------------------------------------------------------------------------------------------
    *llama("call", '{"name": "weather", "parameters": {"city": "}"}}', calls=[("weather", {"city": "}"})]),
    *llama("several", '{"name": "now", "arguments": {}}; {"name": "now", "parameters": {"a": ";"}}',
           calls=[("now", {}), ("now", {"a": ";"})]),
    *llama("answer", '{"k": 2} shows the shape', content='{"k": 2} shows the shape'),
    *llama("empty-object", "{}", content="{}"),
    *llama("no-name", '{"parameters": {"q": 1}}', content='{"parameters": {"q": 1}}'),
    *llama("parameters-first", '{"parameters": {"q": 1}, "name": "now"}', calls=[("now", {"q": 1})]),
    *llama("tag", 'Sure. <|python_tag|>{"type": "function", "name": "now", "parameters": {}}', content="Sure. ",
           calls=[("now", {})]),
    *llama("tag-and-code", '<|python_tag|>search.call(q="x")', content='search.call(q="x")'),
    *llama("text-after", '{"name": "now"} and more', content=" and more", calls=[("now", {})]),
    *llama("text-before-is-no-call", 'So: {"name": "now"}', content='So: {"name": "now"}'),
    *llama("cut-after-key", '{"name": ', finish="length"),
    *llama("cut-in-name", '{"name": "we', finish="length"),
    # --- Python -------------------------------------------------------------------------------------------------------
    *python("call", "[weather(city='Rom', days=+2), now()]", calls=[("weather", {"city": "Rom", "days": 2}), ("now", {})]),
    *python("literals", r"""[note(_text="it's \"q\" \x41\u00e9", tags=[1, -2.5, None, True, ('a',)], meta={'k': {1}})]""",
            calls=[("note", {"_text": 'it\'s "q" Aé', "tags": [1, -2.5, None, True, ["a"]], "meta": {"k": [1]}})]),
    *python("strings", "[note(text='''a\n'b' \"c\"''', path='x' \"y\", label=r'\\n')]",
            calls=[("note", {"text": "a\n'b' \"c\"", "path": "xy", "label": "\\n"})]),
    *python("unknown-escape", r"[note(text='\d+\.')]", calls=[("note", {"text": "\\d+\\."})]),
    *python("list-answer", "[1, 2]", content="[1, 2]"),
    *python("positional", "[f(1)]", content="[f(1)]"),
    *python("dotted", "[a.f(x=1)]", calls=[("a.f", {"x": 1})]),
    *python("hyphens-in-an-offered-name", "[get-it(two-words=1), get-it()]",
            calls=[("get-it", {"two-words": 1}), ("get-it", {})]),
    *python("hyphens-in-another-name", "[get-this(a=1)]", content="[get-this(a=1)]"),
    *python("names-in-other-scripts", "[ändern(城市='x', é=1), now()]",
            calls=[("ändern", {"城市": "x", "é": 1}), ("now", {})]),
    *python("cut", "[now(), note(text='a", calls=[("now", {})], cut=True, finish="length"),
    *python("cut-in-keyword", "[now(), note(te", calls=[("now", {})], cut=True, finish="length"),
    *python("cut-before-decided", "[note(te", finish="length"),
    *python("stop-before-decided", "[note(te", content="[note(te"),
    *python("text-after", "[now()] done", content=" done", calls=[("now", {})]),
    Sample("llama4_pythonic-tags", "llama4_pythonic", None, "<|python_start|>[now()]<|python_end|>", calls=[("now", {})]),
    Sample("pythonic-has-no-tags", "pythonic", None, "<|python_start|>[now()]", content="<|python_start|>[now()]",
           only="text"),
    # --- Mistral ------------------------------------------------------------------------------------------------------
    Sample("mistral-new", "mistral", "mistral", "[THINK]a[/THINK]b[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]weather[ARGS]"
           '{"days": 1}', content="b", thought="a", calls=[("now", {}), ("weather", {"days": 1})]),
    Sample("mistral-call-id", "mistral", None, "[TOOL_CALLS]now[CALL_ID]abcDEF123[ARGS]{}", calls=[("now", {})],
           ids=("abcDEF123",)),
    Sample("mistral-no-args-marker", "mistral", None, '[TOOL_CALLS]now{"a": 1}', calls=[("now", {"a": 1})]),
    Sample("mistral-old", "mistral", None, 'Hi[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"arguments": {"a": 1}, '
           '"name": "now", "id": "x"}]', content="Hi", calls=[("now", {}), ("now", {"a": 1})]),
    Sample("mistral-old-single", "mistral", None, '[TOOL_CALLS]{"name": "now", "arguments": {}}', calls=[("now", {})]),
    Sample("mistral-text-after", "mistral", None, "[TOOL_CALLS]now[ARGS]{} bye", content=" bye", calls=[("now", {})]),
    Sample("mistral-opener-in-thought", "mistral", "mistral", "[THINK]a [TOOL_CALLS]now[ARGS]{} b[/THINK]c", content="c",
           thought="a [TOOL_CALLS]now[ARGS]{} b"),
    Sample("mistral-cut-at-opener", "mistral", None, "a[TOOL_CALLS]", content="a", finish="length"),
    Sample("mistral-cut-in-arguments", "mistral", None, '[TOOL_CALLS]now[ARGS]{"a', cut=True, finish="length"),
    # --- Harmony ------------------------------------------------------------------------------------------------------
    Sample("openai-call", "openai", "openai_gptoss", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>"
           'commentary to=functions.weather <|constrain|>json<|message|>{"days": 1}<|call|>', thought="a",
           calls=[("weather", {"days": 1})], prompt="<|start|>assistant"),
    Sample("openai-recipient-in-role", "openai", "openai_gptoss", " to=functions.now<|channel|>analysis json<|message|>"
           "<|call|>", calls=[("now", {})], prompt="<|start|>assistant"),
    Sample("openai-channels", "openai", "openai_gptoss", "<|channel|>commentary<|message|>a<|end|><|start|>assistant"
           "<|channel|>final<|message|>b<|return|>", content="ab", prompt="<|start|>assistant"),
    Sample("openai-builtin", "openai", "openai_gptoss", "<|channel|>commentary to=python code<|message|>print(1)<|call|>"
           "<|start|>assistant<|channel|>final<|message|>ok", content="ok", prompt="<|start|>assistant"),
    Sample("openai-unknown-channel", "openai", "openai_gptoss", "<|channel|>other<|message|>x<|end|><|start|>assistant"
           "<|channel|>final<|message|>ok", content="ok", prompt="<|start|>assistant"),
    Sample("openai-switch-without-end", "openai", "openai_gptoss", "<|channel|>analysis<|message|>a<|channel|>final"
           "<|message|>b", content="b", thought="a", prompt="<|start|>assistant"),
    Sample("openai-prefilled-final", "openai", "openai_gptoss", "b", content="b",
           prompt="<|start|>assistant<|channel|>final<|message|>"),
    Sample("openai-plain-text", "openai", "openai_gptoss", "hello", content="hello", prompt="<|start|>assistant"),
    Sample("openai-cut-json", "openai", "openai_gptoss", ' to=functions.now<|channel|>commentary<|message|>{"a": "x<|call|>',
           cut=True, prompt="<|start|>assistant", only="ids"),
    Sample("openai-cut-in-role", "openai", "openai_gptoss", "<|channel|>analysis<|message|>a<|end|><|start|>as", thought="a",
           finish="length"),
    Sample("openai_gptoss-alone", None, "openai_gptoss", "<|channel|>analysis<|message|>a<|end|><|start|>assistant to="
           "functions.now<|channel|>commentary<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>b",
           content="b", thought="a", prompt="<|start|>assistant"),
    # --- Kimi ---------------------------------------------------------------------------------------------------------
    Sample("kimi_k2-text-around", "kimi_k2", None, "First, <|tool_calls_section_begin|> junk <|tool_call_begin|>now:0 "
           '<|tool_call_argument_begin|>{"a": "<|tool_call_end|>"} <|tool_call_end|><|tool_calls_section_end|> then.',
           content="First,  then.", calls=[("now", {"a": "<|tool_call_end|>"})], ids=("now:0",)),
    Sample("kimi_k2-dotted", "kimi_k2", None, "<|tool_calls_section_begin|><|tool_call_begin|>functions.a.b:12"
           "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>", calls=[("a.b", {})],
           ids=("functions.a.b:12",)),
    Sample("kimi_k2-counter-only", "kimi_k2", None, "<|tool_calls_section_begin|><|tool_call_begin|>2"
           "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>x", content="x"),
    Sample("kimi_k2-keeps-its-space", "kimi_k2", None, "Let me check. <|tool_calls_section_begin|><|tool_call_begin|>"
           "functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
           content="Let me check. ", calls=[("now", {})]),
    Sample("kimi_k3-call", "kimi_k3", "kimi_k3", "a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|>"
           '<|open|>tools<|sep|><|open|>call tool="note" index="1"<|sep|><|open|>argument key="q&amp;a" type="string"'
           '<|sep|>&amp; 1<|close|>argument<|sep|><|open|>argument key="limit" type="number"<|sep|>2<|close|>argument<|sep|>'
           "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>", content="b", thought="a",
           calls=[("note", {"q&a": "&amp; 1", "limit": 2})], prompt="<|open|>think<|sep|>"),
    Sample("kimi_k3-response-only", "kimi_k3", "kimi_k3", "<|open|>response<|sep|>b<|close|>response<|sep|>", content="b",
           prompt="<|open|>think<|sep|>"),
    Sample("kimi_k3-starts-in-response", "kimi_k3", "kimi_k3", "b<|close|>response<|sep|><|close|>message<|sep|>",
           content="b", prompt="<|open|>response<|sep|>"),
    Sample("kimi_k3-no-arguments", "kimi_k3", None, '<|open|>tools<|sep|><|open|>call tool="now" index="1"<|sep|><|close|>'
           "call<|sep|><|close|>tools<|sep|>", calls=[("now", {})], ids=(None,)),
    # --- Gemma --------------------------------------------------------------------------------------------------------
    Sample("gemma4-values", "gemma4", "gemma4", 'Go: <|tool_call>call:note{a key:<|"|>x, }] "q"\n<|"|>,n:[1, -2.5e3,true,null'
           ',word],o:{},e:[],s:<|"|><|"|>}<tool_call|> after', content="Go:  after",
           calls=[("note", {"a key": 'x, }] "q"\n', "n": [1, -2500.0, True, None, "word"], "o": {}, "e": [], "s": ""})]),
    Sample("gemma4-parallel", "gemma4", None, "<|tool_call>call:now{}<tool_call|><|tool_call>call:a-b.c{x:1}<tool_call|>",
           calls=[("now", {}), ("a-b.c", {"x": 1})]),
    Sample("gemma4-no-braces", "gemma4", None, "<|tool_call>call:now<tool_call|>b", content="b", calls=[("now", {})]),
    Sample("gemma4-not-a-call", "gemma4", None, "<|tool_call>call:now and then<tool_call|>b", content="b"),
    Sample("gemma4-closer-missing", "gemma4", None, "<|tool_call>call:now{a:1}", cut=True, finish="length"),
    Sample("gemma4-quoted-key", "gemma4", None, '<|tool_call>call:now{<|"|>a:b<|"|>:1}<tool_call|>', calls=[("now", {"a:b": 1})]),
    Sample("gemma4-broken", "gemma4", None, "<|tool_call>call:now{a:1]}<tool_call|>b", content="b", cut=True),
    # --- lists of objects ---------------------------------------------------------------------------------------------
    Sample("granite-list", "granite", None, 'Hm.\n<|tool_call|>[{"name": "now", "arguments": {}}, {"name": "weather", '
           '"arguments": {"days": 1}}]', content="Hm.", calls=[("now", {}), ("weather", {"days": 1})], only="ids"),
    Sample("granite-text-tag", "granite", None, '<tool_call>[{"name": "now", "arguments": {}}]', calls=[("now", {})],
           only="text"),
    Sample("granite-cut", "granite", None, '<|tool_call|>[{"name": "now"}, {"name": "weather", "arg', calls=[("now", {})],
           cut=True, finish="length"),
    Sample("granite-object-in-tags-is-granite4", "granite4", None, '<tool_call>{"name": "now", "arguments": {}}</tool_call>x',
           content="x", calls=[("now", {})]),
    Sample("phi4-list", "phi4_mini_json", None, 'functools[{"name": "note", "arguments": {"tags": ["]"]}}]',
           calls=[("note", {"tags": ["]"]})]),
    Sample("phi4-two", "phi4_mini_json", None, 'Ok functools[{"name": "now"}, {"name": "now", "parameters": {"a": 1}}]',
           content="Ok", calls=[("now", {}), ("now", {"a": 1})]),
    Sample("phi4-space-is-text", "phi4_mini_json", None, 'functools [{"name": "now"}]', content='functools [{"name": "now"}]'),
    # --- LongCat, InternLM --------------------------------------------------------------------------------------------
    Sample("longcat-call", "longcat", None, 'So.\n<longcat_tool_call>\n{"name": "now", "arguments": {"a": 1}}\n'
           "</longcat_tool_call>", content="So.", calls=[("now", {"a": 1})]),
    Sample("longcat-two", "longcat", None, '<longcat_tool_call>{"name": "now"}</longcat_tool_call>\n<longcat_tool_call>'
           '{"name": "now"}</longcat_tool_call> ok', content=" ok", calls=[("now", {}), ("now", {})]),
    Sample("longcat-hermes-tag-is-text", "longcat", None, '<tool_call>{"name": "now"}</tool_call>',
           content='<tool_call>{"name": "now"}</tool_call>'),
    Sample("internlm-call", "internlm", None, 'Look.<|action_start|><|plugin|>\n{"name": "now", "parameters": {"a": 1}}'
           "<|action_end|>", content="Look.", calls=[("now", {"a": 1})]),
    Sample("internlm-other-action-is-text", "internlm", None, "<|action_start|><|interpreter|>x",
           content="<|action_start|><|interpreter|>x"),
    Sample("internlm-cut", "internlm", None, '<|action_start|><|plugin|>{"name": "now", "parameters": {"a": 1}}', cut=True,
           finish="length"),
    # --- details of families whose numbered cases are in cases.py -----------------------------------------------------
    Sample("append-keeps-all", None, "minimax_m2_append_think", "why\n</think>\n\nso",
           content="<think>why\n</think>\n\nso"),
    Sample("append-call", "minimax_m2", "minimax_m2_append_think", 'a</think>\n<minimax:tool_call><invoke name="now">'
           "</invoke></minimax:tool_call>", content="<think>a</think>", calls=[("now", {})]),
    Sample("append-nothing", None, "minimax_m2_append_think", "", content="<think>", finish="length"),
    Sample("k2_horizon-json", "k2_horizon", None, '<ifm|tool_calls><ifm|tool_call>{"name": "now", "arguments": {"a": [1]}}'
           "</ifm|tool_call><ifm|tool_call>now</ifm|tool_call></ifm|tool_calls>x", content="x",
           calls=[("now", {"a": [1]}), ("now", {})]),
    Sample("k2_horizon-typed", "k2_horizon", None, "<ifm|tool_calls><ifm|tool_call>other<ifm|arg_key>a</ifm|arg_key>"
           "<ifm|arg_type>integer</ifm|arg_type><ifm|arg_value>7</ifm|arg_value><ifm|arg_key>b</ifm|arg_key><ifm|arg_type>"
           "string</ifm|arg_type><ifm|arg_value>7</ifm|arg_value></ifm|tool_call></ifm|tool_calls>",
           calls=[("other", {"a": 7, "b": "7"})]),
    Sample("k2_horizon-any-think-tag", None, "k2_horizon", "<ifm|think>a</ifm|think>b", content="b", thought="a"),
    Sample("m3-nested", "minimax_m3", None, "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name='note'>]<]minimax[>[<tags>"
           "]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[<item>5]<]minimax[>[</item>]<]minimax[>[</tags>"
           "]<]minimax[>[<meta>]<]minimax[>[<k>1]<]minimax[>[</k>]<]minimax[>[<k>2]<]minimax[>[</k>loose]<]minimax[>[</meta>"
           "]<]minimax[>[<limit>null]<]minimax[>[</limit>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
           calls=[("note", {"tags": ["a", "5"], "meta": {"k": ["1", "2"], "$text": "loose"}, "limit": None})]),
    Sample("m3-empty-and-repeated", "minimax_m3", None, "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=note>"
           "]<]minimax[>[<tags>]<]minimax[>[</tags>]<]minimax[>[<meta>]<]minimax[>[</meta>]<]minimax[>[<text>x]<]minimax[>["
           "</text>]<]minimax[>[<text>y]<]minimax[>[</text>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>z", content="z",
           calls=[("note", {"tags": [], "meta": {}, "text": "x"})]),
    Sample("m3-broken-element", "minimax_m3", None, "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=note>]<]minimax[>[<meta>"
           "]<]minimax[>[</text>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>b", content="b", cut=True),
    Sample("m3-close-after-a-broken-tag", "minimax_m3", None, "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=note>"
           "]<]minimax[>[]<]minimax[>[</invoke>]<]minimax[>[</tool_call>b", content="b", cut=True),
    Sample("m3-off-by-default", None, "minimax_m3", "b", content="b"),
    Sample("m3-on", None, "minimax_m3", "a</mm:think>b", content="b", thought="a", kwargs={"thinking_mode": "enabled"}),
    Sample("m3-disabled", None, "minimax_m3", "b", content="b", kwargs={"thinking_mode": "disabled"}),
    Sample("minicpm5-xml", "minicpm5", None, '<function name="note"><param name="text"> a &lt;b&gt; &amp;amp; &#65;&#x42; &no; &'
           ' </param><param name="path"><![CDATA[x </param> & ]] ]]></param><param name="limit">2</param></function>',
           calls=[("note", {"text": "a <b> &amp; AB &no; &", "path": "x </param> & ]] ", "limit": 2})]),
    Sample("minicpm5-cut-in-opener", "minicpm5", None, "Hm.\n<function", content="Hm.", finish="length"),
    Sample("minicpm5-ends-with-a-tag", "minicpm5", None, "Hm.\n<function", content="Hm.\n<function"),
    Sample("minicpm5-cut-after-a-bracket", "minicpm5", None, "if a <", content="if a <", finish="length"),
    Sample("minicpm5-mixed-cdata", "minicpm5", None, '<function name="note"><param name="text">a <![CDATA[<b>]]>\n<![CDATA[c'
           "]]>\n</param></function>", calls=[("note", {"text": "a <b>\nc"})]),
    Sample("minicpmv-newlines", None, "minicpmv", r"a</think>b\nc \(\nu\) \d\[\n\]\n", content="b\nc \\(\\nu\\) \\d\\[\\n\\]\n",
           thought="a"),
    Sample("xlam-tool-calls-tag", "xlam", None, 'Ok.\n[TOOL_CALLS][{"name": "now", "arguments": {}}]', content="Ok.",
           calls=[("now", {})]),
    Sample("xlam-tag", "xlam", None, '<tool_call>\n{"name": "now", "arguments": {"a": 1}}\n</tool_call>',
           calls=[("now", {"a": 1})]),
    Sample("xlam-fence-that-is-no-call", "xlam", None, 'See\n```json\n{"a": 1}\n```\nthere', content='See\n```json\n{"a": 1}\n```\n'
           "there"),
    Sample("xlam-cut-behind-opener", "xlam", None, 'Ok.\n[TOOL_CALLS][{"', content="Ok.", finish="length"),
    Sample("xlam-ends-behind-opener", "xlam", None, "See [TOOL_CALLS][", content="See [TOOL_CALLS]["),
    Sample("xlam-after-thinking", "xlam", "deepseek_r1", 'a</think>\n[{"name": "now"}]', thought="a", calls=[("now", {})]),
    Sample("dots-json", "dots", None, '<dots_function_call>\n{"name": "now", "arguments": {"a": "</dots_function_call>"}}\n'
           "</dots_function_call>ok", content="ok", calls=[("now", {"a": "</dots_function_call>"})]),
    Sample("dots-json-after-junk-is-none", "dots", None, '<dots_function_call>x {"name": "now"}</dots_function_call>'),
    Sample("gigachat-words", "gigachat3", None, 'Ok<|message_sep|>function call<|role_sep|>\n{"name": "now", "arguments": {}}',
           content="Ok", calls=[("now", {})], only="text"),
    Sample("gigachat-words-alone", "gigachat3", None, "a function call", content="a function call"),
    Sample("gigachat-string-arguments", "gigachat3", None, '<|function_call|>{"name": "now", "arguments": 5}', cut=True),
    Sample("apertus-empty-object", "apertus", None, 'a<|tools_prefix|>[{}, {"now": null}]<|tools_suffix|>b', content="ab",
           calls=[("now", {})]),
    Sample("cohere-model-ids", "cohere_command3", "cohere_command3", '<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>['
           '{"tool_call_id": "7", "tool_name": "now", "parameters": {}}]<|END_ACTION|>', thought="a", calls=[("now", {})],
           ids=("7",)),
    Sample("cohere4-text", None, "cohere_command4", "<|START_TEXT|>a<|END_TEXT|>", content="a"),
    Sample("ernie-no-response-tags", None, "ernie45", "a\n</think>\n\nb\n", content="b\n", thought="a"),
    Sample("hunyuan-empty-think", None, "hunyuan_a13b", "<think>\n\n</think>\n<answer>\nb\n</answer>", content="b"),
    Sample("hy_v3-off-by-default", None, "hy_v3", "b", content="b"),
    Sample("hy_v4-no-think", None, "hy_v4", "b", content="b", kwargs={"reasoning_effort": "no_think"}),
    Sample("functiongemma-bare", "functiongemma", None, "<start_function_call>call:note{text:<escape>5<escape>,limit:5,path:<escape>"
           "a b<escape>}<end_function_call>", calls=[("note", {"text": 5, "limit": 5, "path": "a b"})]),
    Sample("olmo3-newline-in-string", "olmo3", None, "<function_calls>\nnote(text='a\nb')\nnow(a=null)\n</function_calls>x",
           content="x", calls=[("note", {"text": "a\nb"}), ("now", {"a": None})]),
    Sample("olmo3-broken", "olmo3", None, "a<function_calls>\nnow()\nnow(1)\n</function_calls>b", content="ab",
           calls=[("now", {})], cut=True),
    Sample("lfm2-broken", "lfm2", None, "a<|tool_call_start|>[now(), now(a=[)]<|tool_call_end|>b", content="ab",
           calls=[("now", {})], cut=True),
    Sample("lfm2-text-around", "lfm2", None, "a <|tool_call_start|>[now()]<|tool_call_end|>b", content="ab",
           calls=[("now", {})]),
    Sample("plamo-ends-reasoning", "plamo3", "plamo3", "a<|plamo:end_think:plamo|>b<|plamo:begin_think:plamo|>c"
           "<|plamo:end_think:plamo|>d", content="bd", thought="ac"),
    Sample("poolside-untyped", "poolside_v1", None, "<tool_call>other\n<arg_key>a</arg_key><arg_value>[1]</arg_value><arg_key>b"
           "</arg_key><arg_value>x</arg_value></tool_call>", calls=[("other", {"a": [1], "b": "x"})]),
    Sample("muse-header-without-end", "muse", "muse", " to=self<|message|>a to=user<|message|>b to=", content="b to=",
           thought="a", prompt="<|start|>assistant"),
    Sample("muse-no-recipient", "muse", "muse", "<|message|>a<|eom|><|start|>assistant to=commentary<|message|>b<|eom|>"
           "<|start|>assistant to=developer<|message|>c<|eot|>", content="b", thought="a", prompt="<|start|>assistant"),
    Sample("muse-invoke-in-thought", "muse", "muse", ' to=self<|message|><atem:invoke name="now"></atem:invoke><|eom|>',
           thought='<atem:invoke name="now"></atem:invoke>', prompt="<|start|>assistant"),
    Sample("muse-typing", "muse", None, ' to=t<|message|><atem:function_calls><atem:invoke x="1" name="note"><atem:parameter '
           'name="text">5</atem:parameter><atem:parameter name="other" y="2">[5]</atem:parameter></atem:invoke>'
           "</atem:function_calls><|eot|>", calls=[("note", {"text": "5", "other": [5]})], prompt="<|start|>assistant"),
    Sample("muse-key-of-two-words", "muse", None, ' to=t<|message|><atem:function_calls><atem:invoke name="note"><atem:parameter '
           'a="1" name="two words" b="2">x</atem:parameter></atem:invoke></atem:function_calls><|eot|>',
           calls=[("note", {"two words": "x"})], prompt="<|start|>assistant"),
    Sample("muse-key-with-apostrophe", "muse", None, " to=t<|message|><atem:function_calls><atem:invoke name='note'>"
           """<atem:parameter name="it's">x</atem:parameter></atem:invoke></atem:function_calls><|eot|>""",
           calls=[("note", {"it's": "x"})], prompt="<|start|>assistant"),
    Sample("minimax-key-with-apostrophe", "minimax_m2", None, "<minimax:tool_call><invoke name='note'>"
           """<parameter name="it's">x</parameter><parameter name='text'>y</parameter></invoke></minimax:tool_call>""",
           calls=[("note", {"it's": "x", "text": "y"})]),
    Sample("dsml-key-with-apostrophe", "deepseek_v4", None, '<｜DSML｜tool_calls><｜DSML｜invoke name="note">'
           """<｜DSML｜parameter name="it's" string="false">1</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>""",
           calls=[("note", {"it's": 1})]),
    Sample("step3-key-with-apostrophe", "step3", None, '<｜tool_calls_begin｜><steptml:invoke name="note">'
           """<steptml:parameter name="it's">x</steptml:parameter></steptml:invoke><｜tool_calls_end｜>""",
           calls=[("note", {"it's": "x"})]),
    Sample("minicpm5-key-with-apostrophe", "minicpm5", None,
           """<function name="note"><param name="it's">x</param></function>""", calls=[("note", {"it's": "x"})]),
    Sample("glimmer-typing", "muse_glimmer", None, ' to=t<|message|><atem:function_calls><atem:invoke name="note"><atem:parameter '
           'name="text">5</atem:parameter></atem:invoke></atem:function_calls><|eot|>', calls=[("note", {"text": 5})],
           prompt="<|start|>assistant"),
    Sample("glimmer-no-recipient", None, "muse_glimmer", "<|message|>b<|eot|>", content="b", prompt="<|start|>assistant"),
    Sample("muse-cut-in-header", None, "muse", " to=se", prompt="<|start|>assistant", finish="length"),
    Sample("inkling-text-without-kind", None, "inkling", "b<|end_message|>", content="b", prompt="<|message_model|>"),
    Sample("inkling-prompt-in-thought", None, "inkling", "a \n<|end_message|><|message_model|><|content_tool_error|>b", content="b",
           thought="a", prompt="<|message_model|><|content_thinking|>"),
    Sample("inkling-no-args", "inkling", None, '<|content_invoke_tool_json|>{"name": "now"}<|end_message|>', calls=[("now", {})],
           prompt="<|message_model|>"),
    Sample("granite-20b-text-around", "granite-20b-fc", None, 'a\n<function_call> {"name": "now", "arguments": {}} b',
           content="a b", calls=[("now", {})]),
    Sample("jamba-string-arguments", "jamba", None, '<tool_calls>[{"name": "now", "arguments": "{}"}]</tool_calls>', calls=[("now", {})]),
]  # fmt: skip
