"""The command line: verbs, what they refuse, what they print."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from derender.__main__ import VERBS, main, usage
from derender.demo import expected_texts
from derender.replay import DEMO_RECORDING, DEMO_TOKENIZER, add_arguments, load_replay, replay_and_follow
from derender.show import LINE_CHARS, Printer, progress, texts
from link.process import own_version
from producer.read import Reader, Reply
from producer.replay import read_recording, request_ids
from schemas.keys import Keys, partition_of
from tests.conftest import free_port
from worker.core.grammars import REASONING_NAMES, TOOL_NAMES
from worker.settings import DEFAULT_REDIS_URL

ROOT = Path(__file__).parents[2]
NAMES = Keys()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DERENDER_")]:
        monkeypatch.delenv(name)


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "derender", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=90,
        env={**os.environ, **env},
    )


def contents(folder: Path) -> dict[str, str]:
    """Texts of the files of a folder, by name."""
    return {entry.name: entry.read_text("utf-8") for entry in folder.iterdir()}


def run_on_a_full_disk(*arguments: str, given: str = "", **env: str) -> tuple[int, str]:
    """Exit code and standard error of a verb whose output nobody can keep."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "derender", *arguments], cwd=ROOT, env={**os.environ, **env}, input=given,
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    return done.returncode, done.stderr


# --- verbs ------------------------------------------------------------------------------------------------------------


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == usage()
    assert main([]) == 2
    lines = [line.split(maxsplit=1) for line in usage().splitlines() if line.startswith("  ")]
    assert lines == [[verb, text] for verb, text in VERBS.items()]


def test_an_unknown_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dance"]) == 2
    assert capsys.readouterr().err == f"derender: no verb 'dance'\n\n{usage()}"


def test_a_mistyped_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wroker"]) == 2
    assert capsys.readouterr().err == f"derender: no verb 'wroker' (did you mean worker?)\n\n{usage()}"


def test_parsers_lists_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Behind the option that takes them, in lines that a terminal shows whole."""
    assert main(["parsers"]) == 0
    output = capsys.readouterr().out
    listed = [part.split("\n", 1) for part in output.split("\n\n")[:2]]
    assert [(option, tuple(names.replace("\n", " ").replace(" ", "").split(","))) for option, names in listed] == [
        ("--reasoning-parser", REASONING_NAMES),
        ("--tool-call-parser", TOOL_NAMES),
    ]
    assert max(map(len, output.splitlines())) <= 100


@pytest.mark.parametrize("verb", ["worker", "call", "doctor", "replay", "demo"])
def test_help_says_how_to_list_the_parser_names(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert words.count("named as for vllm serve (derender parsers lists the names)") == 2


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main([verb, "--help"])
    assert error.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: derender {verb} ")


REFUSED = [
    (["demo", "--embedded", "--redis-url", "redis://h"],
     "--embedded and --redis-url exclude each other: use one of them"),
    (["tail", "a{b}"], "request id 'a{b}' does not match [A-Za-z0-9._:/-]{1,128}"),
    (["tail", "r", "--after", "x"], "--after has to be an entry id such as 7-0, not 'x'"),
    (["tail", *[f"r{n}" for n in range(201)]], "at most 200 requests can be followed at once"),
    (["replay", "--speed", "0"], "--speed has to be more than 0"),
    (["replay", "--copies", "0"], "--copies has to be at least 1"),
    (["replay", "--cut", "-1"], "--cut has to be at least 0"),
    (["replay", "--max-backlog", "0"], "--max-backlog has to be at least 1"),
    (["worker", "--tool-call-parser", "hermess"],
     "--tool-call-parser 'hermess' is not known (did you mean hermes?); derender parsers lists the names"),
    (["call", "--tool-call-parser", "none-such"],
     "--tool-call-parser 'none-such' is not known; derender parsers lists the names"),
    (["worker", "--tool-call-parser", "nope"],
     "--tool-call-parser 'nope' is not known; derender parsers lists the names"),
    (["replay", "--tokenizer", "/nope"],
     "--tokenizer: only with --embedded; workers on a Redis have options of their own"),
    (["replay", "--no-embedded", "--tool-call-parser", "hermes", "--enable-auto-tool-choice", "--no-coalesce"],
     "--tool-call-parser, --enable-auto-tool-choice, --no-coalesce: only with --embedded; "
     "workers on a Redis have options of their own"),
    (["demo", "--redis-url", "redis://h", "--lease-s", "3"],
     "--lease-s: only with --embedded; workers on a Redis have options of their own"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "message"), REFUSED, ids=[" ".join(r[0][:3]) for r in REFUSED])
def test_impossible_combinations(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err == f"derender {argv[0]}: {message}\n"


@pytest.mark.parametrize("verb", [["replay"], ["tail", "r"]], ids=lambda verb: verb[0])
def test_an_unreachable_redis_is_one_line(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main([*verb, "--redis-url", f"redis://127.0.0.1:{port}/0"]) == 1
    captured = capsys.readouterr()
    [line] = captured.err.splitlines()
    assert line.startswith(f"derender {verb[0]}: cannot reach Redis at redis://127.0.0.1:{port}/0: ")
    assert captured.out == ""


def test_a_missing_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "/no/such.jsonl"]) == 1
    assert capsys.readouterr().err.startswith("derender replay: cannot read the recording: ")


def test_files_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said before anything is published or recorded, and not as a Redis that is away."""
    assert main(["replay", "--save-replies", str(tmp_path / "none" / "run.jsonl")]) == 1
    assert capsys.readouterr().err == f"derender replay: cannot write the replies: there is no folder {tmp_path}/none\n"


@pytest.mark.redis
async def test_a_recording_that_cannot_be_written(real_redis: Redis, server_url: str, tmp_path: Path) -> None:
    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    path = tmp_path / "none" / "live.jsonl"
    done = await asyncio.to_thread(run, "record", str(path), "--redis-url", server_url)
    assert (done.returncode, done.stderr) == (1, f"derender record: {path}.part: No such file or directory\n")


def test_tail_needs_no_tokenizers() -> None:
    """An engine's machine has the base installation only."""
    code = (
        "import sys, derender.tail, derender.replay;"
        "print([name for name in ('tokenizers', 'transformers', 'fakeredis', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.stdout, done.returncode) == ("[]\n", 0)


# --- demo, replay, tail -----------------------------------------------------------------------------------------------


def test_demo() -> None:
    """The recorded texts, as they come, and a summary; exit code 0. The environment's Redis is left alone."""
    done = run("demo", "--speed", "1000", DERENDER_REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == "every text is what the engine's own tokenizer makes of the recorded ids"
    printed: dict[str, str] = {}
    for line in lines:
        label, separator, text = line.partition(" | ")
        if separator:
            printed[label] = printed.get(label, "") + text
    expected = {
        f"{request_id} {index}": text
        for request_id, choices in expected_texts(ROOT / "derender/data/demo.expected.jsonl").items()
        for index, text in choices.items()
    }
    assert {label: _letters(text) for label, text in printed.items()} == {
        label: _letters(text) for label, text in expected.items()
    }


def _letters(text: str) -> str:
    """Without what line breaking changes."""
    return "".join(text.split())


@pytest.mark.redis
async def test_replay_and_tail_on_a_server(real_redis: Redis, server_url: str, tmp_path: Path) -> None:
    from tests.workers import worker_processes

    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    with worker_processes(1, server_url, tmp_path):
        replayed = await asyncio.to_thread(
            run, "replay", "--copies", "2", "--cut", "3", "--run-name", "x-", "--no-follow",
            DERENDER_REDIS_URL=server_url,
        )  # fmt: skip
        assert (replayed.returncode, replayed.stderr) == (0, "")
        tailed = await asyncio.to_thread(run, "tail", "x-rec-040-1", DERENDER_REDIS_URL=server_url)
        assert (tailed.returncode, tailed.stdout, tailed.stderr) == (0, "x-rec-040-1 0 | 1. Banana\n", "")
        raw = await asyncio.to_thread(
            run, "tail", "x-rec-040-1", "--raw", "--after", "1-0", DERENDER_REDIS_URL=server_url
        )
        beyond = await asyncio.to_thread(run, "tail", "x-rec-040-1", "--after", "999-0", DERENDER_REDIS_URL=server_url)
        assert (beyond.returncode, beyond.stdout) == (
            1, "x-rec-040-1 0 | ! request x-rec-040-1 is finished, and its stream ended before 999-0\n",
        )  # fmt: skip
    lines = [line.split(" ", 2) for line in raw.stdout.splitlines()]
    entries = await real_redis.xrange(NAMES.reply(partition_of("x-rec-040-1", 8), "x-rec-040-1"))
    assert lines == [["x-rec-040-1", id_.decode(), fields[b"chunk"].decode()] for id_, fields in entries[1:]]


@pytest.mark.redis
async def test_tail_of_an_unknown_request(real_redis: Redis, server_url: str) -> None:
    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    done = await asyncio.to_thread(run, "tail", "r", "--unknown-after-s", "0.1", "--redis-url", server_url)
    assert (done.returncode, done.stdout) == (1, "r 0 | ! request r is unknown, or has expired\n")


@pytest.mark.redis
async def test_tail_of_an_unknown_request_from_an_entry(real_redis: Redis, server_url: str) -> None:
    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    options = ("--after", "5-0", "--unknown-after-s", "3600", "--redis-url", server_url)
    done = await asyncio.to_thread(run, "tail", "r", *options)
    assert (done.returncode, done.stdout) == (1, "r 0 | ! request r is unknown, or has expired\n")


@pytest.mark.redis
async def test_tail_of_an_unknown_request_as_json(real_redis: Redis, server_url: str) -> None:
    """The output stays JSON lines; why there is none is said beside it, in one line."""
    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    done = await asyncio.to_thread(run, "tail", "r", "--raw", "--unknown-after-s", "0.1", "--redis-url", server_url)
    assert (done.returncode, done.stdout, done.stderr) == (
        1, "", "derender tail: request r is unknown, or has expired\n",
    )  # fmt: skip


@pytest.mark.parametrize("option", ["--no-follow", "--save-replies", "--expect"])
def test_a_demo_does_not_offer_what_it_sets_itself(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["demo", option, "x"])
    assert error.value.code == 2
    assert f"unrecognized arguments: {option}" in capsys.readouterr().err


@pytest.mark.redis
@pytest.mark.parametrize(
    "verb", [["tail", "r"], ["dead"], ["record", "x"], ["replay"], ["gateway"], ["top", "--once"], ["doctor"]]
)
async def test_a_database_of_somebody_else_is_one_line(
    real_redis: Redis, server_url: str, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A key of another type, and a hash with other values, where a worker writes the configuration."""
    await real_redis.set("other:config", "x")
    await real_redis.hset("another:config", mapping={"partitions": "many", "wire_version": 1})
    for prefix, words in (("other", "WRONGTYPE"), ("another", "another:config is not what a worker writes")):
        code = await asyncio.to_thread(main, [*verb, "--redis-url", server_url, "--key-prefix", prefix])
        captured = capsys.readouterr()
        assert (code, "Traceback" in captured.err) == (1, False)
        assert words in captured.err + captured.out


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ('{"t": 0, "event": "done", "request_id": "r"}', [], "done of request 'r', which is not open"),
        ('{"t": 0, "event": "open", "request_id": "r"}', [],
         "line 1: open of request 'r' without a context, a JSON object"),
        ('{"t": 0, "event": "open", "request_id": "r", "context": {}}', ["--run-name", "a b"],
         "request id 'a br' does not match [A-Za-z0-9._:/-]{1,128}: use another --run-name"),
        ('{"t": 0, "event": "open", "request_id": "r", "context": {}}\n'
         '{"t": 0, "event": "chunk", "request_id": "r", "chunk": 3}',
         ["--cut", "1", "--embedded", "--tokenizer", "derender/data/smollm2"],
         "a chunk of request r cannot be cut: Expected `object`, got `int`"),
    ],
    ids=["order", "context", "name", "chunk"],
)  # fmt: skip
def test_recordings_that_cannot_be_replayed(
    tmp_path: Path, text: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(text, "utf-8")
    assert main(["replay", str(path), *arguments]) == 1
    assert capsys.readouterr().err.endswith(f"{message}\n")


@pytest.mark.redis
async def test_a_replay_that_nobody_works_on_says_so_and_waits(
    real_redis: Redis, server_url: str, tmp_path: Path
) -> None:
    from tests.workers import worker_processes

    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    command = [sys.executable, "-m", "derender", "replay", "--redis-url", server_url]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stderr.readline(), 30)
    assert line == b"no worker lives; start one: derender worker --config FILE, or --tokenizer FOLDER\n"
    with worker_processes(1, server_url, tmp_path):
        _, rest = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, rest) == (0, b"")


@pytest.mark.redis
@pytest.mark.parametrize("verb", ["replay", "tail"])
async def test_a_database_without_a_worker_is_waited_for_aloud(real_redis: Redis, server_url: str, verb: str) -> None:
    """At once, not when the time is over."""
    words = {"replay": ["replay", "--no-follow", "--run-name", "x-"], "tail": ["tail", "r", "--unknown-after-s", "0.1"]}
    command = [sys.executable, "-m", "derender", *words[verb], "--redis-url", server_url]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stderr.readline(), 30)
    assert line == (
        b"derender:config is not set: no worker has been started on this database; waiting up to 10 s for one\n"
    )
    assert process.returncode is None
    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    said, rest = await asyncio.wait_for(process.communicate(), 60)
    last = said.decode().splitlines()[-1].partition(" published in ")[0]
    assert (process.returncode, rest, last) == {
        "replay": (0, b"", "12 requests, 433 entries"),
        "tail": (1, b"", "r 0 | ! request r is unknown, or has expired"),
    }[verb]


async def test_a_paced_replay_looks_for_a_request_when_it_is_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second request comes long after a reader has given up looking for an id without a trace."""
    monkeypatch.setattr(Reader.__init__, "__kwdefaults__", {**Reader.__init__.__kwdefaults__, "unknown_after_s": 0.5})
    rows = read_recording(DEMO_RECORDING)
    first, second = request_ids(rows)[:2]
    early = [replace(row, t=0.0) for row in rows if row.request_id == first]
    late = [replace(row, t=2.5) for row in rows if row.request_id == second]
    words = ["--embedded", "--tokenizer", str(DEMO_TOKENIZER), "--served-model-name", "smollm2-135m-instruct"]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    settings = load_replay(vars(parser.parse_args([*words, "--speed", "1", "--run-name", ""])), {})
    outcome = await replay_and_follow(settings, early + late, io.StringIO())
    assert {id_: (one.error, one.done) for id_, one in outcome.items()} == {
        first: (None, "finished"), second: (None, "finished"),
    }  # fmt: skip


def test_a_recording_without_ends_says_so_before_it_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recording.jsonl"
    line = '{"t": 0, "event": "open", "request_id": "%s", "context": {"kind": "chat"}}\n'
    said = []
    for ids in ("r", "rs"):
        path.write_text("".join(line % id_ for id_ in ids), "utf-8")
        options = ["--embedded", "--tokenizer", str(DEMO_TOKENIZER), "--idle-timeout-s", "0.2", "--run-name", ""]
        assert main(["replay", str(path), *options]) == 1
        captured = capsys.readouterr()
        said.append(captured.err)
        lines = [part.partition(" in ")[0] for part in captured.out.splitlines()[-2:]]
        counted = {
            "r": ["1 request, 1 entry published", "1 reply"],
            "rs": ["2 requests, 2 entries published", "2 replies"],
        }
        assert lines == counted[ids]
    rest = "no end in the recording: a worker fails such a request after --idle-timeout-s (default: 300)\n"
    assert said == [f"1 request has {rest}", f"2 requests have {rest}"]


@pytest.mark.redis
async def test_record_keeps_what_is_there(real_redis: Redis, server_url: str, tmp_path: Path) -> None:
    """Without --overwrite in any case, with it until something else was recorded; never what is no file."""
    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    path, new = tmp_path / "live.jsonl", tmp_path / "new.jsonl"
    path.write_text("old")
    told = []
    for arguments in ([str(path)], [str(path), "--overwrite"], [str(new)], [str(tmp_path), "--overwrite"]):
        done = await asyncio.to_thread(run, "record", *arguments, "--seconds", "0.1", "--redis-url", server_url)
        told.append((done.returncode, done.stdout, done.stderr.removeprefix("derender record: ")))
    nothing = "0 requests recorded; left out: none\n"
    assert told == [
        (1, "", f"{path} exists: name another file, or give --overwrite\n"),
        (1, nothing, f"nothing to keep: {path} is as it was\n"),
        (1, nothing, f"nothing to keep: {new} is not written\n"),
        (1, "", f"{tmp_path} exists: it is no file that could be replaced\n"),
    ]
    assert contents(tmp_path) == {path.name: "old"}


# --- what a person sees -----------------------------------------------------------------------------------------------


def test_lines_of_many_requests_do_not_mix() -> None:
    out = io.StringIO()
    printer = Printer(out, lambda id_, index: f"{id_}{index}")
    printer.add("a", 0, "one ")
    printer.add("b", 0, "x\n\ny")
    printer.add("a", 0, "two\nthree")
    printer.add("a", 1, "!")
    printer.end("a")
    printer.end("b")
    assert out.getvalue() == "b0 | x\nb0 | \na0 | one two\na0 | three\na1 | !\nb0 | y\n"


def test_long_lines_are_broken_between_words() -> None:
    out = io.StringIO()
    printer = Printer(out, lambda *_: "")
    printer.add("a", 0, "word " * 50 + "x" * 300)
    printer.end("a")
    lines = [line.removeprefix(" | ") for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= LINE_CHARS
    assert "".join(lines).replace(" ", "") == "word" * 50 + "x" * 300


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"choices": [{"index": 1, "text": "t"}]}, [(1, "t")]),
        ({"choices": [{"index": 0, "delta": {"content": "c", "reasoning": "r"}}]}, [(0, "rc")]),
        ({"choices": [{"index": 0, "message": {"content": None}}]}, [(0, "")]),
        ({"choices": []}, []),
    ],
)
def test_texts_of_replies(body: dict[str, object], said: list[tuple[int, str]]) -> None:
    assert list(texts(Reply("1-0", chunk=json.dumps(body).encode()))) == said


def test_an_error_has_no_text() -> None:
    assert list(texts(Reply("1-0", error=b"{}"))) == []


def test_no_bar_where_nobody_looks() -> None:
    out = io.StringIO()
    with progress(3, "x", out) as step:
        step()
    assert out.getvalue() == ""


def test_a_bar_where_a_person_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    with progress(3, "replay", out) as step:
        step()
    assert "replay" in out.getvalue()


def test_a_reader_that_leaves_early_is_no_error_to_show() -> None:
    """As in `derender demo | head`: no traceback, and the exit code of a program that a pipe ended."""
    command = [sys.executable, "-u", "-m", "derender", "demo"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (141, "")


@pytest.mark.redis
async def test_a_reader_that_leaves_early_is_not_an_absent_redis(real_redis: Redis, server_url: str) -> None:
    """What is written at the end only, and what goes out while Redis is being read."""
    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    await real_redis.xadd(NAMES.dead(0), {"request_id": "r", "stream": "chunks", "reason": "x" * 100_000})
    outcomes = []
    for arguments in (["dead", "--redis-url", server_url], ["--help"]):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "derender", *arguments]
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
        )
        os.close(write)
        outcomes.append((done.returncode, done.stderr))
    assert outcomes == [(141, ""), (141, "")]


def test_a_full_disk_is_one_line() -> None:
    """Neither the input's fault nor a traceback."""
    request = '{"generate_response": {"choices": []}}\n'
    assert [
        run_on_a_full_disk("parsers"),
        run_on_a_full_disk("call", given=request, DERENDER_TOKENIZER=str(DEMO_TOKENIZER)),
        run_on_a_full_disk("--help"),
    ] == [
        (1, "derender parsers: cannot write the output: No space left on device\n"),
        (1, "derender call: cannot write the output: No space left on device\n"),
        (1, "derender: cannot write the output: No space left on device\n"),
    ]


@pytest.mark.redis
@pytest.mark.parametrize("verb", [["dead"], ["tail", "r"], ["tail", "r", "--raw"]], ids=" ".join)
async def test_a_full_disk_is_not_an_absent_redis(real_redis: Redis, server_url: str, verb: list[str]) -> None:
    """Of what goes out while Redis is being read."""
    await real_redis.hset(NAMES.config, mapping={"partitions": 8, "wire_version": 1})
    await real_redis.xadd(NAMES.dead(0), {"request_id": "r", "stream": "chunks", "reason": "x" * 100_000})
    await real_redis.xadd(NAMES.reply(partition_of("r", 8), "r"), {"error": "{}", "done": "failed"}, id="1-0")
    assert await asyncio.to_thread(run_on_a_full_disk, *verb, "--redis-url", server_url) == (
        1, f"derender {verb[0]}: cannot write the output: No space left on device\n",
    )  # fmt: skip


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"derender {own_version()}\n"


@pytest.mark.parametrize("verb", ["worker", "tail", "top", "dead", "record", "bridge", "gateway", "doctor", "call"])
def test_a_verb_that_cannot_be_embedded_does_not_offer_it(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert "embedded" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "environ", "embedded", "url"),
    [
        ({}, {}, False, DEFAULT_REDIS_URL),
        ({}, {"DERENDER_REDIS_URL": "redis://e"}, False, "redis://e"),
        ({"embedded": True}, {"DERENDER_REDIS_URL": "redis://e"}, True, DEFAULT_REDIS_URL),
        ({"redis_url": "redis://o"}, {"DERENDER_EMBEDDED": "on"}, False, "redis://o"),
    ],
    ids=["neither", "environment", "embedded typed", "server typed"],
)
def test_which_redis_a_replay_uses(options: dict[str, Any], environ: dict[str, str], embedded: bool, url: str) -> None:
    settings = load_replay(options, environ)
    assert (settings.embedded, settings.redis_url) == (embedded, url)


def test_replay_expects_an_earlier_run(tmp_path: Path) -> None:
    """The same worker answers the same; another cut is named as such; what differs is shown."""
    embedded = ("replay", "--embedded", "--tokenizer", "derender/data/smollm2",
                "--served-model-name", "smollm2-135m-instruct")  # fmt: skip
    saved = tmp_path / "run.jsonl"
    first = run(*embedded, "--save-replies", str(saved))
    assert (first.returncode, first.stderr) == (0, "")
    again = run(*embedded, "--expect", str(saved))
    assert (again.returncode, again.stderr) == (0, "")
    count = len(saved.read_text().splitlines())
    assert again.stdout.splitlines()[-1] == f"{count} of {count} requests answer as in the earlier run"
    line, *rest = saved.read_text().splitlines()
    changed = json.loads(line)
    changed["replies"][0]["chunk"]["choices"][0]["delta"]["content"] = "something else"
    saved.write_text("\n".join([json.dumps(changed), *rest]) + "\n")
    differs = run(*embedded, "--expect", str(saved))
    assert differs.returncode == 1
    expected = f'{changed["request_id"]}: reply 1, chunk.choices.0.delta.content: expected "something else", found '
    assert [text for text in differs.stdout.splitlines() if text.startswith(expected)] != []
