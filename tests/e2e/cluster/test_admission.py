"""The policies on pods, judged by a real API server: what they refuse, what they say, and what they let through."""

import copy
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.bundles import NAMESPACE, admitting
from tests.e2e.cluster.bypasses import DEBUGGING, DEVICES, ENV, POOLS, PRIVILEGED
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.common_agents import AGENTS, WORK
from tests.e2e.cluster.pods import GPU, SHARED, SLICE, Object, affinity, created, debugged, pod, refusal, term

INTENT = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: admission}
spec:
  platform: {namespaces: [storage]}
  admission: {localhostProfiles: [listed]}
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

ANYTHING = {"env": [{"name": ENV, "value": "all"}], **PRIVILEGED}


@pytest.fixture(scope="module")
def policies(api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster with the chart's objects, and namespaces: tenants that the intent names, others, one that is exempt."""
    with admitting(api, INTENT, tmp_path_factory.mktemp("admission")):
        # Of the policies this comes into force on its own, too.
        stray = pod(where="strangers", hostPID=True)
        api.wait(lambda: "elsewhere" in str(created(api, stray).warnings), "the policy of other namespaces is in force")
        yield api


ALLOWED: dict[str, Object] = {
    "no GPU": pod(where="strangers"),
    "none of them": pod(({GPU: 0},), where="strangers"),
    "one share": pod(({SHARED: 1},), choose="serving"),
    "a share in each of two containers": pod(({SHARED: 1}, {SHARED: 1}), choose="serving"),
    "a share in the namespace that may": pod(({SHARED: 1},), where="course", choose="notebooks"),
    "several slices": pod(({SLICE: 3},)),
    "whole GPUs of a pool": pod(({GPU: 2},), choose="whole"),
    "whole GPUs of a pool by affinity": pod(({GPU: 2},), **affinity(term("In", "whole"))),
    "whole GPUs of no pool": pod(({GPU: 2},), where="strangers", **affinity(term("DoesNotExist"))),
    "no devices": pod(container={"env": [{"name": ENV, "value": "void"}, {"name": "OTHER", "value": "all"}]}),
    "the runtime class with a GPU": pod(({SLICE: 1},), runtimeClassName="nvidia"),
    "the runtime class with a GPU of one container": pod(({GPU: 0}, {SLICE: 1}), runtimeClassName="nvidia"),
    "the runtime class with a claim that a container uses": pod(
        where="strangers",
        container={"resources": {"claims": [{"name": "a"}]}},
        runtimeClassName="nvidia",
        resourceClaims=[{"name": "a", "resourceClaimName": "b"}],
    ),
    "another runtime class": pod(runtimeClassName="gvisor"),
    "a listed profile": pod(securityContext={"appArmorProfile": {"type": "Localhost", "localhostProfile": "listed"}}),
    "a listed profile by annotation": pod(
        annotations={"container.apparmor.security.beta.kubernetes.io/c0": "localhost/listed"}
    ),
    "the runtime's own profile": pod(
        securityContext={
            "appArmorProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {"level": "s0:c1,c2", "type": "container_t"},
        }
    ),
    "anything of an exempt namespace": pod(({GPU: 2},), where="agents", container=ANYTHING),
    "anything of our own namespace": pod(where=NAMESPACE, container=ANYTHING),
    "anything of a namespace of the platform": pod(({GPU: 2},), where="storage", container=ANYTHING),
    **WORK,
}


@pytest.mark.parametrize("case", [*POOLS, *DEVICES])
def test_pod_that_reaches_beyond_its_share_is_refused_with_a_hint(case: str, policies: Cluster) -> None:
    item, told = {**POOLS, **DEVICES}[case]
    said = refusal(policies, item)
    assert f"ValidatingAdmissionPolicy 'gpushare-{'pods' if case in POOLS else 'devices'}'" in said
    assert told in said


@pytest.mark.parametrize("case", ALLOWED)
def test_pod_that_requests_its_share_is_admitted_without_a_warning(case: str, policies: Cluster) -> None:
    answer = created(policies, ALLOWED[case])
    assert answer.refusal == ""
    assert not [text for text in answer.warnings if "gpushare" in text]


@pytest.mark.parametrize("case", DEVICES)
def test_pod_reaching_devices_in_another_namespace_is_admitted_with_a_warning(case: str, policies: Cluster) -> None:
    item, told = DEVICES[case]
    answer = created(policies, moved(item, "strangers"))
    assert answer.refusal == ""
    assert [text for text in answer.warnings if "gpushare-devices-elsewhere" in text and told in text]


@pytest.mark.parametrize("case", DEVICES)
def test_pod_requesting_a_share_is_a_tenant_in_any_namespace(case: str, policies: Cluster) -> None:
    item, told = DEVICES[case]
    if "runtimeClassName" in item["spec"]:
        return  # what it may have, since it asks for a GPU
    asking = moved(item, "strangers")
    asking["spec"]["containers"].append({"name": "asking", "image": "a", "resources": {"limits": {SLICE: 1}}})
    assert told in refusal(policies, asking)


@pytest.mark.parametrize("case", AGENTS)
def test_no_common_cluster_pod_is_refused(case: str, policies: Cluster) -> None:
    assert refusal(policies, AGENTS[case]) == ""


def test_pod_reaching_devices_in_another_namespace_is_audited(policies: Cluster) -> None:
    name = "audited-elsewhere"
    item = pod(where="strangers", container=PRIVILEGED)
    item["metadata"] = {"name": name, "namespace": "strangers"}
    assert refusal(policies, item) == ""
    found = policies.wait(lambda: policies.control_plane.audited(name), "the API server has audited it")
    assert "gpushare-devices-elsewhere" in found[0]["annotations"]["validation.policy.admission.k8s.io/validation_failure"]


@pytest.mark.parametrize("case", DEBUGGING)
def test_debug_containers_cannot_reach_devices(case: str, policies: Cluster) -> None:
    container, told = DEBUGGING[case]
    for where in ("physics", "strangers"):
        policies.apply(named(pod(choose="nowhere", volumes=[{"name": "v", "emptyDir": {}}]), "debugged", where))
    assert told in debugged(policies, "debugged", "physics", container)
    assert debugged(policies, "debugged", "strangers", container) == ""
    assert debugged(policies, "debugged", "physics", {}) == ""


def test_pod_older_than_the_policy_can_be_debugged_changed_and_deleted(policies: Cluster) -> None:
    policies.kubectl("label", "namespace", "physics", "gpushare.dev/admission=exempt")
    try:
        policies.wait(lambda: refusal(policies, pod(container=PRIVILEGED)) == "", "the namespace is exempt")
        policies.apply(named(pod(container=PRIVILEGED, choose="nowhere"), "former", "physics"))
    finally:
        policies.kubectl("label", "namespace", "physics", "gpushare.dev/admission-")
    policies.wait(lambda: refusal(policies, pod(container=PRIVILEGED)), "the namespace is not exempt")
    assert debugged(policies, "former", "physics", {}) == ""
    dry = ("pod", "former", "--namespace", "physics", "--dry-run=server")
    policies.kubectl("annotate", *dry, "example.org/a=b")
    policies.kubectl("label", *dry, "example.org/a=b")
    policies.kubectl("delete", *dry)


def test_annotation_added_later_cannot_add_devices(policies: Cluster) -> None:
    policies.apply(named(pod(choose="nowhere"), "annotated", "physics"))
    change = ("annotate", "pod", "annotated", "--namespace", "physics", "--dry-run=server")
    assert "add devices" in policies.try_kubectl(*change, "nvidia.cdi.k8s.io/a=nvidia.com/gpu=all").stderr
    assert policies.try_kubectl(*change, "example.org/a=b").returncode == 0


def moved(item: Object, where: str) -> Object:
    """The same pod in another namespace."""
    item = copy.deepcopy(item)
    item["metadata"]["namespace"] = where
    return item


def named(item: Object, name: str, where: str) -> Object:
    """The same pod under a name of its own."""
    return item | {"metadata": {"name": name, "namespace": where}}


def test_quotas_are_enforced(policies: Cluster) -> None:
    # Before it has counted once, a quota refuses everything.
    beyond = pod(({GPU: 5},), choose="whole")
    policies.wait(lambda: "exceeded quota" in refusal(policies, beyond), "the quota has been counted")
    assert refusal(policies, pod(({GPU: 4},), choose="whole")) == ""
    assert refusal(policies, pod(({GPU: 5},), where="strangers", choose="whole")) == ""
