"""Tenants that want more than their share, or their neighbours ended: none gets its way."""

from typing import Any

import pytest

from gpushare_node.adapters.procs import linux
from gpushare_node.adapters.procs.processes import SignalResult
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from tests.node.enforce.enforcement import MAPPED, EnforcementFixture, await_end, container_id, lives, pod_uid
from tests.support.process_fixtures import SLEEPING, systemd_path

UNMAPPED = "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/innocent0\n"


def test_container_whose_gpu_processes_exit_early_is_killed_as_a_whole(enforcement: EnforcementFixture) -> None:
    waiting = enforcement.admit_and_begin(1, "storm", 0)
    enforcement.fake_nvml.take(0, waiting)
    for _ in range(3):
        pid = enforcement.begin(1, 5000)
        enforcement.run(5)
        await_end(pid)
        enforcement.run(2)
    pid = enforcement.begin(1, 5000)
    enforcement.run(4)
    send = enforcement.processes.send

    def too_late(seen: Any, signal: Any) -> SignalResult:
        return SignalResult.GONE if seen.pid == pid else send(seen, signal)

    enforcement.processes.send = too_late  # type: ignore[method-assign]
    enforcement.run(1)
    await_end(waiting)


def test_unattributable_memory_of_changing_processes_is_reported(enforcement: EnforcementFixture) -> None:
    """Each process ends before it is recognised, and the next one before its memory could be a reason by itself."""
    for number in (1, 2):
        enforcement.admit(number, f"p{number}")
        pid = enforcement.started.pid(SLEEPING)
        enforcement.fake_proc.show(pid, systemd_path(pod_uid(number), container_id(number)))
        enforcement.fake_proc.fake(pid, "maps", MAPPED)
    for number in range(20):
        enforcement.fake_nvml.put(0, 4_000_001 + number, 9000)
        enforcement.run(4)
        enforcement.fake_nvml.take(0, 4_000_001 + number)
    reason = enforcement.enforcer.reason()
    assert reason is not None
    assert reason[0] is ConditionReason.ENFORCEMENT_BLIND
    assert "held by team/p1, container main, team/p2, container main" in reason[1]
    enforcement.run(10)
    assert enforcement.enforcer.reason() is None


def test_process_using_renamed_device_files_is_signalled(
    enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux, "DEVICE_MAJORS", {1})  # /dev/null's, for real devices need a driver
    pid = enforcement.admit_and_begin(1, "renamer", 5000)
    enforcement.fake_proc.fake(pid, "maps", UNMAPPED)
    enforcement.fake_proc.open_nothing(pid)
    (enforcement.fake_proc.root / str(pid) / "fd/7").symlink_to("/dev/null")
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(55)
def test_terminating_pod_is_held_to_its_cap(enforcement: EnforcementFixture) -> None:
    """A tenant may delete its own pod, with as much grace as the pod's spec asks for."""
    pid = enforcement.admit_and_begin(1, "undead", 1000)
    enforcement.run(2)
    enforcement.list.known = (replace(enforcement.list.known[0], is_terminating=True),)
    enforcement.fake_nvml.put(0, pid, 5000)
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(55)
@pytest.mark.parametrize("is_idle", [False, True], ids=["at once", "after a pause without a GPU"])
def test_a_pod_that_is_deleted_by_force_and_runs_on_is_held_to_its_cap(
    enforcement: EnforcementFixture, *, is_idle: bool
) -> None:
    """The API server forgets it at once; kubelet gives it the time that its spec asks for, which may be a year."""
    pid = enforcement.admit_and_begin(1, "ghost", 1000)
    enforcement.run(2)
    enforcement.list.known, enforcement.entries = (), []
    enforcement.admit(2, "next")
    if is_idle:
        enforcement.fake_nvml.take(0, pid)
        enforcement.run(600)
    enforcement.fake_nvml.put(0, pid, 5000)
    enforcement.run(7)
    await_end(pid)
    assert enforcement.told.reasons("ghost")[0] == "GPUMemoryOverCap"


@pytest.mark.failure_case(55)
def test_grants_of_deleted_pods_are_dropped(enforcement: EnforcementFixture) -> None:
    for number in range(1, 9):
        enforcement.admit(number, f"ghost-{number}")
    enforcement.run(2)
    enforcement.list.known = ()
    enforcement.run(2)
    assert len({container.pod_uid for container in enforcement.enforcer.inventory.grants}) == 8
    enforcement.run(1, seconds=3600)
    enforcement.run(1)
    assert enforcement.enforcer.inventory.grants == {}


@pytest.mark.failure_case(43)
def test_unsignallable_offender_does_not_protect_other_offenders(
    enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcement.admit(1, "untouchable")
    enforcement.admit(2, "next")
    first = enforcement.begin(1, 8000)
    send = enforcement.processes.send
    monkeypatch.setattr(
        enforcement.processes, "send", lambda seen, signal: SignalResult.REFUSED if seen.pid == first else send(seen, signal)
    )
    second = enforcement.begin(2, 5000)
    enforcement.run(6)
    await_end(second)
    enforcement.run(54)
    assert lives(first)
    assert enforcement.metric("stuck_processes ") == ["stuck_processes 0"]
    assert set(enforcement.told.reasons("untouchable")) == {"GPUMemoryOverCap", "GPUProcessKillFailed", "GPUPodEvicted"}
    assert {pod.name for pod in enforcement.told.evicted} == {"untouchable"}
    assert not any("SIGKILL" in event.message for event in enforcement.told.events if event.reason == "GPUProcessKillFailed")
    enforcement.run(300)
    assert enforcement.told.reasons("untouchable").count("GPUProcessKillFailed") == 2


def test_memory_of_a_moved_process_is_charged_to_its_new_container(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "left-behind")
    enforcement.admit(2, "new-home", replicas=3)
    innocent, mover = enforcement.begin(1, 1000), enforcement.begin(1, 5000)
    enforcement.run(2)
    enforcement.fake_proc.show(mover, systemd_path(pod_uid(2), container_id(2)))
    enforcement.run(60)
    assert lives(innocent)
    assert lives(mover)
    assert enforcement.told.reasons() == []
    assert enforcement.metric("stuck_processes ") == ["stuck_processes 0"]
