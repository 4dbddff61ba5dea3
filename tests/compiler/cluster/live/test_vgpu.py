"""Nodes for virtual machines on a running cluster: what `status` lists, and how `drift` compares them with the bundle."""

import json
from pathlib import Path

import pytest

from gpushare.reading import schema
from tests.compiler.cluster.live.clusters import INTENT, RELEASE, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.render.compiled import side
from tests.support.fake_api.server import ApiServer

VGPU = INTENT.replace(
    "  pools:\n",
    """\
  platform: {vgpuManager: {repository: registry.example.org/nvidia, version: "595.71.03"}}
  pools:
    desktops:
      card: a10
      nodes: {matchLabels: {example.org/gpu: a10}, expected: 2}
      gpusPerNode: 2
      sharing: {mode: vgpu, profile: A10-12Q, kernel: "5.15"}
""",
)


class Machines(LiveCluster):
    """The small cluster with two nodes for virtual machines."""

    def __init__(self, api: ApiServer) -> None:
        super().__init__(api, VGPU)
        self.labels: dict[str, str] = side(self.files).vm_pools["desktops"].labels
        for node, pool in (("t4-1", "notebooks"), ("t4-2", "notebooks"), ("a100-1", "training")):
            self.add_node(node, pool)
        for name in ("vm-1", "vm-2"):
            state = {"nvidia.com/vgpu.config.state": "success"}
            self.add_node(name, labels={"example.org/gpu": "a10", **self.labels, **state})
        self.add_release()


@pytest.fixture
def machines(api: ApiServer) -> Machines:
    return Machines(api)


def relabel(live: LiveCluster, name: str, **labels: str) -> None:
    changed = {key.replace("__", "."): value for key, value in labels.items()}
    live.api.edit(
        "nodes", name, lambda one: one["metadata"]["labels"].update({f"nvidia.com/{k}": v for k, v in changed.items()})
    )


def test_nodes_with_the_labels_and_the_managers_success_have_no_drift(machines: Machines, ask: Ask, tmp_path: Path) -> None:
    done = ask("drift", machines.write(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "no difference\n", "")


def test_each_difference_of_such_a_node_is_told(machines: Machines, ask: Ask, tmp_path: Path) -> None:
    bundle = machines.write(tmp_path)
    relabel(machines, "vm-1", vgpu__config__state="failed")
    relabel(machines, "vm-2", vgpu__config="vgpu-00000000")
    machines.api.edit("configmaps", "gpushare-vgpu", lambda one: one["data"].update({"config.yaml": "x"}), namespace=RELEASE)
    done = ask("drift", bundle, "--format", "json")
    document = json.loads(done.stdout)
    assert schema.accepts(schema.load("drift.v1"), document)
    found = {(one["kind"], one["subject"], one["actual"]) for one in document["differences"]}
    assert found == {
        ("hardware", "node vm-1, vGPUs", "failed"),
        ("node", "node vm-2, label nvidia.com/vgpu.config", "vgpu-00000000"),
        ("object", "ConfigMap gpushare-vgpu", "another text"),
    }


def test_a_missing_node_and_a_missing_configmap_are_told(machines: Machines, ask: Ask, tmp_path: Path) -> None:
    bundle = machines.write(tmp_path)
    machines.api.remove("nodes", "vm-2")
    machines.api.remove("configmaps", "gpushare-vgpu", namespace=RELEASE)
    shown = ask("drift", bundle).stdout
    assert "pool desktops" in shown
    assert "1 nodes" in shown
    assert "ConfigMap gpushare-vgpu" in shown


def test_status_lists_the_nodes_by_their_labels(machines: Machines, ask: Ask) -> None:
    relabel(machines, "vm-2", vgpu__config__state="pending")
    config = machines.labels["nvidia.com/vgpu.config"]
    shown = ask("status").stdout
    assert [line.split() for line in shown.splitlines() if line.startswith("vm-")] == [
        ["vm-1", config, "success"],
        ["vm-2", config, "pending"],
    ]
    document = json.loads(ask("status", "--format", "json").stdout)
    assert schema.accepts(schema.load("status.v1"), document)
    assert document["vmNodes"][0] == {"name": "vm-1", "config": config, "state": "success"}
    assert "vm-1" in ask("status", "--format", "html").stdout


def test_status_of_a_cluster_without_such_nodes_does_not_name_them(api: ApiServer, ask: Ask) -> None:
    LiveCluster(api).add_node("t4-1", "notebooks")
    assert "VM NODE" not in ask("status").stdout
    assert "vmNodes" not in json.loads(ask("status", "--format", "json").stdout)
