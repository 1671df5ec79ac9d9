"""The ACL files of the roles on a real server: each role can do its work, and is refused the rest."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from producer.publish import Producer
from producer.read import Reader
from schemas import keys
from schemas.keys import Keys, partition_of
from tests.chaos.fleet import Fleet
from tests.chaos.load import recorded
from tests.conftest import RedisServer, redis_in
from tests.shared_data import ROOT

pytestmark = pytest.mark.redis

ROLES = ("producer", "reader", "worker", "gateway", "bridge", "operator")
PASSWORD = "pw-of-the-role"
TENANT = "tenant-b"


@dataclass(frozen=True)
class Server:
    """A server with the files of both tenants. url: for a role."""

    server: RedisServer

    def url(self, role: str) -> str:
        return f"redis://{role}:{PASSWORD}@127.0.0.1:{self.server.port}/0"


def rules(role: str, prefix: str = keys.PREFIX) -> str:
    """A role's file, as it is deployed: with a password, for a tenant under its prefix."""
    line = (ROOT / "deploy" / "acl" / f"{role}.acl").read_text("utf-8")
    assert line.count("\n") == 1
    assert "CHANGE-ME" in line
    return line.replace("CHANGE-ME", PASSWORD).replace("derender", prefix)


@pytest.fixture(scope="module")
def acl_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("acl")
    users = "".join(rules(role, prefix) for role in ROLES for prefix in (keys.PREFIX, TENANT))
    (folder / "users.acl").write_text("user default on nopass sanitize-payload ~* &* +@all\n" + users)
    with redis_in(folder, "--aclfile", str(folder / "users.acl")) as server:
        yield Server(server)


@pytest.fixture
async def admin(acl_server: Server) -> AsyncIterator[Redis]:
    client = Redis.from_url(acl_server.server.url)
    await client.flushall()
    await client.execute_command("ACL", "LOG", "RESET")
    yield client
    await client.aclose()


async def test_each_role_does_its_work(acl_server: Server, admin: Redis, tmp_path: Path) -> None:
    """Streams, whole work, signals, a hand-over, a second start: all of it, without one refusal by the server."""
    names = Keys()
    stop = next(base for base in recorded() if b'"stop"' in base.context)
    url = acl_server.url("derender-worker")
    async with Fleet(admin, url, tmp_path, partitions=2, lease_s=0.6) as fleet:
        await fleet.start()
        await fleet.settled()
        async with (
            await Producer.connect(acl_server.url("derender-producer"), max_backlog=10) as producer,
            await Reader.connect(acl_server.url("derender-reader")) as reader,
        ):
            for number, base in enumerate((stop, recorded()[0])):
                stream = await producer.open(f"acl-{number}", base.context)
                for chunk in base.chunks:
                    await stream.chunk(chunk, wait=False)
                await stream.done()
                if number == 0:
                    await fleet.start()  # partitions change hands meanwhile
                    await fleet.settled()
            await producer.call("acl-call", b"{}")
            ends = []
            for id_ in ("acl-0", "acl-1", "acl-call"):
                ends.append([reply.done async for reply in reader.follow(id_)][-1])
            assert ends == ["finished", "finished", "failed"]
            key = names.signals(partition_of("acl-0", 2))
            signals = await producer.redis.xread({key: "0"})
            assert [fields[b"reason"] for _, fields in signals[0][1]] == [b"stop"]
        fleet.assert_clean_logs()
    refused = [(entry["username"], entry["object"]) for entry in await admin.execute_command("ACL", "LOG")]
    # Clients introduce themselves by a command that Redis 7.0 does not have, and do without.
    assert [pair for pair in refused if pair[1] != "client|setinfo"] == []


P0 = "derender:{0}:"
REFUSED = [
    # A producer cannot read what others publish or what comes out, nor touch anything that workers write.
    ("producer", "XRANGE", P0 + "chunks", "-", "+"),
    ("producer", "XREAD", "STREAMS", P0 + "bulk", "0"),
    ("producer", "XRANGE", P0 + "reply:a", "-", "+"),
    ("producer", "XADD", P0 + "reply:a", "*", "chunk", "x"),
    ("producer", "XADD", P0 + "reply:a:chunks", "*", "chunk", "x"),  # a star would have crossed the colon
    ("producer", "XADD", "derender:{0}:reply:a}:chunks", "*", "chunk", "x"),  # and the brace
    ("producer", "XADD", P0 + "signals", "*", "signal", "cancel"),
    ("producer", "XADD", P0 + "dead", "*", "a", "b"),
    ("producer", "HGETALL", P0 + "open"),
    ("producer", "HMGET", P0 + "open", "a"),
    ("producer", "GET", P0 + "status:a"),
    ("producer", "DEL", P0 + "chunks"),
    ("producer", "XTRIM", P0 + "chunks", "MAXLEN", "0"),
    ("producer", "XGROUP", "SETID", P0 + "chunks", "derender", "$"),
    ("producer", "HSET", "derender:config", "partitions", "1"),
    ("producer", "EVAL", "return 1", "0"),
    ("producer", "KEYS", "*"),
    ("producer", "FLUSHALL"),
    ("producer", "ACL", "LIST"),
    ("producer", "XADD", TENANT + ":{0}:chunks", "*", "a", "b"),
    # A reader reads replies and status, and nothing else.
    ("reader", "XADD", P0 + "reply:a", "*", "chunk", "x"),
    ("reader", "DEL", P0 + "reply:a"),
    ("reader", "SET", P0 + "status:a", "finished"),
    ("reader", "XRANGE", P0 + "chunks", "-", "+"),
    ("reader", "XRANGE", P0 + "dead", "-", "+"),
    ("reader", "GET", P0 + "request:a"),
    ("reader", "HMGET", P0 + "open", "a"),
    ("reader", "XADD", P0 + "chunks", "*", "a", "b"),
    ("reader", "SCAN", "0"),
    ("reader", "CLIENT", "KILL", "ID", "1"),
    ("reader", "CLIENT", "LIST"),
    ("reader", "GET", TENANT + ":{0}:status:a"),
    # A gateway publishes and reads, each on its own keys.
    ("gateway", "XRANGE", P0 + "chunks", "-", "+"),
    ("gateway", "XTRIM", P0 + "chunks", "MAXLEN", "0"),
    ("gateway", "DEL", P0 + "bulk"),
    ("gateway", "XADD", P0 + "reply:a", "*", "chunk", "x"),
    ("gateway", "DEL", P0 + "reply:a"),
    ("gateway", "SET", P0 + "status:a", "finished"),
    ("gateway", "XTRIM", P0 + "to:another", "MAXLEN", "0"),
    ("gateway", "HMGET", P0 + "open", "a"),
    ("gateway", "XADD", P0 + "dead", "*", "a", "b"),
    ("gateway", "XRANGE", P0 + "generate", "-", "+"),
    ("gateway", "EVAL", "return 1", "0"),
    ("gateway", "XADD", TENANT + ":{0}:bulk", "*", "a", "b"),
    # A bridge takes from its queue and publishes what the engine says.
    ("bridge", "XRANGE", P0 + "chunks", "-", "+"),
    ("bridge", "XREAD", "STREAMS", P0 + "reply:a", "0"),
    ("bridge", "XDEL", P0 + "chunks", "1-0"),
    ("bridge", "XADD", P0 + "signals", "*", "signal", "cancel"),
    ("bridge", "EVAL", "return redis.call('GET', KEYS[1])", "1", P0 + "request:a"),
    ("bridge", "SET", P0 + "status:a", "finished"),
    ("bridge", "FLUSHALL"),
    # A worker has its namespace and no more.
    ("worker", "GET", "something:else"),
    ("worker", "GET", TENANT + ":{0}:status:a"),
    ("worker", "XADD", TENANT + ":{0}:reply:a", "*", "a", "b"),
    ("worker", "GET", "arq:job:" + TENANT + ":drain:0"),
    ("worker", "EVAL", "return redis.call('GET', KEYS[1])", "1", TENANT + ":{0}:status:a"),
    ("worker", "FLUSHALL"),
    ("worker", "KEYS", "*"),
    ("worker", "CONFIG", "GET", "requirepass"),
    ("worker", "SHUTDOWN"),
    ("worker", "ACL", "LIST"),
    ("worker", "MONITOR"),
    ("worker", "CLIENT", "KILL", "ID", "1"),
    ("worker", "REPLICAOF", "NO", "ONE"),
    ("worker", "MODULE", "LIST"),
]


@pytest.mark.parametrize(
    ("role", "command"), [(r, c) for r, *c in REFUSED], ids=lambda v: v if isinstance(v, str) else " ".join(v)
)
async def test_a_role_is_refused(acl_server: Server, admin: Redis, role: str, command: list[str]) -> None:
    async with Redis.from_url(acl_server.url(f"derender-{role}")) as client:
        with pytest.raises(NoPermissionError):
            await client.execute_command(*command)


def refusal(command: str, role: str) -> str:
    """The end of the line that a verb says where its user may not run a command."""
    return (
        f"this user has no permissions to run the '{command}' command; "
        f"log in as a user with the permissions of deploy/acl/{role}.acl"
    )


@pytest.mark.parametrize(
    ("role", "argv", "code", "error"),
    [
        ("producer", ["replay", "--no-follow"], 0, ""),
        ("reader", ["tail", "r", "--unknown-after-s", "0.1"], 1, ""),
        ("producer", ["tail", "r"], 1, refusal("multi", "reader")),
        ("reader", ["replay"], 1, refusal("xlen", "operator")),
        ("reader", ["replay", "--no-follow"], 1, refusal("xlen", "producer")),
        ("reader", ["top", "--once"], 1, refusal("time", "operator")),
        ("producer", ["top", "--once"], 1, refusal("time", "operator")),
        ("reader", ["dead"], 1, refusal("xrevrange", "operator")),
        ("producer", ["record", "x.jsonl"], 1, refusal("xrevrange", "operator")),
        ("gateway", ["top", "--once", "--interval-s", "0.1"], 0, ""),
        ("operator", ["top", "--once", "--interval-s", "0.1"], 0, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
async def test_a_verb_under_a_role(
    acl_server: Server, admin: Redis, tmp_path: Path, role: str, argv: list[str], code: int, error: str
) -> None:
    """Its own verbs work; of others one line names the command that is not allowed, and the role that may."""
    await admin.hset(Keys().config, mapping={keys.CONFIG_PARTITIONS: 2, keys.CONFIG_WIRE_VERSION: keys.WIRE_VERSION})
    command = [sys.executable, "-m", "derender", *argv, "--redis-url", acl_server.url(f"derender-{role}")]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr.rstrip().endswith(error), done.stderr.count("\n")) == (
        code, True, bool(error),
    ), done.stderr  # fmt: skip


async def test_what_a_producer_can_still_do_to_its_own_namespace(acl_server: Server, admin: Redis) -> None:
    """Permission to add includes trimming, and ids in the far future: a tenant's producers trust each other."""
    key = Keys().chunks(0)
    async with Redis.from_url(acl_server.url("derender-producer")) as client:
        for _ in range(3):
            await client.xadd(key, {"a": "b"})
        await client.xadd(key, {"a": "b"}, maxlen=1, approximate=False)
        assert await admin.xlen(key) == 1
        await client.xadd(key, {"a": "b"}, id="18446744073709551615-18446744073709551614")


async def test_a_tenant_is_a_prefix(acl_server: Server, admin: Redis) -> None:
    """Its own files, its own keys: what a role may do it may do there only."""
    async with Redis.from_url(acl_server.url(f"{TENANT}-producer")) as client:
        assert await client.xadd(Keys(TENANT).chunks(0), {"a": "b"})
        with pytest.raises(NoPermissionError):
            await client.xadd(Keys().chunks(0), {"a": "b"})


async def test_a_blocked_read_that_is_ended_by_someone_else_is_an_empty_one(
    acl_server: Server, admin: Redis, tmp_path: Path
) -> None:
    """`CLIENT UNBLOCK … ERROR` is all that a reader can do to a worker: no reply is late for it."""
    async with Fleet(admin, acl_server.url("derender-worker"), tmp_path, partitions=1, lease_s=2.0) as fleet:
        (worker,) = await fleet.start()
        await fleet.settled()

        async def unblocked() -> bool:
            clients = await admin.client_list()
            blocked = [client["id"] for client in clients if client["cmd"] == "xread" and "b" in client["flags"]]
            answers = [await reader.execute_command("CLIENT", "UNBLOCK", id_, "ERROR") for id_ in blocked]
            return any(answers)

        async with Redis.from_url(acl_server.url("derender-reader")) as reader:
            for _ in range(3):
                await fleet.until(unblocked, 10, "a worker's read was ended")
            await asyncio.sleep(0.1)
        assert await fleet.owners() == [worker.token]
        fleet.assert_clean_logs()
