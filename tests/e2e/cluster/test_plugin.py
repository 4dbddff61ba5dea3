"""The device plugin of an operator in another namespace: where it finds its configs, and what is said when it is gone."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.bundles import namespace
from tests.e2e.cluster.cluster_fixture import NOTEBOOKS, SHARED, T4, ClusterFixture, intent
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.machine import PATIENCE

OPERATOR, ELSEWHERE = "nvidia", "elsewhere"
INTENT = intent(notebooks=NOTEBOOKS).replace("  pools:", f"  platform: {{namespace: {OPERATOR}}}\n  pools:")


@pytest.fixture(scope="module")
def ready(cluster_fixture: ClusterFixture) -> Iterator[ClusterFixture]:
    """A node that is Ready, whose plugin reads the configs of the operator's namespace alone."""
    cluster, node = cluster_fixture.cluster, cluster_fixture.node("node-1")
    for name in (OPERATOR, ELSEWHERE):
        namespace(cluster, name)
    cluster_fixture.equip("node-1", T4)
    cluster_fixture.fleet.stop_plugin(node)
    cluster_fixture.fleet.start_plugin(cluster, node, "--namespace", OPERATOR)
    cluster_fixture.choose(node_1="notebooks")
    cluster_fixture.install(INTENT)
    cluster_fixture.await_offer("node-1", "notebooks")
    yield cluster_fixture
    cluster_fixture.fleet.stop_plugin(node)
    cluster_fixture.fleet.start_plugin(cluster, node)
    cluster.kubectl("delete", "namespace", OPERATOR, ELSEWHERE, "--wait=false")


def said(cluster_fixture: ClusterFixture, *arguments: str) -> str:
    """What gpushare prints of the cluster, on one line."""
    cluster = cluster_fixture.cluster
    environment = {**os.environ, "KUBECONFIG": str(cluster.control_plane.folder / "admin.kubeconfig"), "COLUMNS": "120"}
    command = list(map(str, cluster.network.command(sys.executable, "-m", "gpushare", *arguments)))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode in (0, 3), done.stderr
    return " ".join(done.stdout.split())


def test_the_plugin_finds_its_configs_in_the_operators_namespace(ready: ClusterFixture) -> None:
    assert ready.offer("node-1") == {SHARED: 8}
    assert ready.bundle is not None
    assert "gpushare-profiles" not in said(ready, "drift", str(ready.bundle))


def test_a_node_of_a_thousand_shares_becomes_ready(ready: ClusterFixture) -> None:
    """The API server writes 1000 as `1k`."""
    node = ready.node("node-2")
    ready.equip("node-2", ("t4",) * 8)
    ready.fleet.stop_plugin(node)
    ready.fleet.start_plugin(ready.cluster, node, "--namespace", OPERATOR)
    ready.choose(node_2="lectures")
    lectures = intent(lectures=NOTEBOOKS.replace("replicas: 4", "replicas: 125")).splitlines()[-1].replace("Node: 2", "Node: 8")
    ready.install(f"{INTENT}{lectures}\n")
    ready.await_offer("node-2", "lectures")
    assert ready.offer("node-2") == {SHARED: 1000}
    assert ready.state("node-2")["status"]["allocatable"][SHARED] == "1k"
    ready.choose(node_2=None)


def test_a_plugin_that_is_taken_away_makes_the_node_unready_within_a_minute(ready: ClusterFixture) -> None:
    """And one that waits for its configs, in a namespace that is not the platform's, is named by `explain` alone."""
    node = ready.node("node-1")
    ready.fleet.stop_plugin(node)
    mount = {"name": "configs", "mountPath": "/available-configs"}
    container = {"name": "plugin", "image": PAUSE, "imagePullPolicy": "Never", "volumeMounts": [mount]}
    plugin = {
        "nodeName": "node-1",
        "containers": [container],
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "configs", "configMap": {"name": "gpushare-profiles"}}],
    }
    metadata = {"name": "plugin", "namespace": ELSEWHERE, "labels": {"app": "nvidia-device-plugin-daemonset"}}
    ready.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": plugin})
    try:
        told = ready.await_reason("node-1", "WrongResources")
        assert told["status"] == "False"
        assert "the device plugin has no pod on the node in a namespace of the platform" in told["message"]
        assert "notebooks time-slicing 0/1" in said(ready, "status")
        why = 'configmap "gpushare-profiles" not found'
        ready.cluster.wait(lambda: why in said(ready, "explain", "node-1"), "kubelet says why")
        assert f"platform.namespace: {ELSEWHERE}" in said(ready, "explain", "node-1")
    finally:
        ready.dismiss("plugin", where=ELSEWHERE)
        ready.fleet.start_plugin(ready.cluster, node, "--namespace", OPERATOR)
    ready.await_offer("node-1", "notebooks")
