"""`derender engine`: a stand-in for an engine, until SIGTERM."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from derender.__main__ import CommandError
from derender.replay import DEMO_RECORDING, load_recording
from worker.settings import SettingsError, add_options, check_log_level, load, log_level_option, option


@dataclass(frozen=True)
class EngineSettings:
    """Options of `engine`."""

    host: str = option("127.0.0.1", "address to listen on")
    port: int = option(8200, "port to listen on; 0: a free one")
    tokens_per_s: float = option(20.0, "tokens of a choice each second")
    log_level: str = log_level_option()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SettingsError("--port has to be between 0 and 65535")
        if not self.tokens_per_s > 0:
            raise SettingsError("--tokens-per-s has to be more than 0")
        check_log_level(self.log_level)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", nargs="?", default=str(DEMO_RECORDING), help="JSON lines; default: the demo's")
    add_options(parser, EngineSettings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(EngineSettings, vars(args), environ)
    from gateway.http import run_server
    from gateway.stand_in import StandIn, recorded

    try:
        recordings = recorded(load_recording(Path(args.recording)))
    except msgspec.DecodeError as error:
        raise CommandError(f"cannot read the recording: {error}") from None
    if not recordings:
        raise CommandError(f"cannot answer from {args.recording}: no request in it has a chunk")
    app = StandIn(recordings, pause_s=1 / settings.tokens_per_s).app
    run_server(app, host=settings.host, port=settings.port, log_level=settings.log_level, grace_s=1)
    return 0
