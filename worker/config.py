"""The TOML file of a worker: several served models, and the worker's own options.

    [worker]
    redis_url = "rediss://redis:6380/0"

    [models."qwen3-8b"]                      # served name; the first model is the default one
    tokenizer = "/models/Qwen3-8B"           # every option of one model, `-` written `_`
    aliases = ["qwen3"]
    default_chat_template_kwargs = { enable_thinking = false }

Command line and environment win over `[worker]`. Options of a model are in the file alone: a flag could not say which
model it means.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from worker.settings import ModelSettings, Settings, SettingsError, env_name, flag, load, named, values_of

S = TypeVar("S", bound=ModelSettings)

MODEL_OPTIONS = frozenset(field.name for field in fields(ModelSettings)) - {"config"}
NAMED_BY_TABLE = "served_model_name"


@dataclass(frozen=True)
class Config:
    """worker: options of the worker, checked when its settings are made. models: in the order of the file."""

    worker: Mapping[str, Any]
    models: tuple[ModelSettings, ...]


def read_config(path: Path) -> Config:
    """Raises SettingsError, which names the file and the place in it."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"--config {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config {path} is not valid TOML: {error}") from None
    try:
        return _checked(table)
    except SettingsError as error:
        raise SettingsError(f"--config {path}: {error}") from None


def _checked(table: Mapping[str, Any]) -> Config:
    if unknown := table.keys() - {"worker", "models"}:
        raise SettingsError(f"{min(unknown)}: use the tables [worker] and [models.NAME]")
    worker, models = table.get("worker", {}), table.get("models", {})
    for name, value in (("worker", worker), ("models", models)):
        if not isinstance(value, dict):
            raise SettingsError(f"{name} has to be a table")
    if misplaced := worker.keys() & (MODEL_OPTIONS | {"config"}):
        raise SettingsError(f"worker.{min(misplaced)}: options of a model go to [models.NAME]")
    values_of(Settings, worker, "worker.")
    if not models:
        raise SettingsError("no model: add a table [models.NAME]")
    result = tuple(_model(name, value) for name, value in models.items())
    names = [name for model in result for name in model.served_model_name]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SettingsError(f"models: the name {min(twice)!r} is used twice")
    return Config(worker, result)


def _model(name: str, table: Any) -> ModelSettings:
    where = f"models.{name}"
    if not isinstance(table, dict):
        raise SettingsError(f"{where} has to be a table")
    if "config" in table:
        raise SettingsError(f"{where}.config: a file cannot name another one")
    if NAMED_BY_TABLE in table:
        raise SettingsError(f"{where}.{NAMED_BY_TABLE}: the table's name is the served name; more go to aliases")
    aliases = table.get("aliases", [])
    if not (isinstance(aliases, list) and all(isinstance(alias, str) and alias for alias in aliases)):
        raise SettingsError(f"{where}.aliases has to be a list of texts")
    options = {key: value for key, value in table.items() if key != "aliases"}
    if unknown := options.keys() - MODEL_OPTIONS:
        known = sorted(MODEL_OPTIONS - {NAMED_BY_TABLE} | {"aliases"})
        raise SettingsError(f"{where}.{min(unknown)}: no such option; known: {', '.join(known)}")
    if "tokenizer" not in options:
        raise SettingsError(f"{where}.tokenizer is missing: a folder or a hub id")
    try:
        return ModelSettings(served_model_name=(name, *aliases), **values_of(ModelSettings, options, f"{where}."))
    except SettingsError as error:
        text = str(error)
        raise SettingsError(text if text.startswith(where) else f"{where}: {text}") from None


def load_models_of(
    settings: type[S], options: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[S, tuple[ModelSettings, ...]]:
    """Settings and served models: from the file where one is named, else the one model of the flags.

    The table [worker] counts where the settings are a worker's. Raises SettingsError.
    """
    given = options.get("config")
    path = given or environ.get(env_name("config"))
    if not path:
        value = load(settings, options, environ)
        return value, (value,)
    for name in sorted(MODEL_OPTIONS):
        if options.get(name) is not None or environ.get(env_name(name)):
            source = flag(name) if options.get(name) is not None else env_name(name)
            other = flag("config") if given else env_name("config")
            raise SettingsError(f"{source} and {other} exclude each other: put {name} into a [models.NAME] table")
    try:
        config = read_config(Path(path).expanduser())
    except SettingsError as error:
        raise SettingsError(named(str(error), {} if given else {"--config": env_name("config")})) from None
    table = config.worker if issubclass(settings, Settings) else {}
    return load(settings, options, environ, table), config.models
