"""Settings: frozen values from command line options and `DERENDER_*` environment names.

Each field is one option: `lease_s` is `--lease-s` and `DERENDER_LEASE_S`; an option on the command line wins. Units are
in the names. Impossible values and combinations are refused when the value is made.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from schemas.keys import DEFAULT_PARTITIONS, PREFIX, Keys

ENV_PREFIX = "DERENDER_"
DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"

S = TypeVar("S")

PARSER_WORDS = {
    "tool_call_streaming": ("eager", "complete"),
    "forced_tool_format": ("native", "json"),
    "stop_scope": ("output", "content"),
}
"""Options of a model that are one of a few words."""


LOG_LEVELS = "debug, info, warning or error"
PARSER_NAMES = "named as for vllm serve (derender parsers lists the names); auto: by the chat template"


class SettingsError(ValueError):
    """A setting that cannot be; the message names the option and what to do."""


def option(default: Any, help_text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": help_text})


def log_level_option() -> Any:
    return option("info", LOG_LEVELS)


def check_log_level(level: str) -> None:
    """Raises SettingsError."""
    if level not in ("debug", "info", "warning", "error"):
        raise SettingsError(f"--log-level has to be {LOG_LEVELS}")


@dataclass(frozen=True)
class RedisSettings:
    """Where Redis is and under which names."""

    redis_url: str = option(DEFAULT_REDIS_URL, "Redis to work on: redis://, rediss:// or unix://")
    key_prefix: str = option(PREFIX, "first part of every key name: a namespace of its own")

    def __post_init__(self) -> None:
        if not self.redis_url.startswith(("redis://", "rediss://", "unix://")):
            raise SettingsError(f"--redis-url {shown_url(self.redis_url)!r}: use redis://, rediss:// or unix://")
        try:
            Keys(self.key_prefix)
        except ValueError as error:
            raise SettingsError(f"--key-prefix: {error}") from None


@dataclass(frozen=True)
class ModelSettings:
    """The served model: the same options for `worker` and `call`."""

    config: str | None = option(None, "TOML file with one or several models, in place of the options of one")
    tokenizer: str | None = option(None, "folder with tokenizer.json, or id on the Hugging Face hub")
    revision: str | None = option(None, "branch, tag or commit of the hub id")
    served_model_name: tuple[str, ...] = option((), "name that requests may use; repeatable, the first is reported")
    model_type: str | None = option(None, "model_type of the model's config.json; read from the folder by default")
    max_model_len: int | None = option(None, "longest prompt + output, in tokens")
    max_logprobs: int | None = option(20, "most logprob candidates at a position; -1: no limit")
    max_sequences: int = option(16_384, "most choices and prompts in one whole response")
    eos_token_id: tuple[int, ...] = option((), "end-of-sequence id; repeatable; default: generation_config.json")
    chat_template: str | None = option(None, "file of the chat template; default: the tokenizer's own")
    default_chat_template_kwargs: str | None = option(None, "JSON object of template arguments that requests override")
    tool_call_parser: str | None = option(None, f"tool parser, {PARSER_NAMES}")
    reasoning_parser: str | None = option(None, f"reasoning parser, {PARSER_NAMES}")
    enable_auto_tool_choice: bool = option(False, "let the tool parser work, as for vllm serve")
    tool_call_streaming: str = option("eager", "eager: send a call as it is written; complete: when its end was seen")
    forced_tool_format: str = option("native", "what a required or named call looks like: native markup or bare json")
    stop_scope: str = option("output", "where stop strings are searched: the whole output, or content only")

    def __post_init__(self) -> None:
        if self.max_model_len is not None and self.max_model_len < 1:
            raise SettingsError("--max-model-len has to be at least 1")
        if self.max_logprobs is not None and self.max_logprobs < -1:
            raise SettingsError("--max-logprobs has to be at least 0, or -1 for no limit")
        if self.max_sequences < 1:
            raise SettingsError("--max-sequences has to be at least 1")
        if self.enable_auto_tool_choice and self.tool_call_parser is None:
            raise SettingsError("--enable-auto-tool-choice needs --tool-call-parser")
        for name, words in PARSER_WORDS.items():
            if getattr(self, name) not in words:
                raise SettingsError(f"{flag(name)} has to be {' or '.join(words)}, not {getattr(self, name)!r}")
        self._check_parser_names()
        self.template_kwargs()

    def _check_parser_names(self) -> None:
        if self.reasoning_parser is None and self.tool_call_parser is None:
            return
        from worker.core.choose import AUTO  # here: the verbs that serve no model do without the grammars
        from worker.core.grammars import Kind, wrong_name

        fields: tuple[tuple[Kind, str], ...] = (("reasoning", "reasoning_parser"), ("tool", "tool_call_parser"))
        for kind, name in fields:
            given = getattr(self, name)
            if given not in (None, AUTO) and (wrong := wrong_name(kind, given)):
                raise SettingsError(f"{flag(name)} {given!r} {wrong}; derender parsers lists the names")

    def template_kwargs(self) -> dict[str, Any]:
        if self.default_chat_template_kwargs is None:
            return {}
        try:
            value = json.loads(self.default_chat_template_kwargs)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise SettingsError("--default-chat-template-kwargs has to be a JSON object")
        return value


@dataclass(frozen=True)
class Settings(RedisSettings, ModelSettings):
    """A worker."""

    preload: bool = option(False, "load all models before the first work, not each when it is first used")
    partitions: int | None = option(
        None, f"number of partitions, fixed when it is first set; default: what is set, else {DEFAULT_PARTITIONS}"
    )
    processes: int = option(1, "worker processes to run and keep running; they share the partitions")
    lease_s: float = option(2.0, "how long a partition stays with a worker that says nothing")
    reply_ttl_s: float = option(3600.0, "how long replies stay readable after the end of their request")
    open_ttl_s: float = option(86_400.0, "how long replies of an open request stay after its first one")
    status_ttl_s: float = option(86_400.0, "how long the final status stays; longer than the replies")
    idle_timeout_s: float = option(300.0, "an open request without an entry for this long fails")
    dead_cap: int = option(10_000, "dead letters kept for each partition")
    dead_bytes: int = option(64 * 1024 * 1024, "memory for the dead letters of each partition, in bytes")
    signals_cap: int = option(10_000, "signals kept for each partition")
    reply_to_cap: int = option(100_000, "entries kept in each reply_to stream")
    owner_keys: bool = option(True, "one worker for each partition; off only to test that nothing depends on it")
    coalesce: bool = option(
        False, "under backlog, consecutive chunks of a choice become one reply; reply ids then depend on the backlog"
    )
    metrics_port: int | None = option(
        None, "port of the metrics (HTTP, /metrics), of further processes the next ones; default: none are kept"
    )
    metrics_host: str = option("127.0.0.1", "address of the metrics; 0.0.0.0: all")
    log_level: str = log_level_option()

    def __post_init__(self) -> None:
        RedisSettings.__post_init__(self)
        ModelSettings.__post_init__(self)
        if self.partitions is not None and not 1 <= self.partitions <= 4096:
            raise SettingsError("--partitions has to be between 1 and 4096")
        if not 1 <= self.processes <= 256:
            raise SettingsError("--processes has to be between 1 and 256")
        for name in ("lease_s", "reply_ttl_s", "open_ttl_s", "status_ttl_s", "idle_timeout_s"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"{flag(name)} has to be more than 0")
        if self.lease_s < 0.2:
            raise SettingsError("--lease-s has to be at least 0.2: it is renewed three times in that time")
        if self.status_ttl_s < self.reply_ttl_s:
            raise SettingsError("--status-ttl-s has to be at least --reply-ttl-s: readers look there for the end")
        if self.open_ttl_s <= self.idle_timeout_s:
            raise SettingsError("--open-ttl-s has to be more than --idle-timeout-s, or replies vanish in mid-stream")
        for name in ("dead_cap", "signals_cap", "reply_to_cap"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{flag(name)} has to be at least 1")
        if self.dead_bytes < 2**20:
            raise SettingsError(f"--dead-bytes has to be at least {2**20}")
        if self.metrics_port is not None and not 1 <= self.metrics_port <= 65_535:
            raise SettingsError("--metrics-port has to be between 1 and 65535")
        check_log_level(self.log_level)


def flag(name: str, on: bool = True) -> str:
    return ("--" if on else "--no-") + name.replace("_", "-")


def env_name(name: str) -> str:
    return ENV_PREFIX + name.upper()


def add_options(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    settings: type[Any],
    *,
    without: frozenset[str] = frozenset(),
) -> None:
    """Options of a settings class. Nothing is converted here, so that both sources give the same messages.

    without: fields that the verb sets itself.
    """
    hints = get_type_hints(settings)
    for field in dataclasses.fields(settings):
        if field.name in without:
            continue
        kind = _kind(hints[field.name])
        default: Any = field.default
        if kind is bool:
            default = "on" if default else "off"
        shown = "" if default in (None, (), "") else f"; default: {default}"
        help_text = f"{field.metadata['help']}{shown} [{env_name(field.name)}]".replace("%", "%%")
        if kind is bool:
            parser.add_argument(
                flag(field.name),
                dest=field.name,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=help_text,
            )
        else:
            several = get_origin(hints[field.name]) is tuple
            parser.add_argument(
                flag(field.name),
                dest=field.name,
                action="append" if several else "store",
                default=None,
                metavar=kind.__name__.upper() if kind is not str else "TEXT",
                help=help_text,
            )


def load(
    settings: type[S],
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    table: Mapping[str, Any] | None = None,
) -> S:
    """The settings value. An option that is not given falls back to its environment name, then to `table`, then to
    its default.

    An empty value in the environment is none; lists there are separated by commas. table: values of a file, see
    `values_of`. Raises SettingsError, which names an option as it was given: by its flag or by its environment name.
    """
    hints = get_type_hints(settings)
    values = values_of(settings, table or {}, "")
    sources: dict[str, str] = {}
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        source, raw = flag(field.name), options.get(field.name)
        if raw is None:
            raw = environ.get(env_name(field.name)) or None
            if raw is not None:
                sources[source] = env_name(field.name)
                source = env_name(field.name)
        if raw is None:
            continue
        hint = hints[field.name]
        if get_origin(hint) is tuple:
            parts = raw.split(",") if isinstance(raw, str) else raw
            values[field.name] = tuple(_convert(_kind(hint), part.strip(), source) for part in parts if part.strip())
        else:
            values[field.name] = _convert(_kind(hint), raw, source)
    try:
        return settings(**values)
    except SettingsError as error:
        raise SettingsError(named(str(error), sources)) from None


def named(text: str, sources: Mapping[str, str]) -> str:
    """A message with each flag replaced by the source that its value came from."""
    return re.sub(r"--[a-z][a-z0-9-]*", lambda match: sources.get(match.group(), match.group()), text)


def values_of(settings: type[Any], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Field values from a table of a TOML file. A table in place of a text becomes its JSON.

    where: what the messages put before a name. Raises SettingsError for unknown names and wrong types.
    """
    hints = get_type_hints(settings)
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in hints:
            raise SettingsError(f"{where}{name}: no such option; known: {', '.join(sorted(hints))}")
        kind = _kind(hints[name])
        if get_origin(hints[name]) is tuple:
            if not isinstance(value, list):
                raise SettingsError(f"{where}{name} has to be a list")
            values[name] = tuple(_typed(kind, part, where + name) for part in value)
        else:
            values[name] = _typed(kind, value, where + name)
    return values


def _typed(kind: type[Any], value: Any, source: str) -> Any:
    if kind is str and isinstance(value, dict):
        return json.dumps(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        names = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}
        raise SettingsError(f"{source} has to be {names[kind]}, not {value!r}")
    return value


def _kind(hint: Any) -> type[Any]:
    """The plain type of a field: of `int | None` and `tuple[int, ...]` it is int."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(arg for arg in get_args(hint) if arg is not type(None))  # type: ignore[no-any-return]
    if get_origin(hint) is tuple:
        return get_args(hint)[0]  # type: ignore[no-any-return]
    return hint  # type: ignore[no-any-return]


def _convert(kind: type[Any], raw: str | bool, source: str) -> Any:
    if isinstance(raw, bool):
        return raw
    if kind is bool:
        words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
        if raw.lower() not in words:
            raise SettingsError(f"{source} has to be on or off, not {raw!r}")
        return words[raw.lower()]
    try:
        return kind(raw)
    except ValueError:
        raise SettingsError(f"{source} has to be {'an integer' if kind is int else 'a number'}, not {raw!r}") from None


def shown_url(url: str) -> str:
    """A URL as it may be shown: user name and password left out."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]
