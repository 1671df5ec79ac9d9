"""What every process does at its start."""

from __future__ import annotations

import logging

from link.process import set_up_logging


def test_arq_logs_no_jobs_by_default() -> None:
    """Its info level names jobs, arguments and results."""
    logger = logging.getLogger("arq")
    before = logger.level
    try:
        set_up_logging("info")
        assert logging.getLogger("arq.worker").getEffectiveLevel() == logging.WARNING
    finally:
        logger.setLevel(before)
