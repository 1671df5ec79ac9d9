"""The fold of one request: what each entry changes, without Redis."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from schemas import keys
from schemas.request import RequestContext
from tests.events import chunk
from worker.core.calls import derender_call
from worker.core.errors import UnknownModel
from worker.core.model import Limits, Model
from worker.core.session import Core, Entry, Open, Outcome, Reply, Session, Signal, context_digest

MS = 1_700_000_000_000


def entry(n: int, **fields: Any) -> Entry:
    """Entry n of request `r`, n ms after the first."""
    raw = {b"request_id": b"r"}
    for name, value in fields.items():
        raw[name.encode()] = value if isinstance(value, bytes) else str(value).encode()
    return Entry(b"%d-0" % (MS + n), raw)


def context(**fields: Any) -> bytes:
    kind = fields.pop("kind", "chat")
    request = fields.pop("request", {})
    request = {"messages": []} | request if kind == "chat" else {"prompt": "x"} | request
    return json.dumps({"kind": kind, f"{kind}_request": request, **fields}).encode()


USAGE = b'{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}'
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


class Run:
    """Folds entries one after another, as the drain does."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.open: Open | None = None
        self.status: str | None = None
        self.replies: list[Reply] = []
        self.n = 0

    def __call__(self, **fields: Any) -> Outcome:
        outcome = self.session.fold(entry(self.n, **fields), self.open, self.status)
        self.n += 1
        if outcome.open is not None:
            self.open = outcome.open
        elif outcome.closed is not None:
            self.open, self.status = None, outcome.closed
        self.replies += outcome.replies
        return outcome

    def text(self, index: int = 0) -> str:
        text = ""
        for reply in self.replies:
            for choice in json.loads(reply.fields.get(b"chunk", b'{"choices":[]}'))["choices"]:
                if choice["index"] == index:
                    text += choice.get("text") or choice.get("delta", {}).get("content") or ""
        return text

    def finishes(self) -> dict[int, str]:
        found = {}
        for reply in self.replies:
            for choice in json.loads(reply.fields.get(b"chunk", b'{"choices":[]}'))["choices"]:
                if choice["finish_reason"]:
                    assert choice["index"] not in found, "one finish for each choice"
                    found[choice["index"]] = choice["finish_reason"]
        return found


def error_of(outcome: Outcome) -> dict[str, Any]:
    """The error of an outcome that is one error reply and nothing else."""
    [reply] = outcome.replies
    assert set(reply.fields) == {b"error", b"done"}
    assert reply.fields[b"done"] == b"failed"
    assert outcome.closed == "failed"
    assert outcome.open is None
    error: dict[str, Any] = json.loads(reply.fields[b"error"])["error"]
    return error


@pytest.fixture
def session(smollm2: Model) -> Session:
    def models(name: str | None) -> Model:
        if name not in (None, smollm2.name):
            raise UnknownModel("model is not served here", param="model")
        return smollm2

    return Session(models)


@pytest.fixture
def run(session: Session) -> Run:
    return Run(session)


# --- a stream from beginning to end -----------------------------------------------------------------------------------


def test_a_stream(run: Run) -> None:
    """Replies are numbered 1, 2, 3; the last has `done`; `created` is the second of the open entry."""
    opened = run(seq=0, open=context())
    assert (opened.replies, opened.opened, opened.closed) == ([], context(), None)
    run(seq=1, chunk=chunk(19556))
    last = run(seq=2, chunk=chunk(905, finish="length"))
    assert (last.closed, last.open, last.signals) == ("finished", None, [])
    assert [reply.number for reply in run.replies] == [1, 2]
    assert [set(reply.fields) for reply in run.replies] == [
        {b"chunk", b"index", b"stream_state"},
        {b"chunk", b"index", b"stream_state", b"done"},
    ]
    assert run.replies[-1].fields[b"done"] == b"finished"
    first = json.loads(run.replies[0].fields[b"chunk"])
    assert (first["id"], first["created"], first["object"]) == ("r", MS // 1000, "chat.completion.chunk")
    assert run.text() == "Hello world"
    assert run(seq=3, control="done").dropped == "closed"


def test_usage_chunk_is_waited_for_where_it_was_asked_for(run: Run) -> None:
    run(open=context(request=WITH_USAGE, prompt_tokens=5))
    assert run(chunk=chunk(19556, finish="length")).closed is None
    outcome = run(chunk=USAGE)
    assert outcome.closed == "finished"
    [reply] = outcome.replies
    assert set(reply.fields) == {b"chunk", b"done"}
    body = json.loads(reply.fields[b"chunk"])
    assert (body["choices"], body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == ([], 5, 2)


@pytest.mark.parametrize("end", [{"control": "done"}, {"chunk": "[DONE]"}], ids=["control", "the engine's own line"])
def test_usage_is_made_up_when_the_engine_sent_none(run: Run, end: dict[str, str]) -> None:
    run(open=context(request=WITH_USAGE, prompt_tokens=5))
    run(chunk=chunk(19556, 905, finish="length"))
    outcome = run(**end)
    assert outcome.closed == "finished"
    [reply] = outcome.replies
    assert json.loads(reply.fields[b"chunk"])["usage"] == {
        "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
        "prompt_tokens_details": None, "completion_tokens_details": None,
    }  # fmt: skip


def test_several_choices_in_one_event(run: Run) -> None:
    """One reply and one state for each choice; the request ends with the last of them."""
    run(open=context(request={"n": 2}))
    both = {"choices": [{"index": 1, "token_ids": [19556]}, {"index": 0, "token_ids": [905]}]}
    outcome = run(chunk=json.dumps(both))
    assert [reply.fields[b"index"] for reply in outcome.replies] == [b"1", b"0"]
    assert run(chunk=chunk(finish="length", index=0)).closed is None
    assert run(chunk=chunk(17, finish="stop", index=1)).closed == "finished"
    assert (run.text(0), run.text(1)) == (" world", "Hello!")
    assert run.finishes() == {0: "length", 1: "stop"}
    assert [reply.number for reply in run.replies] == [1, 2, 3, 4]


def test_several_prompts_share_a_flat_index_and_one_usage(run: Run) -> None:
    """The engine's usage of each prompt is left out; their sum comes at the end."""
    run(open=context(kind="completion", request={"prompt": ["a", "b"], **WITH_USAGE}, prompt_tokens=[1, 2]))
    run(prompt=1, chunk=chunk(19556, finish="length"))
    assert run(prompt=1, chunk=USAGE).replies == []
    outcome = run(prompt=0, chunk=chunk(905, 17, finish="length"))
    assert outcome.closed == "finished"
    assert [reply.fields.get(b"index") for reply in run.replies] == [b"1", b"0", None]
    assert (run.text(0), run.text(1)) == (" world!", "Hello")
    usage = json.loads(run.replies[-1].fields[b"chunk"])["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 3, 6)


def test_a_stop_string_finishes_the_choice_and_cancels_the_generation(run: Run) -> None:
    run(open=context(request={"stop": ["wor"], **WITH_USAGE}))
    run(chunk=chunk(19556))
    found = run(chunk=chunk(905))
    assert found.signals == [Signal("stop", 0)]
    late = run(chunk=chunk(17))
    assert (late.replies, late.signals, late.dropped) == ([], [], None)
    assert late.open is not None
    assert late.open.state.choices[0].tokens == 3
    assert run(control="done").closed == "finished"
    assert run.text() == "Hello "
    assert run.finishes() == {0: "stop"}


def test_without_a_usage_chunk_to_come_a_stop_string_ends_the_request(run: Run) -> None:
    run(open=context(request={"stop": "wor"}))
    outcome = run(chunk=chunk(19556, 905))
    assert (outcome.closed, outcome.signals) == ("finished", [Signal("stop", 0)])
    assert run(chunk=chunk(17)).dropped == "closed"


# --- ends that are no ends --------------------------------------------------------------------------------------------


def test_abort_finishes_every_open_choice(run: Run) -> None:
    """Also those of which nothing came; a finish is not repeated; the engine's side is told."""
    run(open=context(request={"n": 3}))
    run(chunk=chunk(19556, finish="length", index=0))
    run(chunk=chunk(905, index=1))
    outcome = run(control="abort")
    assert (outcome.closed, outcome.signals) == ("aborted", [Signal("abort")])
    assert run.finishes() == {0: "length", 1: "abort", 2: "abort"}
    assert run.replies[-1].fields[b"done"] == b"aborted"


def test_abort_releases_held_text(run: Run) -> None:
    run(open=context(request={"stop": ["Hello there"]}))
    run(chunk=chunk(19556))
    assert run.text() == ""
    run(control="abort")
    assert run.text() == "Hello"


def test_done_before_the_finish_is_said(run: Run) -> None:
    run(open=context())
    run(chunk=chunk(19556))
    outcome = run(control="done")
    assert (outcome.closed, outcome.signals) == ("aborted", [])
    assert run.finishes() == {0: "abort"}


@pytest.mark.parametrize(
    ("payload", "message", "code"),
    [
        ({"chunk": '{"error": {"message": "out of memory", "type": "E", "param": null, "code": 503}}'},
         "out of memory", 503),
        ({"chunk": '{"error": "gone"}'}, "gone", 500),
        ({"chunk": '{"error": {"code": "x"}}'}, "the engine reported an error without a message", 500),
        ({"control": "error"}, "the engine reported an error without a message", 500),
        ({"control": "error", "error": '{"error": {"message": "m", "code": 502}}'}, "m", 502),
        ({"chunk": '{"error": "' + "m" * 501 + '"}'}, "m" * 499 + "…", 500),
    ],
    ids=["object", "text", "without message", "control", "control with error", "long"],
)  # fmt: skip
def test_engine_errors_reach_the_reader(run: Run, payload: dict[str, str], message: str, code: int) -> None:
    run(open=context())
    run(chunk=chunk(19556))
    outcome = run(**payload)
    error = error_of(outcome)
    assert (error["message"], error["code"]) == (message, code)
    assert outcome.replies[0].number == 2
    assert outcome.signals == []


def test_timeout_counts_only_if_nothing_came_since(run: Run) -> None:
    run(open=context())
    run(chunk=chunk(19556))
    assert run(control="timeout", active=MS).dropped == "active again"
    outcome = run(control="timeout", active=MS + 1)
    error = error_of(outcome)
    assert (error["type"], error["code"]) == ("TimeoutError", 504)
    assert outcome.signals == [Signal("failed")]
    assert outcome.dead is None
    assert run(control="timeout", active=MS + 1).dropped == "closed"


# --- sequence numbers -------------------------------------------------------------------------------------------------


def test_what_was_seen_is_dropped(run: Run) -> None:
    """A repeated pipeline gives the same replies once."""
    script: list[dict[str, Any]] = [
        {"seq": 0, "open": context()}, {"seq": 1, "chunk": chunk(19556)}, {"seq": 2, "chunk": chunk(905)},
    ]  # fmt: skip
    dropped = [run(**fields).dropped for fields in script + script]
    assert dropped == [None, None, None, "duplicate", "duplicate", "duplicate"]
    assert run(seq=3, chunk=chunk(17, finish="stop")).closed == "finished"
    assert [run(**fields).dropped for fields in script] == ["closed", "closed", "closed"]
    assert run.text() == "Hello world!"


def test_a_gap_is_an_error(run: Run) -> None:
    run(seq=0, open=context())
    run(seq=1, chunk=chunk(19556))
    outcome = run(seq=3, chunk=chunk(905))
    assert error_of(outcome)["message"] == "entries of the request were lost: 3 follows 1"
    assert outcome.signals == [Signal("failed")]


def test_a_lost_open_is_an_error_for_its_reader(run: Run) -> None:
    outcome = run(seq=1, chunk=chunk(19556))
    assert error_of(outcome)["message"] == "the request was not opened: its first entry is missing"
    assert outcome.replies[0].number == 1
    assert outcome.dead == "request is not open"
    assert run(seq=2, chunk=chunk(905)).dropped == "closed"


def test_an_unnumbered_chunk_without_open_is_a_dead_letter(run: Run) -> None:
    assert run(chunk=chunk(19556)) == Outcome(dead="request is not open")


def test_an_open_with_another_context_fails_the_request(run: Run) -> None:
    run(seq=0, open=context())
    assert error_of(run(seq=0, open=context(prompt_tokens=1)))["message"] == "the request is open with another context"


def test_an_open_later_than_entry_0_is_refused(run: Run) -> None:
    assert error_of(run(seq=1, open=context()))["message"] == "open has to be entry 0 of its request, not 1"


def test_a_second_use_of_an_id_is_a_dead_letter(run: Run) -> None:
    run(open=context())
    run(control="abort")
    assert run(open=context()) == Outcome(dead="request id was used before")


def test_a_gateway_may_abort_a_numbered_request(run: Run) -> None:
    run(seq=0, open=context())
    assert run(control="abort").closed == "aborted"


# --- bad input --------------------------------------------------------------------------------------------------------

BAD_CHUNKS: list[tuple[str, dict[str, Any], str]] = [
    ("not JSON", {"chunk": b"{"}, "invalid JSON"),
    ("invalid UTF-8", {"chunk": b'{"choices": [], "request_id": "\xff"}'}, "invalid JSON"),
    ("wrong shape", {"chunk": b'{"choices": 1}'}, "body.choices: Expected `array`, got `int`"),
    ("negative id", {"chunk": chunk(-1)}, "body.choices.0.token_ids.0: Expected `int` >= 0"),
    ("absurd id", {"chunk": chunk(2**31)}, "body.choices.0.token_ids.0: Expected `int` <= 2147483647"),
    ("bomb", {"chunk": b'{"choices": [], "metrics": ' + b'{"a":' * 90 + b"1" + b"}" * 91}, "JSON is nested deeper"),
    ("choice beyond n", {"chunk": chunk(1, index=1)}, "choice index 1 is out of range: the request has n = 1"),
    ("prompt beyond", {"chunk": chunk(1), "prompt": 1}, "prompt 1 is out of range: the request has 1"),
    ("seq", {"chunk": chunk(1), "seq": "x"}, "entry field seq has to be a non-negative integer"),
    ("control", {"control": "stop"}, "control has to be done, abort or error"),
    ("nothing", {}, "entry has none of open, chunk, control, response, call"),
    ("error text", {"control": "error", "error": "x"}, "error has to be an error object"),
    ("chunk and control", {"chunk": chunk(1), "control": "done"}, "entry has more than one of open, chunk, control"),
    ("open and control", {"open": context(), "control": "abort"}, "entry has more than one of open, chunk, control"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), [b[1:] for b in BAD_CHUNKS], ids=[b[0] for b in BAD_CHUNKS])
def test_bad_entries_fail_their_request_only(run: Run, fields: dict[str, Any], message: str) -> None:
    """An error entry for the reader, the reason for the dead letter, and the generation is cancelled."""
    run(open=context())
    run(chunk=chunk(19556))
    outcome = run(**fields)
    error = error_of(outcome)
    assert error["message"][: len(message)] == message
    assert error["code"] == 400
    assert outcome.dead == error["message"]
    assert outcome.replies[0].number == 2
    assert outcome.signals == [Signal("failed")]


BAD_OPENS: list[tuple[str, bytes, int, str]] = [
    ("not JSON", b"x", 400, "invalid JSON"),
    ("no kind", b"{}", 400, "body.kind: Object missing required field `kind`"),
    ("unknown model", context(model="other"), 404, "model is not served here"),
    ("reply_to", context(reply_to="a:b"), 400, "reply_to has to match [A-Za-z0-9._-]{1,64}"),
    ("rule of the request", context(request={"tools": []}), 400, "tools must not be an empty list"),
    ("choices", context(request={"n": 5000}), 400, "a request may have 1 to 1024 choices over all prompts"),
    ("no choice", context(request={"n": -1}), 400, "a request may have 1 to 1024 choices over all prompts"),
    ("prompts of a chat", context(prompt_tokens=[1, 2]), 400, "a chat has one prompt"),
    ("fingerprint", context(fingerprint="0" * 16), 400, "the request expects configuration 0000000000000000"),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "code", "message"), [b[1:] for b in BAD_OPENS], ids=[b[0] for b in BAD_OPENS])
def test_bad_opens(run: Run, payload: bytes, code: int, message: str) -> None:
    outcome = run(seq=0, open=payload)
    error = error_of(outcome)
    assert (error["code"], error["message"][: len(message)]) == (code, message)
    assert outcome.replies[0].number == 1
    assert run(seq=1, chunk=chunk(1)).dropped == "closed"


@pytest.mark.parametrize(
    "more",
    [{"chunk": chunk(1)}, {"control": "done"}, {"call": b"{}"}, {"response": b"{}", "chunk": chunk(1)}],
    ids=lambda more: " and ".join(more),
)
def test_an_open_says_nothing_else(run: Run, more: dict[str, Any]) -> None:
    """What came along in the entry would be lost in silence."""
    outcome = run(open=context(), **more)
    message = "entry has more than one of open, chunk, control, response, call"
    assert (error_of(outcome)["message"], outcome.dead) == (message, message)


def test_only_the_request_of_its_kind_counts(run: Run) -> None:
    """`n` and the usage chunk are asked for by the completion, whatever chat request comes beside it."""
    both = json.loads(context(kind="completion")) | {"chat_request": {"messages": [], "n": 3} | WITH_USAGE}
    run(open=json.dumps(both).encode())
    assert run(chunk=chunk(905, finish="length")).closed == "finished"
    assert (run.text(), len(run.replies)) == (" world", 1)


@pytest.mark.parametrize("request_id", [b"", b"a{b}", b"a\n", b"\xff", b"x" * 129], ids=repr)
def test_request_ids_that_would_break_key_names(session: Session, request_id: bytes) -> None:
    outcome = session.fold(Entry(b"1-0", {b"request_id": request_id, b"open": context()}), None, None)
    assert outcome == Outcome(dead="invalid or missing request_id")


def test_payloads_are_measured_before_they_are_decoded(smollm2: Model) -> None:
    run = Run(Session(lambda _: smollm2, limits=Limits(max_payload_bytes=100)))
    run(open=context())
    message = error_of(run(chunk=b" " * 101))["message"]
    assert message == "payload of 101 bytes is over the limit of 100 bytes"


# --- whole work -------------------------------------------------------------------------------------------------------

RESPONSE = b'{"choices": [{"index": 0, "token_ids": [19556, 905], "finish_reason": "length"}]}'


def test_a_whole_response(run: Run) -> None:
    outcome = run(open=context(prompt_tokens=3), response=RESPONSE)
    [reply] = outcome.replies
    assert (reply.number, set(reply.fields), outcome.closed) == (1, {b"response", b"done"}, "finished")
    body = json.loads(reply.fields[b"response"])
    assert body["choices"][0]["message"]["content"] == "Hello world"
    assert (body["id"], body["usage"]["total_tokens"]) == ("r", 5)
    assert run(open=context(prompt_tokens=3), response=RESPONSE).dropped == "closed"


def test_a_call_is_answered_as_without_redis(run: Run, smollm2: Model) -> None:
    body = b'{"generate_response": ' + RESPONSE + b"}"
    [reply] = run(call=body).replies
    alone = derender_call(lambda _: smollm2, body, request_id="r", created=MS // 1000)
    assert reply.fields == {b"response": alone, b"done": b"finished"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"response": RESPONSE}, "a response needs its context in the same entry"),
        ({"open": context(), "response": b"{}"}, "body.choices: Object missing required field `choices`"),
        ({"call": b"[]"}, "body: Expected `object`, got `array`"),
    ],
    ids=["no context", "no response", "no body"],
)
def test_bad_whole_work(run: Run, fields: dict[str, bytes], message: str) -> None:
    assert error_of(run(**fields))["message"] == message


def test_ids_that_the_tokenizer_does_not_have_are_counted(run: Run, smollm2: Model) -> None:
    """In a chunk and in a whole response, from the first id beyond the vocabulary on."""
    size = smollm2.vocabulary.size
    ids = (19556, size - 1, size, size + 7)
    choice = {"index": 0, "token_ids": ids, "finish_reason": "length"}
    response = json.dumps({"choices": [choice]}).encode()
    outcomes = [run(open=context()), run(chunk=chunk(17)), run(chunk=chunk(*ids)), run(control="done")]
    outcomes.append(Run(run.session)(open=context(), response=response))
    assert [(one.tokens, one.unknown) for one in outcomes] == [(0, 0), (1, 0), (4, 2), (0, 0), (4, 2)]


def test_whole_work_leaves_an_open_request_alone(run: Run) -> None:
    run(open=context())
    assert run(open=context(), response=RESPONSE) == Outcome(dead="request id is in use")


# --- takeover ---------------------------------------------------------------------------------------------------------


def test_a_request_goes_on_from_what_was_stored(session: Session) -> None:
    """State through bytes and the context prepared anew between any two entries: the same replies."""
    import msgspec

    from schemas.state import RequestState

    script: list[dict[str, Any]] = [
        {"seq": 0, "open": context(request={"n": 2, "stop": ["!"], **WITH_USAGE}, prompt_tokens=4)},
        {"seq": 1, "chunk": chunk(19556)},
        {"seq": 2, "chunk": chunk(905, index=1)},
        {"seq": 3, "chunk": chunk(905, 17)},
        {"seq": 4, "chunk": chunk(34, finish="length", index=1)},
        {"seq": 5, "chunk": USAGE},
    ]
    undisturbed, disturbed = Run(session), Run(session)
    for fields in script:
        undisturbed(**fields)
        if disturbed.open is not None:
            stored = msgspec.json.encode(disturbed.open.state)
            state = msgspec.json.decode(stored, type=RequestState)
            assert state == disturbed.open.state
            disturbed.open = session.resume("r", state, script[0]["open"])
        disturbed(**fields)
    assert disturbed.replies == undisturbed.replies
    assert disturbed.status == "finished"


def test_the_context_digest_is_of_the_bytes(run: Run) -> None:
    run(open=context())
    assert run.open is not None
    assert run.open.state.digest == context_digest(context())
    assert len(run.open.state.digest) == 16


def test_unexpected_exceptions_are_the_callers_business(smollm2: Model) -> None:
    """Only RequestError is an answer; what else the step raises is for the drain to count and report."""

    class Broken(Core):
        derender_step: Callable[..., Any] = staticmethod(lambda *_, **__: 1 / 0)

    run = Run(Session(lambda _: smollm2, core=Broken()))
    run(open=context())
    with pytest.raises(ZeroDivisionError):
        run(chunk=chunk(1))


def test_context_without_requests(session: Session) -> None:
    """A chat without `chat_request` has one choice and no usage chunk."""
    run = Run(session)
    run(open=b'{"kind": "chat"}')
    assert run.open is not None
    assert (run.open.state.n, run.open.state.usage_due) == (1, False)
    assert RequestContext(kind="chat").chat_request is None
    assert keys.STATUS_OPEN not in keys.CLOSED
