"""Served models from tokenizer folders: loaded once, before partitions are taken (0.2 to 3 s each).

A local folder with `tokenizer.json` needs the `tokenizers` package alone; importing transformers takes 2 s and is left
to folders without one. An id on the hub is downloaded to its cache first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from worker.core.errors import UnknownModel
from worker.core.model import Limits, Model, ParserConfig
from worker.core.vocabulary import Vocabulary
from worker.render import Renderer, Template
from worker.settings import ModelSettings

WANTED = ["tokenizer*", "*.jinja", "config.json", "generation_config.json", "special_tokens_map.json", "*.model"]
"""Files of a hub repository that matter here: no weights."""


class TokenizerError(Exception):
    """A tokenizer that cannot be loaded; the message says which and why."""


def find_folder(tokenizer: str) -> Path:
    """A local folder, or the local copy of a hub id."""
    if (folder := Path(tokenizer).expanduser()).is_dir():
        return folder
    if tokenizer.startswith((".", "/", "~")) or tokenizer.count("/") > 1:
        raise TokenizerError(f"tokenizer folder {tokenizer} does not exist")
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(tokenizer, allow_patterns=WANTED))
    except Exception as error:  # the hub client has dozens of error classes, all of them final for us
        raise TokenizerError(f"tokenizer {tokenizer} is no folder and cannot be downloaded: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} does not hold a JSON object")
    return value


def _load_tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    try:
        if path.is_file():
            return Tokenizer.from_file(str(path))
        from transformers import AutoTokenizer

        backend: Tokenizer = AutoTokenizer.from_pretrained(str(folder)).backend_tokenizer
        return backend
    except Exception as error:  # tokenizers raises bare Exception
        raise TokenizerError(f"tokenizer in {folder} cannot be loaded: {error}") from error


def _declare_special(tokenizer: Tokenizer, config: dict[str, Any]) -> None:
    """Flag the tokens that the configuration declares special, as the library that it was written for does.

    Some tokenizers (Gemma 3's `<mask>`) declare a token there that carries no flag of its own.
    """
    named = [config.get(f"{name}_token") for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
    for more in (config.get("additional_special_tokens"), config.get("extra_special_tokens")):
        named += more.values() if isinstance(more, dict) else more if isinstance(more, list) else []
    texts = [token.get("content") if isinstance(token, dict) else token for token in named]
    flags = {token.content: token.special for token in tokenizer.get_added_tokens_decoder().values()}
    for text in dict.fromkeys(text for text in texts if isinstance(text, str)):
        if not flags.get(text, False) and tokenizer.token_to_id(text) is not None:
            tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False)])


def _eos_ids(*configs: dict[str, Any]) -> frozenset[int]:
    """`eos_token_id` of the first config that has one: an id or a list of ids."""
    for config in configs:
        value = config.get("eos_token_id")
        if value is not None:
            return frozenset(value if isinstance(value, list) else [value])
    return frozenset()


def _template(folder: Path, tokenizer_config: dict[str, Any], given: str | None) -> str:
    if given is not None:
        path = Path(given).expanduser()
        if not path.is_file():
            raise TokenizerError(f"chat template {given} does not exist")
        return path.read_text("utf-8")
    if (path := folder / "chat_template.jinja").is_file():
        return path.read_text("utf-8")
    template = tokenizer_config.get("chat_template")
    return template if isinstance(template, str) else json.dumps(template, sort_keys=True) if template else ""


def load_template(settings: ModelSettings) -> Template:
    """How prompts of the model are written. Raises TokenizerError."""
    folder = find_folder(settings.tokenizer or "")
    config = _read_json(folder / "tokenizer_config.json")
    tokens = {**_read_json(folder / "special_tokens_map.json"), **config}
    named = _template(folder, config, settings.chat_template)
    sources = {"default": named}
    if settings.chat_template is None and isinstance(several := config.get("chat_template"), list):
        sources = {one["name"]: one["template"] for one in several}
    if (path := folder / "additional_chat_templates" / "tool_use.jinja").is_file():
        sources["tool_use"] = path.read_text("utf-8")
    texts = {name: value["content"] if isinstance(value, dict) else value for name, value in tokens.items()
             if name.endswith("_token")}  # fmt: skip
    return Template(
        source=sources.get("default") or None,
        tool_source=sources.get("tool_use") if settings.chat_template is None else None,
        tokens={name: text for name, text in texts.items() if isinstance(text, str)},
        generation_config=_read_json(folder / "generation_config.json"),
    )


def load_model(settings: ModelSettings, parsers: ParserConfig | None = None) -> Model:
    """Build the model that the settings name. Raises TokenizerError."""
    if settings.tokenizer is None:
        raise TokenizerError("no tokenizer: set --tokenizer to a folder or a hub id")
    folder = find_folder(settings.tokenizer)
    tokenizer = _load_tokenizer(folder)
    tokenizer_config = _read_json(folder / "tokenizer_config.json")
    _declare_special(tokenizer, tokenizer_config)
    generation, config = _read_json(folder / "generation_config.json"), _read_json(folder / "config.json")
    eos = tokenizer_config.get("eos_token")
    eos = eos.get("content") if isinstance(eos, dict) else eos
    template = _template(folder, tokenizer_config, settings.chat_template)
    return Model(
        name=settings.served_model_name[0] if settings.served_model_name else settings.tokenizer,
        vocabulary=Vocabulary(tokenizer),
        eos_token_id=tokenizer.token_to_id(eos) if isinstance(eos, str) else None,
        model_eos_ids=frozenset(settings.eos_token_id) or _eos_ids(generation, config),
        model_type=settings.model_type or config.get("model_type"),
        parsers=parsers or _parsers(settings),
        limits=Limits(
            max_model_len=settings.max_model_len,
            max_logprobs=None if settings.max_logprobs in (None, -1) else settings.max_logprobs,
        ),
        template_digest=blake2b(template.encode(), digest_size=8).hexdigest() if template else "",
    )


def _parsers(settings: ModelSettings) -> ParserConfig:
    return ParserConfig(
        tool_call_parser=settings.tool_call_parser,
        reasoning_parser=settings.reasoning_parser,
        enable_auto_tool_choice=settings.enable_auto_tool_choice,
        default_chat_template_kwargs=settings.template_kwargs(),
        tool_call_streaming="complete" if settings.tool_call_streaming == "complete" else "eager",
        forced_tool_format="json" if settings.forced_tool_format == "json" else "native",
        stop_scope="content" if settings.stop_scope == "content" else "output",
    )


class ModelTable:
    """The served models by name; called with a name, as the core wants it. The first model is the default one."""

    def __init__(self, models: Iterable[tuple[Model, Iterable[str]]]) -> None:
        self._models: dict[str, Model] = {}
        for model, names in models:
            for name in (model.name, *names):
                self._models[name] = model
        if not self._models:
            raise ValueError("at least one model is needed")
        self.default = next(iter(self._models.values()))

    @property
    def names(self) -> Mapping[str, Model]:
        """Every name that requests may use."""
        return self._models

    def __call__(self, name: str | None) -> Model:
        if not name:
            return self.default
        model = self._models.get(name)
        if model is None:
            raise UnknownModel(
                f"model {name[:200]!r} is not served here; known: {', '.join(sorted(self._models))}", param="model"
            )
        return model


def load_renderer(settings: ModelSettings, models: ModelTable) -> Renderer:
    """What renders prompts for the models of `load_models`. Raises TokenizerError."""
    return Renderer(models.names, {models.default.name: load_template(settings)}, models)


def load_models(settings: ModelSettings) -> ModelTable:
    """The table for one tokenizer under all its names. Raises TokenizerError."""
    return ModelTable([(load_model(settings), settings.served_model_name)])
