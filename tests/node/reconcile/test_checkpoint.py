"""Kubelet's checkpoint of devices is not there: a node that is new, or one whose folder somebody emptied under its pods."""

from pathlib import Path

import pytest

from gpushare_node.contract.policy import OnBusy
from gpushare_node.contract.reasons import ConditionReason
from tests.node.reconcile.loop_node import NAME, SEVEN, TWO, LoopNode, mig, rollout, text_of
from tests.support.fake_api.server import ApiServer

DESIRED = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.FAIL)


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def forget(node: LoopNode) -> None:
    """The file is gone; kubelet writes another with the next registration or allocation."""
    node.checkpoint.unlink()
    node.fake_nvml.forget_calls()


@pytest.mark.failure_case(101)
def test_without_a_checkpoint_a_pod_that_asks_for_gpus_may_hold_any(node: LoopNode) -> None:
    """The pod sleeps: the driver shows no process of it."""
    node.run(mig(SEVEN))
    node.api.add_pod("sleeper", namespace="science", node=NAME, limits={"nvidia.com/mig-1g.5gb": 1})
    forget(node)
    outcome = node.run(DESIRED)
    assert (outcome.reason, "science/sleeper" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert (node.fake_nvml.calls(), node.gpus.stands(0), node.taints()) == ([], set(SEVEN), set())


@pytest.mark.failure_case(118)
@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "volcano.sh/vgpu-number", "example.org/gpu"])
def test_a_pod_that_runs_and_is_not_in_the_checkpoint_may_hold_any(node: LoopNode, resource: str) -> None:
    """Kubelet has lost its file and written another with the plugin's next registration; the pod sleeps."""
    node.run(mig(SEVEN))
    node.api.add_pod("sleeper", namespace="science", node=NAME, limits={resource: 1})
    node.fake_nvml.forget_calls()
    outcome = node.run(DESIRED)
    assert (outcome.reason, "science/sleeper" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert "is not in kubelet's checkpoint" in outcome.message
    assert (node.fake_nvml.calls(), node.gpus.stands(0), node.taints()) == ([], set(SEVEN), set())


@pytest.mark.failure_case(118)
def test_pending_pod_holds_only_gpus_in_the_checkpoint(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.api.add_pod("next", namespace="science", node=NAME, phase="Pending", limits={"nvidia.com/mig-1g.5gb": 1})
    assert node.run(DESIRED).reason is ConditionReason.READY


@pytest.mark.failure_case(101)
def test_change_proceeds_when_the_pod_without_a_checkpoint_ends(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.api.add_pod("sleeper", namespace="science", node=NAME, limits={"nvidia.com/mig-1g.5gb": 1})
    forget(node)

    def end(time: float) -> None:
        if time > 400:
            node.api.edit("pods", "sleeper", lambda pod: pod["status"].update(phase="Succeeded"), namespace="science")

    node.on_tick = end
    assert node.run(DESIRED, hold=True).reason is ConditionReason.READY
    assert (node.gpus.stands(0), node.taints()) == (set(TWO), set())


@pytest.mark.failure_case(101)
@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": 0}, {"nvidia.com/hostdev": 1}], ids=["none", "zero", "a nic"])
def test_new_node_without_a_checkpoint_or_gpu_pods_is_partitioned(node: LoopNode, limits: dict[str, int]) -> None:
    node.api.add_pod("agent", namespace="kube-system", node=NAME, limits=limits)
    forget(node)
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY


@pytest.mark.failure_case(101)
def test_gpu_process_blocks_the_change_without_a_checkpoint(node: LoopNode) -> None:
    node.fake_nvml.put(0, 4711, 100)
    forget(node)
    assert node.run(rollout(mig(SEVEN), on_busy=OnBusy.FAIL)).reason is ConditionReason.GPU_BUSY
    assert node.fake_nvml.calls() == []


@pytest.mark.failure_case(101)
def test_without_a_checkpoint_and_without_the_api_server_nothing_is_destroyed(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.folder.keep_policy(text_of(mig(TWO)))
    forget(node)
    node.api.down()
    outcome = node.run(mig(TWO))
    assert (outcome.reason, "does not answer" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert node.fake_nvml.calls() == []


def never_registered(node: LoopNode) -> None:
    """No plugin has registered yet, and a pod that names the node itself is there: kubelet lets it in."""
    node.api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].clear())
    node.api.add_pod("early", namespace="science", node=NAME, phase="Pending", limits={"nvidia.com/gpu": 1})
    forget(node)


@pytest.mark.failure_case(110)
def test_pod_requesting_gpus_before_plugin_registration_is_evicted(node: LoopNode) -> None:
    never_registered(node)
    assert node.run(rollout(mig(SEVEN), on_busy=OnBusy.EVICT)).reason is ConditionReason.READY
    assert [path.split("/")[-2] for _, path in node.api.writes("eviction")] == ["early"]
    assert node.gpus.stands(0) == set(SEVEN)


@pytest.mark.failure_case(110)
def test_on_busy_wait_reports_the_pod_and_the_missing_checkpoint(node: LoopNode) -> None:
    never_registered(node)
    outcome = node.run(rollout(mig(SEVEN), drain_timeout_seconds=60))
    assert outcome.reason is ConditionReason.GPU_BUSY
    assert outcome.message.startswith("in use by pod science/early; kubelet has no checkpoint")
    assert (node.fake_nvml.calls(), node.taints()) == ([], set())


@pytest.mark.failure_case(110)
def test_no_pod_is_waited_for_if_nothing_is_destroyed(node: LoopNode) -> None:
    node.run(mig((("3g.20gb", 0),)))
    never_registered(node)
    assert node.run(rollout(mig((("3g.20gb", 0), ("3g.20gb", 4))), on_busy=OnBusy.FAIL)).reason is ConditionReason.READY


@pytest.mark.failure_case(110)
def test_the_platforms_pod_is_waited_for_and_not_evicted(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.api.add_pod("exporter", namespace="kube-system", node=NAME, limits={"nvidia.com/mig-1g.5gb": 1})
    forget(node)
    outcome = node.run(rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.EVICT, drain_timeout_seconds=10))
    assert (outcome.reason, node.api.writes("eviction"), node.gpus.stands(0)) == (ConditionReason.GPU_BUSY, [], set(SEVEN))


@pytest.mark.failure_case(112)
def test_standalone_run_without_a_checkpoint_treats_the_gpus_as_busy(node: LoopNode) -> None:
    """Without an API server nobody can say who asks for GPUs."""
    node.run(mig(SEVEN))
    forget(node)
    outcome = node.run(mig(TWO), cluster=False)
    assert (outcome.reason, "no API server is used" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert node.fake_nvml.calls() == []


@pytest.mark.failure_case(112)
def test_standalone_run_without_kubelet_treats_the_gpus_as_free(node: LoopNode, tmp_path: Path) -> None:
    node.checkpoint = tmp_path / "device-plugins" / "kubelet_internal_checkpoint"
    assert node.run(mig(SEVEN), cluster=False).reason is ConditionReason.READY
