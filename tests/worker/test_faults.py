"""Whatever dies, each reply is published once and in order. Real Redis, workers as processes."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from redis.asyncio import Redis

from schemas.keys import Keys, partition_of
from tests import faults
from worker.core.model import Model

COPIES = 17  # of 12 recorded requests: 204 streams at once
pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def test_a_worker_killed_in_mid_stream(
    real_redis: Redis, server_url: str, smollm2: Model, tmp_path: Path
) -> None:
    """The other worker goes on where the dead one stopped; nothing is lost, doubled or out of order."""
    reference = await faults.undisturbed(real_redis, server_url, smollm2, COPIES)
    names = Keys()
    with faults.worker_processes(2, server_url, tmp_path) as processes:
        tokens = await faults.members(real_redis, 2)
        publishing = asyncio.create_task(faults.publish(server_url, faults.recording(4.0), COPIES, speed=1))
        victim, survivor = processes
        hit = None
        while hit is None:
            assert not publishing.done(), "the victim never owned an open stream"
            await asyncio.sleep(0.05)
            owner = await faults.owners(real_redis)
            owned = [p for p, token in owner.items() if token == tokens[victim.pid]]
            opened = {p: await real_redis.hlen(names.open(p)) for p in owned}
            replies = await real_redis.xlen(names.reply(partition_of("rec-032.0", faults.PARTITIONS), "rec-032.0"))
            if sum(opened.values()) < 50 or replies < 20:
                continue  # not yet in the middle
            victim.send_signal(signal.SIGKILL)
            victim.wait(timeout=10)
            hit = max(opened, key=lambda p: opened[p])
        # Dead, and the owner key is still its own: whoever is open now was open in its hands.
        assert (await faults.owners(real_redis))[hit] == tokens[victim.pid]
        abandoned = [id_.decode() for id_ in await real_redis.hkeys(names.open(hit))]
        assert abandoned, "the victim owned an open stream when it was killed"
        before = {id_: len(entries) for id_, entries in (await faults.read_replies(real_redis, abandoned)).items()}

        ids = await publishing
        await faults.closed(real_redis, ids)
        assert (await faults.owners(real_redis))[hit] == tokens[survivor.pid], "a takeover happened"
        replies = await faults.read_replies(real_redis, ids)
        after = {id_: len(replies[id_]) for id_ in abandoned}
        assert all(after[id_] > before[id_] > 0 for id_ in abandoned), "the survivor went on with them"
    faults.check_replies(replies)
    assert replies == reference


async def test_two_workers_on_the_same_partitions(
    real_redis: Redis, server_url: str, smollm2: Model, tmp_path: Path
) -> None:
    """Without owner keys both drain everything: one of them is answered MOVED each time, and nothing is wrong."""
    reference = await faults.undisturbed(real_redis, server_url, smollm2, COPIES)
    with faults.worker_processes(2, server_url, tmp_path, DERENDER_OWNER_KEYS="off"):
        await faults.members(real_redis, 2)
        ids = await faults.publish(server_url, faults.recording(3.0), COPIES, speed=1)
        await faults.closed(real_redis, ids)
        replies = await faults.read_replies(real_redis, ids)
        dead = [await real_redis.xlen(Keys().dead(p)) for p in range(faults.PARTITIONS)]
    moved = [(tmp_path / f"worker-{n}.log").read_text().count("cursor was moved by another worker") for n in range(2)]
    assert all(moved), "each of them lost a race"
    assert dead == [0] * faults.PARTITIONS
    faults.check_replies(replies)
    assert replies == reference
