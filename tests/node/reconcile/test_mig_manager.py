"""A pool whose nodes mig-manager partitions: it is asked by its label, watched, and never taken at its word."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import MIG_LABEL
from gpushare_node.contract.policy import Partitioner, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from tests.node.gpus.gpu_node import IDS
from tests.node.reconcile.loop_node import DEPLOY, NAME, SEVEN, LoopNode, mig, whole
from tests.support.fake_api.server import ApiServer

STATE = "nvidia.com/mig.config.state"


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    made = LoopNode(tmp_path, api)
    made.api.add_daemon_pod(
        "mig-manager-x", "nvidia-mig-manager", namespace="gpu-operator", node=NAME, labels={"app": "nvidia-mig-manager"}
    )
    return made


def policy() -> Policy:
    return replace(mig(SEVEN), partitioner=Partitioner.MIG_MANAGER, mig_config="mig-f59e014c")


def manage(node: LoopNode, state: str = "success", *, is_done: bool = True) -> None:
    """mig-manager, which is at work for a minute."""
    began = []

    def act(time: float) -> None:
        if node.labels().get(MIG_LABEL) != "mig-f59e014c":
            return
        began.append(time)
        if time - began[0] < 60:
            node.label(**{STATE: "pending"})
        elif node.labels()[STATE] == "pending":
            if is_done:
                node.fake_nvml.set_mode(0, True)
                for name, start in SEVEN:
                    node.fake_nvml.add_instance(0, IDS[name], start)
                node.enumerate()
            node.label(**{STATE: state})

    node.on_tick = act


def test_mig_manager_is_requested_by_label_and_the_node_verified(node: LoopNode) -> None:
    node.label(**{STATE: "success"})
    manage(node)
    outcome = node.run(policy())
    assert outcome.reason is ConditionReason.READY
    assert node.fake_nvml.calls() == []
    assert node.labels()[MIG_LABEL] == "mig-f59e014c"
    assert node.labels()[DEPLOY] == "true"
    assert node.taints() == set()


def test_driver_is_not_held_open_while_mig_manager_works(node: LoopNode) -> None:
    node.run(whole())
    node.watched.clear()
    manage(node)
    assert node.run(policy()).reason is ConditionReason.READY
    assert node.watched == [], "whoever enforces holds the driver, and a mode change waits for it"


def test_mig_manager_failure_is_reported(node: LoopNode) -> None:
    manage(node, "failed", is_done=False)
    outcome = node.run(policy())
    assert (outcome.reason, "failed" in outcome.message) == (ConditionReason.PARTITION_FAILED, True)


def test_mig_manager_success_is_verified(node: LoopNode) -> None:
    manage(node, is_done=False)
    assert node.run(policy()).reason is ConditionReason.PARTITION_FAILED


def test_hanging_mig_manager_is_reported(node: LoopNode) -> None:
    node.on_tick = lambda _: node.label(**{STATE: "pending"})
    outcome = node.run(policy())
    assert not outcome.is_usable
    assert "pending" in outcome.message


def test_clients_paused_by_mig_manager_stay_paused(node: LoopNode) -> None:
    node.label(**{DEPLOY: "paused-for-mig-change"})
    node.run(replace(whole(), partitioner=Partitioner.MIG_MANAGER, mig_config="all-disabled"))
    assert node.labels()[DEPLOY] == "paused-for-mig-change"
