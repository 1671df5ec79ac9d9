"""Server-sent events as a client without a library sees them: bytes of a connection that may break anywhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Seen:
    """What one connection gave: complete events only, as a browser counts them."""

    status: int = 0
    body: bytes = b""
    ids: list[int] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    comments: int = 0

    @property
    def ended(self) -> bool:
        return "done" in self.names


async def read(url: str, *, after: str | None = None, cut_after: int | None = None) -> Seen:
    """GET as HTTP/1.0, which has no chunk framing. cut_after: close the connection after so many bytes of the body."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**20)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    head = f"GET {path} HTTP/1.0\r\nhost: {parts.netloc}\r\n"
    if after is not None:
        head += f"last-event-id: {after}\r\n"
    writer.write(head.encode() + b"\r\n")
    try:
        answer = await reader.readuntil(b"\r\n\r\n")
        body = b""
        while cut_after is None or len(body) < cut_after:
            part = await reader.read(65536 if cut_after is None else min(65536, cut_after - len(body)))
            if not part:
                break
            body += part
    finally:
        writer.close()
    return parse(int(answer.split()[1]), body)


def parse(status: int, body: bytes) -> Seen:
    seen = Seen(status, body)
    if status != 200:
        return seen
    *complete, _ = body.split(b"\n\n")
    for event in complete:
        lines = event.split(b"\n")
        seen.comments += sum(line.startswith(b":") for line in lines)
        values = dict(line.split(b": ", 1) for line in lines if line and not line.startswith(b":"))
        if b"event" in values:
            seen.names.append(values[b"event"].decode())
        elif b"data" in values:
            seen.data.append(values[b"data"])
        if b"id" in values:
            seen.ids.append(int(values[b"id"].removesuffix(b"-0")))
    return seen
