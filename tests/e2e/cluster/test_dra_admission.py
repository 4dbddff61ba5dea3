"""Pools of the DRA driver before a real API server: it takes every object, and its policies refuse what would break a pool."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.cluster import proxy
from tests.e2e.cluster.bundles import NAMESPACE, admitting, namespace
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.pods import POOL, Object, affinity, created, pod, refusal, term
from tests.e2e.cluster.proxy import Answer

INTENT = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: admission}
spec:
  kubernetes: "1.36"
  platform:
    stack: device-plugin
    backend: dra
    dra: {shares: memory}
    namespaces: [storage]
  pools:
    notebooks:
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}}
      gpusPerNode: 2
      sharing: {mode: time-slicing, replicas: 4}
      sizes: {large: 7680Mi}
      namespaces: [team-a]
    hpc:
      card: a100-pcie-40gb
      nodes: {matchLabels: {example.org/gpu: a100}}
      gpusPerNode: 2
      sharing: {mode: exclusive}
      requests: both
    training:
      card: a100-sxm4-40gb
      nodes: {matchLabels: {example.org/gpu: sxm}}
      gpusPerNode: 2
      sharing: {mode: mig, layout: {3g.20gb: 1, 1g.5gb+me: 1, 1g.5gb: 3}}
    halves:
      card: a30
      nodes: {matchLabels: {example.org/gpu: a30}}
      gpusPerNode: 2
      sharing: {mode: mig, layout: {2g.12gb: 2}, replicas: 2}
    serving:
      backend: device-plugin
      card: l4
      nodes: {matchLabels: {example.org/gpu: l4}}
      gpusPerNode: 1
      sharing: {mode: mps, replicas: 4}
    plain:
      backend: device-plugin
      card: v100-pcie-32gb
      nodes: {matchLabels: {example.org/gpu: v100}}
      gpusPerNode: 2
      sharing: {mode: exclusive}
  quotas:
    physics: {hpc: 4, training: {3g.20gb: 2}}
"""
GROUP = "/apis/resource.k8s.io/v1"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpushare-"
DRIVER = "system:serviceaccount:dra-driver-nvidia-gpu:dra-driver-nvidia-gpu-service-account-kubeletplugin"
DISTINCT: Object = {"constraints": [{"distinctAttribute": "gpu.nvidia.com/uuid"}]}
USER = {"Impersonate-User": "alice"}


@pytest.fixture(scope="module")
def policies(api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster with the objects of the chart, and two people with all rights: RBAC is not what is tested."""
    for name in ("team-a", "team-b", "physics"):
        namespace(api, name)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "User", "name": name} for name in ("alice", DRIVER, "system:serviceaccount:storage:other")]
    api.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "everything"},
            "roleRef": role,
            "subjects": subjects,
        }
    )
    with admitting(api, INTENT, tmp_path_factory.mktemp("dra")):
        doomed = claim("gpushare-notebooks.a", asked("gpu.nvidia.com"))
        api.wait(lambda: make(api, doomed).refusal, "the policy on claims is in force")
        wrong = slice_of("node-1")
        api.wait(lambda: as_node(api, wrong, "node-2").refusal, "the policy on slices is in force")
        api.wait(lambda: POOL in moved(api, template="gpushare-notebooks.share"), "pods with claims are sent to their pool")
        api.wait(
            lambda: refusal(api, claiming("gpushare-notebooks.share", choose="hpc")), "the policy on their pods is in force"
        )
        yield api


def asked(name: str, capacity: dict[str, str] | None = None, request: str = "gpu", **more: Any) -> Object:
    requests = {"capacity": {"requests": capacity}} if capacity else {}
    return {"name": request, "exactly": {"deviceClassName": name, **requests, **more}}


def claim(name: str, *requests: Object, where: str = "team-a", **devices: Any) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": where},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def in_template(item: Object) -> Object:
    return {**item, "kind": "ResourceClaimTemplate", "spec": {"spec": item["spec"]}}


def make(cluster: Cluster, item: Object, headers: dict[str, str] | None = None) -> Answer:
    """What the API server says to the creation by a person who administers nothing."""
    plural = f"{item['kind'].lower()}s"
    path = f"{GROUP}/namespaces/{item['metadata']['namespace']}/{plural}?dryRun=All"
    return proxy.send(cluster.control_plane.proxy, "POST", path, json.dumps(item), headers=headers or USER)


def share(memory: str = "3840Mi", request: str = "gpu") -> Object:
    return asked("gpushare-notebooks", {"memory": memory}, request)


def half(start: int = 0, **more: str) -> dict[str, str]:
    parts = {"memory": "5984Mi", "multiprocessors": "14", "copyEngines": "1", "decoders": "1"}
    parts |= {"encoders": "0", "jpegEngines": "0", "ofaEngines": "0"}
    return {**parts, f"memorySlice{start}": "0", f"memorySlice{start + 1}": "0", **more}


FOREIGN = {"name": "nic", "exactly": {"deviceClassName": "nic.example.org", "count": 2}}
PARAMETERS = {"kind": "GpuConfig", "apiVersion": "resource.nvidia.com/v1beta1"}
CONFIG = {"opaque": {"driver": "gpu.nvidia.com", "parameters": PARAMETERS}}
OF_A_NIC = {"opaque": {"driver": "nic.example.org", "parameters": PARAMETERS}}

REFUSED: dict[str, tuple[Object, str]] = {
    "a class of the driver's chart": (claim("gpushare-notebooks.a", asked("gpu.nvidia.com")), "not all are those of a pool"),
    "a class of MIG": (claim("gpushare-notebooks.a", asked("mig.nvidia.com")), "not all are those of a pool"),
    "a class that no pool has": (claim("gpushare-none.a", asked("gpushare-none")), "not all are those of a pool"),
    "a foreign class as an alternative": (
        claim(
            "gpushare-notebooks.a",
            {
                "name": "gpu",
                "firstAvailable": [
                    {"name": "a", **share()["exactly"]},
                    {"name": "b", "deviceClassName": "gpu.nvidia.com"},
                ],
            },
        ),
        "not all are those of a pool",
    ),
    "a pool of another namespace": (claim("gpushare-notebooks.a", share(), where="team-b"), "may not use pool notebooks"),
    "a configuration": (claim("gpushare-notebooks.a", share(), config=[CONFIG]), "may not configure GPUs"),
    "all devices": (claim("gpushare-hpc.a", asked("gpushare-hpc", allocationMode="All")), "nor allocationMode All"),
    "a whole GPU of a shared pool": (claim("gpushare-notebooks.a", asked("gpushare-notebooks")), "a share of each"),
    "more than the largest size": (claim("gpushare-notebooks.a", share("7681Mi")), "no more than the largest share"),
    "a part of a GPU that is not shared": (
        claim("gpushare-hpc.a", asked("gpushare-hpc", {"memory": "1Mi"})),
        "no other capacity than the templates",
    ),
    "half an instance without its engines": (
        claim("gpushare-halves.a", asked("gpushare-halves-2g-12gb", {"memory": "5984Mi"})),
        "a share of each of its capacities",
    ),
    "half an instance with its memory slices": (
        claim("gpushare-halves.a", asked("gpushare-halves-2g-12gb", half(memorySlice0="1"))),
        "a share of each of its capacities",
    ),
    "half an instance, and a number of shares": (
        claim("gpushare-halves.a", asked("gpushare-halves-2g-12gb", half(shares="2"))),
        "for no other capacity",
    ),
    "two shares that may be of one GPU": (
        claim("gpushare-notebooks.a", share(request="a"), share(request="b")),
        "two shares of one GPU",
    ),
    "two shares, one of them apart": (
        claim(
            "gpushare-notebooks.a",
            share(request="a"),
            share(request="b"),
            constraints=[{"distinctAttribute": "gpu.nvidia.com/uuid", "requests": ["a"]}],
        ),
        "two shares of one GPU",
    ),
    "a name without the pool": (claim("mine", share()), "must begin with gpushare-notebooks"),
    "the name of another pool": (claim("gpushare-hpc.a", share()), "must begin with gpushare-notebooks"),
}

ALLOWED: dict[str, Object] = {
    "a share": claim("gpushare-notebooks.a", share()),
    "a smaller share": claim("gpushare-notebooks.a", share("1Gi")),
    "the large size": claim("gpushare-notebooks.a", share("7680Mi")),
    "two shares of two GPUs": claim("gpushare-notebooks.a", share(request="a"), share(request="b"), **DISTINCT),
    "two whole GPUs": claim("gpushare-hpc.a", asked("gpushare-hpc", count=2), where="team-b"),
    "an instance": claim("gpushare-training.a", asked("gpushare-training-1g-5gb-me"), where="team-b"),
    "half an instance": claim("gpushare-halves.a", asked("gpushare-halves-2g-12gb", half(2)), where="team-b"),
    "another vendor's device": claim("mine", FOREIGN, where="team-b", config=[OF_A_NIC]),
    "a share beside another vendor's device": claim("gpushare-notebooks.a", share(), FOREIGN),
    "anything of the platform": claim("mine", asked("gpu.nvidia.com", allocationMode="All"), where="storage"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_claim_that_would_break_a_pool_is_refused_with_a_hint(case: str, policies: Cluster) -> None:
    item, told = REFUSED[case]
    said = make(policies, item).refusal
    assert "ValidatingAdmissionPolicy 'gpushare-claims'" in said
    assert told in said


NAMES = {"a name without the pool", "the name of another pool"}
"""What is refused for its name alone."""


@pytest.mark.parametrize("case", sorted(REFUSED.keys() - NAMES))
def test_template_is_judged_when_kubernetes_makes_its_claims(case: str, policies: Cluster) -> None:
    """An upgrade makes the templates of new pools, classes and sizes while the former policy is in force."""
    item, _ = REFUSED[case]
    assert make(policies, in_template(item)).refusal == ""


@pytest.mark.parametrize(
    ("name", "device_class", "is_refused"),
    [
        ("mine", "gpushare-notebooks", True),
        ("gpushare-hpc.a", "gpushare-notebooks", True),
        ("gpushare-halves-2g.a", "gpushare-halves-2g-12gb", True),
        ("gpushare-new.1g.5gb-me", "gpushare-new-1g-5gb-me", False),
        ("gpushare-new.gpu", "gpushare-new", False),
        ("gpushare-newer.gpu", "gpushare-new", True),
        ("gpushare-ne.gpu", "gpushare-new", True),
        ("gpushare.gpu", "gpushare-new", True),
        ("gpushare-new", "gpushare-new", True),
        ("mine", "nic.example.org", False),
    ],
)
def test_template_has_the_name_of_its_pool(name: str, device_class: str, is_refused: bool, policies: Cluster) -> None:
    """By it pods come to the nodes of the pool: another one leads to GPUs that the namespace may not use."""
    told = make(policies, in_template(claim(name, asked(device_class)))).refusal
    assert ("must begin with gpushare-POOL" in told) == is_refused == bool(told)


@pytest.mark.parametrize("form", [copy.deepcopy, in_template], ids=["claim", "template"])
@pytest.mark.parametrize("case", ALLOWED)
def test_claim_on_a_share_of_a_pool_or_on_something_else_is_admitted(case: str, form: Any, policies: Cluster) -> None:
    answer = make(policies, form(ALLOWED[case]))
    assert (answer.refusal, answer.warnings) == ("", ())


def test_an_administrators_access_is_refused_to_tenants(policies: Cluster) -> None:
    admin = {"resource.kubernetes.io/admin-access": "true"}
    namespace(policies, "monitors", **admin)
    item = claim("gpushare-hpc.a", asked("gpushare-hpc", adminAccess=True), where="monitors")
    assert "neither adminAccess" in make(policies, item).refusal


def test_a_claim_that_kubernetes_makes_for_a_pod_needs_no_name(policies: Cluster) -> None:
    item = claim("job-gpu-x1", share())
    scheduler = {"Impersonate-User": "system:kube-scheduler"}
    policies.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "claims-of-limits"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": "system:kube-scheduler"}],
        }
    )
    assert make(policies, item, scheduler).refusal == ""
    assert "a share of each" in make(policies, claim("job-gpu-x1", asked("gpushare-notebooks")), scheduler).refusal


@pytest.fixture(scope="module")
def owner(policies: Cluster) -> Iterator[Object]:
    """A pod that is never scheduled. The garbage collector deletes what a pod owns that does not exist."""
    gated = pod(where="team-a", schedulingGates=[{"name": "example.org/never"}])
    made = json.loads(created(policies, gated, "").body)["metadata"]
    yield {"apiVersion": "v1", "kind": "Pod", "name": made["name"], "uid": made["uid"], "controller": True}
    policies.kubectl("delete", "pod", "--namespace", "team-a", made["name"])


@pytest.mark.parametrize(
    ("owned", "name", "is_used_by_other", "is_refused"),
    [
        ({}, "gpushare-notebooks.used", False, False),
        ({}, "gpushare-notebooks.used", True, True),
        ({"kind": "Workbench", "apiVersion": "example.org/v1"}, "gpushare-notebooks.used", True, False),
        (None, "gpushare-notebooks.used", True, False),
        (None, "gpushare-hpc.used", True, True),
        (None, "used", True, True),
    ],
)
def test_a_claim_made_for_a_pod_is_used_by_no_other(
    owned: Object | None, name: str, policies: Cluster, owner: Object, *, is_used_by_other: bool, is_refused: bool
) -> None:
    """Admission sent its pod to the nodes of the pool; a pod that names the claim may be sent to those of any.

    Also where a person has taken the owner from the claim: the name of one that Kubernetes made does not say where it leads.
    """
    item = claim(name, share())
    item["metadata"]["ownerReferences"] = [] if owned is None else [owner | owned]
    with there(policies, item) as made:
        result = {"driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0", "request": "gpu"}
        user = {"resource": "pods", "name": "any", "uid": "another" if is_used_by_other else owner["uid"]}
        made["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
        told = put(policies, made, "/status").refusal
        whose = "a pod" if owned is None else f"pod {owner['name']}"
        assert (f"was made for {whose}, and no other pod may use it" in told) == is_refused == bool(told)


def test_a_claim_serves_one_pod(policies: Cluster) -> None:
    """Its memory is the cap of one."""
    with there(policies, claim("gpushare-notebooks.shared", share())) as made:
        result = {"driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0", "request": "gpu"}
        one, other = ({"resource": "pods", "name": name, "uid": name} for name in ("one", "other"))

        def use(*users: Object) -> str:
            made["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": list(users)}
            return put(policies, made, "/status").refusal

        assert use(one) == ""
        assert "serves a pod already" in use(one, other)
        assert use(other) == ""


def test_a_claim_gets_no_pod_as_its_owner_later(policies: Cluster, owner: Object) -> None:
    """It would be that pod's. Who deletes a pod and not its claim takes the owner away."""
    item = claim("gpushare-notebooks.used", share())
    with there(policies, item) as made:
        made["metadata"]["ownerReferences"] = [owner]
        assert f"cannot be given to pod {owner['name']}" in put(policies, made).refusal
        made["metadata"]["ownerReferences"] = [owner | {"kind": "Workbench", "apiVersion": "example.org/v1"}]
        assert put(policies, made).refusal == ""
    item["metadata"]["ownerReferences"] = [owner]
    with there(policies, item) as made:
        assert put(policies, made | {"metadata": made["metadata"] | {"labels": {"a": "b"}}}).refusal == ""
        made["metadata"]["ownerReferences"] = []
        assert put(policies, made).refusal == ""


@contextmanager
def there(policies: Cluster, item: Object) -> Iterator[Object]:
    """The claim as the API server has it, while it is there. It is made by one whom no policy on names concerns."""
    path = f"{GROUP}/namespaces/team-a/resourceclaims"
    made = proxy.send(policies.control_plane.proxy, "POST", path, json.dumps(item))
    assert made.refusal == ""
    try:
        yield json.loads(made.body)
    finally:
        policies.kubectl("delete", "resourceclaim", "--namespace", "team-a", item["metadata"]["name"])


def put(policies: Cluster, item: Object, subresource: str = "") -> Answer:
    url = f"{GROUP}/namespaces/team-a/resourceclaims/{item['metadata']['name']}{subresource}?dryRun=All"
    return proxy.send(policies.control_plane.proxy, "PUT", url, json.dumps(item))


def claiming(template: str, where: str = "team-a", **more: Any) -> Object:
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return pod(where=where, container={"resources": {"claims": [{"name": "gpu"}]}}, resourceClaims=claims, **more)


def moved(cluster: Cluster, template: str, **more: Any) -> str:
    """The node selector of a pod with a claim, after admission."""
    answer = created(cluster, claiming(template, **more))
    assert answer.refusal == ""
    return json.dumps(json.loads(answer.body)["spec"].get("nodeSelector", {}))


def test_a_pod_with_a_claim_goes_to_its_pool(policies: Cluster) -> None:
    assert json.loads(moved(policies, "gpushare-notebooks.share")) == {POOL: "notebooks"}
    selecting = {"nodeSelector": {"zone": "a"}}
    assert json.loads(moved(policies, "gpushare-hpc.gpu", where="physics", **selecting)) == {POOL: "hpc", "zone": "a"}
    assert json.loads(moved(policies, "other", where="physics")) == {}


def limits(*names: str) -> tuple[Object, ...]:
    return tuple({name: 1} for name in names)


REFUSED_PODS: dict[str, tuple[Object, str]] = {
    "a claim on the nodes of another pool": (
        claiming("gpushare-notebooks.share", choose="hpc"),
        "claims devices of pool notebooks",
    ),
    "a claim on the nodes of no pool": (
        claiming("gpushare-notebooks.share", **affinity(term("DoesNotExist"))),
        "claims devices of pool notebooks",
    ),
    "a share by the name of its class": (pod(limits(f"{IMPLICIT}notebooks"), where="team-a"), "limits cannot ask for a share"),
    "half an instance by the name of its class": (
        pod(limits(f"{IMPLICIT}halves-2g-12gb"), where="team-a"),
        "limits cannot ask for a share",
    ),
    "a class in two containers": (
        pod(limits("nvidia.com/gpu", "nvidia.com/gpu"), choose="hpc"),
        "two containers of a pod may not ask",
    ),
    "a class under two names": (
        pod(limits("nvidia.com/gpu", f"{IMPLICIT}hpc"), choose="hpc"),
        "two containers of a pod may not ask",
    ),
    "a class on the nodes of another pool": (
        pod(limits(f"{IMPLICIT}hpc"), choose="training"),
        "does not have the device class",
    ),
    "a class by the plugin's name on the nodes of another pool": (
        pod(limits("nvidia.com/gpu"), choose="training"),
        "does not have the device class",
    ),
    "a class on the nodes of another pool or of none": (
        pod(limits(f"{IMPLICIT}hpc"), **affinity(term("In", "training"), term("DoesNotExist"))),
        "does not have the device class",
    ),
    "whole GPUs of any pool": (pod(limits("nvidia.com/gpu")), "several pools offer this GPU resource"),
}

ALLOWED_PODS: dict[str, Object] = {
    "a claim": claiming("gpushare-notebooks.share"),
    "two claims": pod(
        where="team-a",
        resourceClaims=[
            {"name": name, "resourceClaimTemplateName": "gpushare-notebooks.share"} for name in ("first", "second")
        ],
    ),
    "another vendor's claim": claiming("mine", where="team-b"),
    "a GPU by the name of its class": pod(limits(f"{IMPLICIT}hpc")),
    "a GPU by the plugin's name": pod(limits("nvidia.com/gpu"), choose="hpc"),
    "a GPU of the driver or of the plugin": pod(limits("nvidia.com/gpu"), **affinity(term("In", "hpc"), term("In", "plain"))),
    "two GPUs": pod(({"nvidia.com/gpu": 2},), choose="hpc"),
    "GPUs of the plugin in two containers": pod(limits("nvidia.com/gpu", "nvidia.com/gpu"), choose="plain"),
    "shares of the plugin in two containers": pod(limits("nvidia.com/gpu.shared", "nvidia.com/gpu.shared"), choose="serving"),
    "instances of two classes": pod(limits(f"{IMPLICIT}training-3g-20gb", f"{IMPLICIT}training-1g-5gb")),
    "the runtime class beside a claim": claiming("gpushare-notebooks.share", runtimeClassName="nvidia"),
}


@pytest.mark.parametrize("case", REFUSED_PODS)
def test_pod_that_would_never_start_or_take_a_wrong_device_is_refused(case: str, policies: Cluster) -> None:
    item, told = REFUSED_PODS[case]
    assert told in refusal(policies, item)


@pytest.mark.parametrize("case", ALLOWED_PODS)
def test_pod_that_asks_a_pool_for_its_devices_is_admitted(case: str, policies: Cluster) -> None:
    answer = created(policies, ALLOWED_PODS[case])
    assert answer.refusal == ""
    assert not [text for text in answer.warnings if "gpushare" in text]


def test_a_pod_with_a_claim_is_a_tenants(policies: Cluster) -> None:
    item = claiming("gpushare-hpc.gpu", where="team-b", hostPID=True)
    assert "hostPID" in refusal(policies, item)


def slice_of(node: str, **spec: Any) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-of-{node}"},
        "spec": {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": node, "devices": [{"name": "gpu-0"}], **spec},
    }


def as_node(cluster: Cluster, item: Object, node: str, user: str = DRIVER, *, deleted: str = "") -> Answer:
    headers = {"Impersonate-User": user}
    if node:
        headers["Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"] = node
    path = f"{GROUP}/resourceslices{deleted}?dryRun=All"
    method, body = ("DELETE", None) if deleted else ("POST", json.dumps(item))
    return proxy.send(cluster.control_plane.proxy, method, path, body, headers=headers)


def test_only_the_driver_on_a_node_says_which_gpus_the_node_has(policies: Cluster) -> None:
    mine = slice_of("node-1")
    assert as_node(policies, mine, "node-1").refusal == ""
    assert "node node-2 may not write slices of node-1" in as_node(policies, mine, "node-2").refusal
    assert "only NVIDIA's DRA driver" in as_node(policies, mine, "").refusal
    assert "only NVIDIA's DRA driver" in as_node(policies, mine, "node-1", "system:serviceaccount:storage:other").refusal
    spread = slice_of("node-1")
    del spread["spec"]["nodeName"]
    assert (
        "node node-1 may not write slices of several nodes"
        in as_node(policies, {**spread, "spec": {**spread["spec"], "allNodes": True}}, "node-1").refusal
    )
    assert as_node(policies, slice_of("node-1", driver="nic.example.org"), "node-2").refusal == ""


def test_slices_go_with_their_node_or_by_who_may_delete_them(policies: Cluster) -> None:
    mine = slice_of("node-1")
    path = "/slice-of-node-1"
    real = proxy.send(
        policies.control_plane.proxy,
        "POST",
        f"{GROUP}/resourceslices",
        json.dumps(mine),
        headers={"Impersonate-User": DRIVER, "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": "node-1"},
    )
    assert real.refusal == ""
    assert "may not write slices of node-1" in as_node(policies, mine, "node-2", deleted=path).refusal
    assert as_node(policies, mine, "node-1", deleted=path).refusal == ""
    runtime = f"system:serviceaccount:{NAMESPACE}:gpushare-node"
    assert as_node(policies, mine, "node-1", runtime, deleted=path).refusal == ""
    # Two policies refuse, and either may answer.
    assert " node" in as_node(policies, mine, "node-2", runtime, deleted=path).refusal
    assert (
        "may delete ResourceSlices of NVIDIA's driver of its own node only"
        in as_node(policies, mine, "", runtime, deleted=path).refusal
    )
    assert "cannot create" in as_node(policies, slice_of("node-3"), "node-3", runtime).refusal
    gone = proxy.send(policies.control_plane.proxy, "DELETE", f"{GROUP}/resourceslices{path}")
    assert gone.refusal == ""


def test_every_object_of_the_bundle_is_on_the_cluster(policies: Cluster) -> None:
    selector = ("--selector", "app.kubernetes.io/name=gpushare", "--output", "name")
    classes = policies.kubectl("get", "deviceclasses", *selector).split()
    assert {name.partition("/")[2] for name in classes} == {
        "gpushare-notebooks",
        "gpushare-hpc",
        "gpushare-training-3g-20gb",
        "gpushare-training-1g-5gb",
        "gpushare-training-1g-5gb-me",
        "gpushare-halves-2g-12gb",
    }
    templates = policies.kubectl("get", "resourceclaimtemplates", "--namespace", "physics", *selector).split()
    assert {name.partition("/")[2] for name in templates} == {
        "gpushare-hpc.gpu",
        "gpushare-training.3g.20gb",
        "gpushare-training.1g.5gb",
        "gpushare-training.1g.5gb-me",
        "gpushare-halves.2g.12gb-share",
    }
    hard = policies.get("resourcequota", "gpushare", "--namespace", "physics")["spec"]["hard"]
    assert hard == {
        "gpushare-hpc.deviceclass.resource.k8s.io/devices": "4",
        "requests.nvidia.com/gpu": "4",
        "gpushare-training-3g-20gb.deviceclass.resource.k8s.io/devices": "2",
    }
    for policy in policies.get("validatingadmissionpolicies", *selector[:2])["items"]:
        assert not policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings"), policy["metadata"]["name"]
