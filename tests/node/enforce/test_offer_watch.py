"""What the node offers while caps are enforced: a difference from the plan is the condition within a minute, and is cured."""

from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.adapters.kube.slices import SliceDevice, SliceView
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.guard.process_list import Mps
from tests.node.enforce.enforcement import SHARED, pod
from tests.node.enforce.enforcement_loop import LABELS, VIEW, EnforcementLoop
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool

READY = ConditionReason.READY
MINUTE = 62
"""Cycles of one second, the first of which only finds that the last look is over."""


class FakeMps:
    """A control daemon that answers, with the faults of its servers."""

    faulty: frozenset[str] = frozenset()
    answers = Mps.REACHABLE

    def state(self) -> Mps:
        return self.answers

    def limit_mib(self, _device: int | str) -> int | None:
        return None

    def faults(self) -> frozenset[str]:
        return self.faulty


def word(loop: EnforcementLoop) -> str:
    return loop.api.said[-1][0].word


@pytest.fixture
def ready(enforcement_loop: EnforcementLoop) -> EnforcementLoop:
    """A node that has been Ready for some time."""
    enforcement_loop.enforcement.register(10)
    devices = [enforcement_loop.enforcement.fake_nvml.uuid(gpu) for gpu in (0, 1)]
    enforcement_loop.enforcement.folder.keep_profile(LABELS[PLUGIN_LABEL], devices)
    enforcement_loop.run(20)
    assert word(enforcement_loop) == "Ready"
    return enforcement_loop


@pytest.mark.parametrize("allocatable", [{SHARED: 0}, {}, {SHARED: 19}, {SHARED: 20, "nvidia.com/gpu": 2}])
def test_unexpected_advertised_resources_are_reported_within_a_minute(
    ready: EnforcementLoop, allocatable: dict[str, int]
) -> None:
    ready.api.view = replace(VIEW, allocatable=allocatable)
    ready.run(MINUTE)
    assert (word(ready), "WrongResources" in ready.api.reasons()) == ("WrongResources", True)
    ready.api.view = VIEW
    ready.run(MINUTE)
    assert word(ready) == "Ready"


def test_dra_driver_beside_the_plugin_is_reported_and_no_label_is_flipped(ready: EnforcementLoop) -> None:
    device = SliceDevice(name="gpu-0", type="gpu", profile="", uuid=ready.enforcement.fake_nvml.uuid(0))
    slice_ = SliceView(name="0-gpu.nvidia.com-n1", node="node", pool="node", generation=1, count=1, devices=(device,))
    ready.api.listed = (slice_,)
    ready.run(MINUTE)
    assert (word(ready), "0-gpu.nvidia.com-n1" in ready.api.said[-1][1]) == ("BackEndRunning", True)
    ready.api.listed = (replace(slice_, devices=()),)
    ready.run(MINUTE)
    assert (word(ready), ready.api.applied) == ("Ready", [])


class FollowedNode:
    """The Node object as its watch shows it."""

    number: str | None = "1"

    def version(self) -> str | None:
        return self.number

    def annotations(self) -> dict[str, str]:
        return {}

    def annotate(self, _: object) -> None:
        """Not of interest here."""


@pytest.fixture
def followed(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> EnforcementLoop:
    """A node whose object is watched, and has been Ready for some time."""
    loop = EnforcementLoop(tmp_path, two_gpus, process_pool, followed_node=FollowedNode())
    loop.enforcement.register(10)
    loop.enforcement.folder.keep_profile(LABELS[PLUGIN_LABEL], [two_gpus.uuid(gpu) for gpu in (0, 1)])
    loop.run(20)
    assert word(loop) == "Ready"
    return loop


def test_node_is_read_again_only_after_its_watch_has_shown_a_change(followed: EnforcementLoop) -> None:
    """Within five minutes: after these it is also read for whether it is still of the pool."""
    followed.run(60)
    followed.api.read = 0
    followed.run(120)
    assert followed.api.read == 0
    followed.api.view = replace(VIEW, allocatable={SHARED: 0})
    followed.enforcement.followed_node.number = "2"
    followed.run(MINUTE)
    assert (word(followed), followed.api.read) == ("WrongResources", 1)


def test_node_is_read_each_time_while_its_watch_is_broken(followed: EnforcementLoop) -> None:
    followed.enforcement.followed_node.number = None
    followed.run(60)
    followed.api.view = replace(VIEW, allocatable={SHARED: 0})
    followed.run(MINUTE)
    assert word(followed) == "WrongResources"


def test_node_is_read_again_if_its_watch_shows_nothing_for_longer_than_kubelet_is_silent(followed: EnforcementLoop) -> None:
    """Watches of a server whose cache stands still stay open."""
    followed.api.view = replace(VIEW, allocatable={SHARED: 0})
    followed.run(400 + MINUTE)
    # What follows after the report differs with the moment of the read: the label's change, which this Node does not show.
    assert "WrongResources" in {reason.word for reason, _ in followed.api.said}


def test_short_gap_in_advertised_resources_is_not_reported(ready: EnforcementLoop) -> None:
    """The plugin's pod restarts, and is back before the second look."""
    ready.run(20)
    ready.api.view = replace(VIEW, allocatable={SHARED: 0})
    ready.run(9)
    ready.api.view = VIEW
    ready.run(200)
    assert {reason for reason, _ in ready.api.said} == {READY}


def test_unhealthy_replica_is_reported_and_the_plugin_reenumerates(ready: EnforcementLoop) -> None:
    ready.enforcement.register(9)
    ready.run(MINUTE)
    assert (word(ready), ready.api.said[-1][1].count("18 instead of 20")) == ("WrongResources", 1)
    ready.run(60)
    assert ready.api.applied[0] == {**LABELS, PLUGIN_LABEL: "time-slicing-01234567-b"}
    assert "GPUPluginRestarted" in ready.api.reasons()


def test_profile_label_is_flipped_at_most_three_times_an_hour(ready: EnforcementLoop) -> None:
    ready.enforcement.register(9)
    ready.run(3000)
    labels = [one[PLUGIN_LABEL][-1] for one in ready.api.applied]
    assert labels[:3] == ["b", "a", "b"]
    assert word(ready) == "WrongResources" or word(ready) == "LabelConflict"


def test_second_plugin_is_reported_without_flipping_the_profile_label(ready: EnforcementLoop) -> None:
    ready.api.view = replace(VIEW, allocatable={SHARED: 20, "nvidia.com/gpu": 2})
    ready.run(600)
    assert (word(ready), ready.api.applied) == ("WrongResources", [])


def test_unstarted_plugin_is_reported_with_its_namespace(ready: EnforcementLoop) -> None:
    name = "nvidia-device-plugin-daemonset"
    of_plugin: dict[str, Any] = {"namespace": "gpu-operator", "labels": {"app": name}, "controller": f"DaemonSet/{name}"}
    ready.enforcement.list.known = (pod(f"{name}-x", 7, phase="Pending", **of_plugin),)
    ready.api.view = replace(VIEW, allocatable={SHARED: 0})
    ready.run(MINUTE)
    assert "gpu-operator/nvidia-device-plugin-daemonset-x has not started: it needs the ConfigMap" in ready.api.said[-1][1]


def test_lost_gpu_is_reported_before_wrong_advertised_resources(ready: EnforcementLoop, two_gpus: FakeNvml) -> None:
    two_gpus.lose(1)
    ready.api.view = replace(VIEW, allocatable={SHARED: 0})
    ready.run(MINUTE + 30)
    assert word(ready) in ("GpuLost", "GpuCountMismatch")


@pytest.mark.parametrize("mode", [2, 3])
def test_exclusive_or_prohibited_compute_mode_is_reported_and_repaired(
    ready: EnforcementLoop, two_gpus: FakeNvml, mode: int
) -> None:
    two_gpus.set_compute_mode(1, mode)
    ready.run(MINUTE + 30)
    assert ("GPU 1 has the compute mode" in ready.api.said[-1][1], word(ready)) == (True, "Drifted")
    assert ready.api.deleted == 1


@pytest.fixture
def mps() -> FakeMps:
    return FakeMps()


@pytest.fixture
def loop(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, mps: FakeMps) -> EnforcementLoop:
    """A node of shares under MPS."""
    loop = EnforcementLoop(tmp_path, two_gpus, process_pool, mode="mps", profile="mps-01234567", mps=mps)
    loop.enforcement.register(10)
    devices = [loop.enforcement.fake_nvml.uuid(gpu) for gpu in (0, 1)]
    loop.enforcement.folder.keep_profile(LABELS[PLUGIN_LABEL], devices)
    return loop


@pytest.mark.parametrize("state", [Mps.UNREACHABLE, Mps.OFF])
def test_lost_mps_daemon_is_reported_also_after_a_restart_of_the_runtime(
    loop: EnforcementLoop, mps: FakeMps, state: Mps
) -> None:
    loop.run(20)
    assert word(loop) == "Ready"
    for _ in range(2):
        mps.answers = state
        loop.run(25)
        assert loop.api.said[-1] == (ConditionReason.MPS_UNAVAILABLE, "The MPS control daemon does not answer.")
        assert "MpsUnavailable" in loop.api.reasons()
        loop.start()
        loop.api.events.clear()
    mps.answers = Mps.REACHABLE
    loop.run(12)
    assert word(loop) == "Ready"


@pytest.mark.parametrize("is_held", [True, False])
def test_mps_is_started_anew_only_if_no_pod_holds_a_share(loop: EnforcementLoop, mps: FakeMps, is_held: bool) -> None:
    loop.run(20)
    if is_held:
        loop.enforcement.admit(1, "tenant")
    mps.answers = Mps.UNREACHABLE
    loop.run(130)
    assert loop.api.applied == []
    loop.run(30)
    flipped = [{**LABELS, PLUGIN_LABEL: f"{LABELS[PLUGIN_LABEL][:-1]}b"}]
    assert (loop.api.applied, word(loop)) == ([] if is_held else flipped, "MpsUnavailable")


def test_faulty_mps_server_is_reported_only_if_it_lasts(loop: EnforcementLoop, mps: FakeMps) -> None:
    loop.run(20)
    assert word(loop) == "Ready"
    mps.faulty = frozenset({"MPS server 7 of gpu is in state FAULT"})
    loop.run(9)
    mps.faulty = frozenset({"MPS server 8 of gpu is in state FAULT"})
    loop.run(9)
    mps.faulty = frozenset()
    loop.run(30)
    assert "MpsServerFault" not in loop.api.reasons()
    mps.faulty = frozenset({"MPS server 7 of gpu is in state FAULT"})
    loop.run(25)
    assert loop.api.said[-1] == (ConditionReason.MPS_SERVER_FAULT, "MPS server 7 of gpu is in state FAULT.")
    assert "MpsServerFault" in loop.api.reasons()
    mps.faulty = frozenset()
    loop.run(12)
    assert word(loop) == "Ready"


def test_unconfigured_fabric_is_reported(ready: EnforcementLoop) -> None:
    surveys = ready.enforcement.enforcer.inventory.surveys
    assert surveys is not None
    ready.monitor._check_layout(tuple(replace(survey, is_fabric_ready=survey.index == 0) for survey in surveys), 0.0)
    assert ready.monitor.reason(0.0) == (ConditionReason.FABRIC_NOT_READY, "NVLink of GPU 1 is not set up.")


def test_node_is_released_only_if_its_selecting_label_stays_missing(ready: EnforcementLoop) -> None:
    ready.api.is_selected = False
    ready.monitor.trigger()
    ready.run(200)
    assert (ready.api.deleted, word(ready)) == (0, "Ready")
    assert "if that lasts, the node leaves the pool" in ready.api.said[-1][1]
    ready.run(150)
    assert ready.api.deleted


def test_lost_driver_access_ends_the_runtime_container(ready: EnforcementLoop, two_gpus: FakeNvml) -> None:
    for code in (4, 17, 999):
        for call in ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetHandleByIndex_v2"):
            two_gpus.fail(call, code)
        ready.run(5)
        assert ready.enforcement.enforcer.reason() is not None
        assert ready.loop._is_useless(), code
        two_gpus.heal()
        ready.run(5)
        assert not ready.loop._is_useless()
