"""`derender call`: JSON lines in, one answer a line out, in order; the rest on standard error."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from derender import call
from derender.__main__ import CommandError, main
from derender.call import CallSettings, Progress, answer_files, answer_line, answer_lines
from tests.core.bodies import SERVED, H, chat, choice, chunk, completion
from tests.core.support import SMOLLM2
from tests.shared_data import ROOT
from worker.core.calls import ENDPOINTS
from worker.core.errors import UnknownModel
from worker.core.model import Model, ParserConfig
from worker.settings import ENV_PREFIX, SettingsError, load
from worker.tokenizer_cache import load_model


def models(name: str | None) -> Model:
    if name:
        raise UnknownModel("no such model", param="model")
    return SERVED


def lines(*bodies: Any) -> io.BytesIO:
    return io.BytesIO(b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in bodies))


def answers(source: io.BytesIO, endpoint: str | None = None) -> list[Any]:
    out = io.BytesIO()
    answer_lines(source, out, models, endpoint)
    assert out.getvalue().endswith(b"\n")
    return [json.loads(line) for line in out.getvalue().splitlines()]


def told(answer: Any) -> Any:
    """Error message, or the text, of an answer."""
    if "error" in answer:
        return answer["error"]["message"]
    chosen = answer.get("chunk", answer)["choices"][0]
    return chosen.get("text") or chosen.get("message", chosen.get("delta", {})).get("content")


def test_one_answer_a_line_in_order() -> None:
    found = answers(
        lines(
            chat(choice((H,), finish_reason="length")),
            b"",
            b"{",
            completion(),
            chat(model="x"),
            chunk(choice((H, H))),
            b"\xff\xfe",
            chat(),
        )
    )
    assert [told(answer) for answer in found] == [
        "h",
        "the line is blank",
        "invalid JSON: Input data was truncated",
        "hi",
        "no such model",
        "hh",
        "invalid JSON: JSON is malformed: invalid character (byte 0)",
        "hi",
    ]
    assert [answer["error"]["code"] if "error" in answer else 200 for answer in found] == [
        200, 400, 400, 200, 404, 200, 400, 200,
    ]  # fmt: skip


def test_a_last_line_without_its_end_is_answered() -> None:
    source = io.BytesIO(json.dumps(chat()).encode() + b"\r\n" + json.dumps(completion()).encode())
    assert [answer["object"] for answer in answers(source)] == ["chat.completion", "text_completion"]


def test_nothing_in_nothing_out() -> None:
    out = io.BytesIO()
    answer_lines(io.BytesIO(), out, models, None)
    assert out.getvalue() == b""


def test_what_a_line_may_say_of_itself() -> None:
    own = {"endpoint": "/v1/completions/derender", "request_id": "mine", "created": 5}
    body = chunk() | own
    del body["generate_chunk"]["request_id"]
    (answer,) = answers(lines(body), endpoint="chat")
    said = answer["chunk"]
    assert (said["object"], said["id"], said["created"]) == ("text_completion", "mine", 5)


def test_endpoint_of_lines_that_do_not_say() -> None:
    assert [
        answer["chunk"]["object"] for answer in answers(lines(chunk(), chunk() | {"endpoint": "chat"}), "completion")
    ] == [
        "text_completion",
        "chat.completion.chunk",
    ]


def test_a_stream_by_its_own_states() -> None:
    first, second = {"choices": [choice(("104",))]}, {"choices": [choice((H,), finish_reason="length")]}
    first["choices"][0]["token_ids"] = [H]
    (one,) = answers(lines({"stream": True, "generate_chunk": first}))
    (two,) = answers(lines({"stream": True, "generate_chunk": second, "stream_state": one["stream_state"]}))
    assert (told(one), told(two), two["chunk"]["id"]) == ("h", "h", one["chunk"]["id"])


def test_a_line_that_is_too_long_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "Limits", lambda: type("Small", (), {"max_payload_bytes": 200})())
    source = lines(b'{"x": "' + b"y" * 5_000 + b'"}', chat())
    read = list(call._lines(source, 200))
    assert ([len(line) for line in read], read[1]) == ([202, len(json.dumps(chat()))], json.dumps(chat()).encode())


def test_a_fault_of_ours_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def broken(name: str | None) -> Model:
        raise ZeroDivisionError("deep inside")

    answer, failed = answer_line(broken, json.dumps(chat()).encode(), None, now=lambda: 1.5)
    assert (json.loads(answer), failed) == (
        {"error": {"message": "internal error", "type": "InternalServerError", "param": None, "code": 500}},
        True,
    )
    assert "ZeroDivisionError: deep inside" in caplog.text


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_for_a_log_is_one_line() -> None:
    out = io.StringIO()
    progress = Progress(out, now=iter([0.0, 2.5]).__next__)
    for failed in (False, True, False):
        progress.step(failed)
    progress.end()
    assert out.getvalue() == "derender call: 3 answers, 1 error in 2.5 s\n"


def test_progress_for_a_person_moves() -> None:
    out = Screen()
    progress = Progress(out, now=iter([0.0, 0.5, 1.5, 1.5, 1.6, 2.0]).__next__)
    for _ in range(3):
        progress.step(False)
    progress.end()
    assert out.getvalue() == ("\rderender call: 2 answers, 0 errors\rderender call: 3 answers, 0 errors in 2.0 s\n")


def test_files_in_order(tmp_path: Path) -> None:
    for name, body in (("a", chat()), ("b", completion())):
        (tmp_path / name).write_bytes(lines(body).getvalue())
    out, report = io.BytesIO(), io.StringIO()
    assert answer_files([str(tmp_path / name) for name in "ba"], out, report, models, None) == 0
    assert [json.loads(line)["object"] for line in out.getvalue().splitlines()] == [
        "text_completion",
        "chat.completion",
    ]
    assert report.getvalue().startswith("derender call: 2 answers, 0 errors in ")


def test_errors_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(lines(chat(), b" ", b"{").getvalue())
    report = io.StringIO()
    assert answer_files([str(path)], io.BytesIO(), report, models, None) == 2
    assert report.getvalue().startswith("derender call: 3 answers, 2 errors in ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG], ids=errno.errorcode.get)
def test_answers_that_cannot_be_written_are_no_fault_of_the_input(tmp_path: Path, number: int) -> None:
    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError(number, os.strerror(number))

    (tmp_path / "a").write_bytes(lines(chat()).getvalue())
    with pytest.raises(OSError, match=f"^.Errno {number}. {os.strerror(number)}$"):
        answer_files([str(tmp_path / "a")], Full(), io.StringIO(), models, None)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as raised:
        answer_files([str(tmp_path / "none")], io.BytesIO(), io.StringIO(), models, None)
    assert str(raised.value) == f"{tmp_path / 'none'}: No such file or directory"


# --- options ----------------------------------------------------------------------------------------------------------

GIVEN = {
    "config": ("models.toml", "models.toml"),
    "revision": ("v1", "v1"),
    "max_sequences": ("7", 7),
    "tokenizer": ("folder", "folder"),
    "served_model_name": ("a,b", ("a", "b")),
    "model_type": ("qwen3", "qwen3"),
    "max_model_len": ("4096", 4096),
    "max_logprobs": ("-1", -1),
    "eos_token_id": ("1,2", (1, 2)),
    "chat_template": ("t.jinja", "t.jinja"),
    "default_chat_template_kwargs": ('{"a": 1}', '{"a": 1}'),
    "tool_call_parser": ("hermes", "hermes"),
    "reasoning_parser": ("qwen3", "qwen3"),
    "enable_auto_tool_choice": ("on", True),
    "tool_call_streaming": ("complete", "complete"),
    "forced_tool_format": ("json", "json"),
    "stop_scope": ("content", "content"),
    "endpoint": ("completion", "completion"),
}


def test_every_option_has_an_environment_name() -> None:
    assert set(GIVEN) == set(CallSettings.__dataclass_fields__)
    environ = {ENV_PREFIX + name.upper(): text for name, (text, _) in GIVEN.items()}
    settings = load(CallSettings, {}, environ)
    assert {name: getattr(settings, name) for name in GIVEN} == {name: value for name, (_, value) in GIVEN.items()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": "embeddings"}, f"--endpoint 'embeddings': use one of {', '.join(ENDPOINTS)}"),
        ({"tool_call_streaming": "lazy"}, "--tool-call-streaming has to be eager or complete, not 'lazy'"),
        ({"forced_tool_format": "xml"}, "--forced-tool-format has to be native or json, not 'xml'"),
        ({"stop_scope": "all"}, "--stop-scope has to be output or content, not 'all'"),
        ({"enable_auto_tool_choice": "on"}, "--enable-auto-tool-choice needs --tool-call-parser"),
        ({"reasoning_parser": "no"}, "--reasoning-parser 'no' is not known; derender parsers lists the names"),
        ({"default_chat_template_kwargs": "[]"}, "--default-chat-template-kwargs has to be a JSON object"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(CallSettings, options, {})
    assert str(raised.value) == message


def test_options_reach_the_model() -> None:
    environ = {ENV_PREFIX + name.upper(): text for name, (text, _) in GIVEN.items()} | {
        "DERENDER_TOKENIZER": str(SMOLLM2),
        "DERENDER_CHAT_TEMPLATE": str(SMOLLM2 / "chat_template.jinja"),
    }
    model = load_model(load(CallSettings, {}, environ))
    assert (model.name, model.model_type, model.model_eos_ids, model.eos_token_id) == ("a", "qwen3", {1, 2}, 2)
    assert (model.limits.max_model_len, model.limits.max_logprobs) == (4096, None)
    assert model.parsers == ParserConfig(
        tool_call_parser="hermes",
        reasoning_parser="qwen3",
        enable_auto_tool_choice=True,
        default_chat_template_kwargs={"a": 1},
        tool_call_streaming="complete",
        forced_tool_format="json",
        stop_scope="content",
    )


def test_a_tokenizer_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call"]) == 2
    message = "--tokenizer is needed: a folder with tokenizer.json, or an id; or --config"
    assert capsys.readouterr().err == f"derender call: {message}\n"


def test_a_tokenizer_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "--tokenizer", "./nowhere"]) == 1
    assert capsys.readouterr().err == "derender call: tokenizer folder ./nowhere does not exist\n"


def test_the_command() -> None:
    """The whole way, in a process of its own: answers on standard output, a summary on standard error."""
    asked = chat(choice((19556, 28, 905, 2), finish_reason="stop"), model="smol", created=7)
    done = subprocess.run(
        [sys.executable, "-m", "derender", "call", "--served-model-name", "smol"],
        input=lines(asked, b"{").getvalue(),
        cwd=ROOT,
        env=os.environ | {"DERENDER_TOKENIZER": str(SMOLLM2)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["choices"][0]["message"]["content"], first["model"], first["created"]) == ("Hello, world", "smol", 7)
    assert told(second) == "invalid JSON: Input data was truncated"
    assert done.stderr.decode().startswith("derender call: 2 answers, 1 error in ")
