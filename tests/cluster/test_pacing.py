"""200 simulated nodes against a real control plane: never more than maxUnavailable out, few writes a node, no list storms."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.bundles import NAMESPACE, compiled, rendered
from tests.cluster.lab import POOL, Lab, intent

pytestmark = pytest.mark.cluster

NODES = 200
MOST_OUT = NODES // 10
FIELDS = "card: t4, sharing: {{mode: time-slicing, replicas: {}}}, rollout: {{maxUnavailable: 10%}}"


@pytest.fixture(scope="module")
def figures(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """A first installation, and then a change that would disturb tenants, on all nodes."""
    cluster = lab.cluster
    nodes = [_node(f"simulated-{number}") for number in range(NODES)]
    cluster.apply(*nodes)
    whole = {"nvidia.com/gpu": "1"}  # as NVIDIA's plugin has offered it so far
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": ""}],
             "capacity": whole, "allocatable": whole}  # fmt: skip
    for_status = ("apply", "--server-side", "--subresource=status", "--filename", "-")
    listed = {"apiVersion": "v1", "kind": "List", "items": [one | {"status": ready} for one in nodes]}
    cluster.kubectl(*for_status, stdin=json.dumps(listed))
    folder = tmp_path_factory.mktemp("scale")
    texts = [intent(training=FIELDS.format(replicas)).replace("gpusPerNode: 2", "gpusPerNode: 1") for replicas in (8, 4)]
    bundles = [compiled(text, folder / str(number)) for number, text in enumerate(texts)]
    objects = rendered(bundles[0])
    cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=objects)
    try:
        yield measure(lab, bundles)
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=objects)
        cluster.kubectl("delete", "nodes", "--selector", "example.org/simulated=true")


def measure(lab: Lab, bundles: list[Path]) -> list[dict[str, Any]]:
    """Roll the bundles out, in a process in the cluster's network."""
    cluster = lab.cluster
    daemonset, wanted = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gpushare-training", "desiredNumberScheduled"
    cluster.wait(lambda: cluster.read(daemonset)["status"].get(wanted) == NODES, "the DaemonSet wants a pod on every node")
    simulation = (sys.executable, "-W", "ignore", "-m", "tests.scale.simulation", "--nodes", str(NODES))
    command = [str(part) for part in cluster.network.command(*simulation, *bundles)]
    environment = {**os.environ, "KUBECONFIG": str(cluster.control_plane.folder / "admin.kubeconfig")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2], env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return list(json.loads(done.stdout))


def _node(name: str) -> dict[str, Any]:
    labels = {POOL: "training", "example.org/simulated": "true"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


@pytest.mark.parametrize("number", [0, 1], ids=["first installation", "change"])
def test_a_rollout_is_paced_and_asks_little_of_the_api_server(figures: list[dict[str, Any]], number: int) -> None:
    found = figures[number]
    print(json.dumps(found))
    assert found["ready"] == NODES
    assert 1 < found["most_out"] <= MOST_OUT
    # Eight, and one for a race for a slot that was lost; who loses again waits longer.
    assert found["mean_writes"] <= 8
    assert found["most_writes"] <= 10
    assert found["requests"]["GET pods"] <= 20 * NODES
    assert "GET leases" in found["requests"]
