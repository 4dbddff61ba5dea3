"""A tenant writes any label on its pods: none of them stops a change or a rollout, or makes a node leave its pool."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.reconcile.run_context import RolloutSlot, RunContext
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.amd_node import MANAGER, PROGRAMS, SPACE, AmdNode, amd
from tests.node.reconcile.dra_node import DraNode, by_claims
from tests.node.reconcile.loop_node import NAME, SEVEN, TWO, LoopNode, mig, whole
from tests.support.fake_api.server import ApiServer

DAEMONSET = {"kind": "DaemonSet", "name": "nvidia-mig-manager", "uid": "uid-of-nvidia-mig-manager", "controller": True}
OTHER = {"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node", POOL_LABEL: "other"}
CLIENT, SCIENCE = {"app": "nvidia-dcgm-exporter"}, {"namespace": "science"}


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def add(node: LoopNode, labels: dict[str, str], **more: Any) -> None:
    node.api.add_pod("mine", node=NAME, labels=labels, **SCIENCE | more)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"owner": DAEMONSET},
        {"namespace": "gpu-operator"},
        {"namespace": "gpu-operator", "owner": DAEMONSET | {"kind": "Job"}},
        {"namespace": "gpu-operator", "owner": DAEMONSET | {"controller": False}},
    ],
    ids=["bare", "own daemonset", "platform, bare", "platform, a Job's", "platform, owner that controls nothing"],
)
@pytest.mark.parametrize("labels", [{"app": "nvidia-mig-manager"}, CLIENT, {"app": "nvidia-device-plugin-daemonset"}])
def test_change_and_repair_go_on_beside_a_label_of_a_program(
    node: LoopNode, labels: dict[str, str], more: dict[str, Any]
) -> None:
    node.run(mig(SEVEN))
    add(node, labels, **more)
    assert node.run(mig(TWO, key="mig-00000002")).reason is ConditionReason.READY
    node.gpus.reboot()
    assert node.run(mig(TWO, key="mig-00000002")).reason is ConditionReason.READY
    assert (len(node.gpus.stands(0)), node.taints()) == (2, set())


def test_programs_of_the_platform_still_count(node: LoopNode) -> None:
    node.program("dcgm-x", CLIENT["app"])
    assert node.run(mig(SEVEN)).reason is ConditionReason.CLIENTS_RUNNING


@pytest.mark.parametrize(
    "more",
    [{}, {"owner": DAEMONSET | {"name": "gpushare-other"}}, {"namespace": "gpushare"}],
    ids=["bare", "daemonset of that name", "our namespace, no daemonset"],
)
class TestOurLabels:
    def test_pod_of_another_pool_is_not_believed_to_have_the_node(self, node: LoopNode, more: dict[str, Any]) -> None:
        node.label(**{POOL_LABEL: "other"})
        add(node, OTHER, **more)
        assert node.run(mig(SEVEN)).reason is ConditionReason.READY

    def test_missing_selecting_label_is_waited_for(self, node: LoopNode, more: dict[str, Any]) -> None:
        node.run(mig(SEVEN))
        add(node, OTHER, **more)
        node.label(role=None)
        node.tenant("idle", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
        outcome = node.run(mig(TWO, key="mig-00000002"))
        assert outcome.reason is ConditionReason.UNSELECTED
        assert (node.labels()[POOL_LABEL], len(node.gpus.stands(0))) == ("training", 7)
        assert [
            pod["metadata"]["name"] for pod in node.api.all("pods", namespace="science") if pod["metadata"]["name"] == "idle"
        ]

    def test_orphan_is_released_and_made_exclusive(self, node: LoopNode, more: dict[str, Any]) -> None:
        node.run(mig(SEVEN))
        node.api.remove("daemonsets", "gpushare-training", namespace="gpushare")
        add(node, OTHER, **more)
        assert node.release().reason is ConditionReason.RELEASED
        assert (len(node.gpus.stands(0)), POOL_LABEL in node.labels()) == (0, False)


@pytest.mark.parametrize("labels", [{"app": "nvidia-device-plugin"}, {"dra-driver-nvidia-gpu-component": "kubelet-plugin"}])
def test_back_end_changes_beside_a_label_of_the_other_one(tmp_path: Path, labels: dict[str, str]) -> None:
    node = DraNode(tmp_path, Random(1), A100)
    node.start(whole(1))
    node.api.add_pod("mine", namespace="science", node=NAME, labels=labels)
    outcomes = [node.start(by_claims(whole(1))), node.start(whole(1))]
    assert [outcome and outcome.reason for outcome in outcomes] == [ConditionReason.READY] * 2


@pytest.mark.parametrize("labels", [{}, PROGRAMS[MANAGER]])
def test_amds_programs_are_those_of_the_platform(tmp_path: Path, api: ApiServer, labels: dict[str, str]) -> None:
    node, policy = AmdNode(tmp_path, api), amd("CPX", "NPS4")
    context = RunContext(deps=node.deps(policy.pool), slot=RolloutSlot(node.server(), node.clock))
    labels = {"daemonset-name": "gpushare-training"} | labels
    api.add_pod("mine", namespace="science", node=NAME, labels=labels, owner=DAEMONSET | {"name": "x-device-plugin"})
    assert {pod["metadata"]["name"] for pod in api.all("pods", namespace=SPACE)} <= {
        pod.name for pod in context.platform_pods()
    }
