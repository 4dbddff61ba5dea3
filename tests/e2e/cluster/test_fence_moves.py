"""What the node runtime's token may write of pods: that a tenant's pod on its own node is moved."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.test_fence import Try, attempt  # noqa: F401 - a fixture

OURS = {"type": "DisruptionTarget", "status": "True", "reason": "GPUShareRepartitioning", "message": "moved"}


@pytest.fixture(scope="module")
def pods(cluster: Cluster, attempt: Try) -> Iterator[None]:  # noqa: F811
    for name, space, node in (("mine", "physics", "node-1"), ("far", "physics", "node-2"), ("agent", NAMESPACE, "node-1")):
        container = {"name": "a", "image": PAUSE, "imagePullPolicy": "Never"}
        spec = {"nodeName": node, "containers": [container]}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space}, "spec": spec})
    cluster.wait(lambda: "gpushare-fence" in attempt(*patch("agent", conditions(OURS), space=NAMESPACE)), "it is in force")
    yield
    cluster.kubectl("delete", "pod", "mine", "far", "--namespace", "physics", "--grace-period=1")
    cluster.kubectl("delete", "pod", "agent", "--namespace", NAMESPACE, "--grace-period=1")


def patch(name: str, change: Any, *, space: str = "physics") -> tuple[str, ...]:
    path = f"/api/v1/namespaces/{space}/pods/{name}/status?dryRun=All"
    return ("PATCH", path, json.dumps(change), "application/strategic-merge-patch+json")


def conditions(*some: dict[str, str]) -> dict[str, Any]:
    return {"status": {"conditions": list(some)}}


@pytest.mark.usefixtures("pods")
def test_move_of_a_tenants_pod_may_be_told(attempt: Try) -> None:  # noqa: F811
    assert attempt(*patch("mine", conditions(OURS))) == ""


FOREIGN = {
    "a pod of another node": patch("far", conditions(OURS)),
    "a pod of the platform": patch("agent", conditions(OURS), space=NAMESPACE),
    "another reason": patch("mine", conditions(OURS | {"reason": "PreemptionByScheduler"})),
    "not moved": patch("mine", conditions(OURS | {"status": "False"})),
    "another condition": patch("mine", conditions({"type": "example.org/done", "status": "True"})),
    "another's condition": patch("mine", conditions({"type": "Ready", "status": "False", "reason": "X"})),
    "both": patch("mine", conditions(OURS, {"type": "example.org/gate", "status": "True"})),
    "a condition taken away": patch("mine", conditions({"type": "PodScheduled", "$patch": "delete"})),
    "its phase": patch("mine", {"status": {"phase": "Succeeded"}}),
    "its message": patch("mine", {"status": {"message": "x"}}),
    "its reason": patch("mine", {"status": {"reason": "Evicted", "conditions": [OURS]}}),
    "a label": patch("mine", {"metadata": {"labels": {"app": "x"}}} | conditions(OURS)),
    "an annotation": patch("mine", {"metadata": {"annotations": {"app": "x"}}} | conditions(OURS)),
    "a finalizer": patch("mine", {"metadata": {"finalizers": ["example.org/a"]}} | conditions(OURS)),
}


@pytest.mark.usefixtures("pods")
@pytest.mark.parametrize("case", FOREIGN)
def test_nothing_else_of_pods_may_be_written(case: str, attempt: Try) -> None:  # noqa: F811
    assert "ValidatingAdmissionPolicy 'gpushare-fence'" in attempt(*FOREIGN[case])
