"""Golden cases of the parser path: what a client accumulates equals the golden, by a named rule where not literally.

A golden's deltas depend on where its maker was cut, so sums are compared: texts, calls in order (name, arguments as
JSON), finish and stop reason, usage, ids, number of logprob entries, roles. Where we differ on purpose, one normalizer
rewrites the golden as the rule says; every use is counted, and the counts are asserted, so that a new difference shows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import pytest

from schemas.generate import GenerateChunk, GenerateResponse
from schemas.request import RequestContext
from schemas.state import StreamState
from tests import shared_data
from tests.core import golden_runner as runner
from tests.core.golden_runner import Case, Sum
from worker.core.model import Model
from worker.core.prepare import PreparedRequest, prepare
from worker.core.step import derender, derender_step

pytestmark = pytest.mark.shared

CUTS = (1, 2, 3, 7, None)
MODES = ("eager", "complete")

CALLS = {
    "hermes": r"<tool_call>.*?</tool_call>",
    "qwen3_coder": r"<tool_call>.*?</tool_call>",
    "deepseek_v3": r"<｜tool▁calls▁begin｜>.*?<｜tool▁calls▁end｜>",
    "deepseek_v31": r"<｜tool▁calls▁begin｜>.*?<｜tool▁calls▁end｜>",
    "deepseek_v32": r"<｜DSML｜function_calls>.*?</｜DSML｜function_calls>",
    "deepseek_v4": r"<｜DSML｜tool_calls>.*?</｜DSML｜tool_calls>",
    "gemma4": r"<\|tool_call>.*?<tool_call\|>",
    "llama3_json": r"(?:^|<\|python_tag\|>)\{.*\}",
    "openai": r"<\|channel\|>commentary.*?<\|call\|>",
}
"""How whole calls look in the text of an output, by tool parser."""

GAPS = {"hermes": r"\s+", "qwen3_coder": r"\s+", "deepseek_v32": "\n\n", "deepseek_v4": "\n\n"}
"""What stands between content and the first call without being content (policy 16)."""


@dataclass
class Output:
    """What one choice of a case was made from. text: of all ids, markers included."""

    text: str
    tool: str
    streamed: bool
    choice: Any
    special: list[str]

    @property
    def call(self) -> str:
        return CALLS.get(self.tool, r"(?!)")

    @property
    def gap(self) -> str:
        return GAPS.get(self.tool, "")


def native_tool_parser(case: Case) -> str:
    """Name of the tool parser whose own markup the case is about, if any."""
    parsers = case["parsers"]
    native = parsers.get("enable_auto_tools") and case["category"] != "parser-forced-json"
    return parsers.get("tool") or "" if native else ""


def outputs(case: Case) -> dict[int, Output]:
    vocabulary = runner.model(case).vocabulary
    ids: dict[int, list[int]] = {}
    for chunk in case.get("chunks") or [case["request"]["generate_response"]]:
        for choice in chunk["choices"]:
            ids.setdefault(choice["index"], []).extend(choice.get("token_ids") or [])
    special = [vocabulary.added[id_] for id_ in vocabulary.special if id_ in vocabulary.added]
    return {
        index: Output(
            text=vocabulary.tokenizer.decode(own, skip_special_tokens=False),
            tool=native_tool_parser(case),
            streamed="chunks" in case,
            choice=(case["request"].get("chat_request") or {}).get("tool_choice"),
            special=special,
        )
        for index, own in ids.items()
    }


# --- the normalizer: what a golden says under our rules ---------------------------------------------------------------


def ended_by_call(golden: Sum, output: Output, ours: Sum) -> Sum:
    """dsml.md: a block of calls ends the reasoning, in all three generations; the golden's maker did not for V3.2."""
    if output.tool != "deepseek_v32" or not (block := re.search(output.call, golden.reasoning, re.DOTALL)):
        return golden
    calls = []
    for name, body in re.findall(r'｜invoke name="(.*?)">(.*?)</｜DSML｜invoke>', block[0], re.DOTALL):
        values = re.findall(r'｜parameter name="(.*?)" string="(.*?)">(.*?)</', body, re.DOTALL)
        arguments = {key: text if string == "true" else json.loads(text) for key, string, text in values}
        calls.append({"id": "", "name": name, "arguments": json.dumps(arguments)})
    return replace(golden, reasoning=golden.reasoning[: block.start()], calls=calls, finish_reason="tool_calls")


def joined_messages(golden: Sum, output: Output, ours: Sum) -> Sum:
    """37: messages of one channel are joined with nothing between them."""
    parts = re.findall(r"<\|channel\|>analysis<\|message\|>(.*?)<\|end\|>", output.text, re.DOTALL)
    return replace(golden, reasoning="".join(parts)) if golden.reasoning == "\n".join(parts) else golden


def unwanted_calls(golden: Sum, output: Output, ours: Sum) -> Sum:
    """36: with `none` the markup is consumed, gap included, and the calls are dropped."""
    if output.choice != "none":
        return golden
    return replace(golden, text=re.sub(f"(?:{output.gap})?" + output.call, "", golden.text, flags=re.DOTALL))


def special_tokens(golden: Sum, output: Output, ours: Sum) -> Sum:
    """common.md 10: a special token that the grammar does not name is dropped, by its id."""
    text = golden.text
    for token in output.special:
        text = text.replace(token, "")
    return replace(golden, text=text)


def reasoning_newlines(golden: Sum, output: Output, ours: Sum) -> Sum:
    """15: newlines after the opener and before the closer are the template's; a cut reasoning keeps its end (9)."""
    cut = golden.finish_reason == "length" and not golden.text and not golden.calls
    text = golden.reasoning.lstrip("\n")
    return replace(golden, reasoning=text if cut else text.rstrip("\n"))


def content_gaps(golden: Sum, output: Output, ours: Sum) -> Sum:
    """16: newlines after the reasoning, and the family's gap before the first call, are the template's.

    Where a family has no gap, whitespace before a call is content; the golden's maker strips it from whole results.
    """
    text = golden.text
    if "</think>" in output.text and not (
        text.strip() and re.search(rf"</think>\s*{output.call}", output.text, re.DOTALL)
    ):
        text = text.lstrip("\n")
    before = re.search(r"(\s*)" + output.call, output.text, re.DOTALL)
    if before and output.gap:
        text = re.sub(f"(?:{output.gap})$", "", text)
    elif before and golden.calls and before[1] and output.text[: before.start()].endswith(text):
        text += before[1]
    return replace(golden, text=text)


def text_after_call(golden: Sum, output: Output, ours: Sum) -> Sum:
    """17: what stands between and after calls is content, without the newlines after their closers (35)."""
    _, *after = re.split(output.call, output.text, flags=re.DOTALL)
    if not golden.calls or output.tool == "openai":
        return golden
    for token in output.special:
        after = [text.replace(token, "") for text in after]
    after = [re.sub(f"(?:{output.gap})$", "", text) for text in after[:-1]] + after[-1:]
    told = "".join(text.lstrip("\n") for text in after)
    if golden.text.endswith("".join(after)):
        return replace(golden, text=golden.text.removesuffix("".join(after)) + told)
    return golden if golden.text.endswith(told) else replace(golden, text=golden.text + told)


def only_whitespace(golden: Sum, output: Output, ours: Sum) -> Sum:
    """35: content that is nothing but whitespace is none."""
    return golden if golden.text.strip() else replace(golden, text="")


def cut_call(golden: Sum, output: Output, ours: Sum) -> Sum:
    """6: a cut call is no call in a whole result; an eager stream shows it as far as it was written, not closed."""
    *before, last = golden.calls or [{"arguments": ""}]
    if golden.finish_reason != "length" or len(re.findall(output.call, output.text, re.DOTALL)) == len(golden.calls):
        return golden
    if not output.streamed:
        return replace(golden, calls=before)
    written = ours.calls[-1]["arguments"] if len(ours.calls) == len(golden.calls) else ""
    if written and last["arguments"].startswith(written):
        return replace(golden, calls=[*before, last | {"arguments": written}])
    return golden


RULES: dict[str, Callable[[Sum, Output, Sum], Sum]] = {
    "dsml: a block ends reasoning": ended_by_call,
    "37 joined messages": joined_messages,
    "36 tool_choice none": unwanted_calls,
    "common 10 special tokens": special_tokens,
    "15 newlines of reasoning": reasoning_newlines,
    "16 gaps of content": content_gaps,
    "17 text after calls": text_after_call,
    "35 only whitespace": only_whitespace,
    "6 cut call": cut_call,
}


def arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return ("not JSON", text)


def compared(one: Sum) -> tuple[Any, ...]:
    calls = [(call["name"], arguments(call["arguments"])) for call in one.calls]
    ends = (one.finish_reason, one.stop_reason)
    return one.text, one.reasoning, calls, ends, one.roles, one.token_ids, len(one.logprobs)


def rules_between(golden: Sum, output: Output, ours: Sum) -> tuple[str, ...] | None:
    """The rules by which ours follows from the golden; None: it does not."""
    uses = []
    for name, rule in RULES.items():
        changed = rule(golden, output, ours)
        if compared(changed) != compared(golden):
            uses.append(name)
        golden = changed
    return tuple(uses) if compared(golden) == compared(ours) else None


# --- a case and its verdict -------------------------------------------------------------------------------------------


def model_of(case: Case, **parsers: Any) -> Model:
    forced = "json" if case["category"] == "parser-forced-json" else "native"
    return runner.model(case, forced_tool_format=forced, **parsers)


def cases() -> list[Case]:
    names = [name for name in shared_data.golden_categories() if name != "errors"]
    return [case for case in shared_data.golden(*names) if not runner.is_plain(case)]


def usage_of(answer: Any) -> list[Any]:
    return [runner.without_nulls(one.get("usage")) for one in (answer if isinstance(answer, list) else [answer])]


def source(case: Case) -> str:
    """What a case was made from, whatever its cut: cases of the same source should say the same."""
    own: dict[int, dict[str, Any]] = {}
    for chunk in case.get("chunks") or [case["request"]["generate_response"]]:
        for choice in chunk["choices"]:
            one = own.setdefault(choice["index"], {"ids": [], "logprobs": 0, "end": None})
            one["ids"] += choice.get("token_ids") or []
            one["logprobs"] += len((choice.get("logprobs") or {}).get("content") or [])
            one["end"] = choice.get("finish_reason") or one["end"]
    request = case["request"]
    chat = {key: value for key, value in (request.get("chat_request") or {}).items() if not key.startswith("stream")}
    parts = (case["category"], case["parsers"], request.get("prompt_token_ids"), chat, sorted(own.items()))
    return json.dumps(parts, sort_keys=True)


@cache
def by_source() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases():
        found.setdefault(source(case), []).append(case)
    return found


@dataclass(frozen=True)
class Verdict:
    """word: equal, by rule, sibling (a suspect golden, of whose source we equal another cut), suspect, unexplained."""

    word: str
    rules: tuple[str, ...] = ()
    detail: str = ""


def against(golden: Case, case: Case, ours: dict[int, Sum]) -> tuple[str, ...] | None:
    theirs = runner.sums_of(golden, golden["expected"])
    if theirs.keys() != ours.keys():
        return None
    uses: list[str] = []
    for index, output in outputs(case).items():
        if index not in ours:
            continue
        rules = rules_between(theirs[index], output, ours[index])
        if rules is None:
            return None
        uses += [rule for rule in rules if rule not in uses]
    return tuple(uses)


VERDICTS: dict[str, Verdict] = {}


def verdict(case: Case) -> Verdict:
    if case["id"] not in VERDICTS:
        VERDICTS[case["id"]] = _verdict(case)
    return VERDICTS[case["id"]]


def _verdict(case: Case) -> Verdict:
    status, answer = runner.run(case, model_of(case))
    if status != 200:
        return Verdict("unexplained", detail=f"{status}: {answer}")
    ours = runner.sums_of(case, answer)
    if usage_of(answer) != usage_of(case["expected"]):
        return Verdict("unexplained", detail=f"usage {usage_of(answer)}, golden {usage_of(case['expected'])}")
    rules = against(case, case, ours)
    if rules is not None:
        return Verdict("by rule" if rules else "equal", rules)
    detail = f"ours {ours}\ngolden {runner.sums_of(case, case['expected'])}"
    if not case.get("suspect"):
        return Verdict("unexplained", detail=detail)
    for sibling in by_source()[source(case)]:
        if against(sibling, case, ours) is not None:
            return Verdict("sibling", detail=detail)
    return Verdict("suspect", detail=f"{case['suspect_reason']}\n{detail}")


WORDS = {"equal": 493, "by rule": 213, "sibling": 63, "suspect": 24}
"""How many goldens have which verdict."""

USES = {
    "15 newlines of reasoning": 154,
    "16 gaps of content": 110,
    "17 text after calls": 14,
    "common 10 special tokens": 13,
    "36 tool_choice none": 10,
    "6 cut call": 10,
    "35 only whitespace": 2,
    "dsml: a block ends reasoning": 2,
    "37 joined messages": 1,
}
"""How many goldens need which rule."""

NO_CALL: tuple[str, list[Any]] = ("", [])
SUSPECT: dict[str, tuple[str, tuple[str, list[Any]]]] = {
    "forced-misc-A-required-noparams": ("3: a call without arguments has {}", ("", [("add", {})])),
    "forced-misc-A-required-nullparams": ("3: never null", ("", [("add", {})])),
    "forced-misc-A-required-arguments": ("13: `arguments` is read like `parameters`", ("", [("add", {"a": 1})])),
    "forced-misc-A-named-nonjson": ("3, 19: what is no object is no call", ("hello", [])),
    "harmony-A-badjson-tool": ("12: arguments that do not parse", NO_CALL),
    "harmony-A-header-cut": ("10, 18: cut in a header", NO_CALL),
    "misc-A-hermes-badjson": ("12: arguments that do not parse", NO_CALL),
    "misc-A-hermes-strargs": ("3: never encoded twice", ("", [("add", {"a": 1})])),
    "misc-A-hermes-nested": ("20: no marker inside a string", ("", [("note", {"text": "</tool_call> <tool_call>"})])),
    "misc-A-hermes-onlyopen": ("10: cut after an opener", ("x", [])),
    "misc-A-hermes-noargs": ("3: a call without arguments has {}", ("", [("add", {})])),
    "misc-A-hermes-nullargs": ("3: never null", ("", [("add", {})])),
}
"""Outputs for which no golden says what the policies ask for: the policy, and our content and calls."""


@pytest.mark.parametrize("case", shared_data.params(cases()))
def test_golden(case: Case) -> None:
    """Equal to the golden as the rules rewrite it; only a golden that its maker suspects may be something else."""
    shared_data.count("golden")
    found = verdict(case)
    assert found.word != "unexplained", found.detail


# --- other cuts -------------------------------------------------------------------------------------------------------


def joined(case: Case) -> dict[int, dict[str, Any]]:
    """Each choice of a case with all that its chunks bring."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in (
        runner.recut_stream(case, None)["chunks"] if "chunks" in case else [case["request"]["generate_response"]]
    ):
        for part in chunk["choices"]:
            one = choices.setdefault(part["index"], {"index": part["index"], "token_ids": []})
            one["token_ids"] = one["token_ids"] + (part.get("token_ids") or [])
            if (entries := (part.get("logprobs") or {}).get("content")) is not None:
                one.setdefault("logprobs", {"content": []})["content"] += entries
            one |= {name: part[name] for name in ("finish_reason", "stop_reason") if part.get(name) is not None}
    return choices


def request_of(case: Case, mode: str) -> PreparedRequest:
    names = ("prompt_token_ids", "prompt_tokens", "chat_request")
    fields = {name: case["request"].get(name) for name in names}
    context = msgspec.json.decode(json.dumps({"kind": "chat"} | fields).encode(), type=RequestContext)
    return prepare(model_of(case, tool_call_streaming=mode), context, request_id="r", created=1)


def streamed(case: Case, mode: str, size: int | None) -> dict[int, Sum]:
    """The sums of a stream cut into `size` ids, the state through bytes at every cut."""
    request = request_of(case, mode)
    recut = runner.recut_stream(case, size) if "chunks" in case else runner.streams_of_batch(case, size)[0]
    states: dict[int, bytes] = {}
    replies = []
    for body in recut["chunks"]:
        chunk = msgspec.json.decode(json.dumps(body).encode(), type=GenerateChunk)
        index = chunk.choices[0].index if chunk.choices else 0
        before = msgspec.json.decode(states[index], type=StreamState) if index in states else None
        reply, after = derender_step(request, chunk, before)
        states[index] = msgspec.json.encode(after)
        replies.append(msgspec.to_builtins(reply))
    return runner.accumulate(replies)


def whole(case: Case) -> dict[int, Sum]:
    body: dict[str, Any] = {"choices": list(joined(case).values())}
    for chunk in case.get("chunks") or [case["request"]["generate_response"]]:
        body |= {name: chunk[name] for name in ("prompt_token_ids",) if chunk.get(name)}
    response = msgspec.json.decode(json.dumps(body).encode(), type=GenerateResponse)
    return runner.whole(msgspec.to_builtins(derender(request_of(case, "complete"), response)))


SOURCES = [found[0] for found in by_source().values()]


@pytest.mark.parametrize("case", shared_data.params(SOURCES))
def test_other_cuts(case: Case) -> None:
    """Every cut adds up to the same: `complete` to the whole result, `eager` to it and at most one cut call."""
    shared_data.count("golden")
    ended = "chunks" not in case or all(one.get("finish_reason") and one["token_ids"] for one in joined(case).values())
    sums: dict[str, list[dict[int, Sum]]] = {mode: [streamed(case, mode, size) for size in CUTS] for mode in MODES}
    for mode in MODES:
        first, *others = ({index: compared(one) for index, one in cut.items()} for cut in sums[mode])
        assert all(other == first for other in others), mode
        if mode == "complete" and ended:
            assert first == {index: compared(one) for index, one in whole(case).items()}
    for index, eager in sums["eager"][0].items():
        sure = sums["complete"][0][index]
        assert eager.calls[: len(sure.calls)] == sure.calls
        assert len(eager.calls) <= len(sure.calls) + 1
        assert compared(replace(eager, calls=sure.calls)) == compared(sure)


def base(case: Case) -> str:
    """A golden's id without the cut."""
    return re.sub(r"-(batch|s\d|whole|stream)$", "", case["id"])


def test_verdicts_are_counted() -> None:
    """A difference that is new, or gone, shows as another number."""
    words = Counter(verdict(case).word for case in cases())
    uses = Counter(rule for case in cases() for rule in verdict(case).rules)
    print(*sorted(words.items()), *sorted(uses.items()), sep="\n")
    assert (words, uses) == (WORDS, USES)


@pytest.mark.parametrize("name", SUSPECT)
def test_what_no_golden_says(name: str) -> None:
    """Where all goldens of an output are suspect and we equal none, ours is what the policies ask for."""
    found = next(case for case in cases() if base(case) == name)
    one = whole(found)[0]
    calls = [(call["name"], arguments(call["arguments"])) for call in one.calls]
    assert (one.text, calls) == SUSPECT[name][1]


def test_every_suspect_is_named() -> None:
    assert {base(case) for case in cases() if verdict(case).word == "suspect"} == SUSPECT.keys()


def test_rules_explain_nothing_else() -> None:
    """A lost or added word, in text, reasoning or calls, is not explained away by any rule."""
    checked = 0
    for case in cases():
        if "chunks" in case or verdict(case).word not in ("equal", "by rule"):
            continue
        golden, ours, output = runner.sums_of(case, case["expected"])[0], whole(case)[0], outputs(case)[0]
        ours = replace(ours, roles=golden.roles)
        assert rules_between(golden, output, ours) is not None
        changed = [replace(ours, text=ours.text + "x"), replace(ours, reasoning=ours.reasoning + "x")]
        changed += [replace(ours, calls=ours.calls[:-1])] if ours.calls else []
        changed += [replace(ours, text=ours.text[1:])] if ours.text else []
        changed += [replace(ours, reasoning=ours.reasoning[:-1])] if ours.reasoning else []
        assert [rules_between(golden, output, one) for one in changed] == [None] * len(changed)
        checked += 1
    assert checked > 100
