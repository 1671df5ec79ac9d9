"""A real browser: `EventSource` in a headless Chromium carries on after its connection was cut."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from gateway.settings import GatewaySettings
from tests.conftest import RedisServer
from tests.engine import serving
from tests.gateway import sse
from tests.gateway.conftest import Stack, create_app
from tests.gateway.test_streams import begin, content

pytestmark = [pytest.mark.redis]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
PAGE = """<!doctype html><script>
const got = {data: [], ids: [], opened: 0, lost: 0};
const source = new EventSource(URL_OF_STREAM);
source.onopen = () => got.opened++;
source.onerror = () => got.lost++;
source.onmessage = event => { got.data.push(event.data); got.ids.push(event.lastEventId); };
source.addEventListener('done', () => {
  source.close();
  fetch('/report', {method: 'POST', body: JSON.stringify(got)});
});
</script>"""


@asynccontextmanager
async def cutting_proxy(target: str, cuts: int) -> AsyncIterator[str]:
    """Passes bytes on, and drops each of the first `cuts` connections after some events."""
    parts = urlsplit(target)
    left = cuts
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        outer: asyncio.StreamWriter | None = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            allowed = 1500 if left > 0 else None
            left -= 1
            inner, outer = await asyncio.open_connection(parts.hostname, parts.port)
            outer.write(head)
            passed = 0
            while part := await inner.read(256):
                passed += len(part)
                writer.write(part)
                if allowed is not None and passed > allowed:
                    break
            await writer.drain()
        except asyncio.IncompleteReadError:
            pass  # a browser opens connections in advance
        finally:
            for end in (writer, *([outer] if outer else [])):
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(handle(reader, writer))
        tasks.add(task)

    server = await asyncio.start_server(start, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_event_source_resumes_after_cuts(own_redis: RedisServer, stack: Stack, tmp_path: Path) -> None:
    if CHROMIUM is None:
        (pytest.fail if os.environ.get("DERENDER_CHROMIUM") == "required" else pytest.skip)("chromium is not installed")
    text = " ".join(f"number {n} 🎉" for n in range(12))
    stack.says(text, pause_s=0.02)
    report: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    page = ""

    async def take(request: Request) -> Response:
        loop.call_soon_threadsafe(report.set_result, await request.body())
        return Response()

    async def show(request: Request) -> Response:
        return HTMLResponse(page)

    site = Starlette(routes=[Route("/", show), Route("/report", take, methods=["POST"])])
    settings = GatewaySettings(port=0, cors_origin=("*",))
    with serving(create_app(own_redis.url, settings)) as base, serving(site) as page_url:
        request_id = await begin(stack)
        async with cutting_proxy(base, cuts=3) as proxy:
            page = PAGE.replace("URL_OF_STREAM", repr(f"{proxy}/v1/streams/{request_id}"))
            command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}", "--remote-debugging-port=0", page_url]
            browser = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                got = json.loads(await asyncio.wait_for(report, 60))
            finally:
                browser.terminate()
                await asyncio.wait_for(browser.wait(), 10)
        whole = await sse.read(f"{base}/v1/streams/{request_id}")
    assert got["data"] == [one.decode() for one in whole.data]
    assert got["ids"] == [f"{number}-0" for number in whole.ids]
    assert (got["opened"], got["lost"]) == (4, 3)
    assert content(whole.data) == text
