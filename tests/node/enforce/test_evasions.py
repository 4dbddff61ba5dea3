"""Ways around a cap, by malice or without any, and ways to lose sight of one: each ends right, or is a reason of the node."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.host.state_dir import Files
from gpushare_node.adapters.kube.cluster import PodClaim
from gpushare_node.adapters.procs.processes import SignalResult
from gpushare_node.contract.reasons import ConditionReason
from tests.node.enforce.enforcement import (
    OLD,
    SHARED,
    UNMAPPED,
    YOUNG,
    EnforcementFixture,
    await_end,
    blindness,
    container_id,
    hold,
    lives,
    pod_uid,
    policy,
)
from tests.support.process_fixtures import IGNORING_SIGTERM, systemd_path


def pod_slice(number: int) -> str:
    """The cgroup of a pod itself, in which runsc has its sandbox."""
    return systemd_path(pod_uid(number), container_id(number)).rpartition("/")[0]


def lose_checkpoint(node: EnforcementFixture) -> None:
    """Kubelet begins a new checkpoint, without the pods that run on."""
    node.entries.clear()
    node.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": None, "RegisteredDevices": {}}}))


# Beginning anew.


def test_restarted_container_keeps_the_debt_of_its_last_run(enforcement: EnforcementFixture) -> None:
    """It exits by itself just before each SIGKILL; the next run has another id."""
    enforcement.admit(
        1,
        "again",
        containers={container_id(1): "main", container_id(7): "main"},
        started={container_id(1): 1.5e9 + 1700, container_id(7): 1.5e9 + 1700},
    )
    first = enforcement.begin(1, 9000)
    enforcement.run(6)
    await_end(first)
    enforcement.run(3)
    parent = hold(enforcement, 1, systemd_path(pod_uid(1), container_id(7)), IGNORING_SIGTERM)
    enforcement.fake_proc.fake(parent, "maps", UNMAPPED)
    second = enforcement.begin(1, 9000, container=7)
    enforcement.run(4)
    await_end(second)
    enforcement.run(6)
    await_end(parent)


def test_containers_of_a_pod_that_alternate_over_the_cap_are_killed(enforcement: EnforcementFixture) -> None:
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


def test_sandbox_in_the_pause_container_cgroup_has_the_cap_of_the_pod(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "sandboxed")
    pid = hold(enforcement, 1, systemd_path(pod_uid(1), container_id(99)))
    enforcement.fake_nvml.put(0, pid, 4000)
    enforcement.run(8)
    assert lives(pid)
    enforcement.fake_nvml.put(0, pid, 9000)
    enforcement.run(8)
    await_end(pid)


# What was never given, and what nobody knows.


@pytest.mark.parametrize(
    ("resource", "form"),
    [
        ("example.com/slice", "{}-0"),
        ("volcano.sh/vgpu-number", "{}-7"),
        ("volcano.sh/vgpu-memory", "12"),
        ("nvidia.com/gpu", "{}-0"),
        ("example.com/renamed", "{}::3"),
    ],
)
def test_what_another_program_gave_is_used_undisturbed(enforcement: EnforcementFixture, resource: str, form: str) -> None:
    """It decides itself on which GPU the part is, unless its ids are those of devices here."""
    enforcement.arrive(1, "theirs", resources=frozenset({resource}))
    enforcement.allocate(9, SHARED, [f"{enforcement.fake_nvml.uuid(0)}::900"])
    enforcement.allocate(1, resource, [form.format(enforcement.fake_nvml.uuid(0))])
    pids = [enforcement.begin(1, 9000)]
    if "::" not in form:
        pids.append(enforcement.begin(1, 9000, gpu=1))
    enforcement.run(40)
    assert all(map(lives, pids))
    assert "GPUProcessKilled" not in enforcement.told.reasons("theirs")


def test_who_is_older_than_enforcement_may_use_what_it_was_not_given(enforcement: EnforcementFixture) -> None:
    enforcement.arrive(1, "old", started={container_id(1): OLD})
    enforcement.allocate(9, SHARED, [f"{enforcement.fake_nvml.uuid(0)}::900"])
    pid = enforcement.begin(1, 9000)
    enforcement.run(40)
    assert lives(pid)


@pytest.mark.parametrize("rest", ["nothing", "an older container that runs on"])
def test_what_starts_later_in_an_older_pod_is_not_older(enforcement: EnforcementFixture, rest: str) -> None:
    """No status lists it while its postStart hook runs."""
    both = {container_id(1): "main", container_id(11): "side"}
    enforcement.arrive(1, "old", containers=both, started=dict.fromkeys(both, OLD))
    enforcement.allocate(9, SHARED, [f"{enforcement.fake_nvml.uuid(0)}::900"])
    older = enforcement.begin(1, 9000)
    enforcement.run(20)
    assert lives(older)
    stays = {} if rest == "nothing" else {container_id(1): OLD}
    enforcement.list.known = ()
    enforcement.arrive(1, "old", containers={one: both[one] for one in stays}, started=stays)
    if not stays:
        os.kill(older, signal.SIGKILL)
        await_end(older)
        enforcement.fake_nvml.take(0, older)
    later = enforcement.begin(1, 9000, container=12)
    enforcement.run(40)
    await_end(later)
    assert lives(older) is bool(stays)


IN_VAIN: dict[str, dict[str, Any]] = {
    "a resource that nobody gives": {"resources": frozenset({"x.y/gpu"})},
    "a name that another program would give": {"resources": frozenset({"volcano.sh/vgpu-number"})},
    "a name that the node does not offer": {"resources": frozenset({"nvidia.com/gpu", "nvidia.com/mig-1g.5gb"})},
    "a claim that no container uses": {"claims": (PodClaim(name="other", requests={}),)},
    "the labels of a plugin": {"labels": {"app": "nvidia-device-plugin-daemonset", "app.kubernetes.io/name": "gpushare"}},
    "a controller that is a DaemonSet": {"controller": "DaemonSet/nvidia-device-plugin-daemonset"},
}


@pytest.mark.parametrize("why", IN_VAIN)
@pytest.mark.parametrize("where", ["no share", "another GPU", "another container"])
def test_nothing_that_a_pod_says_lets_it_use_what_kubelet_did_not_give(
    enforcement: EnforcementFixture, why: str, where: str
) -> None:
    both = {container_id(2): "main", container_id(22): "side"}
    changes: dict[str, Any] = {"containers": both, "started": dict.fromkeys(both, YOUNG)} | IN_VAIN[why]
    enforcement.admit(1, "honest")
    if where == "no share":
        enforcement.arrive(2, "poser", **changes)
    else:
        changes["resources"] = frozenset({SHARED}) | changes.get("resources", frozenset())
        enforcement.admit(2, "poser", **changes)
    honest = enforcement.begin(1, 4000)
    pid = enforcement.begin(2, 600, gpu=int(where == "another GPU"), container=22 if where == "another container" else 2)
    enforcement.run(8)
    await_end(pid)
    enforcement.run(30)
    assert lives(honest)
    assert blindness(enforcement) == ""


def test_a_network_card_is_no_gpu(enforcement: EnforcementFixture) -> None:
    """Whoever has one that a plugin gave is judged as others are."""
    enforcement.admit(1, "poser", resources=frozenset({SHARED}))
    enforcement.allocate(1, "rdma/hca", ["mlx5_0"])
    pid = enforcement.begin(1, 600, gpu=1)
    enforcement.run(8)
    await_end(pid)


def test_pod_with_a_share_missing_from_the_checkpoint_is_reported(enforcement: EnforcementFixture) -> None:
    enforcement.admit(9, "other")
    lose_checkpoint(enforcement)
    enforcement.arrive(1, "legit", resources=frozenset({SHARED}))
    pid = enforcement.begin(1, 30000)
    enforcement.run(70)
    assert lives(pid)
    assert "team/legit" in blindness(enforcement)


def test_deleted_pod_removed_from_the_checkpoint_is_not_reported(enforcement: EnforcementFixture) -> None:
    """Kubelet forgets it as it gives devices to the next pod. Its last status and its deletion come between two looks."""
    pid = enforcement.admit_and_begin(1, "gone", 1000, resources=frozenset({SHARED}))
    enforcement.run(20)
    enforcement.fake_nvml.take(0, pid)
    enforcement.list.known, enforcement.entries = (), []
    enforcement.admit(2, "next", resources=frozenset({SHARED}))
    enforcement.run(90)
    assert blindness(enforcement) == ""


def test_deleted_pod_with_an_idle_second_container_is_not_reported(enforcement: EnforcementFixture) -> None:
    both = {container_id(1): "main", container_id(2): "side"}
    enforcement.admit(1, "gone", containers=both, started=dict.fromkeys(both, 1.5e9 + 1700))
    enforcement.entries.append(enforcement.entries[-1] | {"ContainerName": "side"})
    enforcement.register(10)
    enforcement.run(5)
    enforcement.list.known = ()
    enforcement.run(5, seconds=200)
    assert blindness(enforcement) == ""


@pytest.mark.parametrize("how", ["gone", "cut off"])
def test_lost_checkpoint_is_reported_until_it_is_back(enforcement: EnforcementFixture, how: str) -> None:
    enforcement.admit_and_begin(1, "first", 1000)
    enforcement.run(20)
    text = enforcement.checkpoint.read_text()
    if how == "gone":
        enforcement.checkpoint.unlink()
    else:
        enforcement.checkpoint.write_text(text[: len(text) // 2])
    enforcement.run(90)
    assert "containers that started later have no cap" in blindness(enforcement)
    enforcement.checkpoint.write_text(text)
    enforcement.run(15)
    assert blindness(enforcement) == ""


def test_a_checkpoint_that_could_never_be_read_is_reported(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "first")
    enforcement.checkpoint.write_text(enforcement.checkpoint.read_text()[:30])
    enforcement.run(90)
    assert "containers that started later have no cap" in blindness(enforcement)


def test_memory_unknown_to_the_driver_is_reported(enforcement: EnforcementFixture) -> None:
    for number in (1, 2):
        enforcement.admit_and_begin(number, f"p{number}", None)
    enforcement.run(70)
    assert "does not report how much memory" in blindness(enforcement)


def test_container_that_cannot_be_killed_is_reported_in_the_condition(
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


def test_state_field_of_a_newer_release_is_ignored_and_kept(enforcement: EnforcementFixture) -> None:
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
