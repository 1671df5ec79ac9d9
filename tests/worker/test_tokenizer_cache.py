"""Served models from tokenizer folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from worker.core.errors import UnknownModel
from worker.core.model import Model
from worker.settings import ModelSettings
from worker.tokenizer_cache import (
    ModelTable,
    TokenizerError,
    load_model,
    load_models,
    warn_of_idle_parser,
)

FOLDER = Path(__file__).parents[2] / "derender" / "data" / "smollm2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "smollm2"))


def load(folder: Path, **settings: Any) -> Model:
    return load_model(ModelSettings(tokenizer=str(folder), **settings))


def test_the_packaged_tokenizer() -> None:
    model = load(FOLDER, served_model_name=("a", "b"), max_model_len=100)
    assert (model.name, model.eos_token_id, model.model_eos_ids, model.model_type) == ("a", 2, frozenset({2}), "llama")
    assert (model.limits.max_model_len, model.limits.max_logprobs) == (100, 20)
    assert model.vocabulary.decode([19556, 905]) == "Hello world"
    assert len(model.template_digest) == 16


def test_settings_win_over_the_folder(tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("x")
    model = load(FOLDER, model_type="qwen3", eos_token_id=(5, 6), max_logprobs=-1, chat_template=str(template))
    assert (model.model_type, model.model_eos_ids, model.limits.max_logprobs) == ("qwen3", frozenset({5, 6}), None)
    assert model.template_digest != load(FOLDER).template_digest


def test_eos_ids_fall_back_to_the_model_config(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({"eos_token_id": [7, 8], "model_type": "m"}))
    assert load(folder).model_eos_ids == frozenset({7, 8})
    (folder / "config.json").unlink()
    model = load(folder)
    assert (model.model_eos_ids, model.model_type, model.eos_token_id) == (frozenset(), None, 2)


def test_an_eos_token_may_be_an_object(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|im_start|>"}}))
    assert load(folder).eos_token_id == 1


def test_the_template_may_stand_in_the_tokenizer_config(folder: Path) -> None:
    text = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    assert load(folder).template_digest == ""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": text}))
    assert load(folder).template_digest == load(FOLDER).template_digest


def test_the_name_is_part_of_the_fingerprint() -> None:
    assert load(FOLDER, served_model_name=("a",)).fingerprint != load(FOLDER, served_model_name=("b",)).fingerprint


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer": None}, "no tokenizer: set --tokenizer to a folder or a hub id"),
        ({"tokenizer": "/does/not/exist"}, "tokenizer folder /does/not/exist does not exist"),
        ({"tokenizer": str(FOLDER), "chat_template": "/no.jinja"}, "chat template /no.jinja does not exist"),
    ],
    ids=["none", "no folder", "no template"],
)
def test_what_cannot_be_loaded(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError) as error:
        load_model(ModelSettings(**settings))
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "tokenizer_config.json"])
def test_a_broken_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("{")
    with pytest.raises(TokenizerError, match=r"cannot be loaded|is not valid JSON"):
        load(folder)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(TokenizerError) as error:
        load(tmp_path)
    assert str(error.value) == f"folder {tmp_path} has no tokenizer.json"


def test_the_table_of_names() -> None:
    table = load_models(ModelSettings(tokenizer=str(FOLDER), served_model_name=("a", "b")))
    assert table("a") is table("b") is table(None) is table("") is table.default
    with pytest.raises(UnknownModel) as error:
        table("c")
    assert (error.value.message, error.value.param, error.value.code) == (
        "model 'c' is not served here; known: a, b", "model", 404,
    )  # fmt: skip


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one model is needed"):
        ModelTable([])


def test_a_local_folder_needs_no_transformers() -> None:
    """Importing it takes two seconds that a restarted worker does not have."""
    code = (
        "import sys; from worker.settings import ModelSettings; from worker.tokenizer_cache import load_models;"
        f"load_models(ModelSettings(tokenizer={str(FOLDER)!r}));"
        "sys.exit(any(name in sys.modules for name in ('transformers', 'huggingface_hub')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=FOLDER.parents[2], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("config", "special"),
    [
        pytest.param({}, False, id="by-its-flag-alone"),
        pytest.param({"mask_token": "<mark>"}, True, id="named"),
        pytest.param({"mask_token": {"content": "<mark>"}}, True, id="named-by-an-object"),
        pytest.param({"additional_special_tokens": ["<mark>"]}, True, id="additional"),
        pytest.param({"extra_special_tokens": {"mark_token": "<mark>"}}, True, id="extra"),
        pytest.param({"mask_token": "<not-there>"}, False, id="no-such-token"),
    ],
)
def test_special_by_declaration(folder: Path, config: dict[str, Any], special: bool) -> None:
    """A token that only the configuration calls special is left out of the text like the others; ids stay."""
    path = folder / "tokenizer.json"
    definition = json.loads(path.read_text("utf-8"))
    id_ = len(definition["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    definition["added_tokens"].append({"id": id_, "content": "<mark>"} | flags)
    path.write_text(json.dumps(definition), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    of = load(folder).vocabulary
    assert (of.id_of["<mark>"], id_ in of.special, of.size) == (id_, special, id_ + 1)
    assert of.decode([19556, id_, 905], skip_special=True) == ("Hello world" if special else "Hello<mark> world")


def with_template(folder: Path, template: str, **config: Any) -> Path:
    (folder / "chat_template.jinja").write_text(template)
    known = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(known | config))
    return folder


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        (
            {"tool_call_parser": "hermes"},
            ["model m: tool parser hermes has no effect on tool_choice auto: add --enable-auto-tool-choice"],
        ),
        ({"tool_call_parser": "hermes", "enable_auto_tool_choice": True}, []),
        ({"reasoning_parser": "qwen3"}, []),
        ({"tool_call_parser": "auto", "reasoning_parser": "hf", "enable_auto_tool_choice": True}, []),
    ],
    ids=["without", "with", "reasoning", "chosen later"],
)
def test_a_tool_parser_without_its_flag(
    options: dict[str, Any], warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_idle_parser(ModelSettings(tokenizer="none", served_model_name=("m",), **options))
    assert [record.getMessage() for record in caplog.records] == warnings


def test_parsers_are_chosen_by_the_chat_template(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with_template(folder, "{{ enable_thinking }}<think><tool_call><function=x>")
    with caplog.at_level("INFO", logger="worker.tokenizer_cache"):
        model = load(
            folder,
            served_model_name=("m",),
            tool_call_parser="auto",
            reasoning_parser="auto",
            enable_auto_tool_choice=True,
        )
    assert (model.parsers.tool_call_parser, model.parsers.reasoning_parser) == ("qwen3_coder", "qwen3")
    assert [record.getMessage() for record in caplog.records] == [
        "model m: reasoning parser qwen3: the chat template writes <think> and enable_thinking",
        "model m: tool parser qwen3_coder: the chat template writes <tool_call> and <function=",
    ]


def test_a_template_that_two_families_fit_is_refused(folder: Path) -> None:
    with_template(folder, "[TOOL_CALLS] functools")
    with pytest.raises(TokenizerError, match=r"fits mistral \(\[TOOL_CALLS\]\); phi4_mini_json \(functools\)"):
        load(folder, tool_call_parser="auto")


def test_a_response_template_is_imported_or_refused(folder: Path) -> None:
    template = {
        "start_anchor": "<|im_start|>assistant",
        "fields": {"thinking": {"open": "<think>", "close": "</think>"}},
    }
    with_template(folder, "x", response_template=template)
    model = load(folder, reasoning_parser="hf")
    assert model.imported is not None
    assert model.imported.reasoning is not None
    assert model.template_digest != load(FOLDER).template_digest
    assert load(folder, reasoning_parser="auto").parsers.reasoning_parser == "hf"
    with pytest.raises(
        TokenizerError, match="parser 'hf': the tokenizer's response_template has no field for tool_calls"
    ):
        load(folder, tool_call_parser="hf", enable_auto_tool_choice=True)
    with_template(folder, "x", response_template={"fields": {}})
    with pytest.raises(TokenizerError, match="response_template: start_anchor: it is needed"):
        load(folder, reasoning_parser="hf")
