"""What a fleet meets in its first month: late ConfigMaps, budgets that never allow, re-imaged nodes, clocks that jump."""

from pathlib import Path

import pytest

from gpushare_node.adapters.host.state_dir import Journal
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import POOL_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.policy import OnBusy
from gpushare_node.contract.reasons import ConditionReason
from tests.node.reconcile.loop_node import DEPLOY, SEVEN, SLOT, TWO, LoopNode, mig, rollout, text_of
from tests.support.fake_api.server import ApiServer


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


@pytest.mark.failure_case(98)
@pytest.mark.parametrize("seconds", [70, 200, 900])
def test_label_set_before_the_configmap_arrives_keeps_the_taint_until_ready(node: LoopNode, seconds: int) -> None:
    """config-manager exits until kubelet has projected the profile; then it applies its default first, and the label's last."""
    node.run(mig(SEVEN))
    node.is_plugin_deaf = True
    start, seen = node.clock.now(), []

    def project(time: float) -> None:
        if node.labels()[PLUGIN_LABEL].startswith("mig-00000002"):
            seen.append((REPARTITIONING_TAINT in node.taints(), node.condition()))
        if node.is_plugin_deaf and time - start > seconds:
            node.registered = {"nvidia.com/gpu": [node.fake_nvml.uuid(0)]}
            node.publish()
            node.is_plugin_deaf = False

    node.on_tick = project
    assert node.run(mig(TWO, key="mig-00000002"), hold=True).reason is ConditionReason.READY
    assert (node.gpus.stands(0), node.taints()) == (set(TWO), set())
    assert {is_tainted for is_tainted, _ in seen} == {True}
    assert seen[-1][1] in {"WaitingForPlugin", "WrongResources", "Partitioning"}


@pytest.mark.failure_case(99)
def test_budget_that_never_allows_eviction_keeps_the_layout_and_frees_the_slot(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    uuid = node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0))
    node.tenant("guarded", uuid, "nvidia.com/mig-1g.5gb")
    node.api.eviction_budget = 0
    node.fake_nvml.forget_calls()
    node.api.forget_requests()
    desired = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.EVICT, drain_timeout_seconds=600)
    outcome = node.run(desired)
    assert (outcome.reason, "science/guarded" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert node.fake_nvml.calls() == []
    assert (node.taints(), node.holds_slot(), node.labels()[PLUGIN_LABEL]) == (set(), False, "mig-00000001-a")
    assert len(node.api.writes("eviction")) <= 600 / 5 + 10, "asked no faster than the node is looked at"
    assert not [method for method, path in node.api.writes("pods") if method == "DELETE"]


@pytest.mark.failure_case(100)
def test_reimaged_node_with_the_desired_layout_is_only_verified(node: LoopNode) -> None:
    """The folder is empty, the instances stand, and a tenant works on one."""
    node.run(mig(SEVEN))
    uuid = node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0))
    node.tenant("worker", uuid, "nvidia.com/mig-1g.5gb")
    for path in node.folder.path.iterdir():
        path.unlink()
    node.fake_nvml.forget_calls()
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert (node.fake_nvml.calls(), node.taints(), node.folder.policy()) == ([], set(), text_of(mig(SEVEN)))


@pytest.mark.failure_case(100)
def test_reimaged_node_with_another_layout_waits_for_its_tenants(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    uuid = node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0))
    node.tenant("worker", uuid, "nvidia.com/mig-1g.5gb")
    for path in node.folder.path.iterdir():
        path.unlink()
    desired = rollout(mig(TWO, key="mig-00000002"), drain_timeout_seconds=30)
    assert node.run(desired).reason is ConditionReason.GPU_BUSY
    assert node.gpus.stands(0) == set(SEVEN)
    node.entries.clear()
    node.publish()
    assert node.run(desired).reason is ConditionReason.READY
    assert (node.gpus.stands(0), node.taints()) == (set(TWO), set())


@pytest.mark.failure_case(100)
def test_state_dir_of_another_node_does_not_affect_this_node(node: LoopNode) -> None:
    """An image taken from a node in the middle of a change: its policy, its journal, its slot."""
    node.folder.keep_policy(text_of(mig(TWO, pool="other", key="mig-00000009")))
    node.folder.keep_profile("mig-00000009-b", frozenset({"MIG-of-another-node"}))
    node.folder.keep_slot("gpushare-other.0")
    node.folder.write_journal(
        Journal(
            policy_digest="another",
            boot_id="another",
            attempts=3,
            is_changing=True,
            paused={DEPLOY: "true"},
        )
    )
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert (node.gpus.stands(0), node.taints(), node.holds_slot()) == (set(SEVEN), set(), False)
    assert (node.folder.policy(), node.folder.journal()) == (text_of(mig(SEVEN)), None)
    assert node.labels()[DEPLOY] == "true"


@pytest.mark.failure_case(100)
def test_renamed_node_does_not_wait_for_the_slot_of_its_old_name(node: LoopNode) -> None:
    """Folder and hardware are the same; Node object, labels and taints are new. The slot is that of the former name."""
    node.run(mig(SEVEN))
    spec = {"holderIdentity": "former-name", "leaseDurationSeconds": 900}
    node.api.add("leases", SLOT, {"metadata": {"labels": {POOL_LABEL: "training"}}, "spec": spec}, namespace="gpushare")
    node.folder.keep_slot(SLOT)
    node.label(**{POOL_LABEL: None, PLUGIN_LABEL: None})
    start = node.clock.now()
    assert node.run(mig(TWO, key="mig-00000002"), hold=True).reason is ConditionReason.READY
    assert node.clock.now() - start < 300, "whose node is not there any more has no slot"
    assert (node.gpus.stands(0), node.taints(), node.holds_slot()) == (set(TWO), set(), False)


@pytest.mark.failure_case(108)
@pytest.mark.parametrize(
    "text", ["", "x", "/", "./x", "../x", "a/b/c", "a b/c", "a?b/c", "%/c", "ä/c", "A" * 5000 + "/c"], ids=range(11)
)
def test_invalid_release_annotation_is_ignored(node: LoopNode, text: str) -> None:
    node.annotate("gpushare.dev/release", text)
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert "gpushare.dev/release" not in node.annotations()
