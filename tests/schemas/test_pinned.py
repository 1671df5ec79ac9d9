"""One pinned example of each stored or sent form: a change of the format shows up here, and needs a reason.

What is stored (context, state) is pinned as bytes, with the version that wrote it; replies field by field, null members
included, since clients read them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import generate, openai, request, state
from schemas.openai import ErrorBody, ErrorInfo
from schemas.request import RequestContext
from schemas.state import STATE_VERSION, DecodeState, HeldCall, StreamState

CONTEXT = (
    b'{"kind":"chat","model":"m","chat_request":{"messages":[{"role":"user","tool_calls":null}],"tools":null,'
    b'"parallel_tool_calls":true,"include_reasoning":true,"skip_special_tokens":true,"stop":["END"],'
    b'"stop_token_ids":null,"include_stop_str_in_output":false,"ignore_eos":false,"min_tokens":0,"logprobs":false,'
    b'"top_logprobs":0,"logprob_token_ids":null,"return_token_ids":null,"chat_template_kwargs":null,'
    b'"reasoning_effort":null,"documents":null,"chat_template":null,"stream":true,"stream_options":null,'
    b'"prompt_logprobs":null,"structured_outputs":null,"n":1},"prompt_token_ids":[1,2],"prompt_tokens":2,"created":5,'
    b'"reply_to":"all","fingerprint":"0123456789abcdef"}'
)
PUBLISHED = (
    b'{"kind":"chat","model":"m","chat_request":{"messages":[{"role":"user","content":"hi"}],"stop":["END"],'
    b'"stream":true,"temperature":0.5},"prompt_token_ids":[1,2],"prompt_tokens":2,"created":5,"reply_to":"all",'
    b'"fingerprint":"0123456789abcdef"}'
)


def test_context() -> None:
    """A producer publishes what the client sent; unknown members are read over."""
    context = msgspec.json.decode(PUBLISHED, type=RequestContext)
    assert msgspec.json.encode(context) == CONTEXT
    assert msgspec.json.decode(CONTEXT, type=RequestContext) == context


@pytest.mark.parametrize(
    ("prompt_token_ids", "encoded"),
    [
        pytest.param([1, 2], b"[1,2]", id="one-prompt"),
        pytest.param([[1], None, [2]], b"[[1],null,[2]]", id="several-prompts"),
    ],
)
def test_prompts_of_a_context(prompt_token_ids: Any, encoded: bytes) -> None:
    context = RequestContext(kind="completion", prompt_token_ids=prompt_token_ids)
    raw = b'{"kind":"completion","prompt_token_ids":' + encoded + b"}"
    assert (msgspec.json.encode(context), msgspec.json.decode(raw, type=RequestContext)) == (raw, context)


STATES = [
    pytest.param(
        StreamState(version=1, fingerprint="f"),
        b'{"version":1,"fingerprint":"f"}',
        id="nothing-yet",
    ),
    pytest.param(
        StreamState(version=1, fingerprint="f", index=0, tokens=3, role_sent=True, logprob_context=(1, 2, 3)),
        b'{"version":1,"fingerprint":"f","index":0,"tokens":3,"role_sent":true,"logprob_context":[1,2,3]}',
        id="in-the-middle",
    ),
    pytest.param(
        StreamState(
            version=1,
            fingerprint="f",
            index=2,
            tokens=3,
            role_sent=True,
            finish="stop",
            stopped=True,
            decode=DecodeState(pending=b"\xf0\x9f", held="\ufffd", started=True, broken=True, window=(1,), unread=(2,)),
            stop_held=(("<mark>", 5), ("x", -1)),
            logprob_context=(7,),
            text_offset=4,
            prompt=5,
            calls=1,
            call_done=True,
            call_open=True,
            call_held=HeldCall("f", "id", "{"),
            created=6,
            id="r",
            stop_begun=(0, 2),
        ),
        '{"version":1,"fingerprint":"f","index":2,"tokens":3,"role_sent":true,"finish":"stop","stopped":true,'
        '"decode":{"pending":"8J8=","held":"\ufffd","started":true,"broken":true,"window":[1],"unread":[2]},'
        '"stop_held":[["<mark>",5],["x",-1]],"logprob_context":[7],"text_offset":4,"prompt":5,"calls":1,'
        '"call_done":true,"call_open":true,"call_held":{"name":"f","id":"id","arguments":"{"},"created":6,"id":"r",'
        '"stop_begun":[0,2]}'.encode(),
        id="every-field-but-the-parsers",
    ),
]


@pytest.mark.parametrize(("value", "raw"), STATES)
def test_state(value: StreamState, raw: bytes) -> None:
    """The stored form of `STATE_VERSION`. What changes it raises the version, unless it adds a field with a default."""
    assert (STATE_VERSION, msgspec.json.encode(value)) == (1, raw)
    assert msgspec.json.decode(raw, type=StreamState) == value


def test_every_field_of_a_state_is_pinned() -> None:
    pinned = msgspec.json.decode(STATES[-1].values[1])
    assert set(StreamState.__struct_fields__) - set(pinned) == {"parser"}
    assert set(DecodeState.__struct_fields__) == set(pinned["decode"])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param(b'{"version":1,"fingerprint":"f","new":1}', "Object contains unknown field `new`", id="unknown"),
        pytest.param(
            b'{"version":1,"fingerprint":"f","decode":{"new":1}}',
            "Object contains unknown field `new` - at `$.decode`",
            id="unknown-inside",
        ),
        pytest.param(
            b'{"version":1,"fingerprint":"f","tokens":-1}', "Expected `int` >= 0 - at `$.tokens`", id="negative"
        ),
        pytest.param(
            b'{"version":1,"fingerprint":"f","logprob_context":[-1]}',
            "Expected `int` >= 0 - at `$.logprob_context[0]`",
            id="negative-id",
        ),
    ],
)
def test_a_state_is_strict(raw: bytes, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(raw, type=StreamState)
    assert str(raised.value) == message


ENGINE = [
    pytest.param(
        generate.GenerateChunk,
        b'{"request_id":"g","choices":[{"index":0,"token_ids":[1],"finish_reason":null,"logprobs":{"content":'
        b'[{"token_id":1,"logprob":-1,"rank":1,"top_logprobs":[{"token_id":1,"logprob":-1,"rank":1}]}]},'
        b'"routed_experts":null}],"usage":null,"output_mode":"tokens"}',
        generate.GenerateChunk(
            request_id="g",
            choices=[
                generate.GenerateStreamChoice(
                    index=0,
                    token_ids=[1],
                    logprobs=generate.GenerateLogprobs(
                        [
                            generate.GenerateLogprobEntry(
                                token_id=1, logprob=-1, top_logprobs=[generate.GenerateLogprob(token_id=1, logprob=-1)]
                            )
                        ]
                    ),
                )
            ],
        ),
        id="chunk",
    ),
    pytest.param(
        generate.GenerateResponse,
        b'{"choices":[{"index":1,"token_ids":[1,2],"stop_reason":"END"}],"prompt_token_ids":[3],"new":{}}',
        generate.GenerateResponse(
            choices=[generate.GenerateChoice(index=1, token_ids=[1, 2], finish_reason="stop", stop_reason="END")],
            prompt_token_ids=[3],
        ),
        id="response",
    ),
    pytest.param(
        request.DerenderChatStreamRequest,
        b'{"stream":true,"generate_chunk":{"choices":[]},"stream_state":{"version":1,"fingerprint":"f"},"created":5}',
        request.DerenderChatStreamRequest(
            stream=True,
            generate_chunk=generate.GenerateChunk(choices=[]),
            stream_state=state.StreamState(version=1, fingerprint="f"),
            created=5,
        ),
        id="stream-request",
    ),
]


@pytest.mark.parametrize(("type_", "raw", "value"), ENGINE)
def test_what_comes_in(type_: Any, raw: bytes, value: Any) -> None:
    """Unknown members of an engine's message are ignored: a newer engine may talk to an older worker."""
    assert msgspec.json.decode(raw, type=type_) == value


USAGE = generate.Usage(1, 3, 2)
USAGE_JSON: dict[str, Any] = {
    "prompt_tokens": 1,
    "total_tokens": 3,
    "completion_tokens": 2,
    "prompt_tokens_details": None,
    "completion_tokens_details": None,
}


def nulls(names: str) -> dict[str, None]:
    """Members that are there, and null."""
    return dict.fromkeys(names.split())


REPLIES = [
    pytest.param(
        openai.ChatCompletionChunk(
            id="r",
            created=1,
            model="m",
            choices=[openai.ChatChunkChoice(index=0, delta=openai.ChatDelta(role="assistant", content="a"))],
        ),
        {
            "id": "r",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": "a", "reasoning": None},
                    **nulls("logprobs finish_reason stop_reason token_ids weight_versions"),
                }
            ],
            "object": "chat.completion.chunk",
            **nulls("usage system_fingerprint prompt_token_ids prompt_text metrics kv_transfer_params"),
        },
        id="chat-chunk",
    ),
    pytest.param(
        openai.ChatDelta(
            tool_calls=[openai.ToolCallDelta(0, openai.FunctionCallDelta("f", ""), "id", "function")],
        ),
        {
            **nulls("role content reasoning"),
            "tool_calls": [
                {"index": 0, "function": {"name": "f", "arguments": ""}, "id": "id", "type": "function"},
            ],
        },
        id="tool-call-delta",
    ),
    pytest.param(
        openai.ChatCompletionResponse(
            id="r",
            created=1,
            model="m",
            choices=[
                openai.ChatChoice(
                    index=0,
                    message=openai.ChatMessage("a", "b", [openai.ToolCall("id", openai.FunctionCall("f", "{}"))]),
                    logprobs=openai.ChatLogprobs(
                        [openai.TokenLogprob("a", -1.0, [97], [openai.TopLogprob("a", -1.0, None)])]
                    ),
                )
            ],
            usage=USAGE,
        ),
        {
            "id": "r",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "content": "a",
                        "reasoning": "b",
                        "tool_calls": [{"id": "id", "function": {"name": "f", "arguments": "{}"}, "type": "function"}],
                        "role": "assistant",
                        **nulls("refusal annotations audio function_call"),
                    },
                    "logprobs": {
                        "content": [
                            {
                                "token": "a",
                                "logprob": -1.0,
                                "bytes": [97],
                                "top_logprobs": [{"token": "a", "logprob": -1.0, "bytes": None}],
                            }
                        ]
                    },
                    "finish_reason": "stop",
                    **nulls("stop_reason token_ids routed_experts weight_versions"),
                }
            ],
            "usage": USAGE_JSON,
            "object": "chat.completion",
            **nulls("service_tier system_fingerprint prompt_logprobs prompt_token_ids"),
            **nulls("prompt_text kv_transfer_params ec_transfer_params metrics"),
        },
        id="chat-response",
    ),
    pytest.param(
        openai.CompletionChunk(
            id="r", created=1, model="m", choices=[openai.CompletionChunkChoice(index=0, text="a")], usage=USAGE
        ),
        {
            "id": "r",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "text": "a",
                    **nulls("logprobs finish_reason stop_reason prompt_token_ids token_ids weight_versions"),
                }
            ],
            "object": "text_completion",
            "usage": USAGE_JSON,
            **nulls("system_fingerprint metrics kv_transfer_params"),
        },
        id="completion-chunk",
    ),
    pytest.param(
        openai.CompletionResponse(
            id="r",
            created=1,
            model="m",
            choices=[
                openai.CompletionChoice(
                    index=0, text="a", logprobs=openai.CompletionLogprobs([0], [-1.0], ["a"], [{"a": -1.0}])
                )
            ],
            usage=USAGE,
        ),
        {
            "id": "r",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "text": "a",
                    "logprobs": {
                        "text_offset": [0],
                        "token_logprobs": [-1.0],
                        "tokens": ["a"],
                        "top_logprobs": [{"a": -1.0}],
                    },
                    **nulls("finish_reason stop_reason token_ids"),
                    **nulls("prompt_token_ids prompt_logprobs routed_experts weight_versions"),
                }
            ],
            "usage": USAGE_JSON,
            "object": "text_completion",
            **nulls("service_tier system_fingerprint kv_transfer_params ec_transfer_params metrics"),
        },
        id="completion-response",
    ),
    pytest.param(
        ErrorBody(ErrorInfo("m", "BadRequestError", None, 400)),
        {"error": {"message": "m", "type": "BadRequestError", "param": None, "code": 400}},
        id="error",
    ),
]


@pytest.mark.parametrize(("value", "expected"), REPLIES)
def test_what_goes_out(value: Any, expected: dict[str, Any]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value)) == expected
