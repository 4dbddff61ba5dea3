"""`gpushare explain`: reasons without a cluster; nodes and pods of a running one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare_node.contract.reasons import REASONS
from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import SHARED, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.rights import allowed_by


def test_a_reason_needs_no_cluster(tmp_path: Path) -> None:
    for word in ("GPUBusy", "gpubusy"):
        done = gpushare("explain", word, cwd=tmp_path, environment={"KUBECONFIG": "/nowhere"})
        assert done.returncode == 0
        assert "GPUBusy: GPUShareReady is False" in done.stdout
        assert "What to do: Drain the node" in done.stdout


@pytest.mark.parametrize("word", sorted(REASONS))
def test_every_reason_has_a_meaning_and_a_remedy(word: str) -> None:
    assert REASONS[word].means
    assert REASONS[word].remedy


def test_unknown_explain_argument_is_refused_without_a_cluster(tmp_path: Path) -> None:
    done = gpushare("explain", "GPUBuzy", cwd=tmp_path, environment={"KUBECONFIG": "/nowhere"})
    assert done.returncode == 2
    assert "did you mean GPUBusy" in done.stderr


def test_node_that_is_not_ready_is_explained(live: LiveCluster, ask: Ask) -> None:
    live.api.add_pod(
        "old",
        namespace="team",
        node="t4-2",
        limits={SHARED: 1},
        owner={"kind": "Job", "name": "old", "uid": "2", "controller": True},
    )
    told = ask("explain", "t4-2").stdout.replace("\n  ", " ")
    assert "node t4-2: pool notebooks" in told
    assert "GPUBusy: GPU 0: pod team/old uses it. Pods or processes use the GPUs" in " ".join(told.split())
    assert "team/old (Job/old)" in told
    assert "What to do:" in told


def test_node_without_a_pool_and_node_without_a_report_are_explained(live: LiveCluster, ask: Ask) -> None:
    assert "No pool selects the node; the pools are notebooks and training" in ask("explain", "cpu-1").stdout
    live.add_node("t4-9", labels={"example.org/gpu": "t4"})
    assert "has not reported on this node" in ask("explain", "node/t4-9").stdout


def test_healthy_node_is_explained(live: LiveCluster, ask: Ask) -> None:
    assert "No problems found." in ask("explain", "t4-1").stdout


FAILED = 'MountVolume.SetUp failed for volume "gpushare-profiles" : configmap "gpushare-profiles" not found'


@pytest.mark.parametrize(
    ("volume", "message", "remedy"),
    [
        ({"configMap": {"name": "gpushare-profiles"}}, FAILED, "`platform.namespace: nvidia`"),
        ({"projected": {"sources": [{"configMap": {"name": "gpushare-profiles"}}]}}, FAILED, "`platform.namespace: nvidia`"),
        ({"configMap": {"name": "gpushare-profiles"}}, "hostPath type check failed", "kubectl describe pod plugin-x -n nvidia"),
        ({"configMap": {"name": "gpushare-profiles"}}, "", "kubectl describe pod plugin-x -n nvidia"),
    ],
)
def test_plugin_without_its_configmap_is_explained_with_kubelets_message(
    live: LiveCluster, ask: Ask, volume: dict[str, Any], message: str, remedy: str
) -> None:
    """Under the rights that `gpushare rbac` prints. Pods elsewhere, and those that mount something else, are not."""
    live.api.allows = allowed_by(list(yaml.safe_load_all(gpushare("rbac").stdout)))
    for name, node in (("plugin-x", "t4-2"), ("plugin-y", "t4-1"), ("other", "t4-2")):
        live.api.add_pod(name, namespace="nvidia", node=node, phase="Pending")
    for name in ("plugin-x", "plugin-y"):
        live.api.edit("pods", name, lambda pod: pod["spec"].update(volumes=[{"name": "a", **volume}]), namespace="nvidia")
    if message:
        live.api.add_event("Pod", "plugin-x", "FailedMount", message, namespace="nvidia", lastTimestamp="2026-11-24T07:00:00Z")
    told = " ".join(ask("explain", "node/t4-2").stdout.split())
    assert "Pod nvidia/plugin-x has not started" in told
    assert (message in told, remedy in told, "plugin-y" in told, "nvidia/other" in told) == (True, True, False, False)


def test_unknown_reason_of_another_release_is_shown_unchanged(live: LiveCluster, ask: Ask) -> None:
    live.add_node("t4-9", "notebooks", reason="Novel", message="something new")
    told = ask("explain", "t4-9").stdout
    assert "Novel: something new" in told
    assert "does not know the reason" in told


def test_pod_pending_for_an_unoffered_resource_is_explained(live: LiveCluster, ask: Ask) -> None:
    live.api.add_pod("waits", namespace="team", limits={"nvidia.com/gpu": 1}, phase="Pending")
    told = ask("explain", "team/waits").stdout
    assert "No node offers nvidia.com/gpu; offered are" in told
    assert "Unschedulable: 0/3 nodes are available" in told


def test_pod_pending_for_a_resource_in_use_is_explained(live: LiveCluster, ask: Ask) -> None:
    for number in range(3):
        live.api.add_pod(f"more-{number}", namespace="team", node="t4-1", limits={SHARED: 1})
    live.api.add_pod("waits", namespace="team", limits={SHARED: 1}, phase="Pending")
    told = ask("explain", "pod/waits", "-n", "team").stdout
    assert f"No node has 1 {SHARED} free" in told
    assert "are not ready: t4-2" in told


def test_killed_pod_is_explained(live: LiveCluster, ask: Ask) -> None:
    live.api.add_event("Pod", "lab-0", "GPUProcessKilled", "used 4000 of 3724 MiB", namespace="team")
    told = ask("explain", "team/lab-0").stdout
    assert "GPUProcessKilled: used 4000 of 3724 MiB" in told
    assert "memory.cap" in told


def test_refused_pod_is_explained_from_its_controllers_events(live: LiveCluster, ask: Ask) -> None:
    live.api.add_event(
        "StatefulSet", "lab", "FailedCreate", 'pods "lab-1" is forbidden: exceeded quota: gpushare', namespace="team"
    )
    told = ask("explain", "team/lab-1").stdout
    assert "exceeded quota" in told
    assert "raised" in told
    missing = ask("explain", "team/other-1")
    assert missing.returncode == 2
    assert "no pod in namespace team" in missing.stderr


def test_pod_without_gpus_is_explained(live: LiveCluster, ask: Ask) -> None:
    assert "requests no GPU resource" in ask("explain", "team/web").stdout


def test_unreadable_objects_are_reported_with_the_answer(live: LiveCluster, ask: Ask) -> None:
    live.api.allows = lambda _, path: "/events" not in path
    done = ask("explain", "t4-2")
    assert done.returncode == 0
    assert "could not read events: 403" in done.stderr
