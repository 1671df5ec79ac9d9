"""Every command of the documentation is run, page by page, against a Redis, and says what the page shows.

A fenced `sh` or `python` block is run; a `text` block behind it is its output, in full (`…` stands for what
differs from run to run). Blocks of a page run in order in one shell, as a reader types them. A block that begins with
`# needs: PROGRAM` runs where that program is installed; `# not run by the tests: WHY` shows up as a skip.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import RedisServer, redis_in
from tests.shared_data import ROOT

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
PAGES = ("engine", "wire", "batch", "replay", "operator", "gateway")
NEEDS = re.compile(r"# needs: (\S+)\n")
NOT_RUN = re.compile(r"# not run by the tests: (.+)\n")
SEPARATOR = "\x1e"
LIMIT_S = 110


@dataclass(frozen=True)
class Block:
    """One fenced block. output: what the page says that it prints; None: nothing is said."""

    page: str
    number: int
    language: str
    text: str
    output: str | None

    @property
    def missing(self) -> str | None:
        """Why it cannot run here."""
        if (found := NOT_RUN.match(self.text)) is not None:
            return found.group(1)
        found = NEEDS.match(self.text)
        if found is not None and shutil.which(found.group(1)) is None:
            return f"{found.group(1)} is not installed"
        return None


def blocks(page: str) -> list[Block]:
    fences = FENCE.findall((ROOT / "docs" / f"{page}.md").read_text("utf-8"))
    found = []
    for index, (language, text) in enumerate(fences):
        if language in ("sh", "python"):
            after = fences[index + 1] if index + 1 < len(fences) else ("", "")
            found.append(Block(page, len(found), language, text, after[1] if after[0] == "text" else None))
    return found


ALL = [block for page in PAGES for block in blocks(page)]


def script(page: str, folder: Path) -> str:
    """All blocks of a page that can run, each behind a separator on the output."""
    parts = ["set -eu -o pipefail"]
    for block in blocks(page):
        parts.append(f"printf '{SEPARATOR}%s\\n' {block.number}")
        if block.missing is not None:
            continue
        if block.language == "python":
            path = folder / f"{page}-{block.number}.py"
            path.write_text(block.text, "utf-8")
            parts.append(f"python {path}")
        else:
            parts.append(block.text)
    return "\n".join(parts)


def programs(folder: Path, server: RedisServer) -> str:
    """A PATH on which `derender`, `python` and `redis-cli` are those of this test."""
    lines = {
        "derender": f'exec {shlex.quote(sys.executable)} -m derender "$@"',
        "python": f'exec {shlex.quote(sys.executable)} "$@"',
        "redis-cli": f'exec {shutil.which("redis-cli")} -p {server.port} "$@"',
    }
    for name, line in lines.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{line}\n", "utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:{os.environ['PATH']}"


def run_page(page: str, folder: Path) -> dict[int, str]:
    """Output by number of the block. The page's background jobs end with it."""
    (folder / "bin").mkdir()
    work = folder / "checkout"
    work.mkdir()
    for name in ("derender", "docs", "deploy"):
        (work / name).symlink_to(ROOT / name)
    with (
        redis_in(folder) as server,
        (folder / "output.txt").open("wb") as output,
        (folder / "errors.txt").open("wb") as errors,
    ):
        environ = {
            **os.environ,
            "PATH": programs(folder / "bin", server),
            "DERENDER_REDIS_URL": server.url,
            "PYTHONPATH": str(ROOT),
        }
        process = subprocess.Popen(
            ["bash", "-c", script(page, folder)], cwd=work, env=environ, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
        )  # fmt: skip
        try:
            process.wait(timeout=LIMIT_S)
        finally:
            with suppress(ProcessLookupError):  # no background job is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
    parts = (folder / "output.txt").read_text("utf-8").split(SEPARATOR)[1:]
    return {int(part.partition("\n")[0]): part.partition("\n")[2] for part in parts}


class Pages:
    """Runs each page once, when its first block is asked for."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self.factory = factory
        self.folders: dict[str, Path] = {}
        self.outputs: dict[str, dict[int, str]] = {}

    def output(self, block: Block) -> str:
        if block.page not in self.outputs:
            folder = self.folders[block.page] = self.factory.mktemp(block.page)
            self.outputs[block.page] = {}
            self.outputs[block.page] = run_page(block.page, folder)
        outputs = self.outputs[block.page]
        errors = (self.folders[block.page] / "errors.txt").read_text("utf-8")[-2000:]
        assert block.number in outputs, f"a block before this one failed\n{errors}"
        last = 1 + max(one.number for one in blocks(block.page))
        assert block.number + 1 in outputs or block.number + 1 == last, f"{outputs[block.number]}\n{errors}"
        assert "Traceback" not in errors, errors
        return outputs[block.number]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory)


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize("block", ALL, ids=[f"{block.page}-{block.number}" for block in ALL])
def test_block(pages: Pages, block: Block) -> None:
    if block.missing is not None:
        pytest.skip(block.missing)
    output = pages.output(block)
    if block.output is not None:
        pattern = ".*".join(re.escape(part) for part in block.output.split("…"))
        assert output == block.output or re.fullmatch(pattern, output) is not None, output


@pytest.mark.parametrize("path", ["README.md", *(f"docs/{page}.md" for page in PAGES)])
def test_jobs_are_stopped_by_their_process_id(path: str) -> None:
    """The number of a job depends on what a reader started before."""
    assert (
        re.findall(r".*%\d+\b.*", "\n".join(code for _, code in FENCE.findall((ROOT / path).read_text("utf-8")))) == []
    )


def test_the_last_block_of_each_page_has_an_output() -> None:
    """A page that fails in its last block would go unnoticed otherwise."""
    last = {page: [block for block in blocks(page) if block.missing is None][-1] for page in PAGES}
    assert [page for page, block in last.items() if block.output is None] == []
