"""The closed loop from first install to Ready, and that a second run changes nothing."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import NOT_READY_TAINT, POOL_LABEL, PROFILE_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.reasons import ConditionReason
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.loop_node import NAME, SEVEN, TWO, LoopNode, mig, text_of, whole
from tests.support.fake_api.server import ApiServer


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def test_new_node_gets_the_layout_labels_and_resources_of_its_pool(node: LoopNode) -> None:
    node.api.edit("nodes", NAME, lambda one: one["spec"].update(taints=[{"key": NOT_READY_TAINT, "effect": "NoSchedule"}]))
    policy = mig(SEVEN)
    outcome = node.run(policy)
    assert (outcome.reason, outcome.is_usable) == (ConditionReason.READY, True)
    assert node.gpus.stands(0) == set(SEVEN)
    labels = node.labels()
    assert (labels[POOL_LABEL], labels[PROFILE_LABEL], labels[PLUGIN_LABEL]) == ("training", "mig-00000001", "mig-00000001-a")
    assert node.api.node(NAME)["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] == "7"
    assert node.taints() == set()
    assert node.condition() == "Ready"
    assert node.folder.policy() == text_of(policy)
    assert node.folder.journal() is None
    assert not node.holds_slot()


@pytest.mark.parametrize(("replicas", "shown"), [(125, "1k"), (250, "2k")])
def test_a_node_of_a_thousand_shares_becomes_ready(tmp_path: Path, api: ApiServer, replicas: int, shown: str) -> None:
    """The API server answers a thousand as `1k`."""
    node = LoopNode(tmp_path, api, *[A100] * 8)
    assert node.run(whole(8, replicas=replicas)).reason is ConditionReason.READY
    assert node.api.node(NAME)["status"]["allocatable"]["nvidia.com/gpu.shared"] == shown
    assert node.run(whole(8, replicas=replicas)).reason is ConditionReason.READY


@pytest.mark.failure_case(3)
def test_the_second_run_writes_nothing_at_all(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.api.forget_requests()
    node.fake_nvml.forget_calls()
    stamps = {path: path.stat().st_mtime_ns for path in node.folder.path.iterdir() if path.name != "lock"}
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.api.writes() == []
    assert node.fake_nvml.calls() == []
    assert {path: path.stat().st_mtime_ns for path in node.folder.path.iterdir() if path.name != "lock"} == stamps
    assert node.changed() == []


def test_another_layout_under_the_same_profile_flips_the_name(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    assert node.run(mig(TWO)).reason is ConditionReason.READY
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-b"
    assert node.run(whole(replicas=4)).reason is ConditionReason.READY
    assert node.labels()[PLUGIN_LABEL] == "time-slicing-00000004-a"


def test_after_a_reboot_that_took_the_instances_the_plugin_enumerates_again(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.gpus.reboot()
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-b"


def test_foreign_taints_are_kept(node: LoopNode) -> None:
    theirs = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}
    node.api.edit("nodes", NAME, lambda one: one["spec"].update(taints=[theirs]))
    node.run(mig(SEVEN))
    assert node.api.node(NAME)["spec"]["taints"] == [theirs]


def test_taint_is_set_before_hardware_changes(node: LoopNode) -> None:
    seen = []
    node.before_step = lambda result: seen.append((result.step, REPARTITIONING_TAINT in node.taints()))
    node.run(mig(SEVEN))
    assert all(tainted for step, tainted in seen if step.startswith(("create", "switch")))
    assert [step for step, _ in seen][-1] == "taint"
