"""The fence around the node runtime's token, with tokens as kubelet gets them: bound to a pod, and by it to a node."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpushare_node.contract.names import OUR_TAINTS
from tests.e2e.cluster.bundles import NAMESPACE, compiled, namespace, rendered
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.test_admission import INTENT

Try = Callable[..., str]
OWN_POD = "gpushare-training-abcde"
"""Named as those of the pool's DaemonSet: the name says whose slots its token may take."""


@pytest.fixture(scope="module")
def attempt(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Try]:
    """A request with the token of a pod on node-1; what the API server says against it."""
    namespace(cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    namespace(cluster, "physics")
    objects = rendered(compiled(INTENT, tmp_path_factory.mktemp("fence")))
    cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=objects)
    for name, node in ((OWN_POD, "node-1"), ("other", "node-1")):
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "serviceAccountName": "gpushare-node",
                    "nodeName": node,
                    "containers": [{"name": "a", "image": PAUSE, "imagePullPolicy": "Never"}],
                },
            }
        )
    uid = cluster.get("pod", OWN_POD, "--namespace", NAMESPACE)["metadata"]["uid"]
    token = cluster.kubectl(
        "create",
        "token",
        "gpushare-node",
        "--namespace",
        NAMESPACE,
        "--bound-object-kind",
        "Pod",
        "--bound-object-name",
        OWN_POD,
        "--bound-object-uid",
        uid,
    ).strip()

    def attempt(*arguments: str, stdin: str | None = None, with_token: str = token) -> str:
        if arguments[0] in {"PATCH", "POST", "DELETE"}:
            method, path, body, form = arguments
            return cluster.control_plane.request(method, path, body, form, with_token).complaint
        done = cluster.try_kubectl(*arguments, "--token", with_token, stdin=stdin)
        return done.stderr.replace("\n", " ") if done.returncode else ""

    foreign = ("label", "node", "node-1", "example.org/test=x", "--overwrite", "--dry-run=server")
    cluster.wait(lambda: "gpushare-fence" in attempt(*foreign), "the fence is in force")
    yield attempt
    cluster.kubectl("delete", "pod", OWN_POD, "other", "--namespace", NAMESPACE, "--ignore-not-found", "--grace-period=1")
    cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=objects)


def patch(node: str, change: Any, part: str = "", form: str = "merge") -> tuple[str, ...]:
    path = f"/api/v1/nodes/{node}{part}?dryRun=All"
    return ("PATCH", path, json.dumps(change), f"application/{form}-patch+json")


OURS = [
    patch("node-1", {"metadata": {"labels": {"gpushare.dev/pool": "a", "gpushare.dev/profile": "b"}}}),
    patch("node-1", {"metadata": {"labels": {"nvidia.com/device-plugin.config": "mig-12345678-a"}}}),
    patch("node-1", {"metadata": {"labels": {"nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}}}),
    patch("node-1", {"metadata": {"annotations": {"gpushare.dev/released": "x"}}}),
    *(patch("node-1", {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}) for key in OUR_TAINTS),
    patch(
        "node-1",
        {"status": {"conditions": [{"type": "GPUShareReady", "status": "True", "reason": "Ready"}]}},
        "/status",
        form="strategic-merge",
    ),
]

FOREIGN = {
    "another node": patch("node-2", {"metadata": {"labels": {"gpushare.dev/pool": "a"}}}),
    "another node's condition": patch(
        "node-2",
        {"status": {"conditions": [{"type": "GPUShareReady", "status": "True", "reason": "Ready"}]}},
        "/status",
        form="strategic-merge",
    ),
    "a foreign label": patch("node-1", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
    "a foreign label taken away": patch("node-1", {"metadata": {"labels": {"kubernetes.io/arch": None}}}),
    "a label through the status": patch("node-1", {"metadata": {"labels": {"example.org/a": "b"}}}, "/status"),
    "a foreign annotation": patch("node-1", {"metadata": {"annotations": {"example.org/a": "b"}}}),
    "a foreign taint": patch("node-1", {"spec": {"taints": [{"key": "example.org/a", "effect": "NoExecute"}]}}),
    "an autoscaler's other taint": patch(
        "node-1", {"spec": {"taints": [{"key": "startup-taint.cluster-autoscaler.kubernetes.io/a", "effect": "NoSchedule"}]}}
    ),
    "cordoning": patch("node-1", {"spec": {"unschedulable": True}}),
    "an owner": patch("node-1", {"metadata": {"finalizers": ["example.org/a"]}}),
    "a foreign condition": patch(
        "node-1",
        {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "X"}]}},
        "/status",
        form="strategic-merge",
    ),
    "allocatable": patch("node-1", {"status": {"allocatable": {"nvidia.com/gpu": "99"}}}, "/status"),
    "another pod": ("delete", "pod", "other", "--namespace", NAMESPACE, "--dry-run=server"),
}


@pytest.mark.parametrize("arguments", OURS, ids=lambda arguments: arguments[2][:60])
def test_runtime_may_write_its_own_objects(arguments: tuple[str, ...], attempt: Try) -> None:
    assert attempt(*arguments) == ""


@pytest.mark.parametrize("case", FOREIGN)
def test_runtime_may_not_write_foreign_objects(case: str, attempt: Try) -> None:
    said = attempt(*FOREIGN[case])
    assert "ValidatingAdmissionPolicy 'gpushare-fence'" in said
    assert "node runtime" in said


DAEMON_SET = "gpushare-training"


@pytest.fixture(scope="module")
def policy(cluster: Cluster, attempt: Try) -> str:
    """The digest of the policy of the pool's DaemonSet, which says that node-2 fails under it and under an earlier one.

    `attempt` has installed the chart.
    """
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{DAEMON_SET}"
    digest = str(cluster.read(path)["spec"]["template"]["metadata"]["annotations"]["gpushare.dev/policy"])
    conditions = [failure(one, "node-2") for one in (digest, "0f0f0f0f")]
    how = ("--namespace", NAMESPACE, "--subresource=status", "--type=strategic", "--patch")
    cluster.kubectl("patch", "daemonset", DAEMON_SET, *how, json.dumps({"status": {"conditions": conditions}}))
    return digest


def failure(digest: str, node: str) -> dict[str, str]:
    return {"type": f"GPUShareReady.{digest}", "status": "False", "reason": "PartitionFailed", "message": f"node {node}: x"}


def report(attempt: Try, *conditions: dict[str, str], **more: object) -> str:
    """What the API server answers to a write of the DaemonSet's status."""
    body = {"status": {"conditions": list(conditions), **more}}
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{DAEMON_SET}/status?dryRun=All"
    return attempt("PATCH", path, json.dumps(body), "application/strategic-merge-patch+json")


def test_runtime_may_report_failure_only_of_its_own_node(attempt: Try, policy: str) -> None:
    assert report(attempt, failure(policy, "node-1")) == ""
    assert report(attempt, failure(policy, "node-1"), {"type": "GPUShareReady.0f0f0f0f", "$patch": "delete"}) == ""
    for said in (
        failure(policy, "node-2") | {"reason": "Other"},
        failure(policy, "node-1") | {"status": "True"},
        failure(policy, "node-1") | {"type": "Available"},
        failure(policy, "node-11"),
        failure("0e0e0e0e", "node-1"),
        failure(policy, "node-1") | {"message": "node node-1: " + "x" * 1100},
    ):
        assert "of its own node only" in report(attempt, said), said


def test_runtime_may_not_remove_a_failure_report_of_another_node(attempt: Try, policy: str) -> None:
    assert "of its own node only" in report(attempt, {"type": f"GPUShareReady.{policy}", "$patch": "delete"})
    assert report(attempt, {"type": "GPUShareReady.0f0f0f0f", "$patch": "delete"}) == ""


@pytest.mark.parametrize("count", ["numberReady", "numberAvailable", "desiredNumberScheduled", "updatedNumberScheduled"])
def test_runtime_may_not_write_daemonset_status_counts(attempt: Try, policy: str, count: str) -> None:
    assert f"status.{count}" in report(attempt, failure(policy, "node-1"), **{count: 99})


def test_the_runtime_deletes_its_own_pod(attempt: Try) -> None:
    assert attempt("delete", "pod", OWN_POD, "--namespace", NAMESPACE, "--dry-run=server") == ""


@pytest.fixture(scope="module")
def tenants(cluster: Cluster, attempt: Try) -> Iterator[dict[str, str]]:
    """Pods of the platform and of tenants on both nodes: their paths. `guarded` has a budget that allows nothing."""
    places = {
        "own": ("physics", "node-1"),
        "guarded": ("physics", "node-1"),
        "far": ("physics", "node-2"),
        "platform": ("kube-system", "node-1"),
    }
    for name, (where, node) in places.items():
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": where, "labels": {"is": name}},
                "spec": {
                    "nodeName": node,
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "a", "image": PAUSE, "imagePullPolicy": "Never"}],
                },
            }
        )
    metadata = {"name": "guard", "namespace": "physics"}
    cluster.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata,
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"is": "guarded"}}},
        }
    )
    pdb = "/apis/policy/v1/namespaces/physics/poddisruptionbudgets/guard"
    cluster.wait(lambda: (cluster.read(pdb).get("status") or {}).get("currentHealthy") == 1, "the budget counts its pod")
    yield {name: f"/api/v1/namespaces/{where}/pods/{name}" for name, (where, _) in places.items()}
    cluster.kubectl("delete", "pdb", "guard", "--namespace", "physics")
    for name, (where, _) in places.items():
        cluster.kubectl("delete", "pod", name, "--namespace", where, "--ignore-not-found", "--grace-period=1")


def evict(path: str, query: str = "?dryRun=All", **options: object) -> tuple[str, ...]:
    """The runtime's question for a pod's budget, or what would be more than a question."""
    *_, where, _, name = path.split("/")
    metadata = {"name": name, "namespace": where}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
    return ("POST", f"{path}/eviction{query}", json.dumps(body), "application/json")


def delete(path: str, *, is_tried: bool = True, **options: object) -> tuple[str, ...]:
    """Options in the body beat those in the query."""
    tried = {"dryRun": ["All"]} if is_tried else {}
    return ("DELETE", path, json.dumps({**tried, **options}), "application/json")


def test_evictions_are_allowed_only_as_dry_run(tenants: dict[str, str], attempt: Try) -> None:
    assert attempt(*evict(tenants["own"])) == ""
    assert attempt(*evict(tenants["far"])) == "", "which harms nobody"
    for path in (tenants["own"], tenants["far"]):
        assert "only create evictions with dryRun" in attempt(*evict(path, ""))
        assert "only create evictions with dryRun" in attempt(*evict(path, "", dryRun=["All"])), "what the fence sees counts"


def test_eviction_dry_run_respects_the_budget(tenants: dict[str, str], attempt: Try) -> None:
    said = json.loads(attempt(*evict(tenants["guarded"])))
    assert (said["code"], said["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
    other = attempt(*evict(tenants["own"], preconditions={"uid": "somebody-elses"}))
    assert json.loads(other)["code"] == 409


def test_runtime_may_delete_tenant_pods_only_on_its_own_node(cluster: Cluster, tenants: dict[str, str], attempt: Try) -> None:
    assert attempt(*delete(tenants["own"])) == ""
    assert "on its own node" in attempt(*delete(tenants["far"]))
    assert "on its own node" in attempt(*delete(tenants["platform"])), "the platform's pods are nobody's tenants"
    assert json.loads(attempt(*delete(tenants["own"], preconditions={"uid": "somebody-elses"})))["code"] == 409
    many = attempt("DELETE", "/api/v1/namespaces/physics/pods", "{}", "application/json")
    assert json.loads(many)["code"] == 403
    loose = cluster.kubectl("create", "token", "gpushare-node", "--namespace", NAMESPACE).strip()
    assert "on its own node" in attempt(*delete(tenants["own"]), with_token=loose)


def test_evicted_pod_is_deleted(cluster: Cluster, tenants: dict[str, str], attempt: Try) -> None:
    uid = cluster.read(tenants["own"])["metadata"]["uid"]
    assert attempt(*evict(tenants["own"], preconditions={"uid": uid})) == ""
    assert attempt(*delete(tenants["own"], is_tried=False, preconditions={"uid": uid})) == ""
    cluster.wait(lambda: cluster.read(tenants["own"]) is None, "the pod is gone")


def lease(name: str, holder: str) -> str:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"gpushare.dev/pool": "training"}}
    return json.dumps(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {"holderIdentity": holder} if holder else {},
        }
    )


def created(text: str) -> tuple[str, ...]:
    """A Lease's creation, tried out."""
    return ("POST", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases?dryRun=All", text, "application/json")


SLOT, NUMBER = "gpushare-training.0", "gpushare-training.slots"
"""A slot, and what is none: how many there are is in the policy only."""
NO_SLOT = [
    "kube-scheduler",
    "gpushare-training",
    "gpushare-training.node-1",
    "gpushare-training.1.x",
    "gpushare-training.slots.x",
    "1",
]


@pytest.mark.parametrize(
    ("name", "holder"), [(SLOT, "node-2"), (SLOT, ""), (NUMBER, "node-1"), (NUMBER, ""), *((one, "node-1") for one in NO_SLOT)]
)
def test_node_may_not_take_a_slot_for_others_or_another_lease(attempt: Try, name: str, holder: str) -> None:
    assert "rollout slot" in attempt(*created(lease(name, holder)))


def test_node_may_take_renew_and_release_a_slot(cluster: Cluster, attempt: Try) -> None:
    assert attempt(*created(lease(SLOT, "node-1"))) == ""
    for one in (lease(SLOT, "node-1"), lease(NUMBER, "")):
        cluster.kubectl("create", "--filename", "-", stdin=one)
    delete = ("delete", "lease", "--namespace", NAMESPACE, "--dry-run=server")
    try:
        assert attempt("replace", "--dry-run=server", "--filename", "-", stdin=lease(SLOT, "node-1")) == ""
        assert "rollout slot" in attempt("replace", "--dry-run=server", "--filename", "-", stdin=lease(NUMBER, ""))
        assert "rollout slot" in attempt("replace", "--dry-run=server", "--filename", "-", stdin=lease(SLOT, "node-2"))
        assert attempt(*delete, SLOT) == ""
        assert "rollout slot" in attempt(*delete, NUMBER)
    finally:
        cluster.kubectl("delete", "leases", "--namespace", NAMESPACE, "--all")


def test_a_slot_of_another_node_is_taken_over_and_not_deleted(cluster: Cluster, attempt: Try) -> None:
    for one in (lease(SLOT, "node-2"), lease("cert-manager-controller", "somebody")):
        cluster.kubectl("create", "--filename", "-", stdin=one)
    delete = ("delete", "lease", "--namespace", NAMESPACE, "--dry-run=server")
    try:
        assert attempt("replace", "--dry-run=server", "--filename", "-", stdin=lease(SLOT, "node-1")) == ""
        assert "rollout slot" in attempt(*delete, SLOT)
        assert "rollout slot" in attempt(*delete, "cert-manager-controller")
    finally:
        cluster.kubectl("delete", "leases", "--namespace", NAMESPACE, "--all")


def test_token_without_a_pod_may_write_nothing(cluster: Cluster, attempt: Try) -> None:
    loose = cluster.kubectl("create", "token", "gpushare-node", "--namespace", NAMESPACE).strip()
    said = attempt(*patch("node-1", {"metadata": {"labels": {"gpushare.dev/pool": "a"}}}), with_token=loose)
    assert "of no known node" in said


def test_admission_fence_does_not_apply_to_administrators(cluster: Cluster, attempt: Try) -> None:
    foreign = ("label", "node", "node-1", "example.org/test=x", "--overwrite", "--dry-run=server")
    assert cluster.try_kubectl(*foreign).returncode == 0
