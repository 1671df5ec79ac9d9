"""Clients, and the pauses between attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from link import redis as link
from link.redis import UNREACHABLE, Backoff, WritesRefused, connect


@pytest.fixture
async def refusing(real_redis: Redis) -> AsyncIterator[Redis]:
    """A Redis that has fewer replicas than it was told to have, and takes no writes."""
    await real_redis.config_set("min-replicas-to-write", "1")
    yield real_redis
    await real_redis.config_set("min-replicas-to-write", "0")


async def test_backoff_grows_to_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubled each time, shortened by a random part, never above the cap; `reset` begins anew."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(link.asyncio, "sleep", sleep)
    backoff = Backoff(first_s=1.0, cap_s=5.0)
    for _ in range(40):
        await backoff.wait()
    for pause, whole in zip(pauses, [1.0, 2.0, 4.0] + [5.0] * 37, strict=True):
        assert whole / 2 <= pause <= whole
    backoff.reset()
    await backoff.wait()
    assert 0.5 <= pauses[-1] <= 1.0


def test_a_malformed_url_is_an_error() -> None:
    with pytest.raises(ValueError, match="Redis URL must specify one of the following schemes"):
        link.connect("http://localhost")


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("rediss://host", True),
        ("rediss://host/0?ssl_ca_certs=ca.crt", True),
        ("rediss://host?ssl_check_hostname=false", False),
        ("rediss://host?ssl_cert_reqs=none", None),
        ("redis://host", None),
        ("unix:///socket", None),
    ],
)
def test_the_host_name_of_a_certificate_is_checked(url: str, checked: bool | None) -> None:
    assert connect(url).connection_pool.connection_kwargs.get("ssl_check_hostname") is checked


@pytest.mark.redis
@pytest.mark.parametrize("write", ["return redis.call('SET', KEYS[1], '1')", None], ids=["in a script", "a command"])
async def test_a_redis_that_takes_no_writes_is_waited_for(refusing: Redis, write: str | None) -> None:
    """Its own class of error, told by the first word of the answer; reading goes on."""
    with pytest.raises(WritesRefused, match=r"^Not enough good replicas to write"):
        await (refusing.set("a", "1") if write is None else refusing.eval(write, 1, "a"))  # type: ignore[misc]
    assert issubclass(WritesRefused, UNREACHABLE)
    assert await refusing.get("a") is None


async def test_every_connection_knows_what_is_refused() -> None:
    """Over TLS or a Unix socket its class is another one, its answers are the same."""
    client = connect("unix:///nowhere")
    assert client.connection_pool.connection_kwargs["parser_class"] is link._Parser
    assert link._Parser.parse_error("MISCONF no disk").args == ("no disk",)
    assert isinstance(link._Parser.parse_error("BUSY a script"), WritesRefused)
    assert not isinstance(link._Parser.parse_error("BUSYGROUP exists"), WritesRefused)
    await client.aclose()
