"""`derender worker`: drain partitions until SIGTERM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from derender.__main__ import CommandError
from worker.settings import Settings, SettingsError, add_options, flag, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, Settings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(Settings, vars(args), environ)
    if settings.embedded:
        raise SettingsError(
            "--embedded keeps Redis inside one process, and a worker alone has nobody to work for: "
            "use derender demo, or derender replay --embedded"
        )
    if settings.processes > 1:
        from worker.main import set_up_logging
        from worker.processes import keep_running

        set_up_logging(settings.log_level)
        return keep_running([command(args)] * settings.processes)
    from worker.core.session import Session
    from worker.main import StartError, run_worker, set_up_logging
    from worker.render import ENDPOINTS
    from worker.tokenizer_cache import TokenizerError, load_models, load_renderer

    set_up_logging(settings.log_level)
    try:
        models = load_models(settings)
        renderer = load_renderer(settings, models)
        run_worker(settings, models, session=Session(models, others=dict.fromkeys(ENDPOINTS, renderer)))
    except (StartError, TokenizerError) as error:
        raise CommandError(str(error)) from None
    return 0


def command(args: argparse.Namespace) -> list[str]:
    """The command line of one of several processes: the same options, but alone."""
    words = [sys.executable, "-m", "derender", "worker"]
    for name, value in vars(args).items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None and name != "processes":
                words += [flag(name), one]
    return [*words, flag("processes"), "1"]
