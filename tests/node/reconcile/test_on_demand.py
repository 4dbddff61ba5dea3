"""A node whose MIG instances the DRA driver makes on demand: claims come and go, and its pool changes to that and back."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpushare_node.contract.names import BACKEND_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.chaos_node import is_clean
from tests.node.reconcile.dra_node import by_claims
from tests.node.reconcile.loop_node import TWO, mig, whole
from tests.node.reconcile.on_demand_node import OnDemandNode, on_demand
from tests.node.reconcile.test_backend_gate import change, change_after_a_tenant, run, watch_label

ON_DEMAND = on_demand("1g.5gb", "3g.20gb")
FIXED, WHOLE, PLUGIN = by_claims(mig(TWO)), by_claims(whole()), whole(replicas=4)
CHANGES = [
    (PLUGIN, ON_DEMAND, [None, "none", "dra"]),
    (mig(TWO), ON_DEMAND, [None, "none", "dra"]),
    (WHOLE, ON_DEMAND, ["dra", "none", "dra"]),
    (FIXED, ON_DEMAND, ["dra", "none", "dra"]),
    (ON_DEMAND, FIXED, ["dra", "none", "dra"]),
    (ON_DEMAND, WHOLE, ["dra", "none", "dra"]),
    (ON_DEMAND, PLUGIN, ["dra", "none", None]),
]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnDemandNode:
    monkeypatch.setenv("GPUSHARE_FAKE_NVML", "")
    return OnDemandNode(tmp_path, Random(1), A100)


@pytest.mark.parametrize(("before", "after", "labels"), CHANGES)
def test_the_driver_leaves_before_it_makes_instances_or_makes_no_more(
    node: OnDemandNode, before: Policy, after: Policy, labels: list[str | None]
) -> None:
    change(node, before, after, labels)
    assert node.instances() == set() if after is ON_DEMAND else node.is_as(after)


@pytest.mark.parametrize(("before", "after", "_"), CHANGES)
def test_a_prepared_claim_is_waited_for(node: OnDemandNode, before: Policy, after: Policy, _: Any) -> None:
    change_after_a_tenant(node, before, after)


@pytest.mark.parametrize(("before", "after", "_"), CHANGES)
@pytest.mark.parametrize("fuse", [2, 6])
def test_a_change_that_is_killed_goes_on(node: OnDemandNode, before: Policy, after: Policy, fuse: int, _: Any) -> None:
    run(node, before)
    node.fuse = fuse
    node.start(after)
    node.wait(3)
    outcome = run(node, after)
    assert outcome.reason is ConditionReason.READY, outcome.message
    assert is_clean(node)


def test_instances_come_and_go_with_claims_and_the_node_stays_ready(node: OnDemandNode) -> None:
    run(node, ON_DEMAND)
    node.api.forget_requests()
    for _ in range(4):
        node.arrive(is_at_work=False)
        assert node.instances() == set(node.prepared.values())
        assert run(node, ON_DEMAND).reason is ConditionReason.READY
    for name in list(node.tenants):
        node.leave(name)
        node.wait(1)
    assert node.instances() == set()
    assert run(node, ON_DEMAND).reason is ConditionReason.READY
    assert node.api.writes() == []


def test_a_driver_that_makes_no_instances_is_named_and_pods_stay_away(node: OnDemandNode) -> None:
    """NVIDIA's chart still has the former values: in MIG mode such a driver lists no device at all."""
    run(node, FIXED)
    node.installed = False
    outcome = run(node, ON_DEMAND)
    assert outcome.reason is ConditionReason.WRONG_SLICES
    assert "the driver runs without DynamicMIG" in outcome.message
    assert node.taints() == {REPARTITIONING_TAINT}
    node.installed = None
    assert run(node, ON_DEMAND).reason is ConditionReason.READY


def test_an_instance_that_somebody_made_is_left_alone(node: OnDemandNode) -> None:
    run(node, ON_DEMAND)
    node.fake_nvml.add_instance(0, 9, 0)
    node.seen = None
    assert run(node, ON_DEMAND).reason is ConditionReason.READY
    assert len(node.instances()) == 1


def test_mig_mode_that_somebody_switched_off_comes_back_behind_the_gate(node: OnDemandNode) -> None:
    run(node, ON_DEMAND)
    seen = watch_label(node)
    node.fake_nvml.set_mode(0, False)
    node.seen = None
    assert run(node, ON_DEMAND).reason is ConditionReason.READY
    assert seen == ["dra", "none", "dra"]
    assert node.fake_nvml.mode(0) == (True, True)


def test_a_release_leaves_no_instance_and_gives_the_node_back(node: OnDemandNode) -> None:
    run(node, ON_DEMAND)
    node.arrive(is_at_work=False)
    node.unselect("cpu")
    node.leave("tenant-1")
    assert run(node, ON_DEMAND).reason is ConditionReason.RELEASED
    node.wait(10)
    assert BACKEND_LABEL not in node.labels()
    assert node.fake_nvml.mode(0) == (False, False)
    assert node.registered == {"nvidia.com/gpu": [node.fake_nvml.uuid(0)]}
