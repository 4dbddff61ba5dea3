"""The loop's pure decisions: names and flips, what is offered, who is disturbed, which pods and labels count."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpushare_node import membership
from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import MIG_LABEL, PLUGIN_LABEL, PodView, platform_pods, pools_of
from gpushare_node.backends.backend import Allocation, Checkpoint
from gpushare_node.backends.device_plugin import DevicePlugin
from gpushare_node.backends.dra.offer import DraBackend
from gpushare_node.contract.names import POOL_LABEL, PROFILE_LABEL
from gpushare_node.contract.policy import Mode, Partitioner, read
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.membership import find_owner, find_successor
from gpushare_node.reconcile.client_pause import to_pause, to_resume
from gpushare_node.reconcile.usage import find_affected, find_allocated, find_holders
from gpushare_node.vendors import advertised, is_gpu_resource
from tests.node.reconcile.loop_node import SEVEN, mig, whole
from tests.support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/bundle/chart/files/policies/*.yaml"))
ONE, OTHER = frozenset({"MIG-1"}), frozenset({"MIG-2"})
KEY = "mig-00000001"
PLUGIN = DevicePlugin()


def pod(name: str, *, phase: str = "Running", uid: str = "", **pod_labels: str) -> PodView:
    return PodView(
        uids=(uid or name,),
        namespace="n",
        name=name,
        labels=pod_labels,
        phase=phase,
        is_terminating=False,
        owner="",
        containers={},
    )


def runtime_pod(pool: str) -> PodView:
    own = {"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node", POOL_LABEL: pool}
    return replace(pod(f"gpushare-{pool}"), labels=own, namespace="gpushare", controller=f"DaemonSet/gpushare-{pool}")


@pytest.mark.parametrize(
    ("last", "label", "key"),
    [
        (None, "", "a"),
        (None, f"{KEY}-b", "b"),
        (Published(key=f"{KEY}-b", devices=ONE), "", "b"),
        (Published(key=f"{KEY}-a", devices=OTHER), f"{KEY}-a", "b"),
        (Published(key=f"{KEY}-b", devices=OTHER), f"{KEY}-b", "a"),
        (Published(key="mps-00000001-b", devices=ONE), "mps-00000001-b", "a"),
    ],
    ids=["first", "folder lost", "as before", "other devices", "and back", "another profile"],
)
def test_profile_name_is_flipped_when_only_the_devices_change(last, label, key) -> None:
    assert PLUGIN.publish(last, label, KEY, ONE) == Published(key=f"{KEY}-{key}", devices=ONE)


def test_pool_labels_include_mig_managers_only_if_it_partitions() -> None:
    published = Published(key=f"{KEY}-a", devices=ONE)
    own = {POOL_LABEL: "training", PROFILE_LABEL: KEY, PLUGIN_LABEL: f"{KEY}-a"}
    assert membership.desired(mig(SEVEN), published) == own
    theirs = replace(mig(SEVEN), partitioner=Partitioner.MIG_MANAGER, mig_config="mig-f59e014c")
    assert membership.desired(theirs, published) == own | {MIG_LABEL: "mig-f59e014c"}


def test_only_owned_labels_are_withdrawn() -> None:
    here = {POOL_LABEL: "training", PLUGIN_LABEL: "admin", MIG_LABEL: "all-disabled", "role": "gpu"}
    assert membership.own_labels(here, {PLUGIN_LABEL: "kubectl", MIG_LABEL: "gpu-operator"}) == {POOL_LABEL: "training"}
    assert not membership.must_apply({POOL_LABEL: "training"}, here, {MIG_LABEL: "gpu-operator"})
    assert membership.must_apply({POOL_LABEL: "training"}, here, {MIG_LABEL: "gpushare"})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parents[4].name}/{path.stem}")
def test_expected_resources_match_the_compilers(path: Path) -> None:
    policy = read(path.read_text())
    backend = DraBackend(policy=policy, read_checkpoint=PLUGIN.read_checkpoint) if policy.dra is not None else PLUGIN
    assert backend.expected(policy) == dict(policy.resources)
    assert backend.expected(policy, range(len(policy.gpus))) == {}


def test_missing_gpu_reduces_the_expected_resources() -> None:
    assert PLUGIN.expected(mig(SEVEN, SEVEN), {1}) == {"nvidia.com/mig-1g.5gb": 7}
    assert PLUGIN.expected(whole(2, replicas=4), {0}) == {"nvidia.com/gpu.shared": 4}


DESIRED = {"nvidia.com/gpu.shared": 2}
IDS = {"nvidia.com/gpu.shared": frozenset({"GPU-1::0", "GPU-1::1"})}


@pytest.mark.parametrize(
    ("registered", "allocatable", "reason", "is_stale"),
    [
        (IDS, DESIRED, None, False),
        (IDS | {"nvidia.com/gpu": frozenset()}, DESIRED | {"nvidia.com/gpu": 0, "nvidia.com/hostdev": 4}, None, False),
        ({}, {}, ConditionReason.WAITING_FOR_PLUGIN, True),
        ({"nvidia.com/gpu.shared": frozenset({"GPU-2::0", "GPU-2::1"})}, DESIRED, ConditionReason.WAITING_FOR_PLUGIN, True),
        ({"nvidia.com/gpu.shared": frozenset({"GPU-1::0"})}, DESIRED, ConditionReason.WRONG_RESOURCES, True),
        ({"nvidia.com/gpu": frozenset({"GPU-1"})}, {"nvidia.com/gpu": 1}, ConditionReason.WRONG_RESOURCES, False),
        (IDS, {"nvidia.com/gpu.shared": 1}, ConditionReason.WRONG_RESOURCES, True),
        (IDS, DESIRED | {"nvidia.com/gpu": 1}, ConditionReason.WRONG_RESOURCES, False),
        ({"nvidia.com/gpu.shared": frozenset({"nvidia0/vgpu0", "nvidia0/vgpu1"})}, DESIRED, None, False),
    ],
    ids=["right", "others", "none", "dead", "few replicas", "not shared", "kubelet late", "one more", "gke"],
)
def test_advertised_resources_must_match_in_ids_counts_and_names(registered, allocatable, reason, is_stale) -> None:
    lack = PLUGIN.find_mismatch(DESIRED, frozenset({"GPU-1"}), registered, allocatable)
    found = (None, False) if lack is None else (lack.reason, lack.is_stale)
    assert found == (reason, is_stale)


def test_unregistered_resource_is_reported_with_the_command_to_remove_it() -> None:
    registered = IDS | {"nvidia.com/mig-1g.5gb": frozenset()}
    offered = DESIRED | {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.5gb": 7}
    lack = PLUGIN.find_mismatch(DESIRED, frozenset({"GPU-1"}), registered, offered)
    assert lack is not None
    assert lack.message.startswith("the node offers nvidia.com/gpu: 2 instead of 0, nvidia.com/mig-1g.5gb: 7 instead of 0; ")
    assert "no plugin has registered nvidia.com/gpu, nvidia.com/mig-1g.5gb" in lack.message
    none = {"nvidia.com/gpu": None, "nvidia.com/mig-1g.5gb": None}
    assert json.loads(lack.message.split("'")[1]) == {"status": {"capacity": none, "allocatable": none}}
    late = PLUGIN.find_mismatch(DESIRED, frozenset({"GPU-1"}), IDS, {"nvidia.com/gpu.shared": 1})
    assert late is not None
    assert "kubectl" not in late.message


def test_gpu_resources_are_distinguished_from_other_nvidia_resources() -> None:
    assert [
        name
        for name in ("gpu", "gpu.shared", "mig-1g.5gb.me", "hostdev", "sriov_rdma_vf")
        if is_gpu_resource(f"nvidia.com/{name}")
    ] == ["gpu", "gpu.shared", "mig-1g.5gb.me"]
    assert PLUGIN.find_stale({"nvidia.com/gpu": frozenset({"GPU-9::1", "nvidia0"})}, frozenset({"GPU-1"})) == ("GPU-9",)


def test_every_change_affects_mps_clients_and_others_only_if_they_lose_resources() -> None:
    mps = whole(replicas=4, mode=Mode.MPS)
    assert find_affected(mig(SEVEN), mig(SEVEN), {}, {}) == frozenset()
    assert find_affected(None, whole(), {}, advertised({"nvidia.com/gpu": 1, "nvidia.com/hostdev": 3})) == frozenset()
    assert find_affected(None, whole(replicas=2), {}, {"nvidia.com/gpu": 1}) == {"nvidia.com/gpu"}
    sliced, served = {"nvidia.com/gpu.shared": 4}, {"nvidia.com/gpu.sharing-strategy": "mps"}
    assert find_affected(None, whole(replicas=4), {}, sliced) == frozenset(), "the same shares"
    assert find_affected(None, whole(replicas=4), served, sliced) == set(sliced), "of another program's MPS"
    assert find_affected(None, mps, {}, sliced) == set(sliced)
    assert find_affected(mps, whole(), {PLUGIN_LABEL: f"{whole().profile}-a"}, {}) == frozenset(), "it is there already"


def test_pod_holds_its_allocation_until_it_has_ended() -> None:
    def given(uid: str) -> Allocation:
        return Allocation(pod_uid=uid, container="main", resource="nvidia.com/gpu", ids=(f"GPU-{uid}::1",))

    checkpoint = Checkpoint(allocations=tuple(map(given, ("runs", "ended", "gone", "hash"))), registered={})
    pods = [pod("runs"), pod("ended", phase="Failed"), replace(pod("static"), uids=("mirror", "hash"))]
    assert find_allocated(find_holders(checkpoint, pods)) == {"GPU-runs", "GPU-hash"}
    assert find_allocated(find_holders(checkpoint, None)) == {"GPU-runs", "GPU-ended", "GPU-gone", "GPU-hash"}


def test_only_labels_that_are_true_are_paused_and_only_paused_ones_restored() -> None:
    plugin, dcgm, gfd = (f"nvidia.com/gpu.deploy.{one}" for one in ("device-plugin", "dcgm", "gpu-feature-discovery"))
    assert to_pause({plugin: "true", dcgm: "false", "nvidia.com/gpu.deploy.driver": "true"}) == {plugin: "true"}
    now = {plugin: "paused-for-mig-change", dcgm: "false", gfd: "paused-for-mig-change_paused-for-driver-upgrade"}
    assert to_resume(now, {plugin: "true", dcgm: "true"}) == {plugin: "true"}


def test_node_belongs_to_a_pool_while_its_label_and_pod_exist() -> None:
    assert find_owner({POOL_LABEL: "old"}, {"old"}, "new") == "old"
    assert find_owner({POOL_LABEL: "old"}, {"new"}, "new") is None
    assert find_owner({POOL_LABEL: "new"}, {"old"}, "new") is None
    assert find_successor(frozenset({"old", "new"}), "old") == "new"
    assert find_successor(frozenset({"old"}), "old") is None


@pytest.mark.parametrize(
    ("changed", "is_ours"),
    [
        ({}, True),
        ({"is_terminating": True}, True),
        ({"phase": "Failed"}, False),
        ({"namespace": "science"}, False),
        ({"namespace": "kube-system"}, False),
        ({"controller": ""}, False),
        ({"controller": "DaemonSet/other"}, False),
        ({"controller": "DaemonSet/gpushare-new"}, False),
        ({"controller": "ReplicaSet/gpushare-old"}, False),
        ({"labels": {}}, False),
    ],
)
def test_pod_of_a_pool_is_known_by_namespace_and_daemonset(changed: dict[str, Any], is_ours: bool) -> None:
    assert pools_of([replace(runtime_pod("old"), **changed), pod("other")], "gpushare") == ({"old"} if is_ours else set())


@pytest.mark.parametrize(
    ("namespace", "controller", "platform", "is_platforms"),
    [
        ("gpu-operator", "DaemonSet/nvidia-dcgm", {"gpu-operator"}, True),
        ("gpu-operator", "ReplicaSet/nvidia-dcgm", {"gpu-operator"}, False),
        ("gpu-operator", "", {"gpu-operator"}, False),
        ("science", "DaemonSet/nvidia-dcgm", {"gpu-operator"}, False),
        ("science", "DaemonSet/nvidia-dcgm", None, True),
        ("science", "", None, False),
    ],
)
def test_pod_of_the_platform_is_known_by_namespace_and_owner(
    namespace: str, controller: str, platform: set[str] | None, is_platforms: bool
) -> None:
    one = replace(pod("x"), namespace=namespace, controller=controller)
    assert platform_pods([one], None if platform is None else frozenset(platform)) == ((one,) if is_platforms else ())


PARTS = {"amd.com/gpu": 2}


def test_a_plugin_that_reads_the_gpus_once_is_stale_whatever_else_it_offers() -> None:
    devices = frozenset({"0000:05:00.0", "amdgpu_xcp_0"})
    more = PLUGIN.find_mismatch(PARTS, devices, {"amd.com/gpu": devices | {"amdgpu_xcp_1"}}, {"amd.com/gpu": 3})
    other = PLUGIN.find_mismatch(PARTS, devices, {"amd.com/gpu": frozenset({"0000:05:00.0", "0000:15:00.0"})}, PARTS)
    named = PLUGIN.find_mismatch(PARTS, devices, {"amd.com/spx_nps1": devices}, {"amd.com/spx_nps1": 2})
    for lack in (more, other, named):
        assert lack is not None
        assert lack.is_stale


def test_devices_that_are_not_known_are_not_compared() -> None:
    assert PLUGIN.find_mismatch(PARTS, frozenset(), {"amd.com/gpu": frozenset({"0000:05:00.0", "amdgpu_xcp_0"})}, PARTS) is None
