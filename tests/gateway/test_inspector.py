"""The inspector in a real browser: recordings, live requests, two configurations, the keyboard, light and dark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import redis

from gateway import inspect
from gateway.settings import GatewaySettings
from schemas.inspect import INSPECT
from schemas.keys import DEFAULT_PARTITIONS, Keys, partition_of
from tests import shared_data
from tests.conftest import RedisServer
from tests.engine import serving
from tests.gateway.chromium import Page, browser
from tests.gateway.conftest import MODEL, Stack, create_app, running_worker
from worker.core.grammars import REASONING_NAMES, TOOL_NAMES
from worker.core.session import Session
from worker.render import ENDPOINTS
from worker.settings import ModelSettings
from worker.tokenizer_cache import ServedModels

pytestmark = [pytest.mark.redis]

CALL = '<think>two eggs</think>\n<tool_call>\n{"name": "count", "arguments": {"what": "eggs"}}\n</tool_call>'
IDLE = "state.sequence > 0 && state.answered === state.sequence"
TOOLS = [{"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}]


def recording(stack: Stack, text: str, *, size: int = 4, name: str = "r") -> str:
    """A recording of one request whose engine sent so many ids an event."""
    ids = stack.ids(text)
    context = {
        "kind": "chat",
        "chat_request": {"messages": [], "tools": TOOLS},
        "prompt_token_ids": [1, 520, 9531, 198],
    }
    lines: list[dict[str, Any]] = [{"t": 0, "event": "open", "request_id": name, "context": context}]
    for at in range(0, len(ids), size):
        finish = "stop" if at + size >= len(ids) else None
        choice = {"index": 0, "token_ids": ids[at : at + size], "finish_reason": finish}
        lines.append({"t": at, "event": "chunk", "request_id": name, "chunk": {"choices": [choice]}})
    lines.append({"t": 99, "event": "done", "request_id": name})
    return "\n".join(map(json.dumps, lines))


def paste(page: Page, text: str) -> None:
    page.run(f"byId('paste').value = {json.dumps(text)}; byId('use-paste').click()")
    page.wait(IDLE)


def choose(page: Page, name: str, **options: Any) -> None:
    """Set a configuration's options as a person does, and wait for its trace."""
    for key, value in options.items():
        change = f"checked = {json.dumps(value)}" if isinstance(value, bool) else f"value = {json.dumps(value)}"
        page.run(f"byId('{name}-{key}').{change}; byId('{name}-{key}').dispatchEvent(new Event('change'))")
    page.wait(IDLE)


def strip(page: Page, name: str) -> list[list[str]]:
    """Kind and text of the pieces on a strip, runs of one kind together."""
    script = (
        f"[...document.querySelectorAll('#strip-{name} .piece')].map((p) => [p.className.slice(11), p.textContent])"
    )
    runs: list[list[str]] = []
    for kind, text in page.run(script):
        if text == "·":
            continue
        if runs and runs[-1][0] == kind:
            runs[-1][1] += text
        else:
            runs.append([kind, text])
    return runs


def test_a_recording_in_two_configurations_by_keyboard(stack: Stack, tmp_path: Path) -> None:
    with browser(f"{stack.gateway}/inspector", tmp_path) as page:
        paste(page, recording(stack, CALL))
        assert strip(page, "a") == [["content", CALL.replace("\n", "⏎\n")], ["stop", "<|im_end|>"]]
        choose(page, "a", tool_call_parser="hermes", enable_auto_tool_choice=True)
        choose(page, "a", reasoning_parser="qwen3")
        choose(page, "b", tool_call_parser="hermes", enable_auto_tool_choice=True)
        assert strip(page, "a") == [
            ["marker", "<think>"],
            ["reasoning", "two eggs"],
            ["marker", '</think>⏎\n<tool_call>⏎\n{"name": "'],
            ["name", "count"],
            ["marker", '", "arguments": '],
            ["argument", '{"what": "eggs"}'],
            ["marker", "}⏎\n</tool_call>"],
            ["stop", "<|im_end|>"],
        ]
        assert strip(page, "b")[0] == ["content", "<think>two eggs</think>"]
        count = page.run("state.traces[0].tokens.length")
        assert page.run("document.querySelectorAll('#tokens tbody tr').length") == count == len(stack.ids(CALL))
        # step by keyboard, without a click anywhere
        page.run("byId('strips').focus()")
        seen = [page.run("byId('position').textContent")]
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "c", "End", "ArrowRight", "Home", "n"):
            page.press(key)
            seen.append(page.run("byId('position').textContent"))
        events = -(-count // 4)
        assert seen == [
            f"token {token} of {count}, event {event} of {events}"
            for token, event in (
                (1, 1),
                (2, 1),
                (3, 1),
                (2, 1),
                (5, 2),
                (count, events),
                (count, events),
                (1, 1),
                (2, 1),
            )
        ]
        assert page.run("document.querySelectorAll('[aria-current]').length") == 2
        page.press("End")
        details = page.run("byId('detail-a').innerText")
        assert "two eggs" in details.split("reasoning so far")[1]
        assert 'count({"what": "eggs"})' in details.split("calls so far")[1]
        assert page.errors == []
        assert {urlsplit(url).netloc for url in page.urls} <= {urlsplit(stack.gateway).netloc, ""}


def test_parser_names_are_offered(stack: Stack, tmp_path: Path) -> None:
    """As suggestions, those that workers know: another name can still be typed."""
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        page.wait("byId('tool_call_parser-names').options.length > 0")
        for key, names in (("reasoning_parser", REASONING_NAMES), ("tool_call_parser", TOOL_NAMES)):
            offered = [page.run(f"[...byId('{name}-{key}').list.options].map((one) => one.value)") for name in "ab"]
            assert offered == [list(names)] * 2
        assert page.errors == []


SAID = """state.traces.map(({content, reasoning, calls, chunks}) => [
  content, reasoning, calls.map((call) => call.name + call.arguments),
  chunks.filter(({delta}) => (delta.tool_calls ?? []).some((one) => one.function.arguments)).length])"""
"""Content, reasoning, calls and the number of events with arguments, for each configuration."""

EGGS = "Twelve eggs, so two boxes of six."
TIDES = 'tides{"harbour": "Brest", "days": 2}'
XML = (
    "<tool_call>\n<function=tides>\n<parameter=harbour>\nBrest\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>"
)
SAMPLES: dict[str, list[tuple[str, str, list[str]]]] = {
    "reasoning, then an answer": [
        (EGGS, "Four people, three eggs each: twelve.", []),
        (f"<think>\nFour people, three eggs each: twelve.\n</think>\n\n{EGGS}", "", []),
    ],
    "reasoning and a tool call": [
        ("", "I need the tides of Brest.", [TIDES]),
        ("<think>\nI need the tides of Brest.\n</think>", "", [TIDES]),
    ],
    "a marker inside an argument": [
        ("", "", ['save{"file": "notes.txt", "text": "Close it with </tool_call>, please."}']),
        (
            '<tool_call>\n{"name": "save", "arguments": {"file": "notes.txt", "text": "Close it with </tool_call>, '
            'please."}}\n</tool_call>',
            "",
            [],
        ),
    ],
    "a call in XML, values by the tool's schema": [("", "", [TIDES]), (XML, "", [])],
    "two calls, written as Python": [("", "", [TIDES, 'weather{"place": "Brest"}'])] * 2,
    "a stop string": [("One egg, two eggs,", "", [])],
}
"""What each sample shows: content, reasoning and calls in A and B."""


def test_every_sample_shows_what_its_note_says(stack: Stack, tmp_path: Path) -> None:
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        names = page.run("[...byId('sample').options].map((one) => one.textContent)")
        assert names == ["choose …", *SAMPLES]
        seen = {}
        for number, name in enumerate(SAMPLES):
            page.run(f"byId('sample').value = '{number}'; byId('sample').dispatchEvent(new Event('change'))")
            page.wait(f"byId('message').textContent.startsWith({json.dumps(name)}) && {IDLE}")
            seen[name] = page.run(SAID)
            assert page.run("byId('note').textContent === SAMPLES[Number(byId('sample').value)].note")
        assert {name: [tuple(one[:3]) for one in said] for name, said in seen.items()} == SAMPLES
        eager, complete = (one[3] for one in seen["two calls, written as Python"])
        assert eager > complete == 2
        # another generation takes the note away; the chosen sample does not come back with the model
        paste(page, recording(stack, "One."))
        assert page.run("[byId('sample').value, byId('note').hidden]") == ["", True]
        assert page.errors == []


def test_a_sample_is_made_of_the_chosen_model_s_ids(stack: Stack, tmp_path: Path) -> None:
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        page.run("byId('sample').value = '5'; byId('sample').dispatchEvent(new Event('change'))")
        page.wait(f"state.traces.length === 1 && {IDLE}")
        page.run("byId('model').value = 'other-name'; byId('model').dispatchEvent(new Event('change'))")
        page.wait(f"current().context.model === 'other-name' && {IDLE}")
        ids = page.run("state.traces[0].tokens.map((token) => token.id)")
        assert ids == stack.ids("One egg, two eggs, three eggs, four eggs.", eos=False)
        assert page.run("byId('model').value") == "other-name"
        assert strip(page, "a")[0] == ["content", "One egg, two eggs,"]


def test_keys_that_are_typed_do_not_step(stack: Stack, tmp_path: Path) -> None:
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        paste(page, recording(stack, "One, two."))
        page.run("byId('a-reasoning_parser').focus()")
        for key in "con":
            page.press(key)
        assert page.run("[byId('a-reasoning_parser').value, state.position]") == ["con", 0]


WRONG_PARSERS: list[tuple[dict[str, str], str]] = [
    ({"reasoning_parser": "no_such"}, "reasoning parser 'no_such' is not known; /v1/parsers lists the names"),
    ({"tool_call_parser": "nope"}, "tool parser 'nope' is not known; /v1/parsers lists the names"),
    (
        {"tool_call_parser": "hermess"},
        "tool parser 'hermess' is not known (did you mean hermes?); /v1/parsers lists the names",
    ),
    (
        {"tool_call_parser": "auto"},
        "tool parser auto: a worker that is started with it chooses by the chat template, once; here name a parser, or"
        " take the model's own options",
    ),
]


def test_what_is_wrong_is_said(stack: Stack, tmp_path: Path) -> None:
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        for text, message in (
            ("", "there is nothing to read"),
            ("{}\nx", "line 2 is no JSON"),
            ('{"a": 1}', "this is no recording: no line has the event open"),
        ):
            page.run(f"byId('paste').value = {json.dumps(text)}; byId('use-paste').click()")
            page.wait(f"byId('message').textContent === {json.dumps(message)}")
        paste(page, recording(stack, "One."))
        for parsers, message in WRONG_PARSERS:
            choose(page, "a", **{"reasoning_parser": "", "tool_call_parser": "", **parsers})
            page.wait("byId('message').classList.contains('error') && byId('result').hidden")
            assert page.run("byId('message').textContent") == message
        page.run("byId('live').value = 'nobody'; byId('fetch').click()")
        page.wait("byId('message').textContent === 'request nobody is not known, or its stream was forgotten'")


def test_options_without_an_effect_are_said(stack: Stack, tmp_path: Path) -> None:
    """At the configuration that has them, in the words of the worker's log; gone with the option and with the trace."""
    hints = "['a', 'b'].map((name) => byId(`${name}-hint`).textContent)"
    idle_tool = "tool parser hermes has no effect on tool_choice auto: tick auto tools"
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        paste(page, recording(stack, CALL))
        seen = [page.run(hints)]
        choose(page, "a", tool_call_parser="hermes")
        seen.append(page.run(hints))
        choose(page, "b", enable_auto_tool_choice=True)
        seen.append(page.run(hints))
        choose(page, "a", enable_auto_tool_choice=True)
        choose(page, "b", mode="off")
        seen.append(page.run(hints))
        choose(page, "a", enable_auto_tool_choice=False)
        choose(page, "a", reasoning_parser="no_such")
        seen.append(page.run(hints))
        assert page.errors == []
    assert seen == [
        ["", ""],
        [idle_tool, ""],
        [idle_tool, "auto tools has no effect without a tool parser"],
        ["", ""],
        ["", ""],
    ]


SHOWN = """({
  request: byId('request').selectedOptions[0].textContent, message: byId('message').textContent,
  error: byId('message').classList.contains('error'), position: byId('position').textContent,
  details: byId('detail-a').textContent + byId('detail-b').textContent, strips: byId('strips').textContent,
  tokens: byId('tokens').tBodies[0].rows.length,
  visible: [...byId('result').children].filter((one) => one.offsetParent).map((one) => one.id || one.className),
  title: byId('sent-title').textContent,
})"""
"""What the page says of a request, and which parts of the result are to be seen."""


def open_sample(page: Page, number: int) -> None:
    page.run(f"byId('sample').value = '{number}'; byId('sample').dispatchEvent(new Event('change'))")
    page.wait(f"byId('message').textContent.startsWith(SAMPLES[{number}].name) && {IDLE}")


def fetch(page: Page, id_: str) -> None:
    page.run(f"byId('live').value = '{id_}'; byId('fetch').click()")
    page.wait(f"byId('request').selectedOptions[0]?.textContent === '{id_}' && {IDLE}")


def ask_live(stack: Stack, *, fails: bool = False, **more: Any) -> str:
    """A streamed request through the gateway; gives its id."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True, "detach": True, **more}
    if fails:  # the answer has no id then, what the engine was asked has
        asked = len(stack.engine.requests)
        assert httpx.post(f"{stack.gateway}/v1/chat/completions", json=body).status_code == 422
        return str(stack.engine.requests[asked]["request_id"])
    return httpx.post(f"{stack.gateway}/v1/chat/completions", json=body).headers["x-request-id"]


def test_a_request_without_ids_takes_the_sample_s_place(stack: Stack, tmp_path: Path) -> None:
    """Nothing of the generation before is left beside the new id: no position, no details, no tokens."""
    stack.says("One, two.")
    id_, replies = ask_live(stack), len(stack.ids("One, two."))
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        open_sample(page, 1)
        page.run("go(5)")
        fetch(page, id_)
        assert page.run(SHOWN) == {
            "request": id_,
            "message": "Its replies have no token ids: open requests with return_token_ids to see tokens, or record"
            f" the stream (derender record). {replies} replies.",
            "error": False, "position": "", "details": "", "strips": "", "tokens": 0, "visible": ["sent"],
            "title": "Replies, as they were sent",
        }  # fmt: skip
        # and back again: a new generation begins at its first token
        open_sample(page, 1)
        shown = page.run(SHOWN)
        assert shown["position"].startswith("token 1 of ")
        assert shown["title"] == "Events of the engine as they came, and what was sent for each"
        assert shown["visible"] == ["tokens-title", "legend", "stepper", "strips", "details", "", "sent"]
        assert page.errors == []


def test_a_failed_request_says_why_at_the_top(stack: Stack, tmp_path: Path) -> None:
    refusal = {"error": {"message": "too hot to run", "type": "TooHot", "param": None, "code": 422}}
    stack.says("x", refuse=(422, refusal))
    early = ask_live(stack, fails=True)
    stack.says("one two three four", error_after=1)
    late = ask_live(stack, return_token_ids=True)
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        open_sample(page, 1)
        fetch(page, early)
        shown = page.run(SHOWN)
        assert (shown["message"], shown["error"]) == (f"{early} failed: too hot to run. 1 reply.", True)
        assert (shown["position"], shown["details"], shown["visible"]) == ("", "", ["sent"])
        choose(page, "b", mode="off")
        fetch(page, late)
        shown = page.run(SHOWN)
        message = f"{late}: 1 token in 1 event; then it failed: the engine died"
        assert (shown["message"], shown["error"]) == (message, True)
        assert shown["position"] == "token 1 of 1, event 1 of 1"
        assert page.errors == []


def test_a_failed_request_of_a_recording(stack: Stack, tmp_path: Path) -> None:
    lines = recording(stack, "One.").splitlines()[:2]
    error = {"message": "out of memory", "type": "InternalServerError", "param": None, "code": 500}
    lines.append(json.dumps({"t": 9, "event": "error", "request_id": "r", "error": {"error": error}}))
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        paste(page, "\n".join(lines))
        ids = len(stack.ids("One."))
        message = f"r: {ids} tokens in 1 event; then it failed: out of memory"
        assert page.run("byId('message').textContent") == message
        for left, said in ((lines[:1] + lines[2:], "r failed: out of memory."), (lines[:1], "It has no events yet.")):
            paste(page, "\n".join(left))
            assert page.run("byId('message').textContent") == said


def test_numbers_have_their_noun(stack: Stack, tmp_path: Path) -> None:
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        words = "[0, 1, 2].map((one) => [count(one, 'token'), count(one, 'reply', 'replies')])"
        assert page.run(words) == [["0 tokens", "0 replies"], ["1 token", "1 reply"], ["2 tokens", "2 replies"]]


def test_a_live_request_with_and_without_ids(stack: Stack, tmp_path: Path) -> None:
    stack.says("One, two.")
    ids = []
    for wanted in (True, None):
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "x"}],
            "stream": True,
            "return_token_ids": wanted,
        }
        answer = httpx.post(f"{stack.gateway}/v1/chat/completions", json=body)
        ids.append(json.loads(answer.text.split("data: ")[1].splitlines()[0])["id"])
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        page.run(f"byId('live').value = '{ids[0]}'; byId('fetch').click()")
        page.wait("state.traces.length === 1")
        assert strip(page, "a") == [["content", "One, two."], ["stop", "<|im_end|>"]]
        page.run(f"byId('live').value = '{ids[1]}'; byId('fetch').click()")
        page.wait("byId('message').textContent.startsWith('Its replies have no token ids')")
        assert page.run("byId('message').textContent.endsWith(`. ${current().last} replies.`)")
        sent = page.run("[...byId('chunks').tBodies[0].rows].map((row) => row.cells[1].textContent)")
        assert "".join(json.loads(text).get("content") or "" for text in sent if text.startswith("{")) == "One, two."
        assert page.errors == []


def test_of_many_replies_the_first_ones_are_shown(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "MAX_REPLIES", 2)
    stack.says("One, two.")
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}
    id_ = httpx.post(f"{stack.gateway}/v1/chat/completions", json=body).headers["x-request-id"]
    count = len(stack.ids("One, two."))
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        page.run(f"byId('live').value = '{id_}'; byId('fetch').click()")
        page.wait(f"byId('message').textContent.endsWith('The first 2 of {count} replies.')")


def test_a_request_of_which_only_the_outcome_is_left(own_redis: RedisServer, stack: Stack) -> None:
    partition = partition_of("gone", DEFAULT_PARTITIONS)
    with redis.Redis.from_url(own_redis.url) as client:
        client.set(Keys().status(partition, "gone"), "finished")
    answer = httpx.get(f"{stack.gateway}{INSPECT}/gone")
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        410,
        "request gone is finished, and its stream has expired",
    )


def contrast(page: Page) -> float:
    """Smallest contrast ratio between text and back of all kinds of pieces, as the WCAG computes it."""
    script = """(() => {
      const light = (css) => { const [r, g, b] = css.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
        .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      return Math.min(...[...document.querySelectorAll('#legend .piece')].map((piece) => {
        const style = getComputedStyle(piece); return ratio(light(style.color), light(style.backgroundColor)); }));
    })()"""
    return float(page.run(script))


def test_readable_in_light_and_dark(stack: Stack, tmp_path: Path) -> None:
    """Text on every kind's colour has a contrast of 7 at least (WCAG AAA), and the two pictures differ."""
    with browser(f"{stack.gateway}/inspector/", tmp_path) as page:
        paste(page, recording(stack, CALL))
        ratios, pictures = [], []
        for dark in (False, True):
            page.show(dark=dark)
            ratios.append(contrast(page))
            pictures.append(page.picture())
        assert min(ratios) >= 7
        assert pictures[0] != pictures[1]


def test_only_the_page_s_files_are_served(stack: Stack) -> None:
    answers = {
        path: httpx.get(f"{stack.gateway}{path}").status_code
        for path in ("/inspector", "/inspector/", "/inspector/style.css", "/inspector/inspector.js",
                     "/inspector/samples.js", "/inspector/index.html", "/inspector/..%2finspect.py",
                     "/inspector/../app.py")
    }  # fmt: skip
    assert list(answers.values()) == [307, 200, 200, 200, 200, 404, 404, 404]
    page = httpx.get(f"{stack.gateway}/inspector/")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_off_means_off(own_redis: RedisServer, stack: Stack) -> None:
    with serving(create_app(own_redis.url, GatewaySettings(port=0, inspector=False))) as base:
        answers = [httpx.get(f"{base}/inspector/"), httpx.post(f"{base}{INSPECT}", json={})]
    assert [answer.status_code for answer in answers] == [404, 404]


# --- three reported faults --------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "B23": (
        {"tool_call_parser": "hermes", "enable_auto_tool_choice": True},
        {"tool_call_parser": "pythonic", "enable_auto_tool_choice": True},
    ),
    "B32": ({"reasoning_parser": "qwen3"}, {"reasoning_parser": "qwen3", "without_prompt": True}),
    "B35": (
        {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "enable_auto_tool_choice": True},
        {"tool_call_parser": "hermes", "enable_auto_tool_choice": True},
    ),
}
"""Fault -> the right configuration, and one that splits as the report tells."""


@contextmanager
def gateway_for(redis: RedisServer, case: dict[str, Any]) -> Iterator[str]:
    """A gateway in a namespace of its own, with a worker that has the tokenizer of a reported fault."""
    folder = str(shared_data.tokenizer_dir(case["tokenizer"]))
    models = ServedModels([ModelSettings(tokenizer=folder, served_model_name=("model",))])
    models.preload()
    session = Session(models, others=dict.fromkeys(ENDPOINTS, models.renderer()))
    prefix = "inspect-" + case["id"]
    with (
        running_worker(redis.url, models, session, key_prefix=prefix),  # type: ignore[arg-type]
        serving(create_app(redis.url, GatewaySettings(port=0), prefix=prefix)) as base,
    ):
        yield base


@pytest.mark.shared
@pytest.mark.parametrize("name", FAULTS)
def test_why_a_wrong_split_happens(own_redis: RedisServer, name: str, tmp_path: Path) -> None:
    """A is the right configuration, B the one of the report. DERENDER_PICTURES=docs/inspector keeps the pictures."""
    shared_data.require()
    (case,) = [one for one in shared_data.faults() if one["id"] == name]
    output = case["outputs"][0]
    choice = {"index": 0, "token_ids": output["token_ids"], "finish_reason": output["finish_reason"]}
    context = {"kind": "chat", "chat_request": case["request"], "prompt_token_ids": case["prompt_token_ids"]}
    generation = {"id": name, "context": context, "chunks": [{"choices": [choice]}]}
    with gateway_for(own_redis, case) as base, browser(f"{base}/inspector/", tmp_path) as page:
        paste(page, json.dumps(generation))
        choose(page, "a", **FAULTS[name][0])
        choose(page, "b", **FAULTS[name][1])
        page.wait("byId('message').textContent.includes('differ')")
        a, b = page.run(
            "state.traces.map((one) => ({content: one.content, reasoning: one.reasoning, calls: one.calls}))"
        )
        expected = case["expected"]["choices"][0]
        calls = [(call["name"], json.loads(call["arguments"])) for call in a["calls"]]
        assert a["content"] == (expected.get("content") or "")
        assert a["reasoning"] == (expected.get("reasoning") or "")
        assert calls == [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
        assert (b["content"], b["reasoning"]) != (a["content"], a["reasoning"])
        held = page.run("state.traces[0].tokens.map((token) => token.held)")
        assert [text for text in held if not text.isprintable() and "\n" not in text] == []
        if folder := os.environ.get("DERENDER_PICTURES"):
            page.run(f"go({18 if name == 'B23' else 'Infinity'}, false)")
            page.run("window.scrollTo(0, document.querySelector('.configs').offsetTop - 8)")
            page.show(dark=name == "B35", height=860)
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.png").write_bytes(page.picture())
