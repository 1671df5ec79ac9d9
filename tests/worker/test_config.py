"""The TOML file of a worker: what it says, what is refused and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from derender.call import CallSettings
from worker.config import load_models_of, read_config
from worker.settings import ModelSettings, Settings, SettingsError

TWO = """
[worker]
partitions = 4
lease_s = 3
redis_url = "redis://redis:6379/1"

[models."qwen3-8b"]
tokenizer = "models/qwen3"
revision = "v1"
aliases = ["qwen3", "default"]
max_model_len = 40960
max_logprobs = 5
eos_token_id = [1, 2]
reasoning_parser = "qwen3"
tool_call_parser = "hermes"
enable_auto_tool_choice = true
tool_call_streaming = "complete"
default_chat_template_kwargs = { enable_thinking = false }

[models.smollm2]
tokenizer = "derender/data/smollm2"
"""


def write(folder: Path, text: str) -> str:
    path = folder / "derender.toml"
    path.write_text(text, "utf-8")
    return str(path)


def test_two_models_and_the_worker_s_options(tmp_path: Path) -> None:
    settings, models = load_models_of(Settings, {"config": write(tmp_path, TWO)}, {})
    assert (settings.partitions, settings.lease_s, settings.redis_url) == (4, 3.0, "redis://redis:6379/1")
    assert models == (
        ModelSettings(
            tokenizer="models/qwen3",
            revision="v1",
            served_model_name=("qwen3-8b", "qwen3", "default"),
            max_model_len=40960,
            max_logprobs=5,
            eos_token_id=(1, 2),
            reasoning_parser="qwen3",
            tool_call_parser="hermes",
            enable_auto_tool_choice=True,
            tool_call_streaming="complete",
            default_chat_template_kwargs='{"enable_thinking": false}',
        ),
        ModelSettings(tokenizer="derender/data/smollm2", served_model_name=("smollm2",)),
    )


def test_flag_wins_over_environment_over_file(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    environ = {"DERENDER_CONFIG": path, "DERENDER_PARTITIONS": "5", "DERENDER_LEASE_S": "4"}
    settings, _ = load_models_of(Settings, {"partitions": "6"}, environ)
    assert (settings.partitions, settings.lease_s, settings.redis_url) == (6, 4.0, "redis://redis:6379/1")


def test_without_a_file_the_flags_are_the_one_model() -> None:
    settings, models = load_models_of(Settings, {"tokenizer": "x", "revision": "main"}, {})
    assert models == (settings,)
    assert (settings.tokenizer, settings.revision) == ("x", "main")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = ", "is not valid TOML: Invalid value (at end of document)"),
        ("", "no model: add a table [models.NAME]"),
        ("[model.x]", "model: use the tables [worker] and [models.NAME]"),
        ("models = 3", "models has to be a table"),
        ("models.a = 3", "models.a has to be a table"),
        ("[models.a]", "models.a.tokenizer is missing: a folder or a hub id"),
        ("[models.a]\ntokenizer = 'x'\nconfig = 'y'", "models.a.config: a file cannot name another one"),
        ("[models.a]\ntokenizer = 3", "models.a.tokenizer has to be a text, not 3"),
        ("[models.a]\ntokenizer = 'x'\nmax_model_len = 0", "models.a: --max-model-len has to be at least 1"),
        ("[models.a]\ntokenizer = 'x'\nmax_model_len = true", "models.a.max_model_len has to be an integer, not True"),
        ("[models.a]\ntokenizer = 'x'\neos_token_id = 3", "models.a.eos_token_id has to be a list"),
        ("[models.a]\ntokenizer = 'x'\naliases = 'b'", "models.a.aliases has to be a list of texts"),
        (
            "[models.a]\ntokenizer = 'x'\nserved_model_name = ['b']",
            "models.a.served_model_name: the table's name is the served name; more go to aliases",
        ),
        (
            "[models.a]\ntokenizer = 'x'\nstop_scope = 'all'",
            "models.a: --stop-scope has to be output or content, not 'all'",
        ),
        (
            "[models.a]\ntokenizer = 'x'\ntool_call_parser = 'hermess'",
            "models.a: --tool-call-parser 'hermess' is not known (did you mean hermes?); "
            "derender parsers lists the names",
        ),
        (
            "[models.a]\ntokenizer = 'x'\naliases = ['b']\n[models.b]\ntokenizer = 'y'",
            "models: the name 'b' is used twice",
        ),
        (
            "[worker]\ntokenizer = 'x'\n[models.a]\ntokenizer = 'x'",
            "worker.tokenizer: options of a model go to [models.NAME]",
        ),
        ("[worker]\npartitions = '8'", "worker.partitions has to be an integer, not '8'"),
    ],
)
def test_refused_with_the_place_in_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        read_config(Path(path))
    separator = " " if "TOML" in message else ": "
    assert str(caught.value) == f"--config {path}{separator}{message}"


def test_unknown_option_of_a_model_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"models\.a\.tokeniser: no such option; known: aliases, chat_template, "):
        read_config(Path(write(tmp_path, "[models.a]\ntokenizer = 'x'\ntokeniser = 'y'")))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read_config(tmp_path / "none.toml")
    assert str(caught.value) == f"--config {tmp_path / 'none.toml'} cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("options", "environ", "source"),
    [({"tokenizer": "x"}, {}, "--tokenizer"), ({}, {"DERENDER_MAX_MODEL_LEN": "9"}, "DERENDER_MAX_MODEL_LEN")],
    ids=["flag", "environment"],
)
def test_a_model_option_beside_a_file_is_refused(
    tmp_path: Path, options: dict[str, str], environ: dict[str, str], source: str
) -> None:
    name = next(iter(options), "max_model_len")
    with pytest.raises(SettingsError) as caught:
        load_models_of(Settings, {"config": write(tmp_path, TWO), **options}, environ)
    assert str(caught.value) == (f"{source} and --config exclude each other: put {name} into a [models.NAME] table")


def test_call_reads_the_models_of_the_same_file(tmp_path: Path) -> None:
    settings, models = load_models_of(CallSettings, {"config": write(tmp_path, TWO), "endpoint": "chat"}, {})
    assert settings == CallSettings(config=str(tmp_path / "derender.toml"), endpoint="chat")
    assert [model.served_model_name[0] for model in models] == ["qwen3-8b", "smollm2"]
