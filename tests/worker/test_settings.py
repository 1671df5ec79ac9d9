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
    ("owner_keys", "off", "DERENDER_OWNER_KEYS", False),
    ("tokenizer", "x/y", "DERENDER_TOKENIZER", "x/y"),
    ("max_logprobs", "-1", "DERENDER_MAX_LOGPROBS", -1),
]


@pytest.mark.parametrize(("name", "text", "env", "value"), CASES, ids=[case[0] for case in CASES])
def test_flag_and_environment_mean_the_same(name: str, text: str, env: str, value: Any) -> None:
    assert getattr(parse(f"{flag(name)}={text}"), name) == value
    assert getattr(parse(**{env: text}), name) == value


def test_a_flag_wins_over_the_environment() -> None:
    assert parse("--lease-s", "3", DERENDER_LEASE_S="4").lease_s == 3.0


def test_lists() -> None:
    assert parse("--served-model-name", "a", "--served-model-name", "b").served_model_name == ("a", "b")
    assert parse(DERENDER_SERVED_MODEL_NAME="a, b").served_model_name == ("a", "b")
    assert parse(DERENDER_EOS_TOKEN_ID="1,2").eos_token_id == (1, 2)


REFUSED: list[tuple[list[str], str]] = [
    (["--redis-url", "http://h"], "--redis-url 'http://h': use redis://, rediss:// or unix://"),
    (["--key-prefix", "a:b"], "--key-prefix: key prefix 'a:b': use 1 to 64 of A-Z a-z 0-9 . _ -"),
    (["--embedded", "--redis-url", "redis://h"], "--embedded and --redis-url exclude each other: use one of them"),
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
     f"--reasoning-parser 'r1' is not known; known are: auto, {', '.join(REASONING_NAMES)}"),
    (["--tool-call-parser", "qwen"],
     f"--tool-call-parser 'qwen' is not known; known are: auto, {', '.join(TOOL_NAMES)}"),
    (["--tool-call-parser", ""], f"--tool-call-parser '' is not known; known are: auto, {', '.join(TOOL_NAMES)}"),
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
