"""Who is of the platform and who only says so: namespaces, priority classes, static pods."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.enforce.identities import PodIndex
from gpushare_node.guard.inputs import ContainerId
from tests.node.enforce.enforcement import SHARED, EnforcementFixture, await_end, container_id, lives, pod, pod_uid
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool


@pytest.mark.failure_case(64)
def test_system_priority_class_grants_a_tenant_no_exemption(enforcement: EnforcementFixture) -> None:
    """Anybody may write it into a pod."""
    enforcement.admit(1, "important")
    (known,) = enforcement.list.known
    enforcement.list.known = (
        view_pod(
            {
                "metadata": {"uid": pod_uid(1), "namespace": "team", "name": "important"},
                "spec": {"priorityClassName": "system-node-critical"},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {
                            "name": "main",
                            "containerID": f"containerd://{container_id(1)}",
                            "state": {"running": {"startedAt": "2017-07-14T03:05:00Z"}},
                        }
                    ],
                },
            }
        ),
    )
    assert enforcement.list.known[0].containers == known.containers
    pid = enforcement.begin(1, 5000)
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(64)
def test_only_platform_pods_with_a_share_are_held_to_a_cap(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "holder", namespace="kube-system")
    enforcement.arrive(2, "agent", namespace="kube-system")
    holder, agent = enforcement.begin(1, 5000), enforcement.begin(2, 30000)
    enforcement.run(6)
    await_end(holder)
    enforcement.run(30)
    assert lives(agent)
    assert enforcement.told.reasons("agent") == []


@pytest.mark.failure_case(64)
def test_platform_pod_gets_its_cap_when_kubelet_reports_its_share(enforcement: EnforcementFixture) -> None:
    enforcement.arrive(1, "late", namespace="kube-system")
    pid = enforcement.begin(1, 5000)
    enforcement.run(20)
    assert lives(pid)
    enforcement.allocate(1, SHARED, [f"{enforcement.fake_nvml.uuid(0)}::1"])
    enforcement.run(20)
    await_end(pid)


@pytest.mark.failure_case(64)
def test_namespace_name_alone_grants_no_exemption(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    """Who may make a namespace may call it after somebody's operator: the intent says which are the platform's."""
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, tenancy={"platformNamespaces": []})
    pid = enforcement.admit_and_begin(1, "poser", 5000, namespace="gpu-operator")
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(64)
def test_default_platform_is_kube_system_and_our_namespace(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, tenancy={"platformNamespaces": []})
    for number, namespace in ((1, "kube-system"), (2, "gpushare")):
        enforcement.arrive(number, f"agent-{number}", namespace=namespace)
        enforcement.begin(number, 30000)
    enforcement.run(30)
    assert enforcement.told.events == []


@pytest.mark.failure_case(54)
def test_a_static_pods_annotations_in_a_tenants_pod_hide_no_pod() -> None:
    forged = view_pod(
        {
            "metadata": {
                "uid": "f",
                "namespace": "team",
                "name": "forger",
                "annotations": {"kubernetes.io/config.hash": "victim", "kubernetes.io/config.mirror": "x"},
            },
        }
    )
    target = pod("victim", 2, uids=("victim",))
    container = ContainerId(pod_uid="victim", container=container_id(2))
    for pods in ((target, forged), (forged, target)):
        assert PodIndex.of(pods).find(container) is target


@pytest.mark.parametrize(
    ("annotations", "others"),
    [
        ({"kubernetes.io/config.hash": "0123456789abcdef" * 2}, ()),
        ({"kubernetes.io/config.hash": "0123456789abcdef" * 2, "kubernetes.io/config.mirror": "x"}, ("0123456789abcdef" * 2,)),
        ({"kubernetes.io/config.hash": "6b1a2f7e-9d0c-4b4e-8f57-0a1b2c3d4e5f", "kubernetes.io/config.mirror": "x"}, ()),
        ({"kubernetes.io/config.hash": "", "kubernetes.io/config.mirror": "x"}, ()),
    ],
    ids=["no mirror", "a static pod's", "another pod's uid", "empty"],
)
def test_only_the_mirror_of_a_static_pod_has_a_second_uid(annotations: dict[str, str], others: tuple[str, ...]) -> None:
    own = view_pod({"metadata": {"uid": "f", "namespace": "t", "name": "f", "annotations": annotations}})
    assert own.uids == ("f", *others)
