"""On AMD's GPUs nothing is capped, but who uses a partition that nothing gave it is found."""

from pathlib import Path

import pytest

from gpushare_node.vendors.amd.session import Session
from tests.node.enforce.enforcement import EnforcementFixture, await_end, container_id, lives, pod_uid
from tests.node.reconcile.amd_node import amd
from tests.support.fake_amd.sysfs import FakeSysfs
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import SLEEPING, ProcessPool, systemd_path

MAPPED = "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/kfd\n"


class Node:
    """A node with one GPU in eight partitions, and the watch on it."""

    def __init__(self, folder: Path, fake_nvml: FakeNvml, process_pool: ProcessPool) -> None:
        self.sysfs = FakeSysfs(folder / "sys", "mi300x")
        self.sysfs.set_memory(0, "NPS4")
        self.watch = EnforcementFixture(
            folder,
            fake_nvml,
            process_pool,
            open_driver=lambda observe: Session.open(self.sysfs.root, observe),
            own_policy=amd("CPX", "NPS4", gpus=1),
        )

    def begin(self, number: int, part: int) -> int:
        """A process of this pod uses a partition; its pid."""
        pid = self.watch.started.pid(SLEEPING)
        self.watch.fake_proc.show(pid, systemd_path(pod_uid(number), container_id(number)))
        self.watch.fake_proc.fake(pid, "maps", MAPPED)
        self.sysfs.start(pid, (0, part, 2048))
        return pid


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
