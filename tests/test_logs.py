"""What is said and what is secret never reaches a log at the default level, arq's log included."""

from __future__ import annotations

import json
import logging
import signal
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.publish import Producer
from producer.read import Reader
from schemas import keys
from schemas.keys import Keys
from tests.chaos.fleet import Fleet
from tests.chaos.load import fifty, recorded, texts

pytestmark = pytest.mark.redis

SECRETS = {
    "prompt": "sesame-prompt", "url": "sesame-url", "engine": "sesame-engine", "broken": "sesame-broken",
    "tool": "sesame-tool", "model": "sesame-model", "stop": "sesame-stop", "call": "sesame-call",
    "state": "sesame-state",
}  # fmt: skip


def hostile() -> list[dict[bytes, bytes]]:
    """Entries that fail in every way there is, each with something in it that is nobody's business."""
    secret = {name: value.encode() for name, value in SECRETS.items()}
    opened = {"kind": "chat", "chat_request": {"messages": [{"role": "user", "content": SECRETS["prompt"]}]}}

    def context(**changes: object) -> bytes:
        return json.dumps({**opened, **changes}).encode()

    chat = opened["chat_request"]
    assert isinstance(chat, dict)
    return [
        {keys.OPEN: b'{"kind": "chat", "x": ' + secret["broken"]},
        {keys.OPEN: context(model=SECRETS["model"])},
        {keys.OPEN: context(chat_request={**chat, "tool_choice": SECRETS["tool"]})},
        {keys.OPEN: context(chat_request={**chat, "stop": SECRETS["stop"] * 1000})},
        {keys.OPEN: context(reply_to=SECRETS["prompt"] + "{}")},
        {keys.CHUNK: secret["broken"]},
        {keys.CONTROL: keys.CONTROL_ERROR, keys.ERROR: b'{"error": {"message": "' + secret["engine"] + b'"}}'},
        {keys.CONTROL: secret["broken"]},
        {keys.CALL: b'{"generate_response": "' + secret["call"] + b'"}'},
        {keys.RESPONSE: b'{"choices": [{"index": 0, "token_ids": "' + secret["call"] + b'"}]}', keys.OPEN: context()},
    ]


async def test_a_worker_says_nothing_of_what_is_said(
    real_redis: Redis, server_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Good streams, bad input of every kind, a damaged state, a killed worker: ids, sizes and names of errors only."""
    caplog.set_level(logging.INFO)
    url = server_url.replace("redis://", f"redis://default:{SECRETS['url']}@")
    names = Keys()
    said: list[str] = []
    async with Fleet(real_redis, url, tmp_path, partitions=1, lease_s=0.6) as fleet:
        (worker,) = await fleet.start()
        await fleet.settled()
        async with await Producer.connect(url) as producer, await Reader.connect(url) as reader:
            for base in (*recorded(), *fifty()[:2]):
                stream = await producer.open(base.name, base.context)
                for chunk in base.chunks:
                    await stream.chunk(chunk, wait=False)
                await stream.done()
            entries = hostile()
            for number, fields in enumerate(entries):
                lane = names.bulk(0) if keys.CALL in fields or keys.RESPONSE in fields else names.chunks(0)
                raw: dict[bytes, bytes] = {keys.REQUEST: b"bad-%d" % number, keys.SEQ: b"0", **fields}
                await real_redis.xadd(lane, raw)  # type: ignore[arg-type]
            damaged = await producer.open("damaged", recorded()[0].context)
            [_ async for _ in reader.follow("bad-9")]
            worker.signal(signal.SIGKILL)
            await fleet.gone(worker)
            await real_redis.hset(names.open(0), "damaged", json.dumps({"version": SECRETS["state"]}))  # type: ignore[misc]
            (second,) = await fleet.start()
            await damaged.chunk(recorded()[0].chunks[0])
            failed = [reply async for reply in reader.follow("damaged")]
            assert failed[-1].done == keys.STATUS_FAILED
            for base in recorded():
                replies = await real_redis.xrange(names.reply(0, base.name))
                assert texts(replies) == base.texts
                said += [text for text in base.texts.values() if len(text) > 12]
        dead = await real_redis.xlen(names.dead(0))
        logs = worker.log + second.log + caplog.text
    assert dead >= len(entries) - 1  # the engine's own error is none
    assert logs.count("partitions at redis://127.0.0.1") == 2
    assert [name for name, secret in SECRETS.items() if secret in logs] == []
    assert [text for text in said if text[:12] in logs] == []
    assert "drain_partition" not in logs  # arq's own lines
    prompts = [
        json.loads(base.context)["chat_request"]["messages"] for base in recorded() if b"chat_req" in base.context
    ]
    assert [content for messages in prompts for m in messages if (content := m["content"])[:12] in logs] == []
