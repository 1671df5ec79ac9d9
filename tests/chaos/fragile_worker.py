"""A worker that one request kills: `python -m tests.chaos.fragile_worker`, with the options of `derender worker`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import Any

from link.process import set_up_logging
from worker.core.session import Core, Session
from worker.main import WorkerProcess
from worker.settings import Settings, add_options, load
from worker.tokenizer_cache import load_models

FATAL = "fatal"


class FragileCore(Core):
    """Dies as by the out-of-memory killer when it steps the fatal request."""

    @staticmethod
    def derender_step(request: Any, *args: Any, **options: Any) -> Any:
        if request.request_id == FATAL:
            os.kill(os.getpid(), signal.SIGKILL)
        return Core.derender_step(request, *args, **options)


async def main() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, Settings)
    settings = load(Settings, vars(parser.parse_args(sys.argv[1:])), os.environ)
    set_up_logging(settings.log_level)
    models = load_models(settings)
    process = WorkerProcess(settings, models, session=Session(models, core=FragileCore()))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.stop)
    await process.run()


if __name__ == "__main__":
    asyncio.run(main())
