"""Memory that the driver lists for a process that has ended, or has no GPU open: to whom it is charged, or why to nobody."""

import os
import signal
from pathlib import Path

import pytest

from tests.node.enforce.enforcement import (
    CAP_MIB,
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


def start_time(pid: int) -> int:
    """In clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


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


def end(node: EnforcementFixture, pid: int, used_mib: int) -> None:
    """The process is gone, and the driver goes on listing its memory."""
    os.kill(pid, signal.SIGKILL)
    await_end(pid)
    node.fake_proc.hide(pid)
    node.fake_nvml.put(0, pid, used_mib)


@pytest.mark.parametrize("keeper", ["a child", "a cgroup that it has made and named like a neighbour's"])
def test_what_a_process_leaves_ends_with_its_whole_container(enforcement: EnforcementFixture, keeper: str) -> None:
    """A data loader's worker keeps the memory of its parent, which the driver goes on naming."""
    parent = enforcement.admit_and_begin(1, "parent", 9000)
    neighbour = enforcement.admit_and_begin(2, "neighbour", CAP_MIB)
    own = systemd_path(pod_uid(1), container_id(1))
    path = own if keeper == "a child" else own + systemd_path(pod_uid(2), container_id(2))
    worker = hold(enforcement, 1, path, IGNORING_SIGTERM)
    enforcement.run(1)
    end(enforcement, parent, 9000)
    enforcement.run(15)
    await_end(worker)
    assert lives(neighbour)
    assert enforcement.told.reasons("neighbour") == []


def test_what_a_process_leaves_is_its_containers_whatever_others_have_open(enforcement: EnforcementFixture) -> None:
    """It is not sought: that takes long, and tenants may have any number of processes that take long to look at."""
    left = enforcement.admit_and_begin(1, "within", CAP_MIB)
    enforcement.admit(2, "neighbour")
    others = [hold(enforcement, number) for number in (1, 2)]
    enforcement.run(2)
    end(enforcement, left, CAP_MIB)
    enforcement.run(200)
    assert all(map(lives, others))
    assert enforcement.told.events == []
    assert blindness(enforcement) == ""


def test_what_is_left_counts_with_what_its_container_uses(enforcement: EnforcementFixture) -> None:
    """Until the driver lists it no more; what suffices is ended first."""
    left = enforcement.admit_and_begin(1, "sum", 2000)
    large, small = enforcement.begin(1, 3000), hold(enforcement, 1)
    enforcement.run(2)
    end(enforcement, left, 2000)
    enforcement.has_begun = True
    enforcement.run(8)
    await_end(large)
    enforcement.fake_nvml.take(0, large)
    enforcement.run(90)
    assert lives(small)


def test_a_process_that_exits_just_then_does_not_cost_its_container(enforcement: EnforcementFixture) -> None:
    """The driver lists it for a moment longer."""
    leaving, other = enforcement.admit_and_begin(1, "leaving", 9000), hold(enforcement, 1)
    enforcement.run(4)
    end(enforcement, leaving, 9000)
    enforcement.run(1)
    enforcement.fake_nvml.take(0, leaving)
    enforcement.run(60)
    assert lives(other)


@pytest.mark.parametrize("way", ["no process", "a zombie", "ourselves"])
def test_memory_of_a_process_that_was_never_seen_is_nobodys_and_is_reported(enforcement: EnforcementFixture, way: str) -> None:
    """With the device and those to whom it was allocated: one of them may hold it."""
    enforcement.admit(1, "one")
    enforcement.admit(2, "other")
    enforcement.admit(3, "elsewhere", 1)
    holders = [hold(enforcement, number) for number in (1, 2, 3)]
    if way == "a zombie":
        enforcement.fake_proc.show(DEAD, systemd_path(pod_uid(1), container_id(1)))
        enforcement.fake_proc.fake(DEAD, "stat", stat_line(DEAD, start_time=9, state="Z"))
    enforcement.fake_nvml.put(0, os.getpid() if way == "ourselves" else DEAD, 9000)
    enforcement.run(58)
    assert blindness(enforcement) == ""
    enforcement.run(12)
    assert all(map(lives, holders))
    assert enforcement.told.events == []
    assert "held by team/one, container main, team/other, container main" in blindness(enforcement)
    assert enforcement.fake_nvml.uuid(0) in blindness(enforcement)
    assert "elsewhere" not in blindness(enforcement)


def test_processes_that_come_and_go_before_they_are_seen_blind_nobody(enforcement: EnforcementFixture) -> None:
    enforcement.admit_and_begin(1, "one", 1000)
    for pid in range(DEAD, DEAD + 90):
        enforcement.fake_nvml.put(0, pid, 1000)
        enforcement.run(1)
        enforcement.fake_nvml.take(0, pid)
    assert blindness(enforcement) == ""
