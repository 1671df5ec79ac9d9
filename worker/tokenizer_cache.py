"""Served models from tokenizer folders: each loaded once (0.2 to 3 s), in a thread, when it is first used.

A local folder with `tokenizer.json` needs the `tokenizers` package alone; importing transformers takes 2 s and is left
to folders without one. An id on the hub is downloaded to its cache first.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from tokenizers import AddedToken, Tokenizer

from schemas.openai import ChatRequest, FunctionDefinition, Tool
from schemas.report import ModelReport
from worker.core.choose import AUTO, choose
from worker.core.errors import GrammarError, ModelNotLoaded, ModelUnavailable, UnknownModel
from worker.core.grammars import TEMPLATE_DRIVEN
from worker.core.model import Limits, Model, ParserConfig
from worker.core.parse import Parser
from worker.core.response_template import import_template
from worker.core.vocabulary import Vocabulary
from worker.render import Renderer, Template
from worker.settings import ModelSettings

_PROBE = ChatRequest(messages=[], tools=[Tool(FunctionDefinition("probe"))], tool_choice="auto")

logger = logging.getLogger(__name__)

RETRY_S = 30.0
"""A model that could not be loaded is tried again by the first request after this long: a hub may have been away."""

WANTED = ["tokenizer*", "*.jinja", "config.json", "generation_config.json", "special_tokens_map.json", "*.model"]
"""Files of a hub repository that matter here: no weights."""


TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")
"""A folder without any of these has no tokenizer, and transformers says that in a page of guesses."""


class TokenizerError(Exception):
    """A tokenizer that cannot be loaded; the message says which and why."""


def find_folder(tokenizer: str, revision: str | None = None) -> Path:
    """A local folder, or the local copy of a hub id at a revision."""
    if (folder := Path(tokenizer).expanduser()).is_dir():
        return folder
    if tokenizer.startswith((".", "/", "~")) or tokenizer.count("/") > 1:
        raise TokenizerError(f"tokenizer folder {tokenizer} does not exist")
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(tokenizer, revision=revision, allow_patterns=WANTED))
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
    if not any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES):
        raise TokenizerError(f"folder {folder} has no tokenizer.json")
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
    folder = find_folder(settings.tokenizer or "", settings.revision)
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


def warn_of_idle_parser(settings: ModelSettings) -> None:
    """Tell of a tool parser that the model's own calls never meet: it looks as if it were at work."""
    if settings.tool_call_parser is not None and not settings.enable_auto_tool_choice:
        logger.warning(
            "model %s: tool parser %s has no effect on tool_choice auto: add --enable-auto-tool-choice",
            settings.served_model_name[0] if settings.served_model_name else settings.tokenizer,
            settings.tool_call_parser,
        )


def load_model(settings: ModelSettings, parsers: ParserConfig | None = None) -> Model:
    """Build the model that the settings name. Raises TokenizerError."""
    if settings.tokenizer is None:
        raise TokenizerError("no tokenizer: set --tokenizer to a folder or a hub id")
    folder = find_folder(settings.tokenizer, settings.revision)
    tokenizer = _load_tokenizer(folder)
    tokenizer_config = _read_json(folder / "tokenizer_config.json")
    _declare_special(tokenizer, tokenizer_config)
    generation, config = _read_json(folder / "generation_config.json"), _read_json(folder / "config.json")
    eos = tokenizer_config.get("eos_token")
    eos = eos.get("content") if isinstance(eos, dict) else eos
    template = _template(folder, tokenizer_config, settings.chat_template)
    response_template = tokenizer_config.get("response_template")
    digested = template + (json.dumps(response_template, sort_keys=True) if response_template else "")
    parsers = parsers or _parsers(settings)
    model = Model(
        name=settings.served_model_name[0] if settings.served_model_name else settings.tokenizer,
        vocabulary=Vocabulary(tokenizer),
        eos_token_id=tokenizer.token_to_id(eos) if isinstance(eos, str) else None,
        model_eos_ids=frozenset(settings.eos_token_id) or _eos_ids(generation, config),
        model_type=settings.model_type or config.get("model_type"),
        parsers=parsers,
        limits=Limits(
            max_model_len=settings.max_model_len,
            max_logprobs=None if settings.max_logprobs in (None, -1) else settings.max_logprobs,
            max_sequences=settings.max_sequences,
        ),
        template_digest=blake2b(digested.encode(), digest_size=8).hexdigest() if digested else "",
    )
    try:
        parsers = _chosen(model, template or "\n".join(model.vocabulary.id_of), response_template)
        model = replace(model, parsers=parsers)
        if response_template and {parsers.reasoning_parser, parsers.tool_call_parser} & set(TEMPLATE_DRIVEN):
            model = replace(model, imported=import_template(response_template))
        Parser.for_request(model, _PROBE)  # an unknown parser is said now, not to the first request
    except GrammarError as error:
        raise TokenizerError(f"parsers of model {model.name}: {error}") from None
    return model


def _chosen(model: Model, text: str, response_template: Any) -> ParserConfig:
    """Parser options with a name in place of each `auto`. Raises GrammarError where no name, or more than one, fits."""
    parsers = model.parsers
    if parsers.reasoning_parser == AUTO:
        choice = choose("reasoning", text, response_template)
        logger.info("model %s: reasoning parser %s: %s", model.name, choice.name or "none", choice.why)
        parsers = replace(parsers, reasoning_parser=choice.name)
    if parsers.tool_call_parser == AUTO:
        choice = choose("tool", text, response_template)
        logger.info("model %s: tool parser %s: %s", model.name, choice.name, choice.why)
        parsers = replace(parsers, tool_call_parser=choice.name)
    return parsers


def unknown_model(name: str, known: Iterable[str]) -> UnknownModel:
    return UnknownModel(f"model {name[:200]!r} is not served here; known: {', '.join(sorted(known))}", param="model")


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
            raise unknown_model(name, self._models)
        return model


def load_models(settings: ModelSettings) -> ModelTable:
    """The table for one tokenizer under all its names. Raises TokenizerError."""
    warn_of_idle_parser(settings)
    return ModelTable([(load_model(settings), settings.served_model_name)])


class ServedModel:
    """One model of a worker: not loaded yet, loaded, or failed (then `error` says why)."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.model: Model | None = None
        self.template: Template | None = None
        self.error: str | None = None
        self.failed_at = 0.0
        self.lock = Lock()
        self.loading: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.settings.served_model_name[0] if self.settings.served_model_name else str(self.settings.tokenizer)


class ServedModels:
    """The models of a worker by name; called with a name, as the core wants it. The first model is the default one.

    A model is loaded when it is first asked for; one that fails to load fails its own requests alone.
    load: makes a model from its settings or raises TokenizerError.
    """

    def __init__(
        self,
        models: Sequence[ModelSettings],
        *,
        load: Callable[[ModelSettings], Model] = load_model,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if not models:
            raise ValueError("at least one model is needed")
        for settings in models:
            warn_of_idle_parser(settings)
        self._load = load
        self._clock = clock
        self.served = [ServedModel(settings) for settings in models]
        self._by_name = {name: one for one in self.served for name in (one.name, *one.settings.served_model_name)}

    def find(self, name: str | None) -> ServedModel:
        """Raises UnknownModel."""
        if not name:
            return self.served[0]
        if name not in self._by_name:
            raise unknown_model(name, self._by_name)
        return self._by_name[name]

    def __call__(self, name: str | None) -> Model:
        """A loaded model. Raises UnknownModel, ModelUnavailable, or ModelNotLoaded: load it and ask again."""
        one = self.find(name)
        if one.model is not None:
            return one.model
        if one.error is not None and self._clock() - one.failed_at < RETRY_S:
            raise ModelUnavailable(
                f"model {one.name!r} cannot be loaded by this worker; its log says why", param="model"
            )
        raise ModelNotLoaded(one.name, lambda: self.load(one))

    def now(self, name: str | None) -> Model:
        """A model, loaded in this thread if it has to be. Raises UnknownModel, ModelUnavailable."""
        try:
            return self(name)
        except ModelNotLoaded:
            self._told(self.find(name))
            return self(name)

    async def load(self, one: ServedModel) -> None:
        """Load in a thread; whoever asks meanwhile waits for the same load."""
        if one.loading is None or one.loading.done():
            one.loading = asyncio.create_task(asyncio.to_thread(self._told, one))
        await asyncio.shield(one.loading)  # a partition that is left must not stop the others' load

    def preload(self) -> None:
        """Load all models now. Raises TokenizerError where none can be loaded: such a worker has no work."""
        for one in self.served:
            self._fill(one)
        if all(one.model is None for one in self.served):
            raise TokenizerError(str(self.served[0].error))
        for one in self.served:
            if one.error is not None:
                logger.error("model %s: %s", one.name, one.error)

    def renderer(self) -> Renderer:
        """What renders prompts for these models."""
        lengths = {name: one.settings.max_model_len for name, one in self._by_name.items()}
        return Renderer(lengths, self._template, self)

    def _template(self, name: str) -> Template:
        template = self.find(name).template
        if template is None:
            raise ModelNotLoaded(name, lambda: self.load(self.find(name)))
        return template

    def reports(self) -> list[ModelReport]:
        """What is served, for whoever looks at this worker."""
        return [
            ModelReport(
                name=one.name,
                state="loaded" if one.model else "failed" if one.error else "waiting",
                tokenizer=str(one.settings.tokenizer),
                revision=one.settings.revision,
                fingerprint=one.model.fingerprint if one.model else None,
                tool_call_parser=one.settings.tool_call_parser,
                reasoning_parser=one.settings.reasoning_parser,
                aliases=tuple(name for name in one.settings.served_model_name if name != one.name),
                error=one.error,
            )
            for one in self.served
        ]

    def _told(self, one: ServedModel) -> None:
        """Load, and say so in the log."""
        self._fill(one)
        if one.model is None:
            logger.error("model %s: %s", one.name, one.error)
        else:
            logger.info("model %s: loaded, configuration %s", one.name, one.model.fingerprint)

    def _fill(self, one: ServedModel) -> None:
        with one.lock:
            if one.model is not None:
                return
            try:
                model, template = self._load(one.settings), load_template(one.settings)
                one.template, one.model, one.error = template, model, None
            except Exception as error:  # noqa: BLE001  whatever is wrong with one model, the others go on
                text = str(error) if isinstance(error, TokenizerError) else f"{type(error).__name__}: {error}"
                one.error, one.failed_at = text, self._clock()
