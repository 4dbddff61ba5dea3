"""What a run leaves behind that does not come to its end: taints, slots, tenants and GPU clients, as the hardware deserves."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, POOL_LABEL, REPARTITIONING_TAINT
from gpushare_node.core.clock import Stopped
from gpushare_node.core.policy import OnBusy, Stack
from gpushare_node.core.structs import replace
from gpushare_node.reporting.reasons import ConditionReason
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.loop_node import DEPLOY, NAME, SEVEN, TWO, LoopNode, mig, rollout, whole
from tests.support.fake_api.server import ApiServer

OTHER = "mig-00000002"
TAINT = [{"key": REPARTITIONING_TAINT, "effect": "NoSchedule"}]


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def add_tenant(node: LoopNode, start: int = 0, gpu: int = 0) -> None:
    node.tenant("sleeper", node.fake_nvml.mig_uuid(gpu, node.gpus.gi_at(gpu, start)), "nvidia.com/mig-1g.5gb")


def taint(node: LoopNode) -> None:
    """As a run that was killed has left it."""
    node.api.edit("nodes", NAME, lambda one: one["spec"].update(taints=list(TAINT)))


@pytest.mark.failure_case(16)
def test_the_taint_of_a_killed_run_goes_though_the_next_will_not_wait_for_tenants(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    add_tenant(node)
    taint(node)
    assert node.run(rollout(mig(TWO, key=OTHER), on_busy=OnBusy.FAIL)).reason is ConditionReason.GPU_BUSY
    assert node.taints() == set(), "the former layout stands whole"


def test_a_taint_that_the_server_did_not_take_away_goes_with_the_next_attempt(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    add_tenant(node)
    node.api.fail("PATCH /api/v1/nodes/n1?", 500, times=6, after=2)
    node.on_tick = lambda time: setattr(node.clock, "is_stopped", True) if time > 3000 else None
    with pytest.raises(Exception):  # noqa: B017, PT011 - Stopped, when nothing is to be waited for any more
        node.run(rollout(mig(TWO, key=OTHER), drain_timeout_seconds=30), hold=True)
    assert node.taints() == set()


def test_the_taint_stays_where_clients_are_in_the_way_and_nothing_whole_is_there(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    node.fake_nvml.set_mode(0, True)
    node.fake_nvml.add_instance(0, 0, 0)
    node.api.add_pod("dcgm-x", namespace="gpu-operator", node=NAME, labels={"app": "nvidia-dcgm"})
    assert node.run(mig(SEVEN)).reason is ConditionReason.CLIENTS_RUNNING
    assert node.taints() == {REPARTITIONING_TAINT}
    node.api.remove("pods", "dcgm-x", namespace="gpu-operator")
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.taints() == set()


def test_half_of_a_layout_takes_no_pods_whatever_stops_the_next_run(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, A100, A100)
    node.run(mig(TWO, TWO))
    node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999, gpu=1, times=1)
    assert node.run(mig(SEVEN, SEVEN, key=OTHER)).reason is ConditionReason.ROLLED_BACK
    assert (node.gpus.stands(0), node.gpus.stands(1)) == (set(SEVEN), set(TWO))
    assert node.taints() == {REPARTITIONING_TAINT}
    node.api.add_pod("dcgm-x", namespace="gpu-operator", node=NAME, labels={"app": "nvidia-dcgm"})
    assert node.run(mig(SEVEN, SEVEN, key=OTHER)).reason is ConditionReason.CLIENTS_RUNNING
    assert node.taints() == {REPARTITIONING_TAINT}


def test_what_has_failed_too_often_sends_nobody_away_any_more(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    wanted = rollout(mig(TWO, key=OTHER), on_busy=OnBusy.EVICT)
    for _ in range(3):
        node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999, times=1)
        assert node.run(wanted).reason is ConditionReason.ROLLED_BACK
    assert (node.taints(), node.gpus.stands(0)) == (set(), set(SEVEN))
    add_tenant(node)
    node.api.forget_requests()
    outcome = node.run(wanted)
    assert (outcome.reason, "gpushare.dev/retry=now" in outcome.message) == (ConditionReason.PARTITION_FAILED, True)
    assert [name for _, name in node.api.writes()] == [f"/api/v1/nodes/{NAME}/status"], "no eviction, no taint, no pause"
    node.gpus.reboot()
    node.api.remove("pods", "sleeper", namespace="science")
    node.enumerate()
    assert node.run(wanted).reason is ConditionReason.READY


def fail_often(node: LoopNode) -> None:
    """Up to the pause of five minutes."""
    node.run(mig(SEVEN))
    for _ in range(3):
        node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999, times=1)
        assert node.run(mig(TWO, key=OTHER)).reason is ConditionReason.ROLLED_BACK
    node.api.forget_requests()


@pytest.mark.failure_case(94)
def test_a_node_that_failed_tries_again_by_itself_and_tells_of_it_once(node: LoopNode) -> None:
    fail_often(node)
    start = node.clock.now()
    assert node.run(mig(TWO, key=OTHER), hold=True).reason is ConditionReason.READY
    assert 300 <= node.clock.now() - start < 600
    assert node.taints() == set()


@pytest.mark.failure_case(94)
def test_an_annotation_begins_again_at_once_and_is_taken_away(node: LoopNode) -> None:
    fail_often(node)
    start = node.clock.now()
    asked: list[float] = []

    def ask(time: float) -> None:
        if time > start + 5 and not asked:
            asked.append(time)
            node.annotate("gpushare.dev/retry", "now")

    node.on_tick = ask
    assert node.run(mig(TWO, key=OTHER), hold=True).reason is ConditionReason.READY
    assert node.clock.now() - start < 60
    assert "gpushare.dev/retry" not in node.annotations()


@pytest.mark.failure_case(94)
def test_an_annotation_ends_the_patience_of_a_busy_node(node: LoopNode) -> None:
    """It drains once more, though it has waited in vain before."""
    node.run(mig(SEVEN))
    add_tenant(node)
    seen = []
    start = node.clock.now()

    def watch(time: float) -> None:
        if time > start + 500:
            seen.append(node.taints())
            if len(seen) == 1:
                node.annotate("gpushare.dev/retry", "please")
        node.clock.is_stopped = time > start + 600

    node.on_tick = watch
    with pytest.raises(Stopped):
        node.run(rollout(mig(TWO, key=OTHER), drain_timeout_seconds=40), hold=True)
    assert {REPARTITIONING_TAINT} in seen


@pytest.mark.failure_case(94)
def test_an_annotation_that_an_earlier_change_left_does_not_end_the_patience(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    add_tenant(node)
    node.annotate("gpushare.dev/retry", "now")
    seen: list[set[str]] = []
    start = node.clock.now()

    def watch(time: float) -> None:
        seen.append(node.taints())
        node.clock.is_stopped = time > start + 30

    node.on_tick = watch
    with pytest.raises(Stopped):
        node.run(rollout(mig(TWO, key=OTHER), drain_timeout_seconds=40), hold=True)
    assert seen
    assert set().union(*seen) == set()
    assert "gpushare.dev/retry" not in node.annotations()


@pytest.mark.failure_case(94)
def test_a_failed_node_whose_pod_starts_again_finds_its_slot(node: LoopNode) -> None:
    """It offers its former layout and has no taint. Without its slot the bad change would go on to the next node."""
    fail_often(node)
    assert node.holds_slot()
    node.on_tick = lambda time: setattr(node.clock, "is_stopped", time > 200)
    with pytest.raises(Stopped):
        node.run(mig(TWO, key=OTHER), hold=True)
    assert node.holds_slot()
    assert "PUT" in [method for method, _ in node.api.writes("leases")]


def test_the_slot_of_a_killed_run_is_given_back_by_the_one_that_finds_all_well(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    lease = {"metadata": {"labels": {POOL_LABEL: "training"}}, "spec": {"holderIdentity": NAME, "leaseDurationSeconds": 900}}
    node.api.add("leases", "gpushare-training.0", lease, namespace="gpushare")
    node.folder.keep_slot("gpushare-training.0")
    assert node.holds_slot()
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert not node.holds_slot()


def test_a_gpu_that_cannot_follow_keeps_the_others_where_they_are(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, A100, A100)
    node.run(mig(SEVEN, SEVEN))
    node.fake_nvml.set_mode(1, True, False)
    node.fake_nvml.forget_calls()
    outcome = node.run(mig(TWO, TWO, key=OTHER))
    assert outcome.reason is ConditionReason.PENDING_FOREIGN_CHANGE
    assert node.fake_nvml.calls() == [], "half of each layout is neither"
    assert (node.taints(), node.labels()[POOL_LABEL]) == (set(), "training")


def test_a_pod_that_tolerates_every_taint_is_not_overrun_when_it_comes_in_the_middle(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, A100, A100)
    stack = Stack.DEVICE_PLUGIN
    node.run(replace(mig(SEVEN, SEVEN), stack=stack))
    uuid = node.fake_nvml.mig_uuid(1, node.gpus.gi_at(1, 0))

    def come(result) -> None:
        if result.step.startswith("create") and not node.entries:
            node.tenant("pushy", uuid, "nvidia.com/mig-1g.5gb")

    node.before_step = come
    outcome = node.run(replace(rollout(mig(TWO, TWO, key=OTHER), drain_timeout_seconds=0), stack=stack))
    assert outcome.reason is ConditionReason.GPU_BUSY
    assert uuid == node.fake_nvml.mig_uuid(1, node.gpus.gi_at(1, 0))
    assert (node.gpus.stands(0), node.gpus.stands(1)) == (set(TWO), set(SEVEN))
    assert node.taints() == {REPARTITIONING_TAINT}


def test_clients_are_back_whatever_a_run_meets(node: LoopNode) -> None:
    node.run(whole())
    node.fake_nvml.fail("nvmlDeviceGetCount_v2", 999, after=6)
    node.run(mig(SEVEN))
    assert node.labels()[DEPLOY] == "true"


def test_a_plugin_that_has_found_nothing_and_waits_is_told_to_look_again(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.registered = {}
    node.publish()
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-b"


@pytest.mark.parametrize(("resource", "device", "is_in_the_way"), [
    ("nvidia.com/gpu", "nvidia0/vgpu1", True), ("nvidia.com/hostdev", "0000:3b:00.2", False),
], ids=["a GPU without a UUID", "a network device"])
def test_a_device_that_may_be_any_gpu_is_in_the_way(
    node: LoopNode, resource: str, device: str, is_in_the_way: bool
) -> None:
    node.run(whole())
    node.tenant("sleeper", device, resource)
    node.fake_nvml.forget_calls()
    outcome = node.run(rollout(mig(SEVEN), drain_timeout_seconds=10))
    assert outcome.reason is (ConditionReason.GPU_BUSY if is_in_the_way else ConditionReason.READY)
    assert (node.fake_nvml.calls() == []) is is_in_the_way
