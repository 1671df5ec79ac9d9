"""Calls and whole work of gateways: where answers go, and what is said when nobody waits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.support import model as small_model
from tests.core.test_session import MS, Run, context, entry, error_of, run, session
from tests.events import chunk
from worker.core.calls import derender_call
from worker.core.errors import InternalError, RequestError
from worker.core.model import Limits, Model, ParserConfig
from worker.core.session import Outcome, Session, Signal

__all__ = ["run", "session"]

RESPONSE: dict[str, Any] = {"choices": [{"index": 0, "token_ids": [19556, 905], "finish_reason": "length"}]}
CALL = json.dumps({"generate_response": RESPONSE}).encode()


def test_a_call_that_names_a_stream_is_answered_there_alone(run: Run, smollm2: Model) -> None:
    """No reply stream, no status: the caller waits for this one answer, and a second one harms nobody."""
    for _ in range(2):
        outcome = run(call=CALL, reply_to="gw", endpoint="/v1/chat/completions/derender")
        [reply] = outcome.replies
        answer = derender_call(lambda _: smollm2, CALL, request_id="r", created=MS // 1000)
        assert reply.fields == {b"response": answer, b"done": b"finished"}
        assert (outcome.reply_to, outcome.private, outcome.closed, outcome.open) == ("gw", True, None, None)
    assert run.status is None


def test_the_endpoint_says_what_a_body_is(run: Run) -> None:
    body = json.dumps({"generate_responses": [RESPONSE]}).encode()
    [reply] = run(call=body, reply_to="gw", endpoint="/v1/completions/derender").replies
    assert json.loads(reply.fields[b"response"])["object"] == "text_completion"
    [reply] = run(call=body, reply_to="gw", endpoint="/v1/nothing").replies
    assert json.loads(reply.fields[b"error"])["error"]["param"] == "body.endpoint"


def test_a_caller_s_mistake_is_answered_and_not_kept(run: Run) -> None:
    outcome = run(call=b"{}", reply_to="gw")
    [reply] = outcome.replies
    assert json.loads(reply.fields[b"error"])["error"]["code"] == 400
    assert (outcome.private, outcome.dead, outcome.closed) == (True, None, None)


def test_our_own_fault_is_answered_and_kept(session: Session) -> None:
    failed = session.fail(None, InternalError("broken"), entry=entry(0, call=CALL, reply_to="gw"))
    assert (failed.private, failed.reply_to, failed.dead) == (True, "gw", "broken")


def test_a_call_that_shares_its_id_leaves_the_open_request_alone(run: Run) -> None:
    run(open=context())
    before = run.open
    for body in (CALL, b"{}"):
        outcome = run(call=body, reply_to="gw")
        assert (outcome.private, outcome.open, outcome.closed) == (True, None, None)
    assert run.open == before


def test_an_impossible_name_is_no_address(run: Run) -> None:
    outcome = run(call=CALL, reply_to="a:b")
    assert (outcome.private, outcome.reply_to, outcome.closed) == (False, None, "finished")


def test_other_endpoints(smollm2: Model) -> None:
    def other(endpoint: str, body: bytes, *, request_id: str, limits: Limits) -> bytes:
        if body == b"wrong":
            raise RequestError("no")
        return json.dumps([endpoint, body.decode(), request_id]).encode()

    run = Run(Session(lambda _: smollm2, others={"/other": other}))
    [reply] = run(call=b"x", endpoint="/other", reply_to="gw").replies
    assert json.loads(reply.fields[b"response"]) == ["/other", "x", "r"]
    [reply] = run(call=b"wrong", endpoint="/other", reply_to="gw").replies
    assert json.loads(reply.fields[b"error"])["error"]["message"] == "no"


def test_whole_work_of_several_prompts(run: Run) -> None:
    """A list of responses, one for each prompt: choices are numbered through and usage is the sum."""
    opened = context(kind="completion", prompt_tokens=[1, 2], prompt_token_ids=[[5], [5, 6]], reply_to="gw")
    outcome = run(open=opened, response=json.dumps([RESPONSE, RESPONSE]).encode())
    body = json.loads(outcome.replies[0].fields[b"response"])
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(0, "Hello world"), (1, "Hello world")]
    assert (body["usage"]["total_tokens"], body["id"]) == (7, "r")
    assert (outcome.reply_to, outcome.private, outcome.closed) == ("gw", False, "finished")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"open": context(model="other", reply_to="gw")}, 404),
        ({"open": context(reply_to="gw"), "response": b"{}"}, 400),
    ],
    ids=["open", "response"],
)
def test_a_refusal_reaches_who_waits_for_it(run: Run, fields: dict[str, bytes], code: int) -> None:
    outcome = run(**fields)
    assert error_of(outcome)["code"] == code
    assert outcome.reply_to == "gw"


@pytest.mark.parametrize("opened", [b"x", b'{"reply_to": 5}', context(reply_to="a:b")], ids=["no JSON", "type", "name"])
def test_a_refusal_without_an_address(run: Run, opened: bytes) -> None:
    outcome = run(open=opened)
    assert error_of(outcome)["code"] == 400
    assert outcome.reply_to is None


def test_an_abort_of_whole_work_tells_the_engine_s_side(run: Run) -> None:
    """It is not open, but a bridge may be at it; what comes of it later is dropped."""
    assert run(control="abort") == Outcome(closed="aborted", signals=[Signal("abort")])
    assert run(open=context(), response=json.dumps(RESPONSE).encode()).dropped == "closed"
    assert run(control="abort").dropped == "closed"


def test_pieces_of_a_call_have_no_nulls() -> None:
    """Clients that merge deltas take a null for a new value; the self-contained form keeps every member."""
    served = small_model(parsers=ParserConfig(tool_call_parser="hermes", enable_auto_tool_choice=True))
    text = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
    ids = [served.vocabulary.tokenizer.token_to_id(one if one != " " else "Ġ") for one in text]
    run = Run(Session(lambda _: served))
    tools = [{"type": "function", "function": {"name": "f"}}]
    run(open=context(request={"tools": tools}, prompt_token_ids=[1]))
    for id_ in ids:
        run(chunk=chunk(id_))
    run(chunk=chunk(finish="stop"))
    pieces = []
    for reply in run.replies:
        (choice,) = json.loads(reply.fields[b"chunk"])["choices"]
        pieces += choice["delta"].get("tool_calls", [])
    assert set(pieces[0]) == {"index", "id", "type", "function"}
    assert [set(piece) for piece in pieces[1:]] == [{"index", "function"}] * (len(pieces) - 1)
    assert "".join(piece["function"].get("arguments", "") for piece in pieces) == '{"x": 1}'
    assert all(value is not None for piece in pieces for value in piece["function"].values())
