"""Which key the taint has: that of the policy is added, and those of every policy are removed."""

from pathlib import Path

import pytest

from gpushare_node.contract.names import NOT_READY_TAINTS, POOL_LABEL, REPARTITIONING_TAINTS
from gpushare_node.contract.policy import OnBusy, RepartitioningTaint, Rollout
from gpushare_node.contract.reasons import ConditionReason
from tests.node.reconcile.loop_node import NAME, SEVEN, TWO, LoopNode, mig
from tests.support.fake_api.server import ApiServer

DEFAULT, AUTOSCALED = RepartitioningTaint
THEIRS = {"key": "startup-taint.cluster-autoscaler.kubernetes.io/storage", "effect": "NoSchedule"}
ALL = [*NOT_READY_TAINTS, *REPARTITIONING_TAINTS]


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def taint(node: LoopNode, *keys: str) -> None:
    taints = [{"key": key, "effect": "NoSchedule", "value": "true"} for key in keys]
    node.api.edit("nodes", NAME, lambda one: one["spec"].update(taints=[*taints, THEIRS]))


@pytest.mark.parametrize("key", RepartitioningTaint)
def test_only_the_policys_key_is_added(node: LoopNode, key: RepartitioningTaint) -> None:
    seen = set[str]()
    node.before_step = lambda _: seen.update(node.taints())
    assert node.run(mig(SEVEN, repartitioning_taint=key)).reason is ConditionReason.READY
    assert seen == {key.value}
    assert node.taints() == set()


@pytest.mark.parametrize("key", RepartitioningTaint)
def test_taint_keys_of_both_releases_are_removed(node: LoopNode, key: RepartitioningTaint) -> None:
    taint(node, *ALL)
    assert node.run(mig(SEVEN, repartitioning_taint=key)).reason is ConditionReason.READY
    assert node.taints() == {THEIRS["key"]}


@pytest.mark.parametrize(("before", "after"), [(DEFAULT, AUTOSCALED), (AUTOSCALED, DEFAULT)])
def test_change_interrupted_by_an_upgrade_removes_the_old_taint_key(
    node: LoopNode,
    before: RepartitioningTaint,
    after: RepartitioningTaint,
) -> None:
    node.fake_nvml.fail("nvmlDeviceSetMigMode", 999)
    node.run(mig(SEVEN, repartitioning_taint=before))
    assert node.taints() == {before.value}
    node.run(mig(SEVEN, repartitioning_taint=after))
    assert node.taints() == {before.value, after.value}
    node.fake_nvml.heal()
    node.clock.time += 3600
    assert node.run(mig(SEVEN, repartitioning_taint=after)).reason is ConditionReason.READY
    assert node.taints() == set()


def test_changed_taint_key_adds_no_taint_to_a_node_in_its_desired_layout(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    seen = set[str]()
    node.before_step = lambda _: seen.update(node.taints())
    assert node.run(mig(SEVEN, repartitioning_taint=AUTOSCALED)).reason is ConditionReason.READY
    assert seen == set()


def test_abort_also_removes_the_old_taint_key(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    taint(node, DEFAULT.value, AUTOSCALED.value)
    instance = node.fake_nvml.instances(0)[0][0]
    node.tenant("a", node.fake_nvml.mig_uuid(0, instance), "nvidia.com/mig-1g.5gb")
    rollout = Rollout(max_unavailable=1, on_busy=OnBusy.FAIL, drain_timeout_seconds=60)
    outcome = node.run(mig(TWO, key="mig-00000002", repartitioning_taint=AUTOSCALED, rollout=rollout))
    assert outcome.reason is ConditionReason.GPU_BUSY
    assert node.taints() == {THEIRS["key"]}


def test_a_released_node_keeps_none_of_our_taints(node: LoopNode) -> None:
    node.run(mig(SEVEN, repartitioning_taint=AUTOSCALED))
    taint(node, *ALL)
    seen = set[str]()
    node.before_step = lambda _: seen.update(node.taints())
    assert node.release().reason is ConditionReason.RELEASED
    assert AUTOSCALED.value in seen
    assert node.taints() == {THEIRS["key"]}
    assert POOL_LABEL not in node.labels()
