"""Clients, and the pauses between attempts."""

from __future__ import annotations

import pytest

from link import redis as link
from link.redis import Backoff


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
