"""A condition is believed only while its writer lives and the node offers what the plan says."""

import json
from typing import Any

import pytest

from gpushare.cluster.live import diagnosis
from tests.compiler.cluster.live.clusters import RELEASE, SHARED, LiveCluster
from tests.compiler.cluster.live.conftest import Ask

POD = "gpushare-notebooks-t4-1"


def said(ask: Ask, *arguments: object) -> str:
    return " ".join(ask(*arguments).stdout.split())


def is_ready(ask: Ask) -> bool:
    nodes = json.loads(ask("status", "--format", "json").stdout)["pools"]["notebooks"]["nodes"]
    return bool(next(node for node in nodes if node["name"] == "t4-1")["ready"])


def edit(live: LiveCluster, **status: Any) -> None:
    live.api.edit("pods", POD, lambda pod: pod["status"].update(status), namespace=RELEASE)


def waiting(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "enforce", "state": {"waiting": {"reason": reason}}}]}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    ],
}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (waiting("CrashLoopBackOff"), "CrashLoopBackOff"),
        (waiting("ImagePullBackOff"), "ImagePullBackOff"),
        (UNSCHEDULABLE, "Unschedulable"),
    ],
)
def test_node_is_not_ready_if_its_runtime_is_not_running(
    live: LiveCluster, ask: Ask, status: dict[str, Any], word: str
) -> None:
    edit(live, **status)
    told = said(ask, "explain", "t4-1")
    assert ("RuntimeNotRunning" in told, word in told, is_ready(ask)) == (True, True, False)
    assert "t4-1" in said(ask, "status")


def test_unschedulable_runtime_pod_is_found_by_its_node(live: LiveCluster, ask: Ask) -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["t4-1"]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    live.api.edit("pods", POD, lambda pod: pod["spec"].update(nodeName="", affinity=affinity), namespace=RELEASE)
    edit(live, **UNSCHEDULABLE)
    assert "0/3 nodes are available" in said(ask, "explain", "t4-1")


def test_condition_of_a_node_without_a_runtime_pod_is_not_trusted(live: LiveCluster, ask: Ask) -> None:
    live.api.remove("pods", POD, namespace=RELEASE)
    assert "no pod of the runtime is on the node" in said(ask, "explain", "t4-1")
    live.api.edit("nodes", "t4-1", lambda node: node["metadata"]["labels"].update({"gpushare.dev/runtime": "away"}))
    assert "gpushare.dev/runtime=away keeps the runtime off the node" in said(ask, "explain", "t4-1")


@pytest.mark.parametrize(("value", "instead"), [(None, "none"), ("paused-for-driver-upgrade", "paused-for-driver-upgrade")])
def test_missing_label_selected_by_the_runtime_is_reported(
    live: LiveCluster, ask: Ask, value: str | None, instead: str
) -> None:
    key = "nvidia.com/gpu.deploy.client"
    live.api.remove("pods", POD, namespace=RELEASE)
    live.api.edit(
        "daemonsets",
        "gpushare-notebooks",
        lambda one: one["spec"]["template"]["spec"].update(nodeSelector={key: "true"}),
        namespace=RELEASE,
    )
    if value is not None:
        live.api.edit("nodes", "t4-1", lambda node: node["metadata"]["labels"].update({key: value}))
    told = said(ask, "explain", "t4-1")
    assert f"no pod of the runtime is on the node: it selects the label {key}=true, and the node has {instead}" in told


def test_operator_that_keeps_the_runtime_away_is_named(live: LiveCluster, ask: Ask) -> None:
    """An upgrade of the driver that hangs, for weeks if nobody looks."""
    key, value = "nvidia.com/gpu.deploy.operator-validator", "paused-for-driver-upgrade"
    live.api.remove("pods", POD, namespace=RELEASE)
    live.api.edit("nodes", "t4-1", lambda node: node["metadata"]["labels"].update({key: value}))
    assert f"the operator keeps it away by the label {key}={value}" in said(ask, "explain", "t4-1")


def test_condition_older_than_its_pod_is_reported_as_stale(live: LiveCluster, ask: Ask) -> None:
    def age(node: dict[str, Any]) -> None:
        node["status"]["conditions"][-1]["lastHeartbeatTime"] = "2026-11-23T06:00:00Z"

    live.api.edit("nodes", "t4-1", age)
    assert "the condition of 2026-11-23T06:00:00Z is older than the pod" in said(ask, "explain", "t4-1")


def test_unreadable_runtime_pods_do_not_make_a_node_unready(live: LiveCluster, ask: Ask) -> None:
    live.api.allows = lambda _, path: f"/namespaces/{RELEASE}/pods" not in path
    assert is_ready(ask)


@pytest.mark.parametrize("offer", ["0", "3", "5"])
def test_ready_node_with_other_resources_is_not_ready(live: LiveCluster, ask: Ask, offer: str) -> None:
    live.api.edit("nodes", "t4-1", lambda node: node["status"]["allocatable"].update({SHARED: offer}))
    told = said(ask, "explain", "t4-1")
    assert ("WrongResources" in told, "device plugin" in told, is_ready(ask)) == (True, True, False)


def test_runtime_events_of_a_node_are_shown(live: LiveCluster, ask: Ask) -> None:
    live.api.add_event(
        "Node",
        "t4-1",
        "GPUXid",
        "The driver reports XID 94.",
        namespace="default",
        type="Warning",
        lastTimestamp="2026-11-24T07:00:00Z",
    )
    for name in ("t4-1", "node/t4-1"):
        assert "2026-11-24T07:00:00Z GPUXid: The driver reports XID 94." in said(ask, "explain", name)


@pytest.mark.parametrize(
    ("message", "start"),
    [
        (f"request for '{SHARED}: 2' too large: maximum request size for shared resources is 1", "Request one share"),
        (f"no healthy devices present; cannot allocate unhealthy devices {SHARED}", "The device plugin offers"),
        ("previously allocated devices are no longer healthy; cannot allocate unhealthy devices x", "The device plugin offers"),
        ("detection error: nvml error: GPU is lost", "A GPU has fallen off the bus"),
        ("requested number of devices unavailable for x. Requested: 1, Available: 0", "Kubelet counts devices"),
        ('invalid allocation request for "x": unknown device: "GPU-1"', "Kubelet gave the pod a device"),
        ("cannot allocate unregistered device x", "No device plugin is registered"),
        (
            "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=0",
            "The container runtime knows no such device",
        ),
        (
            "requested device gpu-0 has conflicting configuration with already prepared claim 1-2",
            "Claims with another interval",
        ),
        (
            '"TimeSlicing" is selected as the GPU sharing strategy, but the "TimeSlicingSettings" feature gate is not enabled',
            "The DRA driver on the node lacks a gate",
        ),
        ("container main: Error: the backend is unhealthy", "Read the message above"),
        ("something new", "Read the message above"),
    ],
)
def test_every_admission_error_has_a_remedy(message: str, start: str) -> None:
    assert diagnosis.remedy_of(f"UnexpectedAdmissionError: {message}, which is unexpected").startswith(start)
