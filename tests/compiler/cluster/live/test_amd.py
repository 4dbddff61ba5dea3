"""Nodes with AMD's GPUs on a running cluster: what `status` counts, and how `drift` compares them with the bundle."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import INTENT, OURS, RELEASE, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.rights import allowed_by
from tests.support.fake_api.server import ApiServer

AMD = INTENT.replace(
    "  pools:\n",
    """\
  platform: {amd: {stack: amd-gpu-operator}}
  pools:
    parts:
      card: mi300x
      nodes: {matchLabels: {example.org/gpu: mi300x}, expected: 2}
      gpusPerNode: 8
      sharing: {mode: partition, compute: CPX, memory: NPS4}
""",
)


@pytest.fixture
def cluster(api: ApiServer) -> LiveCluster:
    found = LiveCluster(api, AMD)
    for node, pool in (("t4-1", "notebooks"), ("t4-2", "notebooks"), ("a100-1", "training")):
        found.add_node(node, pool)
    for node in ("mi-1", "mi-2"):
        found.add_node(node, "parts")
    found.add_release()
    return found


def test_an_installed_bundle_has_no_drift(cluster: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    done = ask("drift", cluster.write(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "no difference\n", "")


def test_another_profile_of_the_config_manager_is_a_difference(cluster: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    key = "dcm.amd.com/gpu-config-profile"
    cluster.api.edit("nodes", "mi-2", lambda one: one["metadata"]["labels"].update({key: "spx-nps1-8-5e1930a3"}))
    done = ask("drift", cluster.write(tmp_path), "--format", "json")
    [found] = json.loads(done.stdout)["differences"]
    assert (found["kind"], found["subject"], found["actual"]) == ("node", f"node mi-2, label {key}", "spx-nps1-8-5e1930a3")
    assert found["wanted"].startswith("cpx-nps4-8-")


WHERE = "kube-amd-gpu"
CHANGES: list[tuple[Callable[[ApiServer], object], str, str]] = [
    (lambda api: api.remove("configmaps", "gpushare-dcm", namespace=WHERE), "ConfigMap gpushare-dcm", "missing"),
    (
        lambda api: api.edit(
            "configmaps",
            "gpushare-dcm",
            lambda one: one["data"].update({"config.json": '{"gpu-config-profiles": {}}'}),
            namespace=WHERE,
        ),
        "ConfigMap gpushare-dcm",
        "others",
    ),
    (lambda api: api.remove("deviceconfigs", "gpushare-parts", namespace=WHERE), "DeviceConfig gpushare-parts", "missing"),
    (
        lambda api: edited(api, lambda spec: spec["driver"].update(enable=True)),
        "DeviceConfig gpushare-parts",
        "driver.enable: true",
    ),
    (
        lambda api: edited(api, lambda spec: spec["devicePlugin"].update(devicePluginTolerations=[])),
        "DeviceConfig gpushare-parts",
        "devicePlugin.devicePluginTolerations: []",
    ),
    (
        lambda api: edited(api, lambda spec: spec["selector"].update(rack="b7")),
        "DeviceConfig gpushare-parts",
        'selector: {"gpushare.dev/pool": "parts", "rack": "b7"}',
    ),
    (lambda api: edited(api, lambda spec: spec.pop("metricsExporter")), "DeviceConfig gpushare-parts", "metricsExporter: none"),
    (
        lambda api: api.add("deviceconfigs", "gpushare-old", {"metadata": {"labels": OURS}, "spec": {}}, namespace=WHERE),
        "DeviceConfig gpushare-old",
        "present",
    ),
]


def edited(api: ApiServer, change: Callable[[dict[str, Any]], object]) -> None:
    api.edit("deviceconfigs", "gpushare-parts", lambda one: change(one["spec"]), namespace=WHERE)


@pytest.mark.parametrize(
    ("change", "subject", "actual"), CHANGES, ids=[f"{subject} {actual}" for _, subject, actual in CHANGES]
)
def test_changed_objects_of_amds_operator_are_differences(  # noqa: PLR0917 - fixtures, and the columns of a table
    cluster: LiveCluster, ask: Ask, tmp_path: Path, change: Callable[[ApiServer], object], subject: str, actual: str
) -> None:
    change(cluster.api)
    done = ask("drift", cluster.write(tmp_path), "--format", "json")
    [found] = json.loads(done.stdout)["differences"]
    assert (done.returncode, found["kind"], found["subject"], found["actual"]) == (3, "object", subject, actual)


def test_defaults_that_the_server_adds_to_a_device_config_are_no_difference(
    cluster: LiveCluster, ask: Ask, tmp_path: Path
) -> None:
    edited(cluster.api, lambda spec: spec["driver"].update(version="30.20.1"))
    edited(cluster.api, lambda spec: spec.update(testRunner={"enable": False}))
    assert ask("drift", cluster.write(tmp_path)).stdout == "no difference\n"


def test_a_server_without_device_configs_lacks_those_of_the_bundle(cluster: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    cluster.api.fail("/deviceconfigs", 404)
    done = ask("drift", cluster.write(tmp_path))
    assert "object: DeviceConfig gpushare-parts\n  desired the bundle's\n  actual missing\n" in done.stdout


@pytest.mark.parametrize("others", [(), ("--plugin-namespace", WHERE), ("--import", WHERE)])
def test_the_rights_for_amds_namespace_are_what_drift_needs(
    cluster: LiveCluster, ask: Ask, tmp_path: Path, others: tuple[str, ...]
) -> None:
    printed = list(yaml.safe_load_all(gpushare("rbac", "--helm-values", "--amd-namespace", WHERE, *others).stdout))
    roles = [one["metadata"]["namespace"] for one in printed if one["kind"] == "Role"]
    assert sorted(roles) == [RELEASE, WHERE]
    cluster.api.allows = allowed_by(printed)
    done = ask("drift", cluster.write(tmp_path))
    assert (done.stdout, done.stderr) == ("no difference\n", "")


def test_without_rights_in_amds_namespace_only_its_objects_are_not_compared(
    cluster: LiveCluster, ask: Ask, tmp_path: Path
) -> None:
    cluster.api.allows = allowed_by(list(yaml.safe_load_all(gpushare("rbac", "--helm-values").stdout)))
    cluster.api.remove("deviceconfigs", "gpushare-parts", namespace=WHERE)
    cluster.api.remove("configmaps", "gpushare-dcm", namespace=WHERE)
    cluster.api.remove("configmaps", "gpushare-tenancy", namespace=RELEASE)
    done = ask("drift", cluster.write(tmp_path), "--format", "json")
    document = json.loads(done.stdout)
    assert [one["subject"] for one in document["differences"]] == ["ConfigMap gpushare-tenancy"]
    assert [one["what"] for one in document["unseen"]] == ["configmaps of AMD's operator", "deviceconfigs"]
    [command] = {re.findall("`gpushare (.+)`", one["hint"])[0] for one in document["unseen"]}
    cluster.api.allows = allowed_by(list(yaml.safe_load_all(gpushare(*command.split()).stdout)))
    assert "could not read" not in ask("drift", cluster.write(tmp_path)).stderr, command


def test_status_counts_partitions_as_shares(cluster: LiveCluster, ask: Ask) -> None:
    cluster.api.add_pod("chat-0", namespace="team", node="mi-1", limits={"amd.com/cpx_nps4": 3})
    pools = json.loads(ask("status", "--format", "json").stdout)["pools"]
    assert pools["parts"]["shares"] == {"amd.com/cpx_nps4": {"wanted": 128, "offered": 128, "used": 3, "free": 125}}
    assert [one["pods"][0]["shares"] for one in pools["parts"]["nodes"] if one["pods"]] == [{"amd.com/cpx_nps4": 3}]
