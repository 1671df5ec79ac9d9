"""Rendering: prompts as the recorded engine got them, sampling parameters, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import shared_data
from tests.conftest import DATA
from worker.core.errors import RequestError
from worker.core.grammars import REASONING_NAMES, TOOL_NAMES
from worker.core.model import Limits, ParserConfig
from worker.render import CHAT, COMPLETION, MAX_PROMPTS, MODELS, PARSERS, Renderer, Template
from worker.settings import ModelSettings
from worker.tokenizer_cache import ModelTable, load_model, load_template

NAME = "smollm2-135m-instruct"
MESSAGES = [{"role": "user", "content": "Hi"}]


def renderer_of(template: Template | None = None, **settings: Any) -> Renderer:
    options = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=(NAME, "alias"), **settings)
    models = ModelTable([(load_model(options), options.served_model_name)])
    lengths = dict.fromkeys(models.names, options.max_model_len)
    return Renderer(lengths, {NAME: template or load_template(options)}.__getitem__, models)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return renderer_of()


def render(renderer: Renderer, endpoint: str = CHAT, **body: Any) -> Any:
    if endpoint == CHAT:
        body = {"messages": MESSAGES} | body
    return json.loads(renderer(endpoint, json.dumps(body).encode(), request_id="id", limits=Limits()))


def refused(renderer: Renderer, endpoint: str = CHAT, **body: Any) -> tuple[int, str | None, str]:
    with pytest.raises(RequestError) as caught:
        render(renderer, endpoint, **body)
    return caught.value.code, caught.value.param, caught.value.message


def recorded() -> list[dict[str, Any]]:
    return [event | {"id": event["request_id"]} for event in shared_data.recording() if event["event"] == "open"]


@pytest.mark.shared
@pytest.mark.parametrize("event", shared_data.params(recorded()))
def test_prompts_are_those_of_the_recording(renderer: Renderer, event: dict[str, Any]) -> None:
    """The engine that was recorded rendered these requests itself: the ids are the same."""
    shared_data.count("recordings")
    context = event["context"]
    kind = context["kind"]
    body = json.dumps(context[f"{kind}_request"]).encode()
    answer = json.loads(renderer(CHAT if kind == "chat" else COMPLETION, body, request_id="id", limits=Limits()))
    if kind == "completion":
        (answer,) = answer
    assert answer["token_ids"] == context["prompt_token_ids"]


def test_a_chat(renderer: Renderer) -> None:
    asked: dict[str, Any] = {
        "model": "alias", "max_tokens": 5, "max_completion_tokens": 7, "temperature": 0.5, "n": 2, "seed": 7,
        "stop": "x", "logprobs": True, "top_logprobs": 3, "stream": True, "stream_options": {"include_usage": True},
        "return_token_ids": True, "something": "unknown",
    }  # fmt: skip
    answer = render(renderer, **asked)
    assert answer.pop("token_ids")[-5:] == [2, 198, 1, 520, 9531, 198][-5:]
    assert answer.pop("parse_context")["tool_choice"] == "none"
    assert answer == {
        "request_id": "id",
        "model": "alias",
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "sampling_params": {"temperature": 0.5, "n": 2, "seed": 7, "stop": ["x"], "logprobs": 3, "max_tokens": 7},
    }


@pytest.mark.parametrize(
    ("body", "params"),
    [
        ({}, {"max_tokens": None}),
        ({"logprobs": True}, {"logprobs": 0, "max_tokens": None}),
        ({"top_p": "0.5"}, {"top_p": 0.5, "max_tokens": None}),
        ({"response_format": {"type": "text"}}, {"max_tokens": None}),
        (
            {"response_format": {"type": "json_object"}},
            {"structured_outputs": {"json_object": True}, "max_tokens": None},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}},
            {"structured_outputs": {"json": {"type": "object"}}, "max_tokens": None},
        ),
        ({"structured_outputs": {"regex": "a"}}, {"structured_outputs": {"regex": "a"}, "max_tokens": None}),
    ],
    ids=["nothing", "logprobs", "digits", "text", "json", "schema", "regex"],
)
def test_sampling_parameters(renderer: Renderer, body: dict[str, Any], params: dict[str, Any]) -> None:
    assert render(renderer, **body)["sampling_params"] == params


def test_the_model_s_own_defaults_and_length() -> None:
    template = Template("{{ messages[0].content }}", generation_config={"temperature": 0.2, "top_k": 5, "top_p": None})
    renderer = renderer_of(template, max_model_len=4)
    assert render(renderer, temperature=0.7)["sampling_params"] == {"temperature": 0.7, "top_k": 5, "max_tokens": 3}
    assert render(renderer, max_tokens=9)["sampling_params"]["max_tokens"] == 3
    assert refused(renderer, messages=[{"role": "user", "content": "one two three four five"}]) == (
        400,
        None,
        "the prompt has 5 tokens, which leaves no room in 4",
    )


SHOW = "{{ messages | tojson }}|{{ tools | length if tools else 0 }}|{{ enable_thinking }}|{{ bos_token }}"


def shown(renderer: Renderer, **body: Any) -> str:
    ids = render(renderer, **body)["token_ids"]
    return str(renderer._lookup(None).vocabulary.decode(ids))


def test_what_a_template_sees() -> None:
    """Parts as one text, arguments as objects, the special tokens; tools by a template of their own."""
    renderer = renderer_of(Template(SHOW, tool_source="tools:" + SHOW, tokens={"bos_token": "<s>"}))
    parts = [{"type": "text", "text": "a"}, "b"]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    empty = {"id": "d", "type": "function", "function": {"name": "g", "arguments": " "}}
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": [call, empty]}]
    text, tools, thinking, bos = shown(renderer, messages=messages, reasoning_effort="none").split("|")
    first, second = json.loads(text)
    assert first["content"] == "a\nb"
    assert [one["function"]["arguments"] for one in second["tool_calls"]] == [{"x": 1}, {}]
    assert (tools, thinking, bos) == ("0", "False", "<s>")
    tool = {"type": "function", "function": {"name": "f"}}
    assert shown(renderer, tools=[tool], chat_template_kwargs={"enable_thinking": True}).split("|")[1:3] == [
        "1",
        "True",
    ]
    assert shown(renderer, tools=[tool])[:6] == "tools:"


def test_server_and_request_arguments_of_a_template() -> None:
    options = ModelSettings(
        tokenizer=str(DATA / "smollm2"),
        served_model_name=(NAME,),
        default_chat_template_kwargs='{"enable_thinking": false, "other": 1}',
    )
    parsers = ParserConfig(default_chat_template_kwargs=options.template_kwargs())
    models = ModelTable([(load_model(options, parsers), ())])
    renderer = Renderer({}, {NAME: Template("{{ enable_thinking }} {{ other }}")}.__getitem__, models)
    assert shown(renderer) == "False 1"
    assert shown(renderer, chat_template_kwargs={"enable_thinking": True}) == "True 1"
    assert shown(renderer, chat_template_kwargs={"enable_thinking": True}, reasoning_effort="none") == "True 1"
    assert shown(renderer, reasoning_effort="low") == "True 1"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model": "nobody"}, (404, "model", f"model 'nobody' is not served here; known: alias, {NAME}")),
        ({"messages": []}, (400, "messages", "messages must not be empty")),
        ({"messages": [{"content": "x"}]}, (400, "messages.0.role", "role has to be a string")),
        (
            {"messages": [{"role": "user", "content": 5}]},
            (400, "messages.0.content", "content has to be a string, a list of parts or null"),
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            (400, "messages.0.content", "only text parts are supported"),
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
            (400, "messages.0.tool_calls.0", "a tool call needs a function with a name"),
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            (400, "messages.0.tool_calls.0.function.arguments", "arguments of a tool call have to be JSON"),
        ),
        ({"chat_template": "x"}, (400, "chat_template", "chat_template is set by the server")),
        (
            {"chat_template_kwargs": {"messages": []}},
            (400, "chat_template_kwargs", "chat_template_kwargs may not set messages"),
        ),
        ({"max_tokens": 0}, (400, "max_tokens", "max_tokens has to be at least 1")),
        ({"n": 0}, (400, "n", "n must be from 1 to 16384")),
        ({"n": 16385}, (400, "n", "n must be from 1 to 16384")),
        ({"top_logprobs": 2}, (400, "top_logprobs", "top_logprobs needs logprobs to be true")),
        (
            {"response_format": {"type": "xml"}},
            (400, "response_format", "response_format has to be text, json_object or json_schema with a schema"),
        ),
    ],
)  # fmt: skip
def test_refused_chats(renderer: Renderer, body: dict[str, Any], expected: tuple[int, str | None, str]) -> None:
    assert refused(renderer, **body) == expected


def test_templates_that_refuse() -> None:
    assert refused(renderer_of(Template())) == (
        400,
        None,
        "this model has no chat template: use /v1/completions/render",
    )
    renderer = renderer_of(Template("{{ raise_exception('no such turn') }}"))
    assert refused(renderer)[2] == "the chat template refuses these messages: no such turn"
    unsafe = renderer_of(Template("{{ messages.__class__.__mro__[1].__subclasses__() }}"))
    assert refused(unsafe)[2][:40] == "the chat template refuses these messages"


def test_completions(renderer: Renderer) -> None:
    rendered = render(renderer, COMPLETION, prompt=["Hi", "there"], logprobs=2, max_tokens=None)
    assert [(one["request_id"], one["sampling_params"]) for one in rendered] == [
        ("id-0", {"logprobs": 2, "max_tokens": None}),
        ("id-1", {"logprobs": 2, "max_tokens": None}),
    ]
    for prompt in ([5, 6], [[5, 6]]):
        (one,) = render(renderer, COMPLETION, prompt=prompt)
        assert (one["token_ids"], one["sampling_params"]) == ([5, 6], {"max_tokens": 16})
    assert refused(renderer, COMPLETION, prompt=[5, "x"])[2] == "prompt mixes token ids with prompts"
    assert refused(renderer, COMPLETION, prompt=[[5], []])[2] == "prompt must not be empty"
    assert refused(renderer, COMPLETION, prompt="x", echo=True)[2] == "echo is not supported"
    assert refused(renderer, COMPLETION, prompt="x", suffix="y")[2] == "suffix is not supported"
    assert (
        refused(renderer, COMPLETION, prompt=["x"] * (MAX_PROMPTS + 1))[2] == "1025 prompts are over the limit of 1024"
    )


def test_parser_names(renderer: Renderer) -> None:
    assert render(renderer, PARSERS) == {"reasoning": list(REASONING_NAMES), "tool": list(TOOL_NAMES)}


def test_models(renderer: Renderer) -> None:
    listed = json.loads(renderer(MODELS, b"{}", request_id="id", limits=Limits()))
    assert [one["id"] for one in listed["data"]] == [NAME, "alias"]
    with pytest.raises(RequestError, match="endpoint '/v1/other' is not known"):
        renderer("/v1/other", b"{}", request_id="id", limits=Limits())


def test_templates_of_a_folder(tmp_path: Path) -> None:
    """Named templates, one for tools; special tokens as text or objects; a file of the operator's wins."""
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    config = {"chat_template": named, "bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6}')
    expected = Template("d", "t", {"bos_token": "<s>", "eos_token": "</s>"}, {"temperature": 0.6})
    assert load_template(ModelSettings(tokenizer=str(tmp_path))) == expected
    own = tmp_path / "own.jinja"
    own.write_text("o")
    found = load_template(ModelSettings(tokenizer=str(tmp_path), chat_template=str(own)))
    assert (found.source, found.tool_source) == ("o", None)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("file")
    found = load_template(ModelSettings(tokenizer=str(tmp_path)))
    assert (found.source, found.tool_source) == (None, "file")
