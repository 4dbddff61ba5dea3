"""Ways around a cap, by malice or without any, and ways to lose sight of one: each ends right, or is a reason of the node."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.host.files import Files
from gpushare_node.adapters.procs.processes import SignalResult
from gpushare_node.reporting.reasons import ConditionReason
from tests.node.enforce.enforcement import (
    MAPPED,
    OLD,
    SHARED,
    EnforcementFixture,
    await_end,
    container_id,
    lives,
    pod_uid,
    policy,
)
from tests.support.process_fixtures import DEAF, OBEDIENT, stat_line, systemd_path

UNMAPPED = "7f0000000000-7f0000001000 r--p 00000000 08:01 1 /usr/lib/libc.so.6\n"
DEAD = 4_000_001


def pod_slice(number: int) -> str:
    """The cgroup of a pod itself, in which runsc has its sandbox."""
    return systemd_path(pod_uid(number), container_id(number)).rpartition("/")[0]


def hold(node: EnforcementFixture, number: int, path: str | None = None, code: str = OBEDIENT) -> int:
    """A process of this pod's container that has a GPU open, and that no list names; its pid."""
    pid = node.started.pid(code)
    node.fake_proc.show(pid, path or systemd_path(pod_uid(number), container_id(number)))
    node.fake_proc.fake(pid, "maps", MAPPED)
    return pid


def neighbour(node: EnforcementFixture) -> None:
    """Somebody within its cap, on the other GPU: on the same one it might hold the memory itself."""
    node.admit(2, "neighbour", 1)
    node.begin(2, 1000, gpu=1)


def start_time(pid: int) -> int:
    """In clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def blindness(node: EnforcementFixture) -> str:
    """Why the node is EnforcementBlind; empty if it is not."""
    reason = node.enforcer.reason()
    return reason[1] if reason is not None and reason[0] is ConditionReason.ENFORCEMENT_BLIND else ""


def lose_checkpoint(node: EnforcementFixture) -> None:
    """Kubelet begins a new checkpoint, without the pods that run on."""
    node.entries.clear()
    node.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": None, "RegisteredDevices": {}}}))


# Memory whose process has left.


def test_memory_that_a_child_holds_after_its_parent_has_ended_is_its_containers(enforcement: EnforcementFixture) -> None:
    """A data loader's worker: the driver goes on naming the parent."""
    enforcement.admit(1, "parent")
    neighbour(enforcement)
    child = hold(enforcement, 1)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(10)
    await_end(child)
    assert enforcement.told.reasons("neighbour") == []


def test_memory_that_several_containers_may_hold_is_a_reason_that_names_them(enforcement: EnforcementFixture) -> None:
    for number, name in ((1, "one"), (2, "other")):
        enforcement.admit(number, name)
        hold(enforcement, number)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert "held by team/one, container main, team/other, container main" in blindness(enforcement)
    assert enforcement.told.reasons("one") == enforcement.told.reasons("other") == []


def test_memory_on_another_gpu_accuses_nobody_to_whom_that_was_not_given(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "elsewhere", 1)
    holder = hold(enforcement, 1)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert lives(holder)
    assert "no container to which it was allocated has it open" in blindness(enforcement)


def test_who_closes_its_files_and_leaves_them_to_a_fork_is_ended_with_it(enforcement: EnforcementFixture) -> None:
    listed = enforcement.admit_and_begin(1, "fork", 9000, DEAF)
    enforcement.fake_proc.fake(listed, "maps", UNMAPPED)
    enforcement.fake_proc.open_nothing(listed)
    fork = hold(enforcement, 1)
    enforcement.run(10)
    await_end(fork)


# Five more, thought of for this.


@pytest.mark.parametrize("has_gpu", [True, False])
def test_memory_whose_pid_passes_to_a_neighbour_is_charged_to_neither(enforcement: EnforcementFixture, has_gpu: bool) -> None:
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
def test_a_pid_on_two_gpus_accuses_on_each_only_those_to_whom_it_was_given(enforcement: EnforcementFixture, pid: int) -> None:
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
    holder, listed = hold(enforcement, 2), enforcement.begin(1, 9000, DEAF)
    enforcement.run(2)
    enforcement.fake_nvml.take(0, listed)
    enforcement.fake_proc.hide(listed)
    enforcement.fake_nvml.put(0, listed, 9000)
    enforcement.run(70)
    assert lives(holder)
    assert enforcement.told.reasons("neighbour") == []
    assert "no container to which it was allocated has it open" in blindness(enforcement)


@pytest.mark.parametrize("who", ["hidden", "ungiven"])
def test_memory_that_a_container_of_unknown_devices_may_hold_is_charged_to_nobody(
    enforcement: EnforcementFixture, who: str
) -> None:
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


def test_a_search_that_is_not_finished_in_time_accuses_nobody(
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


def test_memory_of_an_unknown_process_is_not_charged_to_one_that_has_a_row_of_its_own(enforcement: EnforcementFixture) -> None:
    enforcement.admit(2, "neighbour")
    listed = enforcement.begin(2, 1000)
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(70)
    assert lives(listed)
    assert "held by team/neighbour, container main" in blindness(enforcement)


def test_a_process_that_is_ending_slowly_is_waited_for(enforcement: EnforcementFixture) -> None:
    """Its files are closed already, and the driver frees its memory last: the rest of its container is not ended for it."""
    listed, other = enforcement.admit_and_begin(1, "slow", 9000, DEAF), hold(enforcement, 1, code=DEAF)
    enforcement.run(4)
    enforcement.fake_proc.fake(listed, "maps", "")
    enforcement.fake_proc.open_nothing(listed)
    enforcement.fake_proc.fake(listed, "stat", stat_line(listed, start_time=start_time(listed), flags=0x4))
    enforcement.run(12)
    enforcement.fake_nvml.take(0, listed)
    enforcement.run(20)
    assert lives(other)


def test_an_orphan_in_a_cgroup_named_like_a_neighbours_is_still_its_containers(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "hog")
    neighbour(enforcement)
    orphan = hold(enforcement, 1, systemd_path(pod_uid(1), container_id(1)) + systemd_path(pod_uid(2), container_id(2)))
    enforcement.fake_nvml.put(0, DEAD, 9000)
    enforcement.run(10)
    await_end(orphan)
    assert enforcement.told.reasons("neighbour") == []


def test_a_container_that_kubelet_starts_again_owes_for_its_last_run(enforcement: EnforcementFixture) -> None:
    """It exits by itself just before each SIGKILL; the next run has another id."""
    enforcement.admit(1, "again", containers={container_id(1): "main", container_id(7): "main"},
                      started={container_id(1): 1.5e9 + 1700, container_id(7): 1.5e9 + 1700})
    first = enforcement.begin(1, 9000)
    enforcement.run(6)
    await_end(first)
    enforcement.run(3)
    parent = hold(enforcement, 1, systemd_path(pod_uid(1), container_id(7)), DEAF)
    enforcement.fake_proc.fake(parent, "maps", UNMAPPED)
    second = enforcement.begin(1, 9000, container=7)
    enforcement.run(4)
    await_end(second)
    enforcement.run(6)
    await_end(parent)


def test_a_container_that_offends_and_restarts_the_runtime_does_not_begin_anew(enforcement: EnforcementFixture) -> None:
    parent = enforcement.admit_and_begin(1, "patient", 0, DEAF)
    enforcement.fake_nvml.take(0, parent)
    for _ in range(3):
        worker = enforcement.begin(1, 9000)
        enforcement.run(5)
        await_end(worker)
        if not lives(parent):
            break
        enforcement.enforcer.close()
        enforcement.start()
        enforcement.run(1)
        worker = enforcement.begin(1, 9000)
        enforcement.run(9)
    await_end(parent)


def test_two_containers_of_one_pod_that_take_turns_are_ended(enforcement: EnforcementFixture) -> None:
    both = {container_id(1): "main", container_id(2): "side"}
    enforcement.arrive(1, "twins", containers=both, started=dict.fromkeys(both, 1.5e9 + 1700))
    uuid = enforcement.fake_nvml.uuid(0)
    enforcement.allocate(1, SHARED, [f"{uuid}::1"])
    enforcement.entries.append(enforcement.entries[-1] | {"ContainerName": "side", "DeviceIDs": {"-1": [f"{uuid}::2"]}})
    enforcement.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": enforcement.entries, "RegisteredDevices": {}}}))
    pids = [enforcement.begin(1, 1000, container=number) for number in (1, 2)]
    for turn in range(16):
        for number, pid in enumerate(pids):
            if lives(pid):
                enforcement.fake_nvml.put(0, pid, 9000 if number == turn % 2 else 1000)
        enforcement.run(2)
    assert not all(map(lives, pids))


# Sandboxes.


def test_a_sandbox_in_its_pods_own_cgroup_has_the_cap_of_its_container(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "sandboxed")
    enforcement.admit_and_begin(2, "plain", 1000)
    pid = hold(enforcement, 1, pod_slice(1))
    enforcement.fake_nvml.put(0, pid, 9000)
    enforcement.run(8)
    await_end(pid)
    assert enforcement.told.reasons("plain") == []


def test_a_sandbox_in_its_pause_containers_cgroup_is_the_pods(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "sandboxed")
    pid = hold(enforcement, 1, systemd_path(pod_uid(1), container_id(99)))
    enforcement.fake_nvml.put(0, pid, 4000)
    enforcement.run(8)
    assert lives(pid)
    enforcement.fake_nvml.put(0, pid, 9000)
    enforcement.run(8)
    await_end(pid)


# What was never given, and what nobody knows.


@pytest.mark.parametrize("why", ["requests", "foreign", "old"])
def test_a_pod_that_may_have_been_given_its_gpu_is_no_stray(enforcement: EnforcementFixture, why: str) -> None:
    """The checkpoint was lost, another plugin gave the GPU, or the container is older than enforcement."""
    changes: dict[str, dict[str, Any]] = {
        "requests": {"resources": frozenset({"volcano.sh/vgpu-number"})}, "old": {"started": {container_id(1): OLD}},
    }
    enforcement.arrive(1, "legit", **changes.get(why, {}))
    uuid = enforcement.fake_nvml.uuid(0)
    enforcement.allocate(9, SHARED, [f"{uuid}::900"])
    if why == "foreign":
        enforcement.allocate(1, "example.com/slice", [f"{uuid}-0"])
    pid = enforcement.begin(1, 1000)
    enforcement.run(40)
    assert lives(pid)
    assert "GPUProcessKilled" not in enforcement.told.reasons("legit")


def test_a_pod_that_holds_a_share_of_which_the_checkpoint_knows_nothing_is_a_reason(enforcement: EnforcementFixture) -> None:
    enforcement.admit(9, "other")
    lose_checkpoint(enforcement)
    enforcement.arrive(1, "legit", resources=frozenset({SHARED}))
    pid = enforcement.begin(1, 30000)
    enforcement.run(70)
    assert lives(pid)
    assert "team/legit" in blindness(enforcement)


def test_a_pod_that_has_gone_is_no_reason_when_the_checkpoint_forgets_it(enforcement: EnforcementFixture) -> None:
    """Kubelet forgets it as it gives devices to the next pod. Its last status and its deletion come between two looks."""
    pid = enforcement.admit_and_begin(1, "gone", 1000, resources=frozenset({SHARED}))
    enforcement.run(20)
    enforcement.fake_nvml.take(0, pid)
    enforcement.list.known, enforcement.entries = (), []
    enforcement.admit(2, "next", resources=frozenset({SHARED}))
    enforcement.run(90)
    assert blindness(enforcement) == ""


def test_a_pod_of_two_containers_that_has_gone_without_a_process_is_no_reason(enforcement: EnforcementFixture) -> None:
    both = {container_id(1): "main", container_id(2): "side"}
    enforcement.admit(1, "gone", containers=both, started=dict.fromkeys(both, 1.5e9 + 1700))
    enforcement.entries.append(enforcement.entries[-1] | {"ContainerName": "side"})
    enforcement.register(10)
    enforcement.run(5)
    enforcement.list.known = ()
    enforcement.run(5, seconds=200)
    assert blindness(enforcement) == ""


@pytest.mark.parametrize("how", ["gone", "cut off"])
def test_a_checkpoint_that_is_lost_is_a_reason_until_it_is_back(enforcement: EnforcementFixture, how: str) -> None:
    enforcement.admit_and_begin(1, "first", 1000)
    enforcement.run(20)
    text = enforcement.checkpoint.read_text()
    if how == "gone":
        enforcement.checkpoint.unlink()
    else:
        enforcement.checkpoint.write_text(text[: len(text) // 2])
    enforcement.run(90)
    assert "later containers have no cap" in blindness(enforcement)
    enforcement.checkpoint.write_text(text)
    enforcement.run(15)
    assert blindness(enforcement) == ""


def test_memory_that_the_driver_does_not_tell_is_a_reason(enforcement: EnforcementFixture) -> None:
    for number in (1, 2):
        enforcement.admit_and_begin(number, f"p{number}", None)
    enforcement.run(70)
    assert "does not say how much memory" in blindness(enforcement)


def test_a_container_that_nothing_ends_is_a_reason_that_names_it(
    enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcement.admit_and_begin(1, "untouchable", 9000)
    monkeypatch.setattr(enforcement.processes, "send", lambda _seen, _signal: SignalResult.REFUSED)
    enforcement.run(60)
    assert enforcement.enforcer.reason() is None
    enforcement.run(60)
    reason = enforcement.enforcer.reason()
    assert reason is not None
    assert reason[0] is ConditionReason.CAP_EXCEEDED
    assert "team/untouchable, container main on" in reason[1]


# The folder on the host.


def test_caps_that_could_not_be_stored_are_stored_when_the_disk_is_free(
    enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:

        def refuse(_own: Files, _name: str, _content: bytes) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(Files, "write", refuse)
        enforcement.admit_and_begin(1, "early", 1000)
        enforcement.run(15)
    enforcement.run(35)
    assert set(enforcement.folder.caps()) == {container_id(1)}
    enforcement.policy = policy(share={"capMiB": 500})
    enforcement.start()
    enforcement.run(5)
    caps = [cap.bytes >> 20 for one in enforcement.enforcer.inventory.grants.values() for cap in one.caps.values()]
    assert caps == [4096]


def test_a_field_of_a_newer_release_is_read_over_and_kept(enforcement: EnforcementFixture) -> None:
    enforcement.admit_and_begin(1, "first", 1000)
    enforcement.run(3)
    file: Path = enforcement.folder.path / "caps.json"
    content = json.loads(file.read_text())
    container = content["content"][container_id(1)]
    container["since"], container["caps"][0]["burst"] = "tomorrow", 7
    file.write_text(json.dumps(content))
    enforcement.start()
    enforcement.admit(2, "second")
    enforcement.run(15)
    kept = json.loads(file.read_text())["content"]
    assert set(kept) == {container_id(1), container_id(2)}
    assert (kept[container_id(1)]["since"], kept[container_id(1)]["caps"][0]["burst"]) == ("tomorrow", 7)
