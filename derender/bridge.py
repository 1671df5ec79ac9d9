"""`derender bridge`: connect an engine until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from derender.reach import reaching, set_up
from gateway.settings import BridgeSettings
from link.process import set_up_logging
from producer.generate import GenerateQueue
from producer.publish import Producer
from worker.settings import RedisSettings, SettingsError, add_options, check_log_level, load, log_level_option, option

WAIT_S = 30.0
"""For a first worker."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BridgeOptions(BridgeSettings, RedisSettings):
    """Options of `bridge`."""

    max_backlog: int = option(10_000, "wait while a partition has more unprocessed entries than this")
    log_level: str = log_level_option()

    def __post_init__(self) -> None:
        RedisSettings.__post_init__(self)
        try:
            BridgeSettings.__post_init__(self)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        check_log_level(self.log_level)
        if self.engine is None:
            raise SettingsError("--engine is needed: the base URL of the engine, such as http://127.0.0.1:8200")
        if self.max_backlog < 1:
            raise SettingsError("--max-backlog has to be at least 1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, BridgeOptions)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(BridgeOptions, vars(args), environ)
    set_up_logging(settings.log_level)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each call
    asyncio.run(_bridge(settings))
    return 0


async def _bridge(settings: BridgeOptions) -> None:
    from gateway.bridge import Bridge, engine_client

    with reaching(settings.redis_url, "bridge"):
        await set_up(settings.redis_url, settings.key_prefix, wait_s=WAIT_S, say=logger.warning)
        producer = await Producer.connect(
            settings.redis_url, prefix=settings.key_prefix, max_backlog=settings.max_backlog
        )
    async with producer, engine_client(settings) as client:
        queue = GenerateQueue(
            producer.redis,
            producer.partitions,
            names=producer.names,
            queue=settings.queue,
            consumer=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}",
        )
        bridge = Bridge(producer, queue, client, settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, bridge.stop)
        await bridge.run()
