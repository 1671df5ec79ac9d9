"""`derender gateway`: HTTP front doors until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from derender.__main__ import CommandError
from gateway.settings import GatewaySettings
from link.redis import UNREACHABLE, connect
from producer.connection import ConfigError, read_partitions
from schemas.keys import Keys
from worker.settings import RedisSettings, SettingsError, add_options, load, option, shown_url


@dataclass(frozen=True)
class GatewayOptions(GatewaySettings, RedisSettings):
    """Options of `gateway`."""

    log_level: str = option("info", "debug, info, warning or error")

    def __post_init__(self) -> None:
        RedisSettings.__post_init__(self)
        try:
            GatewaySettings.__post_init__(self)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        if self.embedded:
            raise SettingsError("--embedded keeps Redis inside one process, and a gateway has its workers elsewhere")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, GatewayOptions)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(GatewayOptions, vars(args), environ)
    try:
        from gateway.app import serve
    except ImportError as error:
        raise CommandError(f"the extra gateway is not installed: {error}") from None
    asyncio.run(_wait_for_workers(settings))
    serve(settings.redis_url, settings, prefix=settings.key_prefix, log_level=settings.log_level)
    return 0


async def _wait_for_workers(settings: GatewayOptions) -> None:
    """A first worker says how many partitions there are; to wait here gives an error of one line."""
    redis = connect(settings.redis_url)
    try:
        await read_partitions(redis, Keys(settings.key_prefix), wait_s=30.0)
    except UNREACHABLE as error:
        raise CommandError(f"cannot reach Redis at {shown_url(settings.redis_url)}: {error}") from None
    except ConfigError as error:
        raise CommandError(str(error)) from None
    finally:
        await redis.aclose()
