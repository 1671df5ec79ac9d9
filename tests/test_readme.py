"""The README's examples are what the schemas and key names say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from schemas import keys
from schemas.generate import GenerateChunk
from schemas.request import RequestContext
from tests.conftest import ON_CI, free_port
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
    named = set(re.findall(r"derender:\{\d+\}:(?:reply|status):[\w-]+", README))
    assert named == {keys.Keys().reply(partition, "req-1"), keys.Keys().status(partition, "req-1")}


def sections(*names: str) -> tuple[str, str]:
    """All shell lines of these sections, and what they say that is printed."""
    text = "".join(README[README.index(f"## {name}\n") :].split("\n## ", 1)[0] for name in names)
    commands, said = ("".join(re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)) for kind in ("sh", "text"))
    return commands, said


PORTS = ("6379", "8100", "8200")
"""Redis, gateway, engine: as the README says, each replaced by a free one."""


def run_sections(folder: Path, *names: str, needs: tuple[str, ...]) -> tuple[str, str]:
    """What a newcomer types, from the server to the end, on free ports: what it prints, and what the page says."""
    if missing := [program for program in needs if shutil.which(program) is None]:
        assert not (ON_CI and "redis-server" in missing)
        pytest.skip(f"{', '.join(missing)} is not installed")
    ports = {port: str(free_port()) for port in PORTS}
    bin_folder = folder / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "activate").write_text("", "utf-8")
    (folder / "derender").symlink_to(ROOT / "derender")
    programs = {
        "derender": f'exec {shlex.quote(sys.executable)} -m derender "$@"',
        "redis-cli": f'exec {shutil.which("redis-cli")} -p {ports["6379"]} "$@"',
    }
    for name, line in programs.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{line}\n", "utf-8")
        (bin_folder / name).chmod(0o755)
    commands, said = sections(*names)
    for port, free in ports.items():
        commands = commands.replace(port, free)
    environ = os.environ | {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "DERENDER_REDIS_URL": f"redis://127.0.0.1:{ports['6379']}/0",
    }
    process = subprocess.Popen(
        ["bash", "-euc", commands + "\nwait"], cwd=folder, env=environ, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=90)
    finally:
        with suppress(ProcessLookupError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
    return output, said


@pytest.mark.redis
@pytest.mark.slow
def test_publishing_and_reading_print_the_text(tmp_path: Path) -> None:
    output, said = run_sections(
        tmp_path, "Publishing from an engine", "Reading the replies", needs=("redis-server", "redis-cli")
    )
    ids, texts = [line for line in output.splitlines() if "-" in line], output.splitlines()[-2:]
    assert len(ids) == len(ENTRIES)
    assert "\n".join(texts) + "\n" == said


@pytest.mark.redis
@pytest.mark.slow
def test_the_openai_api_prints_the_text(tmp_path: Path) -> None:
    output, said = run_sections(tmp_path, "Over HTTP", needs=("redis-server", "curl"))
    assert output == said
