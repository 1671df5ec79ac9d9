"""`derender doctor`: looks at everything that a worker needs and says what to mend. Exit code 1: mend it.

It writes one key, `<prefix>:{0}:doctor`, to try what its user may do, and deletes it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from derender.reach import needed
from derender.words import count, noun
from link.redis import UNREACHABLE, LoginError, NoPermissionError, Redis, RedisError, ResponseError, connect
from producer.connection import ConfigError
from producer.survey import CONFIG, INFO, WORKERS, Survey, look
from schemas import keys
from schemas.keys import Keys
from worker.config import load_models_of
from worker.settings import ModelSettings, RedisSettings, SettingsError, add_options, option, shown_url

MIN_REDIS = (7, 0)
MAX_SKEW_MS = 2000
"""Clocks further apart spoil nothing in the streams; lags and times in logs are then wrong."""

SLOW_MS = 10_000
"""An entry that waits longer than this while its partition has an owner."""

FULL = 0.8
"""Part of maxmemory from which on a warning is due: above it, publishing is refused."""

REFUSALS = ("permission", "can't run this command")
"""Words of Redis for what an ACL refuses, outside scripts and inside."""

ROLES = {"worker": "worker", "client": "operator"}
"""Whose permissions to try -> the file of deploy/acl that has them."""

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One line of the report. advice: what to do; empty where all is well."""

    level: Level
    what: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.level:<5}{self.what}" + (f"\n     -> {self.advice}" if self.advice else "")


@dataclass(frozen=True)
class DoctorSettings(RedisSettings, ModelSettings):
    """Options of `doctor`: those of the worker that is to run (or runs) here."""

    partitions: int | None = option(None, "number of partitions that the workers will be told")
    role: str = option("worker", "whose permissions to try: worker, or client (one user that publishes and reads)")

    def __post_init__(self) -> None:
        RedisSettings.__post_init__(self)
        ModelSettings.__post_init__(self)
        if self.role not in ROLES:
            raise SettingsError(f"--role has to be {' or '.join(ROLES)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, DoctorSettings)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    settings, models = load_models_of(DoctorSettings, vars(args), environ)
    findings = asyncio.run(examine(settings, models))
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    worst = [sum(finding.level == level for finding in findings) for level in ("fail", "warn")]
    sys.stdout.write(f"{worst[0]} to mend, {worst[1]} to look at\n")
    return 1 if worst[0] else 0


async def examine(settings: DoctorSettings, models: Sequence[ModelSettings]) -> list[Finding]:
    """All findings, in the order in which they matter."""
    url = shown_url(settings.redis_url)
    redis, names = connect(settings.redis_url), Keys(settings.key_prefix)
    try:
        local = time.time() * 1000
        survey = await look(redis, names)
        local = (local + time.time() * 1000) / 2
        refused = await permissions(redis, names, settings.role)
        last_dead = await _last_dead(redis, names, survey)
    except LoginError as error:
        return [Finding("fail", f"Redis at {url} refuses the login: {error}", "check user and password in --redis-url")]
    except NoPermissionError as error:
        return [Finding("fail", f"Redis at {url} does not allow it: {error}", needed(ROLES[settings.role]))]
    except UNREACHABLE as error:
        advice = "start Redis, or name another one with --redis-url"
        return [Finding("fail", f"Redis at {url} cannot be reached: {error}", advice)]
    except ConfigError as error:
        return [Finding("fail", str(error), "nobody can work on this database until then")]
    except RedisError as error:
        return [Finding("fail", f"Redis at {url} refuses us: {error}", "see the log of the server")]
    finally:
        await redis.aclose()
    return [
        *server(survey.info),
        *clock(survey.at_ms, local),
        *permitted(refused, settings.role),
        *hidden(survey),
        *database(survey, settings, names),
        *workers(survey, last_dead),
        *tokenizers(survey, models if settings.config or settings.tokenizer else ()),
    ]


# --- server ----------------------------------------------------------------------------------------------------------


def server(info: Mapping[str, Any]) -> Iterator[Finding]:
    if not info:
        what = "INFO is not permitted: version and settings of Redis are not known"
        yield Finding("warn", what, "a worker does without; to see them here, give this user +info")
        return
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_REDIS:
        yield Finding("fail", f"Redis {version}", "7.0 or newer is needed (XGROUP SETID … ENTRIESREAD, lag)")
    else:
        yield Finding("ok", f"Redis {version}")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        why = "an evicted key is a lost stream, a refused write an error that is seen"
        advice = f"CONFIG SET maxmemory-policy noeviction: {why}"
        yield Finding("fail", f"maxmemory-policy is {policy}", advice)
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not limit:
        yield Finding(
            "warn",
            "maxmemory is not set",
            "set it below the host's memory: better a refused producer than a dead Redis",
        )
    elif used > limit and policy == "noeviction":
        advice = "raise maxmemory now; then shorten --reply-ttl-s, so that answers go sooner"
        yield Finding("fail", f"memory is {100 * used // limit} % full: nobody can publish", advice)
    elif used > FULL * limit:
        yield Finding("warn", f"memory is {100 * used // limit} % full", "shorten --reply-ttl-s, or raise maxmemory")
    else:
        yield Finding("ok", f"memory is {100 * used // limit} % full, nothing is evicted")
    if not int(info.get("aof_enabled", 0)):
        yield Finding("warn", "appendonly is off", "CONFIG SET appendonly yes, or open streams are lost at a restart")
    else:
        yield Finding("ok", "the append-only file is on")
    if info.get("role", "master") != "master":
        yield Finding("fail", f"this Redis is a {info['role']}", "name the master in --redis-url")
    if int(info.get("cluster_enabled", 0)):
        advice = "use a primary with replicas: see docs/operator.md, High availability"
        yield Finding("fail", "Redis runs as a cluster", advice)


def clock(redis_ms: float, local_ms: float) -> Iterator[Finding]:
    skew = redis_ms - local_ms
    if abs(skew) > MAX_SKEW_MS:
        side = "ahead of" if skew > 0 else "behind"
        advice = "let both hosts follow a time server: lags in metrics are wrong until then"
        yield Finding("warn", f"the clock of Redis is {abs(skew) / 1000:.1f} s {side} ours", advice)
    else:
        yield Finding("ok", f"clocks are within {MAX_SKEW_MS / 1000:.0f} s of each other")


# --- permissions -----------------------------------------------------------------------------------------------------


def _trials(names: Keys, role: str) -> list[tuple[Any, ...]]:
    """Commands of a role, on a key that nothing else uses. EVAL runs on the same key, as the publish script does."""
    key = names.of(0, "doctor")
    client: list[tuple[Any, ...]] = [
        ("HMGET", names.config, keys.CONFIG_PARTITIONS),
        ("XADD", key, "*", "probe", "1"),
        ("XLEN", key),
        ("XRANGE", key, "-", "+", "COUNT", "1"),
        ("XREAD", "COUNT", "1", "STREAMS", key, "0"),
        ("EXISTS", key),
        ("GET", names.status(0, "doctor")),
    ]
    if role == "client":
        return [*client, ("DEL", key)]
    script = "return redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], '0', 'ENTRIESREAD', 0)"
    return [
        *client,
        ("XGROUP", "CREATE", key, keys.GROUP, "0"),
        ("XINFO", "GROUPS", key),
        ("EVAL", script, 1, key, keys.GROUP),
        ("XTRIM", key, "MINID", "=", "0"),
        ("PEXPIRE", key, 60_000),
        ("DEL", key),
        ("HSET", key, "probe", "1"),
        ("HMGET", key, "probe"),
        ("HLEN", key),
        ("HSCAN", key, 0),
        ("HDEL", key, "probe"),
        ("SET", key, "1", "NX", "PX", 60_000),
        ("MGET", key),
        ("DEL", key),
        ("ZRANGE", names.workers, 0, 0),
        ("ZSCORE", names.jobs, "doctor"),
        ("TIME",),
        ("PING",),
    ]


async def permissions(redis: Redis, names: Keys, role: str) -> list[str]:
    """What the server refused, one line a command; other errors are no matter of permissions."""
    commands = _trials(names, role)
    async with redis.pipeline(transaction=False) as pipe:
        for command in commands:
            pipe.execute_command(*command)
        answers = await pipe.execute(raise_on_error=False)
    return [
        f"{command[0]}: {answer}"
        for command, answer in zip(commands, answers, strict=True)
        if isinstance(answer, ResponseError) and any(words in str(answer) for words in REFUSALS)
    ]


def permitted(refused: Sequence[str], role: str) -> Iterator[Finding]:
    for line in refused:
        yield Finding("fail", f"a {role} may not {line}", needed(ROLES[role]))
    if not refused:
        yield Finding("ok", f"this user may do what a {role} does")


# --- database --------------------------------------------------------------------------------------------------------


def hidden(survey: Survey) -> Iterator[Finding]:
    """What is not looked at below: it is absent from the survey, whatever it is."""
    if unseen := survey.hidden - {INFO}:
        yield Finding("warn", f"this user may not see: {', '.join(sorted(unseen))}", needed("operator"))


def database(survey: Survey, settings: DoctorSettings, names: Keys) -> Iterator[Finding]:
    number = len(survey.partitions)
    if CONFIG in survey.hidden:
        return
    if not number:
        advice = "nothing to do: the first worker sets the number of partitions"
        yield Finding("warn", f"{names.config} is not set", advice)
        return
    if survey.wire_version != keys.WIRE_VERSION:
        advice = "use the release that set up this database, or another --key-prefix"
        yield Finding("fail", f"wire version {survey.wire_version}, this release speaks {keys.WIRE_VERSION}", advice)
    if settings.partitions not in (None, number):
        advice = f"leave --partitions out, or use another --key-prefix: {number} {noun(number, 'is', 'are')} fixed"
        what = f"{count(number, 'partition')}, but --partitions says {settings.partitions}"
        yield Finding("fail", what, advice)
    else:
        yield Finding("ok", count(number, "partition"))


async def _last_dead(redis: Redis, names: Keys, survey: Survey) -> str:
    """Reason of the newest dead letter of all partitions."""
    newest: tuple[bytes, str] = (b"", "")
    for one in survey.partitions:
        if one.dead:
            for id_, fields in await redis.xrevrange(names.dead(one.number), count=1):
                reason = fields.get(keys.REASON, b"").decode("utf-8", "replace")
                newest = max(newest, (id_, reason), key=lambda pair: int(pair[0].partition(b"-")[0] or 0))
    return newest[1]


def workers(survey: Survey, last_dead: str) -> Iterator[Finding]:
    if WORKERS in survey.hidden:
        pass  # they may live
    elif not survey.members:
        waiting = sum(one.lag for one in survey.partitions)
        level: Level = "fail" if waiting else "warn"
        what = f"no worker lives, {count(waiting, 'entry waits', 'entries wait')}"
        yield Finding(level, what, "start one: derender worker --config FILE")
    else:
        yield Finding("ok", count(len(survey.members), "worker lives", "workers live"))
    versions = sorted({worker.version for worker in survey.workers})
    if len(versions) > 1:
        yield Finding("warn", f"workers of several releases: {', '.join(versions)}", "finish the rolling upgrade")
    for queue, number in sorted(Counter(bridge.queue for bridge in survey.bridges).items()):
        lives = count(number, "bridge lives", "bridges live")
        yield Finding("ok", f"{lives}, {f'queue {queue}' if queue else 'default queue'}")
    orphans = [one.number for one in survey.partitions if one.owner is None]
    if orphans and survey.members:
        advice = "wait a few seconds; if it stays so, the workers' logs say why they do not take them"
        which = noun(len(orphans), "partition")
        yield Finding("warn", f"{which} without an owner: {', '.join(map(str, orphans))}", advice)
    slow = [
        one.number
        for one in survey.partitions
        if one.owner and max(one.chunks.oldest_ms or 0, one.bulk.oldest_ms or 0) > SLOW_MS
    ]
    if slow:
        numbers = ", ".join(map(str, slow))
        which = noun(len(slow), "partition")
        yield Finding("warn", f"entries wait more than {SLOW_MS // 1000} s in {which} {numbers}", "add workers")
    if dead := sum(one.dead for one in survey.partitions):
        yield Finding(
            "warn", f"{count(dead, 'dead letter')}, the newest: {last_dead}", "see docs/operator.md, Dead letters"
        )


# --- models ----------------------------------------------------------------------------------------------------------


def tokenizers(survey: Survey, models: Sequence[ModelSettings]) -> Iterator[Finding]:
    """Loads each model that was named, and compares it with what workers serve under the same name."""
    for name, prints in sorted(_served(survey).items()):
        if len(prints) > 1:
            advice = "give all workers the same tokenizer, template and parsers: streams fail when they change hands"
            yield Finding("fail", f"workers serve {name} in {len(prints)} configurations", advice)
    for worker in survey.workers:
        for model in worker.models:
            if model.error:
                who = worker.token.rsplit(":", 2)[0]
                yield Finding("fail", f"{who} cannot load {model.name}: {model.error}", "mend its path or revision")
    if not models:
        return
    from worker.tokenizer_cache import TokenizerError, load_model, warn_of_idle_parser

    for settings in models:
        label = settings.served_model_name[0] if settings.served_model_name else settings.tokenizer
        try:
            warn_of_idle_parser(settings)
            loaded = load_model(settings)
        except TokenizerError as error:
            yield Finding("fail", f"model {label}: {error}", "mend it in the configuration; other models go on")
            continue
        parsers = f"tool parser {settings.tool_call_parser}, reasoning parser {settings.reasoning_parser}"
        yield Finding("ok", f"model {label}: configuration {loaded.fingerprint}, {parsers}")
        others = _served(survey).get(loaded.name, set()) - {loaded.fingerprint}
        if others:
            yield Finding(
                "fail",
                f"workers serve {loaded.name} with configuration {', '.join(sorted(others))}",
                "start this configuration under another name, or change all workers",
            )


def _served(survey: Survey) -> dict[str, set[str]]:
    """Fingerprints by model, of the workers that live."""
    result: dict[str, set[str]] = {}
    for worker in survey.workers:
        for model in worker.models:
            if model.fingerprint:
                result.setdefault(model.name, set()).add(model.fingerprint)
    return result
