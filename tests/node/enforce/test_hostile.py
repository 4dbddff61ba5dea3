"""Tenants that want more than their share, or their neighbours ended: none gets its way."""

from typing import Any

import pytest

from gpushare_node.adapters.procs import linux
from gpushare_node.adapters.procs.processes import SignalResult
from gpushare_node.core.structs import replace
from tests.node.enforce.enforcement import EnforcementFixture, await_end, container_id, lives, pod_uid
from tests.support.process_fixtures import systemd_path

UNMAPPED = "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/innocent0\n"


def test_a_container_whose_gpu_processes_end_just_in_time_is_ended_with_those_that_wait(stage: EnforcementFixture) -> None:
    waiting = stage.admit_and_begin(1, "storm", 0)
    stage.fake_nvml.take(0, waiting)
    for _ in range(3):
        pid = stage.begin(1, 5000)
        stage.run(5)
        await_end(pid)
        stage.run(2)
    pid = stage.begin(1, 5000)
    stage.run(4)
    send = stage.processes.send

    def too_late(seen: Any, signal: Any) -> SignalResult:
        return SignalResult.GONE if seen.pid == pid else send(seen, signal)

    stage.processes.send = too_late  # type: ignore[method-assign]
    stage.run(1)
    await_end(waiting)


def test_whoever_renames_the_devices_in_its_container_is_signalled_all_the_same(
    stage: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux, "NVIDIA_MAJOR", 1)  # /dev/null's, for real devices need a driver
    pid = stage.admit_and_begin(1, "renamer", 5000)
    stage.mirror.fake(pid, "maps", UNMAPPED)
    stage.mirror.open_nothing(pid)
    (stage.mirror.root / str(pid) / "fd/7").symlink_to("/dev/null")
    stage.run(6)
    await_end(pid)


@pytest.mark.failure_case(55)
def test_a_pod_that_deletes_itself_is_held_to_its_cap_until_it_is_gone(stage: EnforcementFixture) -> None:
    """A tenant may delete its own pod, with as much grace as the pod's spec asks for."""
    pid = stage.admit_and_begin(1, "undead", 1000)
    stage.run(2)
    stage.list.known = (replace(stage.list.known[0], is_terminating=True),)
    stage.fake_nvml.put(0, pid, 5000)
    stage.run(6)
    await_end(pid)


@pytest.mark.failure_case(55)
@pytest.mark.parametrize("is_idle", [False, True], ids=["at once", "after a pause without a GPU"])
def test_a_pod_that_is_deleted_by_force_and_runs_on_is_held_to_its_cap(stage: EnforcementFixture, *, is_idle: bool) -> None:
    """The API server forgets it at once; kubelet gives it the time that its spec asks for, which may be a year."""
    pid = stage.admit_and_begin(1, "ghost", 1000)
    stage.run(2)
    stage.list.known, stage.entries = (), []
    stage.admit(2, "next")
    if is_idle:
        stage.fake_nvml.take(0, pid)
        stage.run(600)
    stage.fake_nvml.put(0, pid, 5000)
    stage.run(7)
    await_end(pid)
    assert stage.told.reasons("ghost")[0] == "GPUMemoryOverCap"


@pytest.mark.failure_case(55)
def test_what_is_remembered_of_pods_that_have_gone_is_forgotten(stage: EnforcementFixture) -> None:
    for number in range(1, 9):
        stage.admit(number, f"ghost-{number}")
    stage.run(2)
    stage.list.known = ()
    stage.run(2)
    assert len(stage.enforcer.inventory.grants) == 8
    stage.run(1, seconds=3600)
    stage.run(1)
    assert stage.enforcer.inventory.grants == {}


@pytest.mark.failure_case(43)
@pytest.mark.parametrize("answer", ["refused", "no-gpu"])
def test_an_offender_that_cannot_be_signalled_shields_no_other_and_nothing_false_is_told(
    stage: EnforcementFixture, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    stage.admit(1, "untouchable")
    stage.admit(2, "next")
    first = stage.begin(1, 8000)
    if answer == "no-gpu":
        stage.mirror.fake(first, "maps", UNMAPPED)
    else:
        send = stage.processes.send
        monkeypatch.setattr(
            stage.processes, "send", lambda seen, signal: SignalResult.REFUSED if seen.pid == first else send(seen, signal))
    second = stage.begin(2, 5000)
    stage.run(6)
    await_end(second)
    stage.run(54)
    assert lives(first)
    assert stage.metric("stuck_processes ") == ["stuck_processes 0"]
    assert stage.told.reasons("untouchable") == ["GPUMemoryOverCap", "GPUProcessKillFailed"]
    assert not any("SIGKILL" in event.message for event in stage.told.events if event.reason == "GPUProcessKillFailed")
    stage.run(300)
    assert stage.told.reasons("untouchable").count("GPUProcessKillFailed") == 2


def test_whoever_moves_to_another_container_takes_its_use_along_and_leaves_nobody_to_pay(stage: EnforcementFixture) -> None:
    stage.admit(1, "left-behind")
    stage.admit(2, "new-home", replicas=3)
    innocent, mover = stage.begin(1, 1000), stage.begin(1, 5000)
    stage.run(2)
    stage.mirror.show(mover, systemd_path(pod_uid(2), container_id(2)))
    stage.run(60)
    assert lives(innocent)
    assert lives(mover)
    assert stage.told.reasons() == []
    assert stage.metric("stuck_processes ") == ["stuck_processes 0"]
