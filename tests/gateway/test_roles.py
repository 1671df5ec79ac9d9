"""Gateway and bridge under the users of deploy/acl: all of their work, without one refusal by the server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from gateway.app import create_app
from gateway.settings import GatewaySettings
from schemas import keys
from tests.conftest import DATA, RedisServer, start_redis
from tests.engine import Engine, Generation, serving
from tests.gateway.conftest import EOS, MODEL, running_bridge, running_worker
from tests.shared_data import ROOT
from worker.core.session import Session
from worker.render import ENDPOINTS
from worker.settings import ModelSettings
from worker.tokenizer_cache import ModelTable, load_model, load_renderer

pytestmark = pytest.mark.redis


def as_role(server: RedisServer, role: str) -> str:
    return server.url.replace("//", f"//derender-{role}:CHANGE-ME@")


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
    server = start_redis(tmp_path, "--aclfile", str(tmp_path / "users.acl"))
    settings = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=(MODEL,))
    models = ModelTable([(load_model(settings), settings.served_model_name)])
    session = Session(models, others=dict.fromkeys(ENDPOINTS, load_renderer(settings, models)))
    ids = models.default.vocabulary.tokenizer.encode("Hello, world!", add_special_tokens=False).ids
    engine = Engine(lambda _: Generation([[*ids, EOS]]), eos=frozenset({EOS}))
    try:
        with (
            running_worker(as_role(server, "worker"), models, session),
            serving(engine.app) as engine_url,
            running_bridge(as_role(server, "bridge"), engine_url, claim_after_s=0.2, grace_s=0.2),
            serving(create_app(as_role(server, "gateway"), GatewaySettings(port=0))) as url,
        ):
            answers = await asyncio.to_thread(ask, url)
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
    finally:
        server.process.terminate()
        server.process.wait(timeout=10)
    assert answers == ["Hello, world!", 1, 1, MODEL, {"status": "ok", "workers": 1}, 200]
    # Clients introduce themselves by a command that Redis 7.0 does not have, and do without.
    assert {pair for pair in refused if pair[1] != "client|setinfo"} == set()
    assert (left, group) == ([], keys.BRIDGES.encode())
