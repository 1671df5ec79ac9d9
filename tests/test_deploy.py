"""What is in deploy/: files of the right form that name only what exists, and the parts that can be tried are tried."""

from __future__ import annotations

import asyncio
import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis.asyncio import Redis

from link.redis import connect
from schemas import keys
from schemas.keys import Keys
from tests.conftest import RedisServer, free_port, redis_in
from tests.shared_data import ROOT
from tests.test_compose import help_of, options_in
from tests.workers import closed, publish, recording, worker_processes
from worker.config import read_config
from worker.metrics import Metrics
from worker.settings import Settings, load

DEPLOY = ROOT / "deploy"
KUBERNETES = {
    (document["kind"], document["metadata"]["name"]): document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text("utf-8"))
}
WORKER = KUBERNETES["Deployment", "derender-worker"]
GATEWAY = KUBERNETES["Deployment", "derender-gateway"]
SCALED = KUBERNETES["ScaledObject", "derender-worker"]


def metric_names() -> set[str]:
    """Names of every series that a worker can have."""
    names: set[str] = set()
    for family in Metrics().registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def test_objects_are_the_ones_that_belong_together() -> None:
    assert sorted(KUBERNETES) == [
        ("ConfigMap", "derender-models"),
        ("Deployment", "derender-gateway"),
        ("Deployment", "derender-worker"),
        ("PodDisruptionBudget", "derender-worker"),
        ("ScaledObject", "derender-worker"),
        ("Service", "derender-gateway"),
        ("TriggerAuthentication", "derender-keda"),
    ]
    assert SCALED["spec"]["scaleTargetRef"]["name"] == "derender-worker"
    for deployment in (WORKER, GATEWAY):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels == deployment["metadata"]["labels"]
    assert KUBERNETES["Service", "derender-gateway"]["spec"]["selector"] == GATEWAY["metadata"]["labels"]
    budget = KUBERNETES["PodDisruptionBudget", "derender-worker"]
    assert budget["spec"]["selector"]["matchLabels"] == WORKER["metadata"]["labels"]


@pytest.mark.parametrize("deployment", [WORKER, GATEWAY], ids=["worker", "gateway"])
def test_pods_have_no_rights(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # DERENDER_<SERVICE>_… would be read as options
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    _, verb, *arguments = container["args"]
    assert options_in(" ".join(arguments)) - options_in(help_of(verb)) == set()


def test_models_of_the_config_map_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "derender.toml"
    path.write_text(KUBERNETES["ConfigMap", "derender-models"]["data"]["derender.toml"], "utf-8")
    config = read_config(path)
    settings = load(Settings, {}, {}, config.worker)
    port = WORKER["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
    annotations = WORKER["spec"]["template"]["metadata"]["annotations"]
    assert (settings.metrics_port, settings.metrics_host) == (port, "0.0.0.0")
    assert annotations["prometheus.io/port"] == str(port)
    assert settings.partitions == SCALED["spec"]["maxReplicaCount"]


def test_grace_is_longer_than_the_longest_stop() -> None:
    """5 s for partitions to be left and 5 s for a Redis that does not answer, in every way of running it."""
    unit = systemd_unit()
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    assert WORKER["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 20
    assert unit["Service"]["TimeoutStopSec"] == "15"
    assert compose["services"]["worker"]["stop_grace_period"] == "15s"


def test_scaling_reads_every_input_stream() -> None:
    spec = SCALED["spec"]
    triggers = spec["triggers"]
    partitions, names = spec["maxReplicaCount"], Keys()
    streams = [names.chunks(p) for p in range(partitions)] + [names.bulk(p) for p in range(partitions)]
    assert [trigger["metadata"]["stream"] for trigger in triggers] == streams
    assert {trigger["type"] for trigger in triggers} == {"redis-streams"}
    assert {trigger["metadata"]["consumerGroup"] for trigger in triggers} == {keys.GROUP}
    assert spec["advanced"]["scalingModifiers"]["formula"] == " + ".join(trigger["name"] for trigger in triggers)
    assert {trigger["authenticationRef"]["name"] for trigger in triggers} == {"derender-keda"}
    assert spec["minReplicaCount"] == 1


async def lags(redis: Redis, partitions: int) -> list[int]:
    """What KEDA reads with `lagCount`: the lag of the group, by stream in the order of the triggers."""
    found = []
    for trigger in SCALED["spec"]["triggers"]:
        stream = trigger["metadata"]["stream"]
        if int(stream.partition("{")[2].partition("}")[0]) < partitions:
            (group,) = [one for one in await redis.xinfo_groups(stream) if one["name"] == keys.GROUP.encode()]
            found.append(group["lag"])
    return found


@pytest.mark.redis
async def test_the_numbers_that_keda_reads(real_redis: Redis, server_url: str, tmp_path: Path) -> None:
    """Without a worker the lag is what was published; with one it goes to 0, and stays a number in between."""
    with worker_processes(1, server_url, tmp_path):
        await closed(real_redis, await publish(server_url, recording(), 1))
        assert await lags(real_redis, 8) == [0] * 16
    events = recording()
    ids = await publish(server_url, events, 4)
    waiting = await lags(real_redis, 8)
    expected = [0] * 8
    for event in events:
        for copy in range(4):
            expected[keys.partition_of(f"{event.request_id}.{copy}", 8)] += 1
    assert waiting == expected + [0] * 8
    target = int(SCALED["spec"]["advanced"]["scalingModifiers"]["target"])
    assert (sum(waiting), -(-sum(waiting) // target)) == (len(events) * 4, 1)
    with worker_processes(2, server_url, tmp_path):
        await closed(real_redis, ids)
        assert await lags(real_redis, 8) == [0] * 16


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_dashboard_and_alerts_name_metrics_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "derender.json").read_text("utf-8"))
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8"))["groups"][0]["rules"]
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for rule in rules]
    used = {name for text in expressions for name in re.findall(r"\bderender_\w+", text)}
    assert used - metric_names() == set()
    assert all(rule["annotations"].keys() == {"summary", "action"} for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids) > 15


def test_dashboard_shows_every_count_of_interest() -> None:
    """Each metric is on the dashboard, or in the list of those that need no picture."""
    text = (DEPLOY / "grafana" / "derender.json").read_text("utf-8")
    unseen = {name for name in metric_names() if name not in text and not name.endswith(("_count", "_sum"))}
    assert unseen == {"derender_batch_entries_total", "derender_batches_total", "derender_partitions"} & unseen


# --- systemd, compose, image -----------------------------------------------------------------------------------------


def systemd_unit() -> configparser.ConfigParser:
    class Unit(configparser.RawConfigParser):
        def optionxform(self, optionstr: str) -> str:
            return optionstr

    unit = Unit(strict=False, delimiters=("=",), comment_prefixes=("#",))
    unit.read(DEPLOY / "systemd" / "derender-worker@.service", "utf-8")
    return unit  # type: ignore[return-value]


def test_unit_starts_what_the_command_line_knows() -> None:
    unit = systemd_unit()["Service"]
    _, verb, *arguments = unit["ExecStart"].split()
    assert (verb, arguments) == ("worker", ["--config", "/etc/derender/derender.toml"])
    assert options_in(" ".join(arguments)) - options_in(help_of(verb)) == set()
    text = (DEPLOY / "systemd" / "derender-worker@.service").read_text("utf-8")
    instances = re.findall(r"derender-worker@(\w+)", text)
    port = re.search(r"DERENDER_METRICS_PORT=(\S+)", text)
    assert port is not None
    assert [port[1].replace("%i", instance) for instance in (*instances, "10")] == ["9101", "9102", "9110"]
    sandbox = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "PrivateTmp": "yes"}
    assert {name: unit[name] for name in sandbox} == sandbox


def test_unit_is_valid_for_systemd(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "systemd" / "derender-worker@.service").read_text("utf-8")
    copy = tmp_path / "derender-worker@1.service"
    copy.write_text(text.replace("/opt/derender/bin/derender", sys.executable), "utf-8")
    done = subprocess.run([program, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "derender-worker" in line] == []
    assert done.returncode == 0


def test_image_is_small_and_has_no_rights() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if line.startswith("FROM ")] == [
        "FROM python:3.11-slim AS build",
        "FROM python:3.11-slim",
    ]
    last = lines[len(lines) - 1 - lines[::-1].index("FROM python:3.11-slim") :]
    assert "USER 10001:10001" in last
    assert [line for line in last if line.startswith(("RUN", "ADD"))] == []


def test_example_configuration_serves_the_demo_s_model() -> None:
    config = read_config(DEPLOY / "derender.toml")
    text = (DEPLOY / "derender.toml").read_text("utf-8")
    commented = "\n".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ["))
    assert [model.served_model_name for model in config.models] == [("smollm2-135m-instruct",)]
    assert commented == '[models."qwen3-8b"]'
    active = "\n".join(line.removeprefix("# ") for line in text[text.index("# [models") :].splitlines())
    assert tomllib.loads(active)["models"]["qwen3-8b"]["reasoning_parser"] == "qwen3"


# --- permissions and TLS, on servers that have them ------------------------------------------------------------------


ROLES = ("bridge", "gateway", "keda", "operator", "producer", "reader", "worker")


def acl_file() -> str:
    """The file for a server, as the commands of the pages make it: the default user off, and each role's line."""
    return "user default off\n" + "".join((DEPLOY / "acl" / f"{role}.acl").read_text("utf-8") for role in ROLES)


def test_there_is_one_set_of_users() -> None:
    assert tuple(sorted(path.stem for path in DEPLOY.rglob("*.acl"))) == ROLES
    assert [line.split()[1] for line in acl_file().splitlines()[1:]] == [f"derender-{role}" for role in ROLES]
    command = "{ echo 'user default off'; cat deploy/acl/*.acl; } > "
    pages = {
        name: (ROOT / name).read_text("utf-8").count(command) for name in ("deploy/acl/README.md", "docs/operator.md")
    }
    assert pages == dict.fromkeys(pages, 1)


@contextmanager
def guarded_redis(folder: Path, *options: str) -> Iterator[RedisServer]:
    """A server with our ACL file; the default user, which is off there, stays on to look at the log of refusals."""
    acl = acl_file()
    path = folder / "users.acl"
    path.write_text(acl.replace("user default off", "user default on nopass ~* &* +@all"), "utf-8")
    with redis_in(folder, "--aclfile", str(path), *options) as server:
        yield server


@pytest.mark.redis
async def test_documented_users_may_do_their_work_and_no_more(tmp_path: Path) -> None:
    """Worker, producer, reader, top and doctor under their users: the server's log of refusals stays empty."""
    with guarded_redis(tmp_path) as server:
        admin = connect(server.url)
        with worker_processes(1, server.url_as("worker"), tmp_path):
            ids = await publish(server.url_as("operator"), recording(), 1)
            await closed(admin, ids)
            for verb in (["top", "--once"], ["doctor", "--role", "client"], ["tail", ids[0]]):
                command = [sys.executable, "-m", "derender", *verb, "--redis-url", server.url_as("operator")]
                done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=False, capture_output=True)
                assert done.returncode == 0, done.stdout
            command = [sys.executable, "-m", "derender", "doctor", "--redis-url", server.url_as("worker")]
            done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=False, capture_output=True)
            assert done.returncode == 0, done.stdout
        refused = {(one["username"], one["object"]) for one in await admin.acl_log()}
        keda = connect(server.url_as("keda"))
        (group,) = await keda.xinfo_groups(Keys().chunks(0))
        refusals = []
        for user, command in (("keda", ["XLEN", "derender:{0}:chunks"]), ("worker", ["FLUSHALL"]),
                              ("operator", ["DEL", "other"]), ("operator", ["EVAL", "return 1", "0"])):  # fmt: skip
            client = connect(server.url_as(user))
            with pytest.raises(Exception, match=r"permission") as caught:
                await client.execute_command(*command)
            refusals.append(type(caught.value).__name__)
            await client.aclose()
        await keda.aclose()
        await admin.aclose()
    # doctor asks INFO, which a worker may not, and says so
    assert refused == {("derender-worker", "info")}
    assert group["lag"] == 0
    assert refusals == ["NoPermissionError"] * 4


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=10)


def make_certificates(folder: Path) -> None:
    """The commands of docs/operator.md, section TLS, in `folder`."""
    page = (ROOT / "docs" / "operator.md").read_text("utf-8")
    (script,) = [block for block in re.findall(r"```sh\n(.*?)```", page, re.S) if "openssl req" in block]
    subprocess.run(["sh", "-euc", script], cwd=folder, check=True, capture_output=True)


@pytest.mark.redis
async def test_the_tls_settings_of_the_compose_file(tmp_path: Path) -> None:
    """Redis started with the options of deploy/compose.tls.yaml; worker and producer over TLS, with passwords."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    overlay = yaml.safe_load((DEPLOY / "compose.tls.yaml").read_text("utf-8"))["services"]
    base = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    assert overlay.keys() <= base.keys()
    (tmp_path / "deploy").symlink_to(DEPLOY)
    make_certificates(tmp_path)
    folder = tmp_path / "deploy-tls"
    port = free_port()
    replaced = {"6380": str(port)}
    command = [replaced.get(word, word.replace("/tls/", f"{folder}/")) for word in overlay["redis"]["command"] if word]
    with running([*command, "--dir", str(tmp_path)]):
        urls = {}
        for service, user in (("worker", "worker"), ("producer", "operator")):
            template = overlay[service]["environment"]["DERENDER_REDIS_URL"]
            url = re.sub(r"\$\{[^}]*\}", "CHANGE-ME", template)
            urls[user] = url.replace("redis:6380", f"localhost:{port}").replace("/tls/", f"{folder}/")
        with worker_processes(1, urls["worker"], tmp_path):
            ids = await publish(urls["operator"], recording(), 1)
            client = connect(urls["operator"])
            await closed(client, ids)
            await client.aclose()
    assert len(ids) == 12
