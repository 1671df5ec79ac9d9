"""`derender demo`: real generations through the whole path, in one process without a server."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from derender.replay import (
    DATA,
    DEMO_RECORDING,
    DEMO_TOKENIZER,
    add_replay_options,
    load_recording,
    load_replay,
    replay_and_follow,
)
from producer.replay import request_ids

DEMO_SPEED = 20.0
OWN: dict[str, Any] = {"follow": True, "save_replies": None, "expect": None}
"""What a demo does in any case: it shows the texts, and compares them with those that were recorded."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_replay_options(parser, without=frozenset(OWN))


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    options = vars(args)
    if args.redis_url is None and args.embedded is None:
        options = {**options, "embedded": True}  # whatever the environment names: a demo is not for a shared Redis
    settings = load_replay(options, environ)
    events = load_recording(DEMO_RECORDING)
    settings = dataclasses.replace(
        settings,
        tokenizer=settings.tokenizer or str(DEMO_TOKENIZER),
        served_model_name=settings.served_model_name or ("smollm2-135m-instruct",),
        speed=settings.speed or DEMO_SPEED,
        run_name=settings.run_name or ("" if settings.embedded else None),
        **OWN,
    )
    ids = request_ids(events)
    outcome = asyncio.run(replay_and_follow(settings, events, sys.stdout))
    wrong = 0
    expected = expected_texts(DATA / "demo.expected.jsonl")
    for number, followed in enumerate(outcome.values()):
        request_id = ids[number // settings.copies]
        if followed.texts != expected[request_id]:
            sys.stderr.write(f"{request_id}: the text differs from the recorded one\n")
            wrong += 1
    if not wrong:
        sys.stdout.write("every text is what the engine's own tokenizer makes of the recorded ids\n")
    return 1 if wrong else 0


def expected_texts(path: Path) -> dict[str, dict[int, str]]:
    """Request id -> choice index -> text, cut at the stop string where the request has one that occurs."""
    result: dict[str, dict[int, str]] = {}
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        text = record.get("text_with_stop", record["decoded"])
        result.setdefault(record["request_id"], {})[record["index"]] = text
    return result
