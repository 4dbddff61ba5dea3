"""Who may be changed, and when: slots, other pools, mig-manager, and the ways out of each."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import POOL_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.policy import OnBusy
from gpushare_node.contract.reasons import ConditionReason
from tests.node.reconcile.loop_node import NAME, SEVEN, TWO, LoopNode, mig, rollout, take_slot, text_of, whole
from tests.support.fake_api.server import ApiServer


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def test_without_a_slot_the_node_is_not_tainted_or_changed(node: LoopNode) -> None:
    take_slot(node)
    outcome = node.run(mig(SEVEN))
    assert outcome.reason is ConditionReason.WAITING_FOR_TURN
    assert node.fake_nvml.calls() == []
    assert node.taints() == set()


def test_node_that_advertises_nothing_takes_no_slot(node: LoopNode) -> None:
    take_slot(node)
    node.api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].clear())
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY


def test_verification_alone_takes_no_slot(node: LoopNode) -> None:
    node.run(whole())
    node.api.forget_requests()
    take_slot(node)
    assert node.run(whole()).reason is ConditionReason.READY


def test_new_plugin_config_takes_a_slot(node: LoopNode) -> None:
    """While the plugin starts anew the node offers nothing: not all nodes of a pool at once."""
    node.run(whole(replicas=2))
    take_slot(node)
    before = node.labels()[PLUGIN_LABEL]
    assert node.run(whole(replicas=4)).reason is ConditionReason.WAITING_FOR_TURN
    assert node.labels()[PLUGIN_LABEL] == before
    node.api.remove("leases", "gpushare-training.0", namespace="gpushare")
    assert node.run(whole(replicas=4)).reason is ConditionReason.READY
    assert (node.taints(), node.holds_slot()) == (set(), False)


def test_removed_label_is_restored_without_a_slot(node: LoopNode) -> None:
    node.run(whole(replicas=2))
    take_slot(node)
    node.label(**{PLUGIN_LABEL: None})
    assert node.run(whole(replicas=2)).reason is ConditionReason.READY


def test_a_slot_that_becomes_free_is_taken(node: LoopNode) -> None:
    take_slot(node)

    def give_back(time: float) -> None:
        if time > 100 and [lease["spec"]["holderIdentity"] for lease in node.api.leases()] == ["n2"]:
            node.api.remove("leases", "gpushare-training.0", namespace="gpushare")

    node.on_tick = give_back
    assert node.run(mig(SEVEN), hold=True).reason is ConditionReason.READY
    assert node.clock.now() > 100


@pytest.mark.parametrize(("free_at", "says_so"), [(5, False), (100, True)])
def test_waiting_for_a_slot_is_reported_only_if_it_lasts(node: LoopNode, free_at: float, says_so: bool) -> None:
    """A pool of hundreds of nodes: whose slot comes at once writes nothing of it."""
    node.run(whole(replicas=2))
    take_slot(node)
    said: list[tuple[float, str | None]] = []
    begun = node.clock.now()

    def look(time: float) -> None:
        said.append((time - begun, node.condition()))
        if time - begun > free_at and node.api.leases() and not node.holds_slot():
            node.api.remove("leases", "gpushare-training.0", namespace="gpushare")

    node.on_tick = look
    assert node.run(whole(replicas=4), hold=True).reason is ConditionReason.READY
    told_at = [time for time, reason in said if reason == "WaitingForTurn"]
    assert bool(told_at) is says_so
    assert not told_at or 20 <= told_at[0] <= 23


def test_a_node_that_fails_keeps_its_slot(node: LoopNode) -> None:
    node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999)
    outcome = node.run(mig(SEVEN))
    assert outcome.reason in (ConditionReason.ROLLED_BACK, ConditionReason.PARTITION_FAILED)
    assert node.holds_slot()


def test_rolled_back_node_advertises_its_previous_layout_without_a_taint(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.fake_nvml.fail("nvmlGpuInstanceCreateComputeInstance", 999, times=1)
    outcome = node.run(mig(TWO, key="mig-00000002"))
    assert outcome.reason is ConditionReason.ROLLED_BACK
    assert node.gpus.stands(0) == set(SEVEN)
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-b"
    assert node.folder.policy() == text_of(mig(SEVEN))
    assert node.taints() == set()
    assert node.holds_slot()


@pytest.mark.failure_case(31)
def test_running_mig_manager_pod_blocks_the_change(node: LoopNode) -> None:
    node.api.add_daemon_pod(
        "mig-manager-x", "nvidia-mig-manager", namespace="gpu-operator", node=NAME, labels={"app": "nvidia-mig-manager"}
    )
    outcome = node.run(mig(SEVEN))
    assert outcome.reason is ConditionReason.MIG_MANAGER_PRESENT
    assert "gpu-operator/mig-manager-x" in outcome.message
    assert node.fake_nvml.calls() == []
    assert node.taints() == set()


@pytest.mark.failure_case(31)
def test_mig_manager_label_alone_does_not_block_the_change(node: LoopNode) -> None:
    node.label(**{"nvidia.com/mig.config": "all-disabled"})
    node.program("gone", "nvidia-mig-manager", phase="Succeeded")
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY


def test_pod_of_the_previous_pool_is_waited_for(node: LoopNode) -> None:
    node.label(**{POOL_LABEL: "old"})
    node.runtime_pod("old")
    outcome = node.run(mig(SEVEN))
    assert (outcome.reason, "old" in outcome.message) == (ConditionReason.WAITING_FOR_POOL, True)
    assert node.fake_nvml.calls() == []
    assert node.labels()[POOL_LABEL] == "old"
    assert node.condition() is None, "the condition is its owner's"

    def let_go(time: float) -> None:
        if time > 100 and node.labels().get(POOL_LABEL) == "old":
            node.label(**{POOL_LABEL: None})

    node.on_tick = let_go
    assert node.run(mig(SEVEN), hold=True).reason is ConditionReason.READY
    assert node.labels()[POOL_LABEL] == "training"


def test_pool_label_without_a_pod_is_taken_over(node: LoopNode) -> None:
    node.label(**{POOL_LABEL: "vanished"})
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.labels()[POOL_LABEL] == "training"


def test_a_slot_is_renewed_while_tenants_are_waited_for(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    node.api.forget_requests()
    node.run(rollout(mig(TWO), drain_timeout_seconds=700))
    assert [method for method, _ in node.api.writes("leases")] == ["POST", "PUT", "PUT", "DELETE"]


@pytest.mark.failure_case(91)
def test_layout_lost_in_a_reboot_is_restored_without_a_slot(node: LoopNode) -> None:
    """Hopper loses the mode as well. What the plugin would offer meanwhile is whole GPUs."""
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    take_slot(node)
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert (node.gpus.stands(0), node.taints()) == (set(SEVEN), set())


@pytest.mark.failure_case(91)
def test_repair_needs_no_slot_even_if_caps_changed(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    take_slot(node)
    assert node.run(rollout(mig(SEVEN), max_unavailable=2)).reason is ConditionReason.READY


@pytest.mark.failure_case(91)
@pytest.mark.parametrize("is_busy", [True, False])
def test_node_without_its_layout_is_tainted_while_it_waits_for_a_slot(node: LoopNode, is_busy: bool) -> None:
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    take_slot(node)
    if is_busy:
        node.tenant("sleeper", node.fake_nvml.uuid(0))
    outcome = node.run(rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.FAIL))
    assert outcome.reason is (ConditionReason.GPU_BUSY if is_busy else ConditionReason.WAITING_FOR_TURN)
    assert node.taints() == {REPARTITIONING_TAINT}


def test_a_node_without_its_layout_evicts_no_pod_before_its_turn(node: LoopNode) -> None:
    """The pods of the node whose turn it is have moved here, and have no other place yet."""
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    take_slot(node)
    node.tenant("moved", node.fake_nvml.uuid(0))
    evicted_early: list[tuple[str, str]] = []

    def give_back(time: float) -> None:
        if [lease["spec"]["holderIdentity"] for lease in node.api.leases()] == ["n2"]:
            evicted_early.extend(node.api.writes("eviction"))
            if time > 100:
                node.api.remove("leases", "gpushare-training.0", namespace="gpushare")

    node.on_tick = give_back
    desired = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.EVICT)
    assert node.run(desired, hold=True).reason is ConditionReason.READY
    assert evicted_early == []
    assert node.api.writes("eviction")


def test_a_node_that_offers_nothing_evicts_also_after_a_drain_in_vain(node: LoopNode) -> None:
    """A disruption budget that permits an eviction at last is all that it waits for."""
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    node.tenant("late", node.fake_nvml.uuid(0))
    node.api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].clear())
    node.api.eviction_budget = 0

    def relent(time: float) -> None:
        assert time < 5000, "the pod is never evicted"
        node.api.eviction_budget = int(time > 1000)

    node.on_tick = relent
    desired = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.EVICT, drain_timeout_seconds=60)
    assert node.run(desired, hold=True).reason is ConditionReason.READY


@pytest.mark.failure_case(91)
def test_failed_repair_keeps_the_taint_and_takes_no_slot(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999)
    assert node.run(mig(SEVEN)).reason is ConditionReason.ROLLED_BACK
    assert (node.taints(), node.holds_slot()) == ({REPARTITIONING_TAINT}, False)


@pytest.mark.failure_case(92)
def test_a_slot_is_renewed_while_the_driver_loads(node: LoopNode) -> None:
    """A driver's container compiles for minutes; the slot of a run that was killed expires after fifteen."""
    node.run(mig(SEVEN))
    take_slot(node, NAME)
    node.api.edit("nodes", NAME, lambda one: one["spec"].update(taints=[{"key": REPARTITIONING_TAINT, "effect": "NoSchedule"}]))
    node.fake_nvml.unload()
    node.api.forget_requests()
    node.on_tick = lambda time: node.fake_nvml.reload() if time > 595 else None
    assert node.run(mig(TWO, key="mig-00000002")).reason is ConditionReason.READY
    renewals = [method for method, _ in node.api.writes("leases")]
    assert renewals == ["PUT", "PUT", "DELETE"]
