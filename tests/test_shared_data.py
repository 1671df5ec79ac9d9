import json
from pathlib import Path

import pytest

from tests import shared_data


def test_count_refuses_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match=r"^kind 'goldens': one of golden, corpus, faults, recordings$"):
        shared_data.count("goldens")  # type: ignore[arg-type]


def test_read_jsonl_skips_empty_lines_and_keeps_order(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 2}\n\n{"id": 1, "text": "\\u2028é"}\n', encoding="utf-8")
    assert shared_data.read_jsonl(path) == [{"id": 2}, {"id": 1, "text": "\u2028é"}]


def test_params_carry_the_id_of_their_row() -> None:
    rows = [{"id": "a", "n": 1}, {"id": 7, "n": 2}]
    assert [(p.id, p.values) for p in shared_data.params(rows)] == [("a", (rows[0],)), ("7", (rows[1],))]


def test_absent_data_gives_empty_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_data, "PRESENT", False)
    lists = (shared_data.golden, shared_data.corpus, shared_data.faults, shared_data.recording)
    assert [load() for load in lists] == [[], [], [], []]


@pytest.mark.shared
def test_every_file_is_read_whole() -> None:
    """The loaders find as many rows as the folder has lines, and every golden id of the quick selection exists."""

    def lines(pattern: str) -> int:
        return sum(path.read_bytes().count(b"\n{") + 1 for path in shared_data.SHARED.glob(pattern))

    golden = shared_data.golden()
    assert len(golden) == lines("reference/golden/*.jsonl") > 0
    assert len(shared_data.corpus()) == lines("conformance/dev/*.jsonl") > 0
    assert len(shared_data.faults()) == lines("cases/reported-faults.jsonl") > 0
    assert len(shared_data.recording()) == lines("recordings/smollm2-135m.jsonl") > 0
    assert shared_data.golden_core_ids() - {case["id"] for case in golden} == set()
    assert {case["tokenizer"] for case in golden} - {
        name.removesuffix("+p") for name in shared_data.golden_servers()
    } == set()


@pytest.mark.shared
def test_tokenizers_are_found_by_the_names_that_the_data_uses() -> None:
    folders = [
        shared_data.tokenizer_dir(shared_data.golden("stop")[0]["tokenizer"]),
        shared_data.tokenizer_dir(shared_data.faults()[0]["tokenizer"]),
        shared_data.corpus_tokenizer_dir(shared_data.corpus("gemma4")[0]),
    ]
    assert [bool(json.loads((folder / "tokenizer.json").read_bytes())["model"]) for folder in folders] == [True] * 3
