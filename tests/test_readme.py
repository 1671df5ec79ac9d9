"""The README's examples are what the schemas and key names say."""

from __future__ import annotations

import re
import subprocess

import msgspec
import pytest

from schemas import keys
from schemas.generate import GenerateChunk
from schemas.request import RequestContext
from tests.shared_data import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"XADD \"\$key\" '\*' request_id \"\$id\" seq (\d+) (\w+) '?(.*?)'?$", README, re.M)
KEY = keys.Keys().chunks(keys.partition_of("req-1", keys.DEFAULT_PARTITIONS))


def test_entries_come_in_order_and_use_the_fields_of_the_wire() -> None:
    fields = [keys.OPEN.decode(), keys.CHUNK.decode(), keys.CHUNK.decode(), keys.CONTROL.decode()]
    assert [(int(seq), field) for seq, field, _ in ENTRIES] == list(enumerate(fields))


@pytest.mark.parametrize(("seq", "form"), [(0, RequestContext), (1, GenerateChunk), (2, GenerateChunk)])
def test_entry_is_a_message_without_unknown_fields(seq: int, form: type) -> None:
    """Decoded as its schema and encoded again, nothing that the example says is lost."""
    said = msgspec.json.decode(ENTRIES[seq][2])
    kept = msgspec.to_builtins(msgspec.convert(said, form))
    assert said == _only(kept, said)


def _only(kept: object, said: object) -> object:
    """`kept` without the members that `said` does not have; message texts, which no schema reads, as said."""
    if isinstance(said, dict) and isinstance(kept, dict):
        return {key: said[key] if key == "content" else _only(kept.get(key), said[key]) for key in said}
    if isinstance(said, list) and isinstance(kept, list):
        return [_only(a, b) for a, b in zip(kept, said, strict=True)]
    return kept


def test_partition_by_shell_is_the_partition() -> None:
    """The shell lines of the README, run as they stand, name the key that the worker reads."""
    lines = re.search(r"^id=req-1\ncrc=.*\nkey=.*?$", README, re.M)
    assert lines is not None
    script = lines.group() + '\nprintf %s "$key"'
    done = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == KEY
    assert f"# {KEY}\n" in README


def test_reply_and_status_keys_are_the_reader_s() -> None:
    partition = keys.partition_of("req-1", keys.DEFAULT_PARTITIONS)
    named = re.findall(r"derender:\{\d+\}:(?:reply|status):[\w-]+", README)
    assert named == [keys.Keys().reply(partition, "req-1"), keys.Keys().status(partition, "req-1")]
