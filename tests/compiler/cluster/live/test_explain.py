"""`gpushare explain`: reasons without a cluster; nodes and pods of a running one."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare_node.contract.reasons import REASONS
from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import SHARED, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.dra_cluster import add_slice, device
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


def _update(part: str, values: dict[str, Any], pod: dict[str, Any]) -> None:
    pod[part].update(values)


def told_of(ask: Ask, subject: str) -> str:
    return " ".join(ask("explain", subject).stdout.split())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metadata": {"deletionTimestamp": "2026-11-23T07:00:00Z"}}, "was to have ended by 2026-11-23T07:00:00Z"),
        (
            {"metadata": {"deletionTimestamp": "2026-11-23T07:00:00Z", "finalizers": ["example.org/volume"]}},
            "the finalizers example.org/volume keep it",
        ),
        (
            {
                "status": {
                    "containerStatuses": [
                        {
                            "name": "main",
                            "state": {"running": {}},
                            "allocatedResourcesStatus": [
                                {"name": SHARED, "resources": [{"resourceID": "GPU-7::1", "health": "Unhealthy"}]}
                            ],
                        }
                    ]
                }
            },
            f"Unhealthy device GPU-7::1 of {SHARED} What to do: The plugin or the driver reports a fault",
        ),
        (
            {"status": {"containerStatuses": [{"name": "main", "ready": False, "state": {"running": {}}}]}},
            "container main: runs and is not ready What to do: Its readiness probe fails",
        ),
        (
            {
                "status": {
                    "phase": "Failed",
                    "conditions": [
                        {"type": "DisruptionTarget", "status": "True", "reason": "GPUShareRepartitioning", "message": "m"}
                    ],
                }
            },
            "GPUShareRepartitioning: m What to do: The node's layout changes.",
        ),
        (
            {"status": {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected"}},
            "What to do: Kubelet's topology manager found no NUMA node",
        ),
        ({"status": {"phase": "Failed", "containerStatuses": []}}, "The pod is Failed, and nothing in its status says why."),
        ({"status": {"phase": "Unknown", "containerStatuses": []}}, "The pod is Unknown, and nothing in its status says why."),
    ],
)
def test_a_pod_that_does_not_run_well_is_never_without_problems(
    live: LiveCluster, ask: Ask, changes: dict[str, dict[str, Any]], expected: str
) -> None:
    assert "No problems found" in told_of(ask, "team/lab-0")
    for part, values in changes.items():
        live.api.edit("pods", "lab-0", partial(_update, part, values), namespace="team")
    assert expected in told_of(ask, "team/lab-0")


@pytest.mark.parametrize("health", ["Healthy", "Unknown"])
def test_a_device_of_which_nobody_reports_a_fault_is_no_problem(live: LiveCluster, ask: Ask, health: str) -> None:
    status = [{"name": SHARED, "resources": [{"resourceID": "GPU-7::1", "health": health}]}]
    live.api.edit(
        "pods",
        "lab-0",
        lambda pod: pod["status"]["containerStatuses"][0].update(allocatedResourcesStatus=status),
        namespace="team",
    )
    assert "No problems found" in told_of(ask, "team/lab-0")


@pytest.mark.parametrize(
    ("kind", "status", "is_fault"),
    [
        ("SysLogsXIDError", "True", True),
        ("DiskPressure", "True", True),
        ("AcceleratedHardwareReady", "False", True),
        ("AcceleratedHardwareReady", "True", False),
        ("KernelDeadlock", "False", False),
        ("EtcdIsVoter", "True", False),
    ],
)
def test_what_other_programs_found_is_shown_and_their_cordon_is_not_undone(
    live: LiveCluster, ask: Ask, kind: str, status: str, *, is_fault: bool
) -> None:
    one = {"type": kind, "status": status, "reason": "Why", "message": "fallen off the bus."}
    live.api.edit("nodes", "t4-1", lambda node: node["status"]["conditions"].append(one))
    live.api.edit("nodes", "t4-1", lambda node: node["spec"].update(unschedulable=True))
    told = told_of(ask, "t4-1")
    assert (f"Condition {kind} is {status}: Why: fallen off the bus." in told) is is_fault
    assert ("kubectl uncordon t4-1" in told) is not is_fault


def test_taints_of_others_are_shown(live: LiveCluster, ask: Ask) -> None:
    taints = [
        {"key": "example.org/quarantine", "effect": "NoExecute"},
        {"key": "gpushare.dev/not-ready", "effect": "NoSchedule"},
    ]
    live.api.edit("nodes", "t4-1", lambda node: node["spec"].update(taints=taints))
    told = told_of(ask, "t4-1")
    assert "taint example.org/quarantine:NoExecute" in told
    assert "gpushare.dev/not-ready" not in told


def waiting(live: LiveCluster, owner: str = "") -> None:
    made = {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True} if owner else None
    live.api.add_pod("waits", namespace="team", limits={SHARED: 1}, phase="Pending", owner=made)


@pytest.mark.parametrize(
    ("holder", "is_same"), [("web-5c9f7d", True), ("web-7b6d8f", False), ("web-api-5c9f7d", False), ("other-5c9f7d", False)]
)
def test_a_rolling_update_that_waits_for_itself_is_told_the_way_out(
    live: LiveCluster, ask: Ask, holder: str, *, is_same: bool
) -> None:
    owner = {"kind": "ReplicaSet", "name": holder, "uid": "1", "controller": True}
    for number in range(8):
        live.api.add_pod(f"old-{number}", namespace="team", node=f"t4-{number % 2 + 1}", limits={SHARED: 1}, owner=owner)
    waiting(live, "web-7b6d8f")
    told = told_of(ask, "team/waits")
    assert f"No node has 1 {SHARED} free" in told
    assert (f"({'ReplicaSet/' + holder}): write `strategy: {{type: Recreate}}`" in told) is is_same


def test_a_pending_pod_without_a_word_of_the_scheduler_is_told_what_is_free(live: LiveCluster, ask: Ask) -> None:
    waiting(live)
    live.api.edit("pods", "waits", lambda pod: pod["status"].pop("conditions", None), namespace="team")
    assert f"{SHARED} free; no condition of the pod says why it waits." in told_of(ask, "team/waits")


def test_a_driver_beside_the_plugin_is_seen_where_no_pool_is_of_it(live: LiveCluster, ask: Ask) -> None:
    add_slice(live.api, "t4-1", [device("gpu-0", shared=False)])
    assert "BackEndRunning" in told_of(ask, "t4-1")
    assert "No problems found" not in told_of(ask, "team/lab-0")
