"""The fence around the node runtime's token, with tokens as kubelet gets them: bound to a pod, and by it to a node."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.bundles import NAMESPACE, compiled, namespace, rendered
from tests.cluster.cluster import Cluster
from tests.cluster.images import PAUSE
from tests.cluster.test_admission import INTENT

pytestmark = pytest.mark.cluster

Try = Callable[..., str]


@pytest.fixture(scope="module")
def attempt(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Try]:
    """A request with the token of a pod on node-1; what the API server says against it."""
    namespace(cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    namespace(cluster, "physics")
    objects = rendered(compiled(INTENT, tmp_path_factory.mktemp("fence")))
    cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=objects)
    for name, node in (("ours", "node-1"), ("other", "node-1")):
        cluster.apply({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"serviceAccountName": "gpushare-node", "nodeName": node,
                     "containers": [{"name": "a", "image": PAUSE, "imagePullPolicy": "Never"}]},
        })  # fmt: skip
    uid = cluster.get("pod", "ours", "--namespace", NAMESPACE)["metadata"]["uid"]
    token = cluster.kubectl("create", "token", "gpushare-node", "--namespace", NAMESPACE, "--bound-object-kind", "Pod",
                            "--bound-object-name", "ours", "--bound-object-uid", uid).strip()

    def attempt(*arguments: str, stdin: str | None = None, with_token: str = token) -> str:
        if arguments[0] == "PATCH":
            _, path, body, form = arguments
            done = cluster.control_plane.request("PATCH", path, body, form, with_token)
        else:
            done = cluster.try_kubectl(*arguments, "--token", with_token, stdin=stdin)
        return done.stderr.replace("\n", " ") if done.returncode else ""

    foreign = ("label", "node", "node-1", "example.org/test=x", "--overwrite", "--dry-run=server")
    cluster.wait(lambda: "gpushare-fence" in attempt(*foreign), "the fence is in force")
    yield attempt
    cluster.kubectl("delete", "pod", "ours", "other", "--namespace", NAMESPACE, "--ignore-not-found", "--grace-period=1")
    cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=objects)


def patch(node: str, change: Any, part: str = "", form: str = "merge") -> tuple[str, ...]:
    path = f"/api/v1/nodes/{node}{part}?dryRun=All"
    return ("PATCH", path, json.dumps(change), f"application/{form}-patch+json")


OURS = [
    patch("node-1", {"metadata": {"labels": {"gpushare.dev/pool": "a", "gpushare.dev/profile": "b"}}}),
    patch("node-1", {"metadata": {"labels": {"nvidia.com/device-plugin.config": "mig-12345678-a"}}}),
    patch("node-1", {"metadata": {"labels": {"nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}}}),
    patch("node-1", {"metadata": {"annotations": {"gpushare.dev/released": "x"}}}),
    patch("node-1", {"spec": {"taints": [{"key": "gpushare.dev/repartitioning", "effect": "NoSchedule"}]}}),
    patch("node-1", {"status": {"conditions": [{"type": "GPUShareReady", "status": "True", "reason": "Ready"}]}},
          "/status", form="strategic-merge"),
]

FOREIGN = {
    "another node": patch("node-2", {"metadata": {"labels": {"gpushare.dev/pool": "a"}}}),
    "another node's condition": patch(
        "node-2", {"status": {"conditions": [{"type": "GPUShareReady", "status": "True", "reason": "Ready"}]}}, "/status",
        form="strategic-merge"),
    "a foreign label": patch("node-1", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
    "a foreign label taken away": patch("node-1", {"metadata": {"labels": {"kubernetes.io/arch": None}}}),
    "a label through the status": patch("node-1", {"metadata": {"labels": {"example.org/a": "b"}}}, "/status"),
    "a foreign annotation": patch("node-1", {"metadata": {"annotations": {"example.org/a": "b"}}}),
    "a foreign taint": patch("node-1", {"spec": {"taints": [{"key": "example.org/a", "effect": "NoExecute"}]}}),
    "cordoning": patch("node-1", {"spec": {"unschedulable": True}}),
    "an owner": patch("node-1", {"metadata": {"finalizers": ["example.org/a"]}}),
    "a foreign condition": patch("node-1", {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "X"}]}},
                                 "/status", form="strategic-merge"),
    "allocatable": patch("node-1", {"status": {"allocatable": {"nvidia.com/gpu": "99"}}}, "/status"),
    "another pod": ("delete", "pod", "other", "--namespace", NAMESPACE, "--dry-run=server"),
}  # fmt: skip


@pytest.mark.parametrize("arguments", OURS, ids=lambda arguments: arguments[2][:60])
def test_the_runtime_writes_what_is_its_own(arguments: tuple[str, ...], attempt: Try) -> None:
    assert attempt(*arguments) == ""


@pytest.mark.parametrize("case", FOREIGN)
def test_the_runtime_writes_nothing_else(case: str, attempt: Try) -> None:
    said = attempt(*FOREIGN[case])
    assert "ValidatingAdmissionPolicy 'gpushare-fence'" in said
    assert "node runtime" in said


def test_the_runtime_deletes_its_own_pod(attempt: Try) -> None:
    assert attempt("delete", "pod", "ours", "--namespace", NAMESPACE, "--dry-run=server") == ""


def lease(name: str, holder: str) -> str:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"gpushare.dev/pool": "training"}}
    return json.dumps({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
                       "spec": {"holderIdentity": holder}})


def test_a_node_queues_for_itself_alone(cluster: Cluster, attempt: Try) -> None:
    create = ("create", "--dry-run=server", "--filename", "-")
    assert attempt(*create, stdin=lease("gpushare-training.node-1", "node-1")) == ""
    for name, holder in (("gpushare-training.node-1", "node-2"), ("gpushare-training.node-2", "node-1"),
                         ("gpushare-training.node-2", "node-2"), ("kube-scheduler", "node-1")):  # fmt: skip
        assert "own node only" in attempt(*create, stdin=lease(name, holder)), name
    leases = {"own": lease("gpushare-training.node-1", "node-1"), "other": lease("gpushare-training.node-2", "node-2")}
    for one in leases.values():
        cluster.kubectl("create", "--filename", "-", stdin=one)
    try:
        renew = ("replace", "--dry-run=server", "--filename", "-")
        assert attempt(*renew, stdin=leases["own"]) == ""
        assert "own node only" in attempt(*renew, stdin=leases["other"])
        assert "own node only" in attempt(*renew, stdin=lease("gpushare-training.node-2", "node-1"))
    finally:
        cluster.kubectl("delete", "leases", "--namespace", NAMESPACE, "--all")


def test_a_queue_is_swept_and_no_other_lease_is_touched(cluster: Cluster, attempt: Try) -> None:
    foreign = json.loads(lease("cert-manager-controller", "somebody"))
    del foreign["metadata"]["labels"]
    for one in (lease("gpushare-training.node-2", "node-2"), json.dumps(foreign)):
        cluster.kubectl("create", "--filename", "-", stdin=one)
    delete = ("delete", "lease", "--namespace", NAMESPACE, "--dry-run=server")
    try:
        assert attempt(*delete, "gpushare-training.node-2") == ""
        assert "queues only" in attempt(*delete, "cert-manager-controller")
    finally:
        cluster.kubectl("delete", "leases", "--namespace", NAMESPACE, "--all")


def test_a_token_of_no_pod_writes_nothing(cluster: Cluster, attempt: Try) -> None:
    loose = cluster.kubectl("create", "token", "gpushare-node", "--namespace", NAMESPACE).strip()
    said = attempt(*patch("node-1", {"metadata": {"labels": {"gpushare.dev/pool": "a"}}}), with_token=loose)
    assert "of no known node" in said


def test_administrators_are_outside_the_fence(cluster: Cluster, attempt: Try) -> None:
    foreign = ("label", "node", "node-1", "example.org/test=x", "--overwrite", "--dry-run=server")
    assert cluster.try_kubectl(*foreign).returncode == 0
