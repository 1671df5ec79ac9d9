"""A headless Chromium, driven over a pipe by its own protocol: no driver, no network."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
]  # fmt: skip
LIMIT_S = 10.0


class Page:
    """One tab. Errors of the page's scripts, and requests to other hosts, are kept."""

    def __init__(self, write: Any, read: Any) -> None:
        self._write = write
        self._read = read
        self._number = 0
        self.session = ""
        self.errors: list[str] = []
        self.urls: list[str] = []

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._read.read(1)) != b"\0":
            assert byte, "the browser went away"
            data += byte
        message: dict[str, Any] = json.loads(data)
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        if message.get("method") == "Network.requestWillBeSent":
            self.urls.append(message["params"]["request"]["url"])
        return message

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        until = time.monotonic() + LIMIT_S
        while not self.run(condition):
            assert time.monotonic() < until, (condition, self.errors)
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """A key, with the text that it types if it is a letter."""
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def show(self, *, dark: bool, width: int = 1280, height: int = 900) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser(url: str, folder: Path) -> Iterator[Page]:
    """A tab on a page. Skips where there is no Chromium; DERENDER_CHROMIUM=required makes that a failure."""
    if PROGRAM is None:
        (pytest.fail if os.environ.get("DERENDER_CHROMIUM") == "required" else pytest.skip)("chromium is not installed")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    words = [PROGRAM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe", "about:blank"]
    # the browser wants its pipe at 3 and 4, wherever ours are
    script = f"exec {shlex.join(words)} 3<&{to_read} 4>&{from_write}"
    process = subprocess.Popen(
        ["bash", "-c", script], pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_read)
    os.close(from_write)
    with os.fdopen(to_write, "wb") as write, os.fdopen(from_read, "rb") as read:
        page = Page(write, read)
        try:
            (target,) = [one for one in page.send("Target.getTargets")["targetInfos"] if one["type"] == "page"]
            page.session = page.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network"):
                page.send(f"{domain}.enable")
            page.show(dark=False)
            page.send("Page.navigate", url=url)
            page.wait("document.readyState === 'complete' && document.querySelector('#model option') !== null")
            yield page
        finally:
            process.terminate()
            process.wait(timeout=10)
