"""The two admission policies, judged by a real API server: what they refuse, what they say, and what they let through."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.bundles import NAMESPACE, compiled, namespace, rendered
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

INTENT = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: admission}
spec:
  pools:
    notebooks:
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}}
      gpusPerNode: 4
      sharing: {mode: time-slicing, replicas: 4}
      namespaces: [course]
    serving:
      card: l4
      nodes: {matchLabels: {example.org/gpu: l4}}
      gpusPerNode: 1
      sharing: {mode: mps, replicas: 4}
    training:
      card: a100-sxm4-40gb
      nodes: {matchLabels: {example.org/gpu: a100}}
      gpusPerNode: 4
      sharing: {mode: mig, layout: {1g.5gb: 7}}
    whole:
      card: v100-pcie-32gb
      nodes: {matchLabels: {example.org/gpu: v100}}
      gpusPerNode: 4
      sharing: {mode: exclusive}
  quotas:
    physics: {whole: 4, serving: 2}
"""

SHARED, SLICE, GPU, POOL = "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu", "gpushare.dev/pool"


@pytest.fixture(scope="module")
def policies(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster with the chart's objects, and namespaces: tenants that the intent names, one that it does not, one exempt."""
    namespace(cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    for name in ("course", "physics", "strangers"):
        namespace(cluster, name)
    namespace(cluster, "agents", **{"gpushare.dev/admission": "exempt"})
    objects = rendered(compiled(INTENT, tmp_path_factory.mktemp("admission")))
    cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=objects)
    # The API server takes a moment to put policies into force: a pod that must be refused tells when.
    cluster.wait(lambda: refusal(cluster, pod(limits=({GPU: 1},))), "the policy on pods is in force")
    yield cluster
    cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=objects)


def pod(
    limits: tuple[Object, ...] = ({},), *, where: str = "physics", choose: str = "", container: Object | None = None,
    **spec: Any,
) -> Object:
    """A pod with a container for each of the limits."""
    containers = [
        {"name": f"c{number}", "image": "example.org/job", "resources": {"limits": limit}, **(container or {})}
        for number, limit in enumerate(limits)
    ]
    selector = {"nodeSelector": {POOL: choose}} if choose else {}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "job-", "namespace": where},
        "spec": {"containers": containers, **selector, **spec},
    }  # fmt: skip


def refusal(cluster: Cluster, item: Object) -> str:
    """What the API server says against it; empty if nothing."""
    done = cluster.try_kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(item))
    return done.stderr.replace("\n", " ") if done.returncode else ""


def affinity(*terms: Object) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def term(operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": POOL, "operator": operator, **({"values": list(values)} if values else {})}]}


ENV = "NVIDIA_VISIBLE_DEVICES"
PRIVILEGED = {"securityContext": {"privileged": True}}

REFUSED: dict[str, tuple[Object, str]] = {
    "two shares": (pod(({SHARED: 2},), choose="serving"), "Write 1"),
    "a share and a slice": (pod(({SHARED: 1, SLICE: 1},)), "write one of them"),
    "a whole GPU of any pool": (pod(({GPU: 1},)), "nodeSelector: {gpushare.dev/pool: POOL}"),
    "a share that means two things": (pod(({SHARED: 1},), where="course"), "nodeSelector: {gpushare.dev/pool: POOL}"),
    "a pool of others": (pod(({SHARED: 1},), choose="notebooks"), "namespace physics may not use pool notebooks"),
    "a pool of others by affinity": (pod(({SHARED: 1},), **affinity(term("In", "notebooks"))), "may not use pool notebooks"),
    "one of two pools by affinity": (pod(({SHARED: 1},), **affinity(term("In", "serving", "notebooks"))), "may not use pool"),
    "a choice in one term only": (pod(({GPU: 1},), **affinity(term("In", "whole"), {"matchExpressions": [
        {"key": "a", "operator": "Exists"}]})), "which pool is meant"),
    "all devices": (pod(container={"env": [{"name": ENV, "value": "all"}]}), "ask for a GPU resource"),
    "all devices from elsewhere": (pod(container={"env": [{"name": ENV, "valueFrom": {"configMapKeyRef": {
        "name": "a", "key": "b"}}}]}), "ask for a GPU resource"),
    "all devices in an init container": (pod(initContainers=[{"name": "i", "image": "example.org/job", "env": [
        {"name": ENV, "value": "0"}]}]), "ask for a GPU resource"),
    "devices by mount": (pod(container={"volumeMounts": [{"name": "v", "mountPath": "/var/run/nvidia-container-devices/all"}]},
                             volumes=[{"name": "v", "emptyDir": {}}]), "were not allocated"),
    "the runtime class without a GPU": (pod(runtimeClassName="nvidia"), "runtime class"),
    "privileged in a tenant's namespace": (pod(container=PRIVILEGED), "gpushare.dev/admission"),
    "privileged with a GPU anywhere": (pod(({SLICE: 1},), where="strangers", container=PRIVILEGED), "gpushare.dev/admission"),
    "the host's devices": (pod(volumes=[{"name": "v", "hostPath": {"path": "/dev"}}]), "the host's /dev"),
}

ALLOWED: dict[str, Object] = {
    "no GPU": pod(where="strangers"),
    "one share": pod(({SHARED: 1},), choose="serving"),
    "a share in each of two containers": pod(({SHARED: 1}, {SHARED: 1}), choose="serving"),
    "a share in the namespace that may": pod(({SHARED: 1},), where="course", choose="notebooks"),
    "several slices": pod(({SLICE: 3},)),
    "whole GPUs of a pool": pod(({GPU: 2},), choose="whole"),
    "whole GPUs of a pool by affinity": pod(({GPU: 2},), **affinity(term("In", "whole"))),
    "whole GPUs of no pool": pod(({GPU: 2},), where="strangers", **affinity(term("DoesNotExist"))),
    "no devices": pod(container={"env": [{"name": ENV, "value": "void"}, {"name": "OTHER", "value": "all"}]}),
    "the runtime class with a GPU": pod(({SLICE: 1},), runtimeClassName="nvidia"),
    "privileged elsewhere, without a GPU": pod(where="strangers", container=PRIVILEGED),
    "anything of an exempt namespace": pod(({GPU: 2},), where="agents", container={
        "env": [{"name": ENV, "value": "all"}], "securityContext": {"privileged": True}}),
    "anything of our own namespace": pod(where=NAMESPACE, container={"env": [{"name": ENV, "value": "all"}]}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_reaches_beyond_its_share_is_refused_and_told_what_to_write(case: str, policies: Cluster) -> None:
    item, told = REFUSED[case]
    said = refusal(policies, item)
    assert "ValidatingAdmissionPolicy 'gpushare-pods'" in said
    assert told in said


@pytest.mark.parametrize("case", ALLOWED)
def test_what_asks_for_its_share_is_let_through(case: str, policies: Cluster) -> None:
    assert refusal(policies, ALLOWED[case]) == ""


@pytest.mark.parametrize(
    ("debugging", "told"),
    [({}, ""), ({"env": [{"name": ENV, "value": "all"}]}, "debugging"), (PRIVILEGED, "privileged")],
)
def test_debugging_containers_reach_no_further(debugging: Object, told: str, policies: Cluster) -> None:
    item = pod(choose="nowhere") | {"metadata": {"name": "debugged", "namespace": "physics"}}
    policies.apply(item)
    container = {"name": "debugger", "image": "example.org/job", **debugging}
    patch = json.dumps({"spec": {"ephemeralContainers": [container]}})
    done = policies.try_kubectl("patch", "pod", "debugged", "--namespace", "physics", "--subresource", "ephemeralcontainers",
                                "--dry-run=server", "--patch", patch)
    assert (told in done.stderr) if told else (done.returncode == 0), done.stderr


def test_quotas_hold(policies: Cluster) -> None:
    assert "exceeded quota" in refusal(policies, pod(({GPU: 5},), choose="whole"))
    assert refusal(policies, pod(({GPU: 4},), choose="whole")) == ""
    assert refusal(policies, pod(({GPU: 5},), where="strangers", choose="whole")) == ""
