"""An idle MPS server does not use a GPU: its daemon ends it when the label has changed, and the change goes on."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import PROFILE_LABEL, RELEASE_ANNOTATION, REPARTITIONING_TAINT
from gpushare_node.contract.policy import Mode, Policy, Stack
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.loop_node import SEVEN, LoopNode, mig, rollout, whole
from tests.support.fake_api.server import ApiServer

SERVER = 4711


def bare(policy: Policy) -> Policy:
    """On a stack where nobody pauses the daemon."""
    return replace(policy, stack=Stack.DEVICE_PLUGIN)


MPS = bare(whole(replicas=4, mode=Mode.MPS))


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    """Under MPS; its first tenant has come and gone."""
    node = LoopNode(tmp_path, api, A100)
    assert node.run(MPS).reason is ConditionReason.READY
    node.serve_mps(SERVER)
    return node


@pytest.mark.failure_case(76)
@pytest.mark.parametrize(
    "policy",
    [whole(replicas=4), whole(), mig(SEVEN), bare(whole(replicas=4)), bare(mig(SEVEN))],
    ids=["time-slicing", "exclusive", "mig", "time-slicing, bare", "mig, bare"],
)
def test_node_with_a_running_mps_server_changes_its_mode(node: LoopNode, policy: Policy) -> None:
    assert node.run(policy).reason is ConditionReason.READY
    assert node.fake_nvml.compute_mode(0) == 0
    assert (node.taints(), node.holds_slot()) == (set(), False)
    assert node.folder.journal() is None


@pytest.mark.failure_case(76)
def test_compute_mode_is_reset_after_the_label_change_ends_the_mps_server(node: LoopNode) -> None:
    seen = []

    def look(_: float) -> None:
        if node.mps:
            seen.append((node.labels()[PLUGIN_LABEL], node.fake_nvml.compute_mode(0), REPARTITIONING_TAINT in node.taints()))

    node.on_tick = look
    policy = whole(replicas=2)
    assert node.run(policy).reason is ConditionReason.READY
    assert seen[-1] == (f"{policy.profile}-a", 3, True)


BY_TURNS = bare(whole(replicas=4))


@pytest.mark.failure_case(114)
@pytest.mark.parametrize(("former", "then"), [(BY_TURNS, MPS), (MPS, BY_TURNS)], ids=["to", "from"])
def test_resources_of_the_previous_plugin_config_are_not_accepted(
    tmp_path: Path, api: ApiServer, former: Policy, then: Policy
) -> None:
    """By turns and under MPS the names and ids are the same; a pod that came now would be given the other mode's share."""
    node = LoopNode(tmp_path, api, A100)
    assert node.run(former).reason is ConditionReason.READY
    before = node.starts
    seen: list[bool] = []
    node.before_step = lambda one: seen.append(node.starts > before) if one.detail.endswith("removed") else None
    assert node.run(then).reason is ConditionReason.READY
    assert seen == [True], "the plugin had begun anew when pods were let in"


@pytest.mark.failure_case(115)
def test_plugin_waiting_for_the_mps_daemon_is_not_restarted(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, A100)
    assert node.run(bare(mig(SEVEN))).reason is ConditionReason.READY
    begun, node.is_plugin_deaf = node.clock.now(), True
    node.on_tick = lambda _: setattr(node, "is_plugin_deaf", node.clock.now() - begun < 90)
    assert node.run(MPS).reason is ConditionReason.READY
    assert node.labels()[PLUGIN_LABEL] == f"{MPS.profile}-a"


@pytest.mark.failure_case(114)
def test_plugin_that_never_restarts_is_eventually_accepted(node: LoopNode) -> None:
    node.stop_mps()
    node.is_plugin_deaf = True
    assert node.run(whole(replicas=4)).reason is ConditionReason.READY


@pytest.mark.failure_case(114)
def test_label_irrelevant_to_the_plugin_is_not_waited_for(node: LoopNode) -> None:
    assert node.run(MPS).reason is ConditionReason.READY
    node.label(**{PROFILE_LABEL: None})
    begun = node.clock.now()
    assert node.run(MPS).reason is ConditionReason.READY
    assert node.clock.now() - begun < 10


@pytest.mark.failure_case(76)
@pytest.mark.parametrize("is_asked", [True, False])
def test_node_with_a_running_mps_server_is_released(node: LoopNode, is_asked: bool) -> None:
    if is_asked:
        node.annotate(RELEASE_ANNOTATION, node.api.asking())
    else:
        node.unselect()
    assert node.run(MPS).reason is ConditionReason.RELEASED
    assert node.fake_nvml.compute_mode(0) == 0
    assert PLUGIN_LABEL not in node.labels()


@pytest.mark.failure_case(76)
def test_remaining_mps_server_is_reported_and_the_taint_is_kept(node: LoopNode) -> None:
    node.is_mps_deaf = True
    outcome = node.run(whole())
    assert (outcome.reason, f"process {SERVER}" in outcome.message) == (ConditionReason.CLIENTS_RUNNING, True)
    assert (node.taints(), node.fake_nvml.compute_mode(0)) == ({REPARTITIONING_TAINT}, 3)
    node.is_mps_deaf = False
    assert node.run(whole()).reason is ConditionReason.READY
    assert (node.taints(), node.fake_nvml.compute_mode(0)) == (set(), 0)


@pytest.mark.failure_case(76)
def test_run_stopped_after_the_label_change_keeps_the_taint(node: LoopNode) -> None:
    node.is_mps_deaf = True
    node.on_tick = lambda _: setattr(node.clock, "is_stopped", REPARTITIONING_TAINT in node.taints())
    with pytest.raises(Exception):  # noqa: B017, PT011 - Stopped
        node.run(whole(), hold=True)
    assert node.taints() == {REPARTITIONING_TAINT}
    node.clock.is_stopped = node.is_mps_deaf = False
    node.on_tick = lambda _: None
    assert node.run(MPS).reason is ConditionReason.READY, "the way back"
    assert node.taints() == set()


@pytest.mark.failure_case(76)
def test_processes_other_than_the_mps_server_are_waited_for(node: LoopNode) -> None:
    node.fake_nvml.put(0, 4712, 100)
    outcome = node.run(rollout(whole(), drain_timeout_seconds=10))
    assert (outcome.reason, outcome.message) == (ConditionReason.GPU_BUSY, "in use by process 4712 on GPU 0")
    assert node.labels()[PLUGIN_LABEL].startswith("mps"), "nothing is announced while they are there"
    assert node.taints() == set()
