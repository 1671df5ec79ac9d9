"""`derender worker`: drain partitions until SIGTERM."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from derender.__main__ import CommandError
from worker.settings import Settings, SettingsError, add_options, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, Settings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings = load(Settings, vars(args), environ)
    if settings.embedded:
        raise SettingsError(
            "--embedded keeps Redis inside one process, and a worker alone has nobody to work for: "
            "use derender demo, or derender replay --embedded"
        )
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
