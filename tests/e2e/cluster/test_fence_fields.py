"""Every field that our tokens could write, before a real API server: what the fence does not name is refused to each."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.e2e.cluster import proxy
from tests.e2e.cluster.bundles import NAMESPACE, compiled, namespace, rendered
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.pods import Object
from tests.e2e.cluster.proxy import Answer

INTENT = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: fence}
spec:
  gitops: {argocd: {repoURL: "https://git.example.org/gpu.git", path: bundle}}
  pools:
    notebooks:
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}}
      gpusPerNode: 4
      sharing: {mode: time-slicing, replicas: 4}
    training:
      card: a100-sxm4-40gb
      nodes: {matchLabels: {example.org/gpu: a100}}
      gpusPerNode: 4
      sharing: {mode: mig, layout: {1g.5gb: 7}}
      rollout: {maxUnavailable: 3}
"""
EXTRA = "Impersonate-Extra-" + quote("authentication.kubernetes.io/", safe="")
NODE, OTHER = "/api/v1/nodes/node-1", "/api/v1/nodes/node-2"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
EVENTS = "/api/v1/namespaces/default/events"
PATCH, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


def identity(account: str, pod: str, node: str = "node-1", uid: str = "11111111-2222-3333-4444-555555555555") -> dict[str, str]:
    """The headers of a request with a token as kubelet gets it for the pod."""
    return {
        "Impersonate-User": f"system:serviceaccount:{NAMESPACE}:{account}",
        f"{EXTRA}node-name": node,
        f"{EXTRA}pod-name": pod,
        f"{EXTRA}pod-uid": uid,
    }


RUNTIME = identity("gpushare-node", "gpushare-training-abcde")
RELEASE = identity("gpushare-node", "gpushare-release-abcde")
JOB = identity("gpushare-uninstall", "gpushare-uninstall-abcde")
OUR_JOB = "gpushare-uninstall-abcde/11111111-2222-3333-4444-555555555555"

STATUS: dict[str, Any] = {
    "addresses": [{"type": "InternalIP", "address": "192.0.2.99"}],
    "allocatable": {"nvidia.com/gpu": "99"},
    "capacity": {"nvidia.com/gpu": "99"},
    "config": {"error": "x"},
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 99}},
    "declaredFeatures": ["AFeature"],
    "features": {"supplementalGroupsPolicy": True},
    "images": [{"names": ["example.org/a:1"], "sizeBytes": 1}],
    "nodeInfo": {"kubeletVersion": "v1.0.0"},
    "phase": "Terminated",
    "runtimeHandlers": [{"name": "nvidia"}],
    "volumesAttached": [{"name": "a", "devicePath": "b"}],
    "volumesInUse": ["a"],
}
"""Another value of every field of a node's status but the conditions."""
SPEC: dict[str, Any] = {
    "configSource": {"configMap": {"name": "a", "namespace": "b", "kubeletConfigKey": "c"}},
    "externalID": "a",
    "podCIDR": "10.9.0.0/24",
    "podCIDRs": ["10.9.0.0/24"],
    "providerID": "example://a",
    "unschedulable": True,
}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-2", "uid": "9"}

Attempt = Callable[..., Answer]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Object]]:
    """The chart's objects, and those that Argo CD keeps beside it."""
    bundle = compiled(INTENT, tmp_path_factory.mktemp("fence"))
    rights = [yaml.safe_load(file.read_text()) for file in sorted((bundle / "argocd/rights").glob("*.yaml"))]
    return rendered(bundle, "--skip-tests"), rights


@pytest.fixture(scope="module")
def server(api: Cluster, objects: tuple[str, list[Object]]) -> Iterator[Cluster]:
    """Two nodes as kubelet describes them, and the chart."""
    namespace(api, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    namespace(api, "physics")
    for name in ("node-1", "node-2"):
        annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true", "gpushare.dev/retry": "now"}
        labels = {"kubernetes.io/hostname": name, "gpushare.dev/pool": "training", "gpushare.dev/runtime": "here"}
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        api.write("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        status = {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}, "conditions": conditions}
        api.write("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, PATCH)
    api.kubectl("apply", "--server-side", "--filename", "-", stdin=objects[0])
    yield api
    api.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=objects[0])
    api.kubectl("delete", "node", "node-1", "node-2")
    api.kubectl("delete", "leases", "--namespace", NAMESPACE, "--all")


@pytest.fixture(scope="module")
def attempt(server: Cluster) -> Attempt:
    """A request of an identity, tried out."""

    def attempt(method: str, path: str, body: Any = None, form: str = PATCH, who: dict[str, str] = RUNTIME) -> Answer:
        text = None if body is None else json.dumps(body)
        form = "application/json" if method == "POST" else form
        return proxy.send(server.control_plane.proxy, method, f"{path}?dryRun=All", text, form, headers=who)

    foreign = {"metadata": {"labels": {"example.org/a": "b"}}}
    server.wait(lambda: "gpushare-fence" in attempt("PATCH", NODE, foreign).complaint, "the fence is in force")
    return attempt


@contextmanager
def granted(server: Cluster) -> Iterator[None]:
    """While the uninstall Job has its rights, and all others: Helm makes hooks, which nothing here runs."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "gpushare-uninstall", "namespace": NAMESPACE}
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "job"}, "roleRef": role, "subjects": [subject]}
    server.apply({"apiVersion": "rbac.authorization.k8s.io/v1", **binding})
    try:
        yield
    finally:
        server.kubectl("delete", "clusterrolebinding", "job")


def assert_refused(answer: Answer) -> None:
    assert "ValidatingAdmissionPolicy 'gpushare-fence" in answer.complaint, answer


def test_every_field_of_a_node_is_tried_here(server: Cluster) -> None:
    """So that no later version has one of which nobody knows whether it is refused."""
    known = server.read("/openapi/v3/api/v1")["components"]["schemas"]
    assert known["io.k8s.api.core.v1.NodeStatus"]["properties"].keys() <= {*STATUS, "conditions"}
    assert known["io.k8s.api.core.v1.NodeSpec"]["properties"].keys() <= {*SPEC, "taints"}


@pytest.mark.parametrize("field", STATUS)
def test_no_field_of_a_nodes_status_but_the_condition_is_written(field: str, server: Cluster, attempt: Attempt) -> None:
    assert_kept("status", field, attempt("PATCH", f"{NODE}/status", {"status": {field: STATUS[field]}}), server)


@pytest.mark.parametrize("field", SPEC)
def test_no_field_of_a_nodes_spec_but_the_taints_is_written(field: str, server: Cluster, attempt: Attempt) -> None:
    assert_kept("spec", field, attempt("PATCH", NODE, {"spec": {field: SPEC[field]}}), server)


def assert_kept(part: str, field: str, answer: Answer, server: Cluster) -> None:
    """Refused by the fence or, if nobody may change it, by the API server, which drops fields without their feature gate."""
    if answer.status == 200:
        assert json.loads(answer.body)[part].get(field) == server.read(NODE)[part].get(field)
    else:
        assert answer.status == 422 or f"{part}.{field}" in answer.complaint


@pytest.mark.parametrize("part", ["", "/status"])
@pytest.mark.parametrize(
    "metadata",
    [
        {"finalizers": ["example.org/a"]},
        {"ownerReferences": [OWNER]},
        {"labels": {"example.org/a": "b"}},
        {"labels": {"kubernetes.io/hostname": None}},
        {"labels": {"gpushare.dev/runtime": "away"}},
        {"labels": {"gpushare.dev/anything": "b"}},
        {"labels": {"nvidia.com/gpu.deploy.driver": "false"}},
        {"labels": {"nvidia.com/mig.config.state": "success"}},
        {"annotations": {"example.org/a": "b"}},
        {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": None}},
        {"annotations": {"gpushare.dev/release": OUR_JOB}},
        {"annotations": {"gpushare.dev/retry": "later"}},
        {"annotations": {"gpushare.dev/would": "x"}},
        {"annotations": {"gpushare.dev/anything": "x"}},
    ],
    ids=str,
)
def test_no_metadata_of_a_node_but_our_own_is_written(part: str, metadata: Object, attempt: Attempt) -> None:
    assert_refused(attempt("PATCH", NODE + part, {"metadata": metadata}))


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"gpushare.dev/pool": "training", "gpushare.dev/profile": "a", "gpushare.dev/backend": "dra"}}},
        {"metadata": {"labels": {"gpushare.dev/pool": None}}},
        {"metadata": {"labels": {"nvidia.com/gpu.deploy.device-plugin": "false"}}},
        {"metadata": {"annotations": {"gpushare.dev/retry": None, "gpushare.dev/released": "x"}}},
        {"spec": {"taints": [{"key": "gpushare.dev/not-ready", "effect": "NoSchedule"}]}},
    ],
    ids=str,
)
def test_what_the_runtime_needs_is_allowed(change: Object, attempt: Attempt) -> None:
    assert attempt("PATCH", NODE, change).status == 200


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "gpushare.dev/not-ready", "effect": "NoExecute"},
        {"key": "gpushare.dev/repartitioning", "effect": "PreferNoSchedule"},
        {"key": "amd-dcm", "value": "up", "effect": "NoExecute"},
        {"key": "example.org/a", "effect": "NoSchedule"},
    ],
    ids=str,
)
def test_no_taint_but_ours_with_its_effect_is_set(taint: Object, attempt: Attempt) -> None:
    assert_refused(attempt("PATCH", NODE, {"spec": {"taints": [taint]}}))


@pytest.mark.parametrize("kind", ["Ready", "DiskPressure", "GPUShareReady.x", "gpushareready"])
def test_no_condition_but_ours_is_written(kind: str, attempt: Attempt) -> None:
    def said(name: str) -> Object:
        return {"status": {"conditions": [{"type": name, "status": "False", "reason": "X"}]}}

    assert_refused(attempt("PATCH", f"{NODE}/status", said(kind), STRATEGIC))
    assert attempt("PATCH", f"{NODE}/status", said("GPUShareReady"), STRATEGIC).status == 200
    both = said("GPUShareReady")["status"]["conditions"] + said(kind)["status"]["conditions"]
    assert_refused(attempt("PATCH", f"{NODE}/status", {"status": {"conditions": both}}, STRATEGIC))


# --- rollout slots ---


def lease(name: str, holder: str = "node-1", pool: str = "training", **metadata: Any) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name.partition(".")[0], "uid": "9"}
    labels = {"gpushare.dev/pool": pool}
    named = {"name": name, "labels": labels, "ownerReferences": [owner], **metadata}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 900, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": named, "spec": spec}


@pytest.mark.parametrize(
    ("name", "who", "is_allowed"),
    [
        ("gpushare-training.0", RUNTIME, True),
        ("gpushare-training.2", RUNTIME, True),
        ("gpushare-training.3", RUNTIME, False),
        ("gpushare-training.02", RUNTIME, False),
        ("gpushare-training.99999999999999999999", RUNTIME, False),
        ("gpushare-notebooks.0", RUNTIME, False),
        ("gpushare-release.0", RUNTIME, False),
        ("gpushare-trainingx0", RUNTIME, False),
        ("gpushare-notebooks.0", identity("gpushare-node", "gpushare-notebooks-abcde"), True),
        ("gpushare-notebooks.1", identity("gpushare-node", "gpushare-notebooks-abcde"), False),
        ("gpushare-release.0", RELEASE, True),
        ("gpushare-release.0", identity("gpushare-node", "amd-gpushare-release-abcde"), True),
        ("gpushare-training.0", RELEASE, False),
        ("gpushare-training.0", identity("gpushare-node", "debug-abcde"), False),
        ("gpushare-training.0", identity("gpushare-node", ""), False),
        ("gpushare-training.0", identity("gpushare-node", "gpushare-training-abcde", node=""), False),
    ],
)
def test_slots_are_those_of_the_own_pool_below_its_limit(
    name: str, who: dict[str, str], is_allowed: bool, attempt: Attempt
) -> None:
    answer = attempt("POST", LEASES, lease(name), who=who)
    assert (answer.status == 201) == is_allowed, answer
    assert is_allowed or "rollout slot" in answer.complaint


@pytest.mark.parametrize(
    "metadata",
    [
        {"finalizers": ["example.org/a"]},
        {"annotations": {"a": "b"}},
        {"labels": {"gpushare.dev/pool": "training", "a": "b"}},
        {"ownerReferences": [OWNER]},
    ],
    ids=str,
)
def test_a_slot_has_nothing_else(metadata: Object, attempt: Attempt) -> None:
    assert_refused(attempt("POST", LEASES, lease("gpushare-training.0", **metadata)))


def test_a_slot_above_a_reduced_limit_stays_its_holders(server: Cluster, attempt: Attempt) -> None:
    for number, holder in ((7, "node-1"), (8, "node-2"), (1, "node-2")):
        server.write("POST", LEASES, lease(f"gpushare-training.{number}", holder, ownerReferences=[]))

    def renewed(name: str, **spec: Any) -> Answer:
        there = server.read(f"{LEASES}/{name}")
        return attempt("PUT", f"{LEASES}/{name}", {**there, "spec": {**there["spec"], **spec}}, "application/json")

    assert renewed("gpushare-training.7", renewTime="2026-01-01T00:00:01.000000Z").status == 200
    assert attempt("DELETE", f"{LEASES}/gpushare-training.7").status == 200
    assert "rollout slot" in renewed("gpushare-training.8", holderIdentity="node-1").complaint
    assert "rollout slot" in attempt("DELETE", f"{LEASES}/gpushare-training.8").complaint
    assert renewed("gpushare-training.1", holderIdentity="node-1").status == 200, "it may have expired"
    assert_refused(renewed("gpushare-training.7", leaseTransitions=5))


# --- Events ---


def event(**changes: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "node-1.0123456789abcdef", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"},
        "type": "Warning",
        "reason": "OverCap",
        "message": "x",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "gpushare-node", "host": "node-1"},
        "reportingComponent": "gpushare-node",
        "reportingInstance": "node-1",
        **changes,
    }


FOREIGN_EVENTS: dict[str, Object] = {
    "another program's": {"source": {"component": "kubelet", "host": "node-1"}, "reportingComponent": "kubelet"},
    "another source": {"source": {"component": "kubelet", "host": "node-1"}},
    "another node's": {"source": {"component": "gpushare-node", "host": "node-2"}, "reportingInstance": "node-2"},
    "about another node": {"involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "node-2"}},
    "about something else": {"involvedObject": {"apiVersion": "v1", "kind": "Secret", "name": "a", "namespace": "default"}},
    "a name of others": {"metadata": {"name": "node-1.16a3d5", "namespace": "default"}},
    "a finalizer": {"metadata": {"name": "node-1.0123456789abcdef", "namespace": "default", "finalizers": ["a.example.org/a"]}},
    "a label": {"metadata": {"name": "node-1.0123456789abcdef", "namespace": "default", "labels": {"a": "b"}}},
    "an action": {"action": "x"},
    "a relation": {"related": {"kind": "Pod", "name": "a", "namespace": "kube-system"}},
}


@pytest.mark.parametrize("case", FOREIGN_EVENTS)
def test_no_event_but_our_own_is_created(case: str, attempt: Attempt) -> None:
    assert_refused(attempt("POST", EVENTS, event(**FOREIGN_EVENTS[case])))


def test_only_count_and_time_of_our_own_event_are_written(server: Cluster, attempt: Attempt) -> None:
    assert attempt("POST", EVENTS, event()).status == 201
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "physics", "uid": "9"}
    of_pod = event(involvedObject=pod, metadata={"name": "a.0123456789abcdef", "namespace": "physics"})
    assert attempt("POST", "/api/v1/namespaces/physics/events", of_pod).status == 201
    names = {"own": "node-1.0123456789abcdef", "kubelet": "node-1.1111111111111111", "other": "node-1.2222222222222222"}
    others = {"own": {}, "kubelet": FOREIGN_EVENTS["another program's"], "other": FOREIGN_EVENTS["another node's"]}
    for which, name in names.items():
        server.write("POST", EVENTS, event(**{"metadata": {"name": name, "namespace": "default"}, **others[which]}))
    again = {"count": 2, "lastTimestamp": "2026-01-01T01:00:00Z"}
    assert attempt("PATCH", f"{EVENTS}/{names['own']}", again).status == 200
    for which in ("kubelet", "other"):
        assert_refused(attempt("PATCH", f"{EVENTS}/{names[which]}", again))
    # Nor is another's made our own first.
    ours = {key: event()[key] for key in ("source", "reportingComponent", "reportingInstance")}
    assert_refused(attempt("PATCH", f"{EVENTS}/{names['kubelet']}", ours))
    for change in ({"message": "y"}, {"reason": "y"}, {"type": "Normal"}, {"metadata": {"annotations": {"a": "b"}}}):
        assert_refused(attempt("PATCH", f"{EVENTS}/{names['own']}", change))


# --- the uninstall Job, and what releases nodes under Argo CD ---


def test_uninstall_job_only_asks_nodes_in_its_own_name(server: Cluster, attempt: Attempt) -> None:
    for node in (NODE, OTHER):
        asked = {"gpushare.dev/release": OUR_JOB, "gpushare.dev/released": None}
        with granted(server):
            assert attempt("PATCH", node, {"metadata": {"annotations": asked}}, who=JOB).status == 200


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {"gpushare.dev/release": "gpushare-uninstall-abcde/another"}}},
        {"metadata": {"annotations": {"gpushare.dev/released": "x"}}},
        {"metadata": {"annotations": {"gpushare.dev/retry": None}}},
        {"metadata": {"annotations": {"example.org/a": "b"}}},
        {"metadata": {"labels": {"gpushare.dev/pool": "x"}}},
        {"metadata": {"labels": {"example.org/a": "b"}}},
        {"metadata": {"finalizers": ["example.org/a"]}},
        {"metadata": {"ownerReferences": [OWNER]}},
        {"spec": {"taints": [{"key": "gpushare.dev/not-ready", "effect": "NoSchedule"}]}},
        {"spec": {"unschedulable": True}},
    ],
    ids=str,
)
def test_uninstall_job_writes_nothing_else_of_nodes(change: Object, server: Cluster, attempt: Attempt) -> None:
    with granted(server):
        assert_refused(attempt("PATCH", OTHER, change, who=JOB))


def test_uninstall_job_writes_nothing_of_what_the_runtime_does(server: Cluster, attempt: Attempt) -> None:
    with granted(server):
        own_event = event(metadata={"name": "node-1.fedcba9876543210", "namespace": "default"})
        assert_refused(attempt("POST", EVENTS, own_event, who=JOB))
        for name in ("gpushare-training.0", "gpushare-release.0", "gpushare-uninstall.0"):
            assert_refused(attempt("POST", LEASES, lease(name), who=JOB))
        condition = {"type": "GPUShareReady", "status": "True", "reason": "Ready"}
        assert_refused(attempt("PATCH", f"{NODE}/status", {"status": {"conditions": [condition]}}, STRATEGIC, JOB))


def test_uninstall_job_deletes_only_what_is_the_charts(server: Cluster, attempt: Attempt) -> None:
    foreign: Object = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "storage-agent", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "example.org/a"}]}},
        },
    }
    server.apply(foreign)
    with granted(server):
        assert attempt("DELETE", f"{DAEMON_SETS}/gpushare-training", who=JOB).status == 200
        assert_refused(attempt("DELETE", f"{DAEMON_SETS}/storage-agent", who=JOB))
    server.kubectl("delete", "daemonset", "storage-agent", "--namespace", NAMESPACE)


def test_what_releases_nodes_after_argo_cd_has_deleted_the_chart_is_fenced_too(
    server: Cluster, objects: tuple[str, list[Object]], attempt: Attempt
) -> None:
    """The chart's own fence is gone by then."""
    text = [one for one in yaml.safe_load_all(objects[0]) if one and one["metadata"]["name"] == "gpushare-fence"]
    fence = json.dumps({"apiVersion": "v1", "kind": "List", "items": text})
    own = {"metadata": {"labels": {"gpushare.dev/pool": None}}}
    foreign = {"metadata": {"labels": {"example.org/a": "b"}}}
    server.kubectl("delete", "--filename", "-", stdin=fence)
    server.apply(*objects[1])
    try:
        with granted(server):
            server.wait(lambda: "uninstall" in attempt("PATCH", NODE, foreign, who=JOB).complaint, "its fence is in force")
            server.wait(lambda: attempt("PATCH", NODE, own, who=JOB).status == 200, "the chart's fence is gone")
            assert_refused(attempt("PATCH", OTHER, own, who=JOB))
            assert_refused(attempt("PATCH", NODE, {"metadata": {"annotations": {"gpushare.dev/release": OUR_JOB}}}, who=JOB))
            assert attempt("POST", LEASES, lease("gpushare-release.0"), who=JOB).status == 201
            assert_refused(attempt("POST", LEASES, lease("gpushare-training.0"), who=JOB))
            own_event = event(metadata={"name": "node-1.fedcba9876543210", "namespace": "default"})
            assert attempt("POST", EVENTS, own_event, who=JOB).status == 201
            assert_refused(attempt("POST", EVENTS, event(**FOREIGN_EVENTS["another program's"]), who=JOB))
            assert_refused(attempt("DELETE", f"{DAEMON_SETS}/gpushare-training", who=JOB))
    finally:
        server.kubectl("delete", "--filename", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects[1]}))
        server.kubectl("apply", "--server-side", "--filename", "-", stdin=fence)
        server.wait(lambda: "gpushare-fence" in attempt("PATCH", NODE, foreign).complaint, "the fence is in force again")
