"""Settings of the two processes of this package. Units are in the names; each field is an option of its verb."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from schemas import keys


def _option(default: Any, help_text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": help_text})


@dataclass(frozen=True)
class GatewaySettings:
    """The HTTP front doors."""

    host: str = _option("127.0.0.1", "address to listen on")
    port: int = _option(8100, "port to listen on; 0: a free one")
    max_body_bytes: int = _option(32 * 1024 * 1024, "longest request body")
    timeout_s: float = _option(600.0, "longest wait for an answer, and longest silence within a stream")
    heartbeat_s: float = _option(15.0, "a comment goes out on a silent event stream this often")
    max_backlog: int = _option(10_000, "a partition with more unprocessed entries is answered with 503")
    cors_origin: tuple[str, ...] = _option((), "origin of web pages that may call; repeatable; *: all")
    inspector: bool = _option(True, "serve the inspector page; off where strangers can reach the gateway")
    queue: tuple[str, ...] = _option((), "MODEL=NAME: requests for MODEL go to the bridges of queue NAME; repeatable")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError("--port has to be between 0 and 65535")
        for name in ("max_body_bytes", "timeout_s", "heartbeat_s", "max_backlog"):
            if not getattr(self, name) > 0:
                raise ValueError(f"--{name.replace('_', '-')} has to be more than 0")
        for pair in self.queue:
            model, separator, name = pair.rpartition("=")
            if not (model and separator and keys.valid_queue(name)):
                raise ValueError(f"--queue {pair!r}: write MODEL=NAME, with a name of A-Z a-z 0-9 . _ -")

    @property
    def queues(self) -> dict[str, str]:
        """Model -> queue of its bridges."""
        return {model: name for model, _, name in (pair.rpartition("=") for pair in self.queue)}


@dataclass(frozen=True)
class BridgeSettings:
    """A bridge to one engine."""

    engine: str | None = _option(None, "base URL of the engine: http://host:port")
    engine_api_key: str | None = _option(None, "sent to the engine as a bearer token")
    queue: str = _option("", "take the requests of this queue; default: those of models without one")
    concurrency: int = _option(256, "calls to the engine at a time")
    retries: int = _option(3, "how often a call is tried again, before its first token only")
    engine_timeout_s: float = _option(300.0, "longest silence of the engine")
    claim_after_s: float = _option(15.0, "a request that another bridge took and left alone for so long is taken over")
    grace_s: float = _option(30.0, "how long running calls may go on after SIGTERM")
    pass_stop: bool = _option(False, "pass stop strings to the engine; engines that return tokens only refuse them")

    def __post_init__(self) -> None:
        if self.engine is not None and not self.engine.startswith(("http://", "https://")):
            raise ValueError(f"--engine {self.engine!r}: use http:// or https://")
        if not keys.valid_queue(self.queue):
            raise ValueError(f"--queue {self.queue!r}: use A-Z a-z 0-9 . _ -")
        if self.concurrency < 1:
            raise ValueError("--concurrency has to be at least 1")
        if self.retries < 0:
            raise ValueError("--retries has to be at least 0")
        for name in ("engine_timeout_s", "claim_after_s", "grace_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"--{name.replace('_', '-')} has to be more than 0")
