"""On AMD's GPUs nothing is capped, but who uses a partition that nothing gave it is found."""

from pathlib import Path
from typing import Any

import pytest

from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.vendors.amd.session import Session
from tests.node.enforce.enforcement import EnforcementFixture, await_end, container_id, lives, pod, pod_uid
from tests.node.enforce.enforcement_loop import VIEW, EnforcementLoop
from tests.node.reconcile.amd_node import amd
from tests.support.fake_amd.sysfs import FakeSysfs
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import SLEEPING, ProcessPool, systemd_path

NAME = "app.kubernetes.io/name"
MAPPED = "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/kfd\n"


class Node:
    """A node with one GPU in eight partitions, and the watch on it."""

    def __init__(self, folder: Path, fake_nvml: FakeNvml, process_pool: ProcessPool) -> None:
        self.sysfs = FakeSysfs(folder / "sys", "mi300x")
        self.sysfs.set_memory(0, "NPS4")
        self.watch = EnforcementFixture(folder, fake_nvml, process_pool, **open_watch(self.sysfs))

    def begin(self, number: int, part: int) -> int:
        """A process of this pod uses a partition; its pid."""
        pid = self.watch.started.pid(SLEEPING)
        self.watch.fake_proc.show(pid, systemd_path(pod_uid(number), container_id(number)))
        self.watch.fake_proc.fake(pid, "maps", MAPPED)
        self.sysfs.start(pid, (0, part, 2048))
        return pid


def open_watch(sysfs: FakeSysfs) -> dict[str, Any]:
    """What makes a watch one of this node."""
    return {"open_driver": lambda observe: Session.open(sysfs.root, observe), "own_policy": amd("CPX", "NPS4", gpus=1)}


@pytest.fixture
def node(tmp_path: Path, fake_nvml: FakeNvml, process_pool: ProcessPool) -> Node:
    return Node(tmp_path, fake_nvml, process_pool)


def test_a_tenant_on_its_own_partition_is_left_alone(node: Node) -> None:
    node.watch.arrive(1, "own")
    node.watch.allocate(1, "amd.com/gpu", ["amdgpu_xcp_2"])
    pid = node.begin(1, 3)
    node.watch.run(20)
    assert lives(pid)
    assert node.watch.enforcer.reason() is None
    assert node.watch.told.events == []


def test_a_stray_on_a_partition_of_another_is_ended(node: Node) -> None:
    node.watch.arrive(1, "own")
    node.watch.allocate(1, "amd.com/gpu", ["amdgpu_xcp_2"])
    owner = node.begin(1, 3)
    node.watch.arrive(2, "stray")
    stray = node.begin(2, 3)
    node.watch.run(20)
    await_end(stray)
    assert lives(owner)
    assert node.watch.told.reasons("stray")


@pytest.fixture
def loop(tmp_path: Path, fake_nvml: FakeNvml, process_pool: ProcessPool) -> EnforcementLoop:
    """The whole watch on a node whose GPU is in eight partitions, all of which it offers."""
    sysfs = FakeSysfs(tmp_path / "sys", "mi300x")
    sysfs.set_memory(0, "NPS4")
    made = EnforcementLoop(tmp_path, fake_nvml, process_pool, **open_watch(sysfs))
    made.monitor.labels = {POOL_LABEL: "pool"}
    made.enforcement.folder.keep_profile("", ())
    labels, space = {"daemonset-name": "gpushare-x"}, "kube-amd-gpu"
    plugin = pod("x-device-plugin", 7, namespace=space, labels=labels, controller="DaemonSet/x-device-plugin")
    exporter = pod("x-exporter", 8, namespace=space, labels=labels | {NAME: "exporter"}, controller="DaemonSet/x-exporter")
    made.enforcement.list.known = (plugin, exporter)
    made.api.view = replace(VIEW, labels={POOL_LABEL: "pool"}, allocatable={"amd.com/gpu": 8})
    made.run(20)
    assert made.api.said[-1][0] is ConditionReason.READY
    return made


def test_a_plugin_that_offers_too_little_is_deleted_because_it_follows_no_label(loop: EnforcementLoop) -> None:
    loop.api.view = replace(loop.api.view, allocatable={"amd.com/gpu": 7})
    loop.run(180)
    assert loop.api.said[-1][0] is ConditionReason.WRONG_RESOURCES
    assert {one.name for one in loop.api.evicted} == {"x-device-plugin"}
    assert (loop.api.applied, "GPUPluginRestarted" in loop.api.reasons()) == ([], True)


def test_modes_that_somebody_changes_are_repaired_by_a_new_pod(loop: EnforcementLoop, tmp_path: Path) -> None:
    (tmp_path / "sys").rename(tmp_path / "former")
    FakeSysfs(tmp_path / "sys", "mi300x")
    loop.run(70)
    assert loop.api.said[-1] == (ConditionReason.DRIFTED, "GPU 0 no longer matches the policy.")
    assert loop.api.deleted == 1
