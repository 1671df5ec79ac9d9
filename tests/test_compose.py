"""`compose.yaml` has the form that the Compose specification gives it, and starts only what the command line knows."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml

from tests.shared_data import ROOT

STRING = {"type": "string", "minLength": 1}
STRINGS = {"type": "array", "items": STRING, "minItems": 1}
DURATION = {"type": "string", "pattern": r"^(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$", "minLength": 2}


def closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """An object with these members and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def table(values: dict[str, Any]) -> dict[str, Any]:
    """An object with free names and values of one form."""
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": r"^[A-Za-z0-9._-]+$"},
        "additionalProperties": values,
    }


CONDITION = {"enum": ["service_started", "service_healthy", "service_completed_successfully"]}
SERVICE = closed(
    {
        "build": STRING,
        "image": {"type": "string", "pattern": r"^[a-z0-9]+([._/-][a-z0-9]+)*(:[\w.-]+)?$"},
        "command": STRINGS,
        "environment": table(STRING),
        "depends_on": table(closed({"condition": CONDITION}, ["condition"])),
        "deploy": closed({"replicas": {"type": "integer", "minimum": 1}}, ["replicas"]),
        "healthcheck": closed(
            {
                "test": {**STRINGS, "contains": {"enum": ["CMD", "CMD-SHELL"]}},
                "interval": DURATION,
                "timeout": DURATION,
                "retries": {"type": "integer", "minimum": 1},
            },
            ["test"],
        ),
        "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^[A-Za-z0-9._-]+:/[^:]*(:ro)?$"}},
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
        "read_only": {"type": "boolean"},
        "tmpfs": STRINGS,
        "cap_drop": STRINGS,
        "security_opt": STRINGS,
        "stop_grace_period": DURATION,
        "restart": {"type": "string", "pattern": r"^(no|always|unless-stopped|on-failure(:\d+)?)$"},
    },
    ["image", "command"],
)
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": r"^[a-z0-9][a-z0-9_-]*$"},
        "services": table(SERVICE),
        "volumes": table(closed({}, [])),
    },
    "patternProperties": {"^x-": {}},
    "required": ["services"],
    "additionalProperties": False,
}
"""The parts of the Compose specification that our file uses, and nothing else: a misspelt key is an error."""

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["command"][0] == "derender"]


@cache
def help_of(*verb: str) -> str:
    command = [sys.executable, "-m", "derender", *verb, "--help"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def test_file_has_the_form_of_the_specification() -> None:
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(COMPOSE)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"imagee": "redis"},
        {"command": "redis-server"},
        {"restart": "sometimes"},
        {"healthcheck": {"test": ["redis-cli", "ping"]}},
        {"depends_on": {"redis": {"condition": "healthy"}}},
        {"deploy": {"replicas": 0}},
        {"volumes": ["/data"]},
        {"ports": ["6379:6379"]},
        {"stop_grace_period": "15"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_schema_refuses_what_is_wrong(change: dict[str, Any]) -> None:
    wrong = {"services": {"redis": SERVICES["redis"] | change}}
    assert len(list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(wrong))) == 1


def test_services_and_volumes_that_are_named_exist() -> None:
    assert {name for service in SERVICES.values() for name in service.get("depends_on", {})} <= SERVICES.keys()
    mounts = {mount.partition(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}
    assert mounts == COMPOSE["volumes"].keys()


def test_redis_keeps_what_it_has() -> None:
    """Append-only file on a volume, no eviction, and dependents wait until it answers."""
    redis = SERVICES["redis"]
    settings = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert settings == {"--appendonly": "yes", "--maxmemory": "1gb", "--maxmemory-policy": "noeviction"}
    assert redis["volumes"] == ["redis-data:/data"]
    assert redis["ports"] == ["127.0.0.1:6379:6379"]
    assert redis["healthcheck"]["test"] == ["CMD", "redis-cli", "-e", "ping"]
    assert {SERVICES[name]["depends_on"]["redis"]["condition"] for name in OURS} == {"service_healthy"}


def test_two_workers_and_a_producer_that_replays() -> None:
    assert {name: SERVICES[name]["command"][1] for name in OURS} == {"worker": "worker", "producer": "replay"}
    assert SERVICES["worker"]["deploy"] == {"replicas": 2}
    assert all(SERVICES[name]["read_only"] and SERVICES[name]["tmpfs"] == ["/tmp"] for name in OURS)


@pytest.mark.parametrize("name", OURS)
def test_command_is_one_that_the_command_line_knows(name: str) -> None:
    """Verb and options are registered; files that are named are part of the repository."""
    _, verb, *arguments = SERVICES[name]["command"]
    assert options_in(" ".join(arguments)) - options_in(help_of(verb)) == set()
    assert [path for path in arguments if path.startswith("derender/") and not (ROOT / path).exists()] == []
