"""The verbs of HTTP as processes: worker, gateway, bridge and recorder, from start to SIGTERM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from derender import gateway
from derender.__main__ import CommandError, main
from schemas.generate import GENERATE
from schemas.keys import Keys
from tests.conftest import RedisServer, free_port
from tests.engine import Engine, Generation, serving
from tests.shared_data import ROOT

MODEL = "smollm2-135m-instruct"


@contextmanager
def verb(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A verb as a process, ended by SIGTERM; it has to end well and say nothing but what it logs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "derender", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
        assert process.stdout is not None
        process.stdout.close()


def wait_for(url: str) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < until, f"{url} does not answer"
        time.sleep(0.05)


def wait_for_a_bridge(url: str) -> None:
    until = time.monotonic() + 30
    with Redis.from_url(url) as client:
        while not client.hlen(Keys().bridges):
            assert time.monotonic() < until, "no bridge says that it lives"
            time.sleep(0.05)


@pytest.mark.redis
def test_the_whole_path_as_processes(redis_server: RedisServer, server_url: str, tmp_path: Path) -> None:
    engine = Engine(lambda _: Generation([[28120, 905, 2]]), eos=frozenset({2}))
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    recording = tmp_path / "live.jsonl"
    url = ("--redis-url", server_url)
    tokenizer = ("--tokenizer", "derender/data/smollm2", "--served-model-name", MODEL)
    with (
        serving(engine.app) as engine_url,
        verb("worker", *url, *tokenizer, "--log-level", "warning") as worker,
        verb("gateway", *url, "--port", str(port), "--log-level", "warning") as gateway,
        verb("bridge", *url, "--engine", engine_url, "--log-level", "warning") as bridge,
    ):
        wait_for(f"{base}/health")
        wait_for_a_bridge(server_url)
        with verb("record", str(recording), *url, "--requests", "1") as recorder:
            body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
            for _ in range(100):  # the recorder is ready at some time
                answer = httpx.post(f"{base}/v1/chat/completions", json=body, timeout=20)
                assert answer.text.endswith("data: [DONE]\n\n")
                if recorder.poll() is not None:
                    break
                time.sleep(0.1)
            assert recorder.wait(timeout=10) == 0
            assert recorder.stdout is not None
            assert recorder.stdout.read().startswith("1 request recorded; left out: ")
    assert [process.returncode for process in (worker, gateway, bridge)] == [0, 0, 0]
    events = [json.loads(line) for line in recording.read_text().splitlines()]
    assert [event["event"] for event in events] == ["open", "chunk", "chunk", "chunk", "done"]
    assert [event["chunk"]["choices"][0]["token_ids"] for event in events[1:4]] == [[28120], [905], [2]]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["gateway", "--port", "70000"], "--port has to be between 0 and 65535"),
        (["gateway", "--timeout-s", "0"], "--timeout-s has to be more than 0"),
        (["gateway", "--queue", "m"], "--queue 'm': write MODEL=NAME, with a name of A-Z a-z 0-9 . _ -"),
        (["bridge"], "--engine is needed: the base URL of the engine, such as http://127.0.0.1:8200"),
        (["bridge", "--engine", "ftp://x"], "--engine 'ftp://x': use http:// or https://"),
        (["bridge", "--engine", "http://x", "--concurrency", "0"], "--concurrency has to be at least 1"),
        (["bridge", "--engine", "http://x", "--queue", "a b"], "--queue 'a b': use A-Z a-z 0-9 . _ -"),
        (["gateway", "--log-level", "loud"], "--log-level has to be debug, info, warning or error"),
        (["bridge", "--engine", "http://x", "--log-level", "loud"],
         "--log-level has to be debug, info, warning or error"),
        (["engine", "--log-level", "loud"], "--log-level has to be debug, info, warning or error"),
        (["engine", "--port", "-1"], "--port has to be between 0 and 65535"),
        (["engine", "--tokens-per-s", "0"], "--tokens-per-s has to be more than 0"),
        (["record", "x", "--seconds", "0"], "--seconds has to be more than 0"),
        (["record", "x", "--requests", "0"], "--requests has to be at least 1"),
        (["replay", "--save-replies", "x", "--no-follow"],
         "--save-replies and --expect need the replies: leave --no-follow out"),
        (["replay", "--expect", "x", "--copies", "2"], "--save-replies and --expect take one copy of each request"),
    ],
)  # fmt: skip
def test_impossible_options(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err == f"derender {argv[0]}: {message}\n"


@pytest.mark.parametrize(
    "argv", [["gateway"], ["bridge", "--engine", "http://127.0.0.1:9"], ["record", "x"]], ids=lambda argv: argv[0]
)
def test_an_unreachable_redis_is_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    url = f"redis://user:secret@127.0.0.1:{free_port()}/0"
    assert main([*argv, "--redis-url", url]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"derender {argv[0]}: ")
    assert "secret" not in error


@pytest.mark.redis
async def test_a_gateway_says_that_it_waits_for_a_worker(
    real_redis: AsyncRedis, server_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gateway, "WAIT_S", 0.1)
    with pytest.raises(CommandError, match="derender:config is not set"):
        await gateway._wait_for_workers(gateway.GatewayOptions(redis_url=server_url))
    assert [record.getMessage() for record in caplog.records] == [
        "derender:config is not set: no worker has been started on this database; waiting up to 0 s for one"
    ]


RECORDINGS = {
    "none": (None, "cannot read the recording: [Errno 2] No such file or directory: "),
    "no JSON": ("x", "cannot read the recording: "),
    "no chunk": ('{"t": 0, "event": "open", "request_id": "r", "context": {}}', "cannot answer from "),
    "no event": (
        '{"t": 0, "event": "open", "request_id": "r", "context": {}}\n'
        '{"t": 0, "event": "chunk", "request_id": "r", "chunk": {"choices": 1}}',
        "cannot read the recording: ",
    ),
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_that_no_engine_can_answer_from(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, message = RECORDINGS[name]
    path = tmp_path / "recording.jsonl"
    if text is not None:
        path.write_text(text, "utf-8")
    assert main(["engine", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"derender engine: {message}")
    assert error.count("\n") == 1


def test_an_engine_as_a_process() -> None:
    port = free_port()
    body = {"token_ids": [1], "sampling_params": {"max_tokens": 2}}
    with verb("engine", "--port", str(port), "--log-level", "warning") as engine:
        until = time.monotonic() + 30
        while True:
            try:
                answer = httpx.post(f"http://127.0.0.1:{port}{GENERATE}", json=body)
                break
            except httpx.TransportError:
                assert time.monotonic() < until, "the engine does not answer"
                time.sleep(0.05)
    assert engine.returncode == 0
    assert len(answer.json()["choices"][0]["token_ids"]) == 2


def test_an_earlier_run_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--expect", str(tmp_path / "none.jsonl")]) == 1
    assert capsys.readouterr().err.startswith("derender replay: cannot read the earlier run: ")
