"""A node that its pool no longer selects: an order releases it at once, a label that is merely gone only after a wait."""

from pathlib import Path

import pytest

from gpushare_node.contract.names import RETRY_ANNOTATION
from gpushare_node.contract.policy import OnBusy, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Stopped
from gpushare_node.reporting.outcome import Outcome
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.loop_node import SEVEN, TWO, LoopNode, mig, rollout
from tests.support.fake_api.server import ApiServer

EVICTING = rollout(mig(SEVEN), on_busy=OnBusy.EVICT, drain_timeout_seconds=600)
OTHER = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.EVICT, drain_timeout_seconds=600)


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    """A node in its pool's layout, with a tenant, that has just lost the label by which the pool selects it."""
    made = LoopNode(tmp_path, api, A100)
    made.run(EVICTING)
    made.tenant("innocent", made.fake_nvml.mig_uuid(0, made.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    made.fake_nvml.forget_calls()
    made.label(role=None)
    return made


def hold(node: LoopNode, policy: Policy, seconds: float) -> Outcome | None:
    """`apply --hold`; None if it still waits after so long."""
    end, before = node.clock.now() + seconds, node.on_tick

    def tick(time: float) -> None:
        before(time)
        node.clock.is_stopped = time > end

    node.on_tick = tick
    try:
        return node.run(policy, hold=True)
    except Stopped:
        return None


def tenants(node: LoopNode) -> list[str]:
    return [pod["metadata"]["name"] for pod in node.api.all("pods", namespace="science")]


def test_layout_of_an_unselected_node_is_kept_for_five_minutes(node: LoopNode) -> None:
    outcome = node.run(EVICTING)
    assert (outcome.reason, tenants(node), node.fake_nvml.calls()) == (ConditionReason.READY, ["innocent"], [])


def test_a_change_waits_until_the_pool_selects_the_node_again(node: LoopNode) -> None:
    start = node.clock.now()
    node.on_tick = lambda time: node.label(role="gpu") if time - start > 200 else None
    assert hold(node, OTHER, 150) is None
    assert (node.condition(), tenants(node), node.fake_nvml.calls(), node.taints()) == ("Unselected", ["innocent"], [], set())
    node.clock.is_stopped = False
    outcome = hold(node, OTHER, 600)
    assert outcome is not None
    assert outcome.reason is ConditionReason.READY


def test_unselected_node_is_released_after_five_minutes(node: LoopNode) -> None:
    node.run(EVICTING)
    node.clock.sleep(301)
    assert node.run(EVICTING).reason is ConditionReason.RELEASED


def test_reboot_restarts_the_wait_of_an_unselected_node(node: LoopNode) -> None:
    node.run(EVICTING)
    node.clock.sleep(301)
    node.entries.clear()
    node.gpus.reboot()
    assert node.run(EVICTING).reason is ConditionReason.READY


def test_retry_annotation_ends_the_wait_of_an_unselected_node(node: LoopNode) -> None:
    node.annotate(RETRY_ANNOTATION, "now")
    assert node.run(EVICTING).reason is ConditionReason.RELEASED


def test_runtime_pod_of_another_pool_ends_the_wait(node: LoopNode) -> None:
    node.runtime_pod("other")
    assert node.run(EVICTING).reason is ConditionReason.RELEASED
    assert tenants(node) == ["innocent"]


def test_deleted_pool_ends_the_wait(node: LoopNode) -> None:
    node.api.remove("daemonsets", "gpushare-training", namespace="gpushare")
    assert node.run(EVICTING).reason is ConditionReason.RELEASED
