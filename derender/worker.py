"""`derender worker`: drain partitions until SIGTERM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from derender.__main__ import CommandError
from link.process import set_up_logging
from worker.config import load_models_of
from worker.settings import Settings, add_options, flag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, Settings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings, models = load_models_of(Settings, vars(args), environ)
    if settings.processes > 1:
        from worker.processes import keep_running

        set_up_logging(settings.log_level)
        return keep_running([command(args, settings, number) for number in range(settings.processes)])
    from worker.core.session import Session
    from worker.main import StartError, run_worker
    from worker.render import ENDPOINTS
    from worker.tokenizer_cache import ServedModels, TokenizerError

    set_up_logging(settings.log_level)
    try:
        served = ServedModels(models)
        if settings.preload or len(models) == 1:
            served.preload()
        session = Session(served, others=dict.fromkeys(ENDPOINTS, served.renderer()))
        run_worker(settings, served, session=session, reports=served.reports)
    except (StartError, TokenizerError) as error:
        raise CommandError(str(error)) from None
    return 0


def command(args: argparse.Namespace, settings: Settings, number: int) -> list[str]:
    """The command line of one of several processes: the same options, but alone and with a metrics port of its own."""
    words = [sys.executable, "-m", "derender", "worker"]
    for name, value in vars(args).items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                words += [flag(name), one] if not isinstance(one, bool) else [flag(name, one)]
    if settings.metrics_port is not None:
        words += [flag("metrics_port"), str(settings.metrics_port + number)]
    return [*words, flag("processes"), "1"]  # of an option that is given twice, the last counts
