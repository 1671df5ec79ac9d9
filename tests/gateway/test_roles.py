"""Gateway and bridge under the users of deploy/acl: all of their work, without one refusal by the server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from schemas import keys
from tests.conftest import redis_in
from tests.gateway.conftest import MODEL, stack_of
from tests.shared_data import ROOT

pytestmark = pytest.mark.redis


def ask(url: str) -> list[object]:
    """Each kind of request once; what came of it."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    with httpx.Client(base_url=url, timeout=20) as client:
        whole = client.post("/v1/chat/completions", json=body)
        stream = client.post("/v1/chat/completions", json=body | {"stream": True})
        id_ = stream.headers["x-request-id"]
        again = client.get(f"/v1/streams/{id_}")
        return [
            whole.json()["choices"][0]["message"]["content"],
            stream.text.count('"content":"Hello'),
            again.text.count("event: done"),
            client.get("/v1/models").json()["data"][0]["id"],
            client.get("/health").json(),
            client.get(f"/v1/inspect/{id_}").status_code,
        ]


async def test_gateway_and_bridge_do_their_work(tmp_path: Path) -> None:
    users = "".join((ROOT / "deploy" / "acl" / f"{role}.acl").read_text() for role in ("worker", "gateway", "bridge"))
    (tmp_path / "users.acl").write_text("user default on nopass sanitize-payload ~* &* +@all\n" + users)
    with redis_in(tmp_path, "--aclfile", str(tmp_path / "users.acl")) as server:
        with stack_of(server, url_of=server.url_as) as stack:
            stack.says("Hello, world!")
            answers = await asyncio.to_thread(ask, stack.gateway)
            async with Redis.from_url(server.url) as admin:
                # a mailbox is trimmed, and queues are looked through for what other bridges left
                until, commands = time.monotonic() + 10, {}
                while not {"cmdstat_xtrim", "cmdstat_xautoclaim", "cmdstat_eval"} <= commands.keys():
                    assert time.monotonic() < until, sorted(commands)
                    await asyncio.sleep(0.05)
                    commands = await admin.info("commandstats")
        async with Redis.from_url(server.url) as admin:
            refused = {(one["username"], one["object"]) for one in await admin.acl_log()}
            left = await admin.keys("*:to:gateway-*")
            group = (await admin.xinfo_groups(keys.Keys().generate(0)))[0]["name"]
    assert answers == ["Hello, world!", 1, 1, MODEL, {"status": "ok", "workers": 1}, 200]
    # Clients introduce themselves by a command that Redis 7.0 does not have, and do without.
    assert {pair for pair in refused if pair[1] != "client|setinfo"} == set()
    assert (left, group) == ([], keys.BRIDGES.encode())
