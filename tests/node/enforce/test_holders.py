"""Memory that the driver lists for a process that has ended, or has no GPU open: to whom it is charged, or why to nobody."""

import os
from pathlib import Path

import pytest

from tests.node.enforce.enforcement import (
    UNMAPPED,
    EnforcementFixture,
    await_end,
    blindness,
    container_id,
    hold,
    lives,
    pod_uid,
)
from tests.support.process_fixtures import IGNORING_SIGTERM, stat_line, systemd_path

DEAD = 4_000_001
"""A pid that no process has."""


def neighbour(node: EnforcementFixture) -> None:
    """Somebody within its cap, on the other GPU: on the same one it might hold the memory itself."""
    node.admit(2, "neighbour", 1)
    node.begin(2, 1000, gpu=1)


def start_time(pid: int) -> int:
    """In clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_memory_held_by_a_child_after_its_parent_exits_is_charged_to_its_container(enforcement: EnforcementFixture) -> None:
    """A data loader's worker: the driver goes on naming the parent."""
    enforcement.admit(1, "parent")
    neighbour(enforcement)
    child = hold(enforcement, 1)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(10)
    await_end(child)
    assert enforcement.told.reasons("neighbour") == []


def test_memory_of_ambiguous_containers_is_reported_with_their_names(enforcement: EnforcementFixture) -> None:
    for number, name in ((1, "one"), (2, "other")):
        enforcement.admit(number, name)
        hold(enforcement, number)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert "held by team/one, container main, team/other, container main" in blindness(enforcement)
    assert enforcement.told.reasons("one") == enforcement.told.reasons("other") == []


def test_orphaned_memory_is_not_charged_to_pods_without_that_gpu(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "elsewhere", 1)
    holder = hold(enforcement, 1)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert lives(holder)
    assert "no container to which it was allocated has it open" in blindness(enforcement)


def test_fork_that_holds_the_device_files_is_killed(enforcement: EnforcementFixture) -> None:
    listed = enforcement.admit_and_begin(1, "fork", 9000, IGNORING_SIGTERM)
    enforcement.fake_proc.fake(listed, "maps", UNMAPPED)
    enforcement.fake_proc.open_nothing(listed)
    fork = hold(enforcement, 1)
    enforcement.run(10)
    await_end(fork)


@pytest.mark.parametrize("end", ["a zombie", "a zombie outside its cgroup", "gone"])
def test_worker_holding_the_files_of_a_killed_process_is_killed(enforcement: EnforcementFixture, end: str) -> None:
    """A data loader's worker: the driver goes on naming the one that was killed. Cgroup v1 shows a zombie in the root."""
    listed = enforcement.admit_and_begin(1, "loader", 9000, IGNORING_SIGTERM)
    worker = hold(enforcement, 1, code=IGNORING_SIGTERM)
    enforcement.run(10)
    await_end(listed)
    enforcement.fake_proc.fake(listed, "maps", UNMAPPED)
    if end == "gone":
        enforcement.fake_proc.hide(listed)
    elif end == "a zombie outside its cgroup":
        enforcement.fake_proc.show(listed, "/")
    enforcement.fake_nvml.put(0, listed, 9000)
    enforcement.run(30)
    await_end(worker)
    assert "GPUProcessKillFailed" not in enforcement.told.reasons()


@pytest.mark.parametrize("cgroup", ["/system.slice/nvidia-persistenced.service", systemd_path(pod_uid(9), container_id(9))])
def test_memory_of_an_unreaped_process_is_charged_to_no_other_container(enforcement: EnforcementFixture, cgroup: str) -> None:
    """It ended before it was seen alive. The only container on the device has it open, and no row there."""
    enforcement.admit(1, "monitor")
    holder = hold(enforcement, 1)
    enforcement.fake_proc.show(DEAD, cgroup)
    enforcement.fake_proc.fake(DEAD, "stat", stat_line(DEAD, start_time=9, state="Z"))
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert lives(holder)
    assert enforcement.told.reasons("monitor") == []
    assert "no container to which it was allocated has it open" in blindness(enforcement)


@pytest.mark.parametrize("has_gpu", [True, False])
def test_memory_of_a_reused_pid_is_charged_to_neither_container(enforcement: EnforcementFixture, has_gpu: bool) -> None:
    """Whether the driver means the hog's ended process, or one that the neighbour has begun, cannot be told."""
    enforcement.admit(1, "hog")
    enforcement.admit(2, "neighbour")
    holder, listed = hold(enforcement, 1), enforcement.begin(1, 1000)
    enforcement.run(2)
    enforcement.fake_proc.show(listed, systemd_path(pod_uid(2), container_id(2)))
    enforcement.fake_proc.fake(listed, "stat", stat_line(listed, start_time=9))
    if not has_gpu:
        enforcement.fake_proc.fake(listed, "maps", UNMAPPED)
        enforcement.fake_proc.open_nothing(listed)
    # The other processes are read again within a minute.
    enforcement.run(60)
    enforcement.fake_nvml.put(0, listed, 9000)
    enforcement.run(70)
    assert lives(holder)
    assert lives(listed)
    assert "held by team/hog, container main, team/neighbour, container main" in blindness(enforcement)


@pytest.mark.parametrize("pid", [DEAD, os.getpid()], ids=["ended", "own"])
def test_unknown_pid_on_two_gpus_is_charged_per_gpu_to_its_allocated_pods(enforcement: EnforcementFixture, pid: int) -> None:
    """Under `admission: deny`, where memory on a GPU of others is over a cap of nothing."""
    enforcement.admit(1, "one")
    enforcement.admit(2, "two", 1)
    holders = [hold(enforcement, number) for number in (1, 2)]
    for gpu in (0, 1):
        enforcement.fake_nvml.put(gpu, pid, 1000)
    enforcement.run(15)
    assert all(map(lives, holders))
    enforcement.fake_nvml.put(1, pid, 9000)
    enforcement.run(10)
    await_end(holders[1])
    assert lives(holders[0])
    assert "GPUProcessKilled" not in enforcement.told.reasons("one")


def test_memory_that_a_deleted_container_leaves_is_not_charged_to_the_only_other_one(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "gone")
    enforcement.admit(2, "neighbour")
    holder, listed = hold(enforcement, 2), enforcement.begin(1, 9000, IGNORING_SIGTERM)
    enforcement.run(2)
    enforcement.fake_nvml.take(0, listed)
    enforcement.fake_proc.hide(listed)
    enforcement.fake_nvml.put(0, listed, 9000)
    enforcement.run(70)
    assert lives(holder)
    assert enforcement.told.reasons("neighbour") == []
    assert "no container to which it was allocated has it open" in blindness(enforcement)


@pytest.mark.parametrize("who", ["hidden", "ungiven"])
def test_memory_is_not_charged_if_an_unknown_container_may_hold_it(enforcement: EnforcementFixture, who: str) -> None:
    """The API server has not shown its pod yet, or kubelet's checkpoint has lost what was allocated to it."""
    enforcement.admit(2, "neighbour")
    if who == "ungiven":
        enforcement.arrive(1, "other")
    holders = [hold(enforcement, number) for number in (1, 2)]
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert all(map(lives, holders))
    assert enforcement.told.reasons("neighbour") == []
    assert "team/neighbour, container main" in blindness(enforcement)


def test_unfinished_holder_search_charges_no_container(
    enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may have any number of processes, each of which takes long to look at."""
    monkeypatch.setattr("gpushare_node.enforce.holders._SEARCH_SECONDS", 0)
    enforcement.admit(1, "owner")
    holder = hold(enforcement, 1)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert lives(holder)
    assert "team/owner, container main" in blindness(enforcement)


def test_memory_of_an_unknown_process_is_not_charged_to_a_listed_process(enforcement: EnforcementFixture) -> None:
    enforcement.admit(2, "neighbour")
    listed = enforcement.begin(2, 1000)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert lives(listed)
    assert "held by team/neighbour, container main" in blindness(enforcement)


def test_a_process_that_is_ending_slowly_is_waited_for(enforcement: EnforcementFixture) -> None:
    """Its files are closed already, and the driver frees its memory last: the rest of its container is not ended for it."""
    listed, other = enforcement.admit_and_begin(1, "slow", 9000, IGNORING_SIGTERM), hold(enforcement, 1, code=IGNORING_SIGTERM)
    enforcement.run(4)
    enforcement.fake_proc.fake(listed, "maps", "")
    enforcement.fake_proc.open_nothing(listed)
    enforcement.fake_proc.fake(listed, "stat", stat_line(listed, start_time=start_time(listed), flags=0x4))
    enforcement.run(12)
    enforcement.fake_nvml.take(0, listed)
    enforcement.run(20)
    assert lives(other)


def test_orphan_in_a_forged_nested_cgroup_is_charged_to_its_own_container(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "hog")
    neighbour(enforcement)
    orphan = hold(enforcement, 1, systemd_path(pod_uid(1), container_id(1)) + systemd_path(pod_uid(2), container_id(2)))
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(10)
    await_end(orphan)
    assert enforcement.told.reasons("neighbour") == []
