"""Nodes with AMD's GPUs on a running cluster: what `status` counts, and how `drift` compares them with the bundle."""

import json
from pathlib import Path

import pytest

from tests.compiler.live.clusters import INTENT, LiveCluster
from tests.compiler.live.conftest import Ask
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


def test_status_counts_partitions_as_shares(cluster: LiveCluster, ask: Ask) -> None:
    cluster.api.add_pod("chat-0", namespace="team", node="mi-1", limits={"amd.com/cpx_nps4": 3})
    pools = json.loads(ask("status", "--format", "json").stdout)["pools"]
    assert pools["parts"]["shares"] == {"amd.com/cpx_nps4": {"wanted": 128, "offered": 128, "used": 3, "free": 125}}
    assert [one["pods"][0]["shares"] for one in pools["parts"]["nodes"] if one["pods"]] == [{"amd.com/cpx_nps4": 3}]
