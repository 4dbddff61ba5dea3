"""What a run leaves behind that does not come to its end: taints, slots, tenants and GPU clients, as the hardware deserves."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import POOL_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.policy import OnBusy, Stack
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.core.clock import Stopped
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
def test_taint_left_by_a_killed_run_is_removed_even_with_on_busy_fail(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    add_tenant(node)
    taint(node)
    assert node.run(rollout(mig(TWO, key=OTHER), on_busy=OnBusy.FAIL)).reason is ConditionReason.GPU_BUSY
    assert node.taints() == set(), "the former layout stands whole"


def test_taint_whose_removal_failed_is_removed_by_the_next_attempt(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    add_tenant(node)
    node.api.fail("PATCH /api/v1/nodes/n1?", 500, times=6, after=2)
    node.on_tick = lambda time: setattr(node.clock, "is_stopped", True) if time > 3000 else None
    with pytest.raises(Exception):  # noqa: B017, PT011 - Stopped, when nothing is to be waited for any more
        node.run(rollout(mig(TWO, key=OTHER), drain_timeout_seconds=30), hold=True)
    assert node.taints() == set()


def test_taint_is_kept_while_clients_block_an_incomplete_layout(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    node.fake_nvml.set_mode(0, True)
    node.fake_nvml.add_instance(0, 0, 0)
    node.program("dcgm-x", "nvidia-dcgm")
    assert node.run(mig(SEVEN)).reason is ConditionReason.CLIENTS_RUNNING
    assert node.taints() == {REPARTITIONING_TAINT}
    node.api.remove("pods", "dcgm-x", namespace="gpu-operator")
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.taints() == set()


def test_incomplete_layout_keeps_its_taint(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, A100, A100)
    node.run(mig(TWO, TWO))
    node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999, gpu=1, times=1)
    assert node.run(mig(SEVEN, SEVEN, key=OTHER)).reason is ConditionReason.ROLLED_BACK
    assert (node.gpus.stands(0), node.gpus.stands(1)) == (set(SEVEN), set(TWO))
    assert node.taints() == {REPARTITIONING_TAINT}
    node.program("dcgm-x", "nvidia-dcgm")
    assert node.run(mig(SEVEN, SEVEN, key=OTHER)).reason is ConditionReason.CLIENTS_RUNNING
    assert node.taints() == {REPARTITIONING_TAINT}


def test_change_that_failed_too_often_evicts_no_pods(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    desired = rollout(mig(TWO, key=OTHER), on_busy=OnBusy.EVICT)
    for _ in range(3):
        node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999, times=1)
        assert node.run(desired).reason is ConditionReason.ROLLED_BACK
    assert (node.taints(), node.gpus.stands(0)) == (set(), set(SEVEN))
    add_tenant(node)
    node.api.forget_requests()
    outcome = node.run(desired)
    assert (outcome.reason, "gpushare.dev/retry=now" in outcome.message) == (ConditionReason.PARTITION_FAILED, True)
    assert [name for _, name in node.api.writes()] == [f"/api/v1/nodes/{NAME}/status"], "no eviction, no taint, no pause"
    node.gpus.reboot()
    node.api.remove("pods", "sleeper", namespace="science")
    node.enumerate()
    assert node.run(desired).reason is ConditionReason.READY


def fail_often(node: LoopNode) -> None:
    """Up to the pause of five minutes."""
    node.run(mig(SEVEN))
    for _ in range(3):
        node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999, times=1)
        assert node.run(mig(TWO, key=OTHER)).reason is ConditionReason.ROLLED_BACK
    node.api.forget_requests()


@pytest.mark.failure_case(94)
def test_failed_node_retries_automatically(node: LoopNode) -> None:
    fail_often(node)
    start = node.clock.now()
    assert node.run(mig(TWO, key=OTHER), hold=True).reason is ConditionReason.READY
    assert 300 <= node.clock.now() - start < 600
    assert node.taints() == set()


@pytest.mark.failure_case(94)
def test_retry_annotation_retries_at_once_and_is_removed(node: LoopNode) -> None:
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
def test_retry_annotation_starts_another_drain_of_a_busy_node(node: LoopNode) -> None:
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
def test_stale_retry_annotation_does_not_start_a_drain(node: LoopNode) -> None:
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
def test_failed_node_keeps_its_slot_after_a_pod_restart(node: LoopNode) -> None:
    """It offers its former layout and has no taint. Without its slot the bad change would go on to the next node."""
    fail_often(node)
    assert node.holds_slot()
    node.on_tick = lambda time: setattr(node.clock, "is_stopped", time > 200)
    with pytest.raises(Stopped):
        node.run(mig(TWO, key=OTHER), hold=True)
    assert node.holds_slot()
    assert "PUT" in [method for method, _ in node.api.writes("leases")]


def test_slot_of_a_killed_run_is_released_by_the_next_ready_run(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    lease = {"metadata": {"labels": {POOL_LABEL: "training"}}, "spec": {"holderIdentity": NAME, "leaseDurationSeconds": 900}}
    node.api.add("leases", "gpushare-training.0", lease, namespace="gpushare")
    node.folder.keep_slot("gpushare-training.0")
    assert node.holds_slot()
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert not node.holds_slot()


def test_gpu_that_cannot_be_changed_keeps_all_gpus_unchanged(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, A100, A100)
    node.run(mig(SEVEN, SEVEN))
    node.fake_nvml.set_mode(1, True, False)
    node.fake_nvml.forget_calls()
    outcome = node.run(mig(TWO, TWO, key=OTHER))
    assert outcome.reason is ConditionReason.PENDING_FOREIGN_CHANGE
    assert node.fake_nvml.calls() == [], "half of each layout is neither"
    assert (node.taints(), node.labels()[POOL_LABEL]) == (set(), "training")


def test_pod_that_starts_during_a_change_keeps_its_gpu(tmp_path: Path, api: ApiServer) -> None:
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


def test_paused_clients_are_resumed_after_a_failed_run(node: LoopNode) -> None:
    node.run(whole())
    node.fake_nvml.fail("nvmlDeviceGetCount_v2", 999, after=6)
    node.run(mig(SEVEN))
    assert node.labels()[DEPLOY] == "true"


def test_plugin_that_registered_nothing_is_made_to_reenumerate(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.registered = {}
    node.publish()
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-b"


@pytest.mark.parametrize(
    ("resource", "device", "is_in_the_way"),
    [
        ("nvidia.com/gpu", "nvidia0/vgpu1", True),
        ("nvidia.com/hostdev", "0000:3b:00.2", False),
    ],
    ids=["a GPU without a UUID", "a network device"],
)
def test_allocated_device_without_a_uuid_blocks_every_gpu(
    node: LoopNode, resource: str, device: str, is_in_the_way: bool
) -> None:
    node.run(whole())
    node.tenant("sleeper", device, resource)
    node.fake_nvml.forget_calls()
    outcome = node.run(rollout(mig(SEVEN), drain_timeout_seconds=10))
    assert outcome.reason is (ConditionReason.GPU_BUSY if is_in_the_way else ConditionReason.READY)
    assert (node.fake_nvml.calls() == []) is is_in_the_way
