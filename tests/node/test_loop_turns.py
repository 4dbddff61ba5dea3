"""Who may be changed, and when: turns, other pools, mig-manager, and the ways out of each."""

from pathlib import Path

import pytest

from gpushare_node.kube.cluster import PLUGIN_LABEL, POOL_LABEL
from gpushare_node.voice.reasons import Reason
from tests.node.api_server import ApiServer
from tests.node.loop_node import NAME, SEVEN, TWO, LoopNode, mig, rollout, text_of, whole


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def take_turn(node: LoopNode) -> None:
    """Another node of the pool has the only turn."""
    node.api.add_node("n2")
    spec = {"holderIdentity": "n2", "leaseDurationSeconds": 900}
    node.api.add("leases", "gpushare-training.0", {"metadata": {"labels": {POOL_LABEL: "training"}}, "spec": spec},
                 namespace="gpushare")  # fmt: skip


def test_without_a_turn_nothing_is_tainted_and_nothing_changed(node: LoopNode) -> None:
    take_turn(node)
    outcome = node.run(mig(SEVEN))
    assert outcome.reason is Reason.WAITING_FOR_TURN
    assert node.silicon.calls() == []
    assert node.taints() == set()


def test_a_node_that_offers_nothing_takes_no_turn(node: LoopNode) -> None:
    take_turn(node)
    node.api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].clear())
    assert node.run(mig(SEVEN)).reason is Reason.READY


def test_what_only_has_to_be_verified_takes_no_turn(node: LoopNode) -> None:
    node.run(whole())
    node.api.forget_requests()
    take_turn(node)
    assert node.run(whole()).reason is Reason.READY


def test_a_new_config_of_the_plugin_takes_a_turn_though_it_disturbs_nobody(node: LoopNode) -> None:
    """While the plugin starts anew the node offers nothing: not all nodes of a pool at once."""
    node.run(whole(replicas=2))
    take_turn(node)
    before = node.labels()[PLUGIN_LABEL]
    assert node.run(whole(replicas=4)).reason is Reason.WAITING_FOR_TURN
    assert node.labels()[PLUGIN_LABEL] == before
    node.api.remove("leases", "gpushare-training.0", namespace="gpushare")
    assert node.run(whole(replicas=4)).reason is Reason.READY
    assert (node.taints(), node.holds_turn()) == (set(), False)


def test_a_label_that_somebody_took_is_put_right_without_a_turn(node: LoopNode) -> None:
    node.run(whole(replicas=2))
    take_turn(node)
    node.label(**{PLUGIN_LABEL: None})
    assert node.run(whole(replicas=2)).reason is Reason.READY


def test_a_turn_that_becomes_free_is_taken(node: LoopNode) -> None:
    take_turn(node)

    def give_back(time: float) -> None:
        if time > 100 and [one["spec"]["holderIdentity"] for one in node.api.leases()] == ["n2"]:
            node.api.remove("leases", "gpushare-training.0", namespace="gpushare")

    node.on_tick = give_back
    assert node.run(mig(SEVEN), hold=True).reason is Reason.READY
    assert node.clock.now() > 100


def test_a_node_that_fails_keeps_its_turn(node: LoopNode) -> None:
    node.silicon.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999)
    outcome = node.run(mig(SEVEN))
    assert outcome.reason in (Reason.ROLLED_BACK, Reason.PARTITION_FAILED)
    assert node.holds_turn()


def test_a_rolled_back_node_offers_its_former_layout_again_and_takes_pods(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.silicon.fail("nvmlGpuInstanceCreateComputeInstance", 999, times=1)
    outcome = node.run(mig(TWO, key="mig-00000002"))
    assert outcome.reason is Reason.ROLLED_BACK
    assert node.gpus.stands(0) == set(SEVEN)
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-b"
    assert node.folder.policy() == text_of(mig(SEVEN))
    assert node.taints() == set()
    assert node.holds_turn()


def test_31_a_mig_manager_pod_is_a_refusal(node: LoopNode) -> None:
    node.api.add_pod("mig-manager-x", namespace="gpu-operator", node=NAME, labels={"app": "nvidia-mig-manager"})
    outcome = node.run(mig(SEVEN))
    assert outcome.reason is Reason.MIG_MANAGER_PRESENT
    assert "gpu-operator/mig-manager-x" in outcome.message
    assert node.silicon.calls() == []
    assert node.taints() == set()


def test_31_its_label_alone_is_no_reason(node: LoopNode) -> None:
    node.label(**{"nvidia.com/mig.config": "all-disabled"})
    node.api.add_pod("gone", namespace="gpu-operator", node=NAME, labels={"app": "nvidia-mig-manager"}, phase="Succeeded")
    assert node.run(mig(SEVEN)).reason is Reason.READY


def test_a_node_of_another_pool_is_waited_for_until_its_pod_has_gone(node: LoopNode) -> None:
    node.label(**{POOL_LABEL: "old"})
    node.runtime_pod("old")
    outcome = node.run(mig(SEVEN))
    assert (outcome.reason, "old" in outcome.message) == (Reason.WAITING_FOR_POOL, True)
    assert node.silicon.calls() == []
    assert node.labels()[POOL_LABEL] == "old"
    assert node.condition() is None, "the condition is its owner's"

    def let_go(time: float) -> None:
        if time > 100 and node.labels().get(POOL_LABEL) == "old":
            node.label(**{POOL_LABEL: None})

    node.on_tick = let_go
    assert node.run(mig(SEVEN), hold=True).reason is Reason.READY
    assert node.labels()[POOL_LABEL] == "training"


def test_a_label_without_a_pod_is_taken_over(node: LoopNode) -> None:
    node.label(**{POOL_LABEL: "vanished"})
    assert node.run(mig(SEVEN)).reason is Reason.READY
    assert node.labels()[POOL_LABEL] == "training"


def test_a_turn_is_renewed_while_tenants_are_waited_for(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.tenant("sleeper", node.silicon.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    node.api.forget_requests()
    node.run(rollout(mig(TWO), drain_timeout_seconds=700))
    assert [method for method, _ in node.api.writes("leases")] == ["POST", "PUT", "PUT", "DELETE"]
