"""Settings from options and environment, and what is refused."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import pytest

from worker.core.grammars import REASONING_NAMES, TOOL_NAMES
from worker.settings import (
    DEFAULT_REDIS_URL,
    ModelSettings,
    Settings,
    SettingsError,
    add_options,
    env_name,
    flag,
    load,
    shown_url,
)


def parse(*argv: str, **environ: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_options(parser, Settings)
    return load(Settings, vars(parser.parse_args(argv)), environ)


def test_defaults() -> None:
    assert parse() == Settings()
    assert Settings().redis_url == DEFAULT_REDIS_URL


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda field: field.name)
def test_every_option_has_a_flag_an_environment_name_and_a_help_text(field: dataclasses.Field[Any]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, Settings)
    text = " ".join(parser.format_help().split())
    assert flag(field.name) in text
    assert f"[{env_name(field.name)}]".replace(" ", "") in text.replace(" ", "")


CASES: list[tuple[str, str, str, Any]] = [
    ("redis_url", "rediss://u:p@h:1/2", "DERENDER_REDIS_URL", "rediss://u:p@h:1/2"),
    ("partitions", "3", "DERENDER_PARTITIONS", 3),
    ("lease_s", "0.5", "DERENDER_LEASE_S", 0.5),
    ("tokenizer", "x/y", "DERENDER_TOKENIZER", "x/y"),
    ("max_logprobs", "-1", "DERENDER_MAX_LOGPROBS", -1),
]


@pytest.mark.parametrize(("name", "text", "env", "value"), CASES, ids=[case[0] for case in CASES])
def test_flag_and_environment_mean_the_same(name: str, text: str, env: str, value: Any) -> None:
    assert getattr(parse(f"{flag(name)}={text}"), name) == value
    assert getattr(parse(**{env: text}), name) == value


@pytest.mark.parametrize(
    ("argv", "environ", "value"),
    [
        (["--no-owner-keys"], {}, False),
        (["--owner-keys"], {"DERENDER_OWNER_KEYS": "off"}, True),
        (["--no-owner-keys"], {"DERENDER_OWNER_KEYS": "on"}, False),
        ([], {"DERENDER_OWNER_KEYS": "off"}, False),
        ([], {}, True),
    ],
)
def test_booleans(argv: list[str], environ: dict[str, str], value: bool) -> None:
    assert parse(*argv, **environ).owner_keys is value


def test_a_boolean_takes_no_word() -> None:
    """The word after it is an argument of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    add_options(parser, Settings)
    args = parser.parse_args(["--coalesce", "live.jsonl"])
    assert (args.file, args.coalesce, args.owner_keys) == ("live.jsonl", True, None)


def test_help_says_what_is_on_and_off() -> None:
    parser = argparse.ArgumentParser(formatter_class=lambda prog: argparse.HelpFormatter(prog, 2, 100, 1000))
    add_options(parser, Settings)
    defaults = {line.split(",")[0].strip(): line for line in parser.format_help().splitlines() if "--no-" in line}
    assert {name for name, line in defaults.items() if "; default: on [" in line} == {"--owner-keys"}
    assert {name for name, line in defaults.items() if "; default: off [" in line} == {
        "--coalesce", "--enable-auto-tool-choice", "--preload",
    }  # fmt: skip


def test_an_empty_value_in_the_environment_is_none() -> None:
    assert parse(DERENDER_LEASE_S="", DERENDER_TOKENIZER="", DERENDER_OWNER_KEYS="") == Settings()


def test_a_flag_wins_over_the_environment() -> None:
    assert parse("--lease-s", "3", DERENDER_LEASE_S="4").lease_s == 3.0


def test_lists() -> None:
    assert parse("--served-model-name", "a", "--served-model-name", "b").served_model_name == ("a", "b")
    assert parse(DERENDER_SERVED_MODEL_NAME="a, b").served_model_name == ("a", "b")
    assert parse(DERENDER_EOS_TOKEN_ID="1,2").eos_token_id == (1, 2)


REFUSED: list[tuple[list[str], str]] = [
    (["--redis-url", "http://h"], "--redis-url 'http://h': use redis://, rediss:// or unix://"),
    (["--key-prefix", "a:b"], "--key-prefix: key prefix 'a:b': use 1 to 64 of A-Z a-z 0-9 . _ -"),
    (["--partitions", "0"], "--partitions has to be between 1 and 4096"),
    (["--partitions", "x"], "--partitions has to be an integer, not 'x'"),
    (["--lease-s", "x"], "--lease-s has to be a number, not 'x'"),
    (["--lease-s", "0.1"], "--lease-s has to be at least 0.2: it is renewed three times in that time"),
    (["--reply-ttl-s", "0"], "--reply-ttl-s has to be more than 0"),
    (["--reply-ttl-s", "nan"], "--reply-ttl-s has to be more than 0"),
    (["--reply-ttl-s", "90000"], "--status-ttl-s has to be at least --reply-ttl-s: readers look there for the end"),
    (["--idle-timeout-s", "86400"],
     "--open-ttl-s has to be more than --idle-timeout-s, or replies vanish in mid-stream"),
    (["--dead-cap", "0"], "--dead-cap has to be at least 1"),
    (["--log-level", "loud"], "--log-level has to be debug, info, warning or error"),
    (["--max-model-len", "0"], "--max-model-len has to be at least 1"),
    (["--max-logprobs", "-2"], "--max-logprobs has to be at least 0, or -1 for no limit"),
    (["--default-chat-template-kwargs", "[]"], "--default-chat-template-kwargs has to be a JSON object"),
    (["--default-chat-template-kwargs", "{"], "--default-chat-template-kwargs has to be a JSON object"),
    (["--reasoning-parser", "r1"],
     "--reasoning-parser 'r1' is not known (did you mean deepseek_r1?); derender parsers lists the names"),
    (["--reasoning-parser", "hermes"],
     "--reasoning-parser 'hermes' is a tool parser; derender parsers lists the names"),
    (["--tool-call-parser", "qwen"],
     "--tool-call-parser 'qwen' is not known (did you mean qwen3_coder or qwen3_json or qwen3_xml?); "
     "derender parsers lists the names"),
    (["--tool-call-parser", "openai_gptoss"],
     "--tool-call-parser 'openai_gptoss' is a reasoning parser (did you mean openai?); "
     "derender parsers lists the names"),
    (["--tool-call-parser", ""], "--tool-call-parser '' is not known; derender parsers lists the names"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "message"), REFUSED, ids=[" ".join(r[0]) for r in REFUSED])
def test_what_cannot_be_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse(*argv)
    assert str(error.value) == message


def test_an_environment_error_names_the_variable() -> None:
    with pytest.raises(SettingsError) as error:
        parse(DERENDER_OWNER_KEYS="maybe")
    assert str(error.value) == "DERENDER_OWNER_KEYS has to be on or off, not 'maybe'"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "DERENDER_OPEN_TTL_S has to be more than DERENDER_IDLE_TIMEOUT_S, or replies vanish in mid-stream"),
        (["--open-ttl-s", "5"],
         "--open-ttl-s has to be more than DERENDER_IDLE_TIMEOUT_S, or replies vanish in mid-stream"),
    ],
    ids=["environment", "both"],
)  # fmt: skip
def test_what_cannot_be_is_named_by_its_source(argv: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse(*argv, DERENDER_OPEN_TTL_S="6", DERENDER_IDLE_TIMEOUT_S="7")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("rediss://user:p@ss@h:1/0", "rediss://h:1/0"),
        ("redis://:secret@h", "redis://h"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize("name", ["auto", *REASONING_NAMES])
def test_known_reasoning_parsers(name: str) -> None:
    assert ModelSettings(reasoning_parser=name).reasoning_parser == name


@pytest.mark.parametrize("name", ["auto", *TOOL_NAMES])
def test_known_tool_parsers(name: str) -> None:
    assert ModelSettings(tool_call_parser=name).tool_call_parser == name


def test_template_kwargs() -> None:
    assert ModelSettings(default_chat_template_kwargs='{"a": 1}').template_kwargs() == {"a": 1}
    assert ModelSettings().template_kwargs() == {}
