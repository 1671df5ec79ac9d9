"""`derender gateway`: HTTP front doors until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from derender.reach import reaching, set_up
from gateway.settings import GatewaySettings
from link.process import set_up_logging
from worker.settings import RedisSettings, SettingsError, add_options, check_log_level, load, log_level_option

logger = logging.getLogger(__name__)

WAIT_S = 30.0


@dataclass(frozen=True)
class GatewayOptions(GatewaySettings, RedisSettings):
    """Options of `gateway`."""

    log_level: str = log_level_option()

    def __post_init__(self) -> None:
        RedisSettings.__post_init__(self)
        try:
            GatewaySettings.__post_init__(self)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        check_log_level(self.log_level)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, GatewayOptions)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(GatewayOptions, vars(args), environ)
    from gateway.app import serve

    set_up_logging(settings.log_level)
    asyncio.run(_wait_for_workers(settings))
    serve(settings.redis_url, settings, prefix=settings.key_prefix, log_level=settings.log_level)
    return 0


async def _wait_for_workers(settings: GatewayOptions) -> None:
    """A first worker says how many partitions there are; to wait here gives an error of one line."""
    with reaching(settings.redis_url, "gateway"):
        await set_up(settings.redis_url, settings.key_prefix, wait_s=WAIT_S, say=logger.warning)
