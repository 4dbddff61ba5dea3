"""Who is of the platform and who only says so: namespaces, priority classes, static pods."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.enforce.identities import PodIndex
from gpushare_node.guard.identity import ContainerId
from tests.node.enforce.enforcement import SHARED, EnforcementFixture, await_end, container_id, lives, pod, pod_uid
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool


@pytest.mark.failure_case(64)
def test_a_system_pods_priority_class_exempts_no_tenant(stage: EnforcementFixture) -> None:
    """Anybody may write it into a pod."""
    stage.admit(1, "important")
    (known,) = stage.list.known
    stage.list.known = (view_pod({
        "metadata": {"uid": pod_uid(1), "namespace": "team", "name": "important"},
        "spec": {"priorityClassName": "system-node-critical"},
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "main", "containerID": f"containerd://{container_id(1)}",
            "state": {"running": {"startedAt": "2017-07-14T03:05:00Z"}}}]},
    }),)
    assert stage.list.known[0].containers == known.containers
    pid = stage.begin(1, 5000)
    stage.run(6)
    await_end(pid)


@pytest.mark.failure_case(64)
def test_a_platform_pod_that_holds_a_share_is_held_to_its_cap_and_the_others_are_let_be(stage: EnforcementFixture) -> None:
    stage.admit(1, "holder", namespace="kube-system")
    stage.arrive(2, "agent", namespace="kube-system")
    holder, agent = stage.begin(1, 5000), stage.begin(2, 30000)
    stage.run(6)
    await_end(holder)
    stage.run(30)
    assert lives(agent)
    assert stage.told.reasons("agent") == []


@pytest.mark.failure_case(64)
def test_whether_a_platform_pod_holds_a_share_is_learned_when_kubelet_says_so(stage: EnforcementFixture) -> None:
    stage.arrive(1, "late", namespace="kube-system")
    pid = stage.begin(1, 5000)
    stage.run(20)
    assert lives(pid)
    stage.allocate(1, SHARED, [f"{stage.fake_nvml.uuid(0)}::1"])
    stage.run(20)
    await_end(pid)


@pytest.mark.failure_case(64)
def test_the_name_of_a_namespace_alone_exempts_nobody(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    """Who may make a namespace may call it after somebody's operator: the intent says which are the platform's."""
    stage = EnforcementFixture(tmp_path, two, started, tenancy={"platformNamespaces": []})
    pid = stage.admit_and_begin(1, "poser", 5000, namespace="gpu-operator")
    stage.run(6)
    await_end(pid)


@pytest.mark.failure_case(64)
def test_a_bundle_that_does_not_say_who_the_platform_is_spares_kube_system_and_us(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    stage = EnforcementFixture(tmp_path, two, started, tenancy={"platformNamespaces": []})
    for number, namespace in ((1, "kube-system"), (2, "gpushare")):
        stage.arrive(number, f"agent-{number}", namespace=namespace)
        stage.begin(number, 30000)
    stage.run(30)
    assert stage.told.events == []


@pytest.mark.failure_case(54)
def test_a_static_pods_annotations_in_a_tenants_pod_hide_no_pod() -> None:
    forged = view_pod({
        "metadata": {"uid": "f", "namespace": "team", "name": "forger", "annotations": {
            "kubernetes.io/config.hash": "victim", "kubernetes.io/config.mirror": "x"}},
    })
    target = pod("victim", 2, uids=("victim",))
    container = ContainerId(pod_uid="victim", container=container_id(2))
    for pods in ((target, forged), (forged, target)):
        assert PodIndex.of(pods).find(container) is target


def test_a_pod_without_the_mirrors_annotation_has_one_uid_only() -> None:
    annotations = {"kubernetes.io/config.hash": "victim"}
    assert view_pod({"metadata": {"uid": "f", "namespace": "t", "name": "f", "annotations": annotations}}).uids == ("f",)
