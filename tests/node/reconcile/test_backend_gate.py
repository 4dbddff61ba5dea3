"""A node changes between the device plugin and DRA, and its GPUs under DRA: step by step, and when something is in the way."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpushare_node.contract.names import BACKEND_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.policy import OnBusy, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.reconcile.observation import observe
from gpushare_node.reporting.outcome import Outcome, StepResult
from gpushare_node.vendors.nvidia.session import Session
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.chaos_node import is_clean
from tests.node.reconcile.dra_node import SLICE, DraNode, by_claims
from tests.node.reconcile.loop_node import DEPLOY, NAME, SEVEN, TWO, mig, rollout, take_slot, whole

PLUGIN = whole(replicas=4)
DRA = by_claims(whole())
BY_MIG, BY_OTHER_MIG = by_claims(mig(TWO)), by_claims(mig(SEVEN))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DraNode:
    monkeypatch.setenv("GPUSHARE_FAKE_NVML", "")
    return DraNode(tmp_path, Random(1), A100)


def run(node: DraNode, policy: Policy, *, hold: bool = False) -> Outcome:
    outcome = node.start(policy, hold=hold)
    assert outcome is not None
    return outcome


def patiently(policy: Policy, on_busy: OnBusy = OnBusy.WAIT) -> Policy:
    return rollout(policy, on_busy=on_busy, drain_timeout_seconds=60)


def watch_label(node: DraNode) -> list[str | None]:
    """The values of the label, in the order in which the node has had them."""
    seen = [node.labels().get(BACKEND_LABEL)]
    original = node.check

    def check(before: Any) -> None:
        original(before)
        label = node.labels().get(BACKEND_LABEL)
        if label != seen[-1]:
            seen.append(label)

    node.check = check  # type: ignore[method-assign]
    return seen


def change(node: DraNode, before: Policy, after: Policy, labels: list[str | None]) -> None:
    """A change that evicts a tenant gives the label these values, and a second run changes nothing."""
    assert run(node, before).reason is ConditionReason.READY
    seen = watch_label(node)
    node.arrive(is_at_work=False)
    assert node.tenants
    outcome = run(node, patiently(after, OnBusy.EVICT))
    assert outcome.reason is ConditionReason.READY, outcome.message
    assert seen == labels
    assert is_clean(node)
    assert not node.tenants
    node.api.forget_requests()
    assert run(node, patiently(after, OnBusy.EVICT)).reason is ConditionReason.READY
    assert node.api.writes() == []


def change_after_a_tenant(node: DraNode, before: Policy, after: Policy) -> None:
    """The node serves on until its tenant has left."""
    run(node, before)
    node.arrive(is_at_work=False)
    seen = watch_label(node)
    outcome = run(node, patiently(after))
    assert (outcome.reason, outcome.message) == (ConditionReason.GPU_BUSY, "in use by pod science/tenant-1")
    assert (len(seen), node.taints(), node.holders()) == (1, set(), [])
    node.leave("tenant-1")
    assert run(node, patiently(after)).reason is ConditionReason.READY


CHANGES = [
    (PLUGIN, DRA, [None, "none", "dra"]),
    (DRA, PLUGIN, ["dra", "none", None]),
    (mig(TWO), BY_OTHER_MIG, [None, "none", "dra"]),
    (BY_MIG, PLUGIN, ["dra", "none", None]),
    (BY_MIG, BY_OTHER_MIG, ["dra", "none", "dra"]),
]


@pytest.mark.parametrize(("before", "after", "labels"), CHANGES)
def test_neither_back_end_may_run_between_two(node: DraNode, before: Policy, after: Policy, labels: list[str | None]) -> None:
    change(node, before, after, labels)


@pytest.mark.parametrize(("before", "after", "_"), CHANGES)
def test_a_tenant_is_waited_for_and_the_node_serves_on(node: DraNode, before: Policy, after: Policy, _: Any) -> None:
    change_after_a_tenant(node, before, after)


@pytest.mark.parametrize(("before", "after", "_"), CHANGES)
def test_a_change_takes_its_turn_and_its_window(node: DraNode, before: Policy, after: Policy, _: Any) -> None:
    run(node, before)
    assert run(node, rollout(after, is_paused=True)).reason is ConditionReason.ROLLOUT_PAUSED
    take_slot(node)
    assert run(node, after).reason is ConditionReason.WAITING_FOR_TURN
    assert node.taints() == set()


@pytest.mark.parametrize(("may_be_served", "most"), [(False, 15), (True, 45)])
def test_slices_that_a_driver_left_are_not_waited_for(node: DraNode, *, may_be_served: bool, most: float) -> None:
    """Only kubelet knows whether the driver has gone if its socket cannot be asked."""
    run(node, BY_MIG)
    node.may_be_served = may_be_served
    for policy in (BY_OTHER_MIG, PLUGIN):
        begun = node.clock.now()
        assert run(node, policy).reason is ConditionReason.READY
        assert node.clock.now() - begun < most
        assert bool(node.api.writes("resourceslices")) is not may_be_served


def test_slices_of_a_driver_that_was_not_seen_to_go_are_left_to_kubelet(node: DraNode) -> None:
    """A program that lists no pod of it may have the wrong labels."""
    run(node, BY_MIG)
    node.before_step = lambda step: setattr(node, "is_dead", step.detail.startswith("neither"))
    assert node.start(BY_OTHER_MIG) is None
    node.before_step = lambda _: None
    node.wait(5)
    assert (node.is_driver_running, len(node.api.all("resourceslices"))) == (False, 1)
    node.api.forget_requests()
    assert run(node, BY_OTHER_MIG).reason is ConditionReason.READY
    assert ("DELETE", f"/apis/resource.k8s.io/v1/resourceslices/{SLICE}") not in node.api.writes("resourceslices")


def test_that_slices_were_deleted_proves_no_driver_gone(node: DraNode) -> None:
    run(node, BY_MIG)

    def starts_again(step: StepResult) -> None:
        if step.step == "slices":
            node.may_be_served = True

    node.before_step = starts_again
    outcome = run(node, BY_OTHER_MIG)
    assert outcome.reason is ConditionReason.BACK_END_RUNNING
    assert outcome.message == "the DRA driver still offers GPUs: a program listens on its sockets"
    assert node.is_as(BY_MIG)
    node.may_be_served, node.before_step = False, lambda _: None
    assert run(node, BY_OTHER_MIG).reason is ConditionReason.READY


def test_a_token_that_may_delete_no_slices_waits_for_kubelet(node: DraNode) -> None:
    run(node, DRA)
    node.api.fail("DELETE /apis/resource.k8s.io/v1/resourceslices", 403)
    outcome = run(node, PLUGIN)
    assert outcome.reason is ConditionReason.READY
    assert node.api.writes("resourceslices")


def test_what_is_left_of_a_change_waits_for_no_window(node: DraNode) -> None:
    run(node, PLUGIN)
    node.fuse = 4
    assert node.start(DRA) is None
    assert node.labels()[BACKEND_LABEL] == "none"
    assert run(node, rollout(DRA, is_paused=True)).reason is ConditionReason.READY


@pytest.mark.parametrize(("before", "after"), [(PLUGIN, DRA), (DRA, PLUGIN)])
def test_a_change_of_mind_waits_for_what_is_still_there(node: DraNode, before: Policy, after: Policy) -> None:
    """Killed just after the label is `none`: `node.check` holds that nothing joins what has not left."""
    run(node, before)
    for policy in (after, before):
        node.before_step = lambda step: setattr(node, "is_dead", step.detail.startswith("neither"))
        assert node.start(after) is None
        node.before_step = lambda _: None
        assert node.labels()[BACKEND_LABEL] == "none"
        assert (node.is_driver_running, node.is_plugin_running) == (before is DRA, before is PLUGIN)
        assert run(node, policy).reason is ConditionReason.READY
        run(node, before)


def test_a_claim_that_comes_while_the_gate_closes_gets_its_driver_back(node: DraNode) -> None:
    run(node, DRA)
    seen = watch_label(node)
    node.before_step = lambda step: node.arrive(is_at_work=False) if step.detail.startswith("neither") else None
    node.random = Random(2)  # it tolerates the taint
    outcome = run(node, patiently(PLUGIN))
    assert outcome.reason is ConditionReason.GPU_BUSY
    assert node.prepared
    assert seen[-1] == "dra"
    assert node.taints() == set()


def write_label(node: DraNode, label: str | None, seconds: int = 5) -> None:
    """Somebody writes the label, and the back ends follow it."""
    node.was_tampered = True
    node.label(**{BACKEND_LABEL: label})
    node.wait(seconds)


def test_a_driver_that_somebody_let_in_leaves_and_the_plugins_pods_stay(node: DraNode) -> None:
    run(node, PLUGIN)
    node.arrive(is_at_work=False)
    write_label(node, "dra")
    assert node.is_driver_running
    assert run(node, patiently(PLUGIN)).reason is ConditionReason.READY
    assert not node.is_driver_running
    assert (node.taints(), list(node.tenants)) == (set(), ["tenant-1"])
    assert node.registered


def test_a_driver_that_somebody_let_in_early_leaves_until_the_plugins_pods_have_gone(node: DraNode) -> None:
    run(node, PLUGIN)
    node.arrive(is_at_work=False)
    write_label(node, "dra")
    assert run(node, patiently(DRA)).reason is ConditionReason.GPU_BUSY
    node.wait(40)
    assert node.taints() == {REPARTITIONING_TAINT}
    assert node.api.all("resourceslices") == []
    node.leave("tenant-1")
    assert run(node, patiently(DRA)).reason is ConditionReason.READY


@pytest.mark.parametrize(("goal", "in_the_way"), [(PLUGIN, "tenant-2"), (DRA, "tenant-1")])
def test_a_node_with_pods_of_both_takes_no_more(node: DraNode, goal: Policy, in_the_way: str) -> None:
    run(node, PLUGIN)
    node.arrive(is_at_work=False)
    write_label(node, "dra")
    node.arrive(is_at_work=False)
    assert list(node.prepared) == ["tenant-2"]
    for _ in range(2):
        outcome = run(node, patiently(goal))
        assert outcome.reason is ConditionReason.GPU_BUSY
        assert in_the_way in outcome.message
        assert node.taints() == {REPARTITIONING_TAINT}
        assert node.is_driver_running  # it alone can end the claim
    node.leave(in_the_way)
    node.wait(5)
    assert run(node, patiently(goal)).reason is ConditionReason.READY


def test_the_plugin_waits_for_the_driver_although_somebody_has_removed_the_label(node: DraNode) -> None:
    run(node, DRA)
    node.before_step = lambda step: setattr(node, "is_dead", step.detail.startswith("neither"))
    assert node.start(PLUGIN) is None
    write_label(node, None, 0)
    seen: list[bool] = []
    node.before_step = lambda step: (
        seen.append(bool(node.api.all("resourceslices"))) if step.detail == "device-plugin may run" else None
    )
    assert run(node, PLUGIN).reason is ConditionReason.READY
    assert seen == [False]


@pytest.mark.parametrize("policy", [PLUGIN, DRA])
def test_what_comes_after_neither_is_verified_before_pods_are_let_in(node: DraNode, policy: Policy) -> None:
    run(node, policy)
    write_label(node, "none", 40)
    seen: list[set[str]] = []
    node.before_step = lambda step: seen.append(node.taints()) if step.detail.endswith("may run") else None
    assert run(node, policy).reason is ConditionReason.READY
    assert seen == [{REPARTITIONING_TAINT}]
    assert node.taints() == set()


def test_a_claim_of_an_instance_that_a_reboot_took_gets_its_driver_back(node: DraNode) -> None:
    """Nothing else can end it, and the plugin may not come before that."""
    run(node, BY_MIG)
    node.arrive(is_at_work=False)
    node.random = Random(3)  # the pod stays
    node.boot()
    write_label(node, "none", 40)
    assert run(node, patiently(PLUGIN)).reason is ConditionReason.GPU_BUSY
    assert node.labels()[BACKEND_LABEL] == "dra"
    node.leave("tenant-1")
    node.wait(5)
    assert run(node, patiently(PLUGIN)).reason is ConditionReason.READY


def test_a_driver_that_ignores_the_label_is_named(node: DraNode) -> None:
    run(node, BY_MIG)
    node.is_driver_deaf = True
    outcome = run(node, BY_OTHER_MIG)
    assert outcome.reason is ConditionReason.BACK_END_RUNNING
    assert outcome.message == "the DRA driver still offers GPUs: pod dra/dra-driver-x"
    assert node.taints() == {REPARTITIONING_TAINT}
    assert node.holders() == [NAME]
    assert node.is_as(BY_MIG)
    node.is_driver_deaf = False
    assert run(node, BY_OTHER_MIG).reason is ConditionReason.READY


def test_a_plugin_that_ignores_the_labels_is_named(node: DraNode) -> None:
    run(node, PLUGIN)
    node.is_plugin_dead = True
    outcome = run(node, DRA)
    assert outcome.reason is ConditionReason.BACK_END_RUNNING
    assert outcome.message.startswith("the device plugin still offers GPUs: pod gpu-operator/")
    node.is_plugin_dead = False
    assert run(node, DRA).reason is ConditionReason.READY


@pytest.mark.parametrize("is_gate_closed", [True, False])
def test_an_offer_without_a_plugin_is_reported_with_the_command_to_remove_it(node: DraNode, *, is_gate_closed: bool) -> None:
    """Kubelet keeps offering what the API server has of a resource that it does not know, and so after a loss of its file."""
    run(node, PLUGIN if is_gate_closed else DRA)
    original = node.publish

    def publish() -> None:
        original()
        offer(node, "4")

    if is_gate_closed:
        node.publish = publish  # type: ignore[method-assign]
    else:
        offer(node, "4")
    outcome = run(node, DRA)
    assert outcome.reason is ConditionReason.BACK_END_RUNNING
    assert "GPUs: nvidia.com/gpu.shared in the node's allocatable; no plugin has registered nvidia.com/gpu" in outcome.message
    stop, patch, start = outcome.message.split("`")[1::2]
    assert (stop, start) == ("systemctl stop kubelet", "systemctl start kubelet")
    none = {"nvidia.com/gpu.shared": None}
    assert json.loads(patch.split("'")[1]) == {"status": {"capacity": none, "allocatable": none}}
    offer(node, "0")
    assert run(node, DRA).reason is ConditionReason.READY


def offer(node: DraNode, count: str) -> None:
    node.api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].update({"nvidia.com/gpu.shared": count}))


def test_slices_that_stay_are_waited_for(node: DraNode) -> None:
    run(node, BY_MIG)
    node.api.add("resourceslices", "other", {"spec": {"driver": "gpu.nvidia.com", "nodeName": NAME}})
    node.may_be_served = True
    outcome = run(node, BY_OTHER_MIG)
    assert outcome.message == "the DRA driver still offers GPUs: ResourceSlice other"
    node.api.remove("resourceslices", "other")
    assert run(node, BY_OTHER_MIG).reason is ConditionReason.READY


def test_wrong_slices_keep_pods_away(node: DraNode) -> None:
    run(node, PLUGIN)
    foreign = {"driver": "gpu.nvidia.com", "nodeName": NAME, "pool": {"name": "x", "generation": 1, "resourceSliceCount": 2}}
    node.before_step = lambda step: _add_once(node, foreign) if step.detail == "dra may run" else None
    outcome = run(node, DRA)
    assert (outcome.reason, outcome.message) == (
        ConditionReason.WRONG_SLICES,
        "the node's ResourceSlices: pool x has 1 of 2",
    )
    assert node.taints() == {REPARTITIONING_TAINT}


def _add_once(node: DraNode, spec: dict[str, Any]) -> None:
    node.api.add("resourceslices", "other", {"spec": spec})


@pytest.mark.parametrize("is_named", [True, False])
def test_kubelet_must_forget_the_plugin_where_pods_ask_by_its_name(node: DraNode, *, is_named: bool) -> None:
    name = {"extendedResourceName": "nvidia.com/gpu.shared"} if is_named else {}
    node.api.add("deviceclasses", "gpushare-training", {"spec": name})
    run(node, PLUGIN)
    node.arrive(is_at_work=False)
    node.random = Random(2)  # kubelet keeps the entry
    node.leave("tenant-1")
    assert node.entries
    outcome = run(node, DRA)
    if not is_named:
        assert outcome.reason is ConditionReason.READY
        return
    assert outcome.reason is ConditionReason.KUBELET_REMEMBERS_PLUGIN
    stop, patch, start = outcome.message.split("`")[1::2]
    assert stop == "systemctl stop kubelet && rm /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    none = {"nvidia.com/gpu": None, "nvidia.com/gpu.shared": None}
    assert json.loads(patch.split("'")[1]) == {"status": {"capacity": none, "allocatable": none}}
    assert start == "systemctl start kubelet"
    assert node.labels()[BACKEND_LABEL] == "none"
    node.entries = []
    node.checkpoint.unlink()
    assert run(node, DRA).reason is ConditionReason.READY


def test_pods_by_limits_that_come_from_the_node_whose_turn_it_is_stay(node: DraNode) -> None:
    """Kubelet was made to forget the plugin, so its file is missing; the claim of the pod that comes is not prepared yet."""
    run(node, DRA)
    node.checkpoint.unlink()
    take_slot(node)
    node.api.add_pod("moved", namespace="science", node=NAME, uid="uid-moved", phase="Pending", limits={"nvidia.com/gpu": 1})
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
    claim = {"resourceClaimName": "moved-x", "requestMappings": [mapping]}
    node.api.edit("pods", "moved", lambda pod: pod["status"].update(extendedResourceClaimStatus=claim), namespace="science")
    assert run(node, patiently(PLUGIN, OnBusy.EVICT)).reason is ConditionReason.WAITING_FOR_TURN
    assert node.taints() == set()
    assert node.api.writes("eviction") == []


def test_instances_that_a_reboot_took_come_back_under_claims_that_kubelet_lists(node: DraNode) -> None:
    run(node, BY_MIG)
    node.arrive(is_at_work=False)
    node.random = Random(3)  # the pod stays
    node.boot()
    assert node.tenants
    assert node.remembered
    assert run(node, patiently(BY_MIG)).reason is ConditionReason.READY
    node.wait(5)
    assert list(node.prepared) == list(node.tenants)


def test_a_release_gives_the_node_back_to_the_plugin(node: DraNode) -> None:
    run(node, BY_MIG)
    node.unselect("cpu")
    assert run(node, BY_MIG).reason is ConditionReason.RELEASED
    node.wait(10)
    assert BACKEND_LABEL not in node.labels()
    assert node.labels()[DEPLOY] == "true"
    assert node.registered == {"nvidia.com/gpu": [node.fake_nvml.uuid(0)]}
    assert node.taints() == set()


def test_an_administrators_choice_on_the_operators_plugin_stays(node: DraNode) -> None:
    node.label(**{DEPLOY: "false"})
    node.wait(10)
    assert run(node, DRA).reason is ConditionReason.READY
    node.unselect("cpu")
    run(node, DRA)
    assert BACKEND_LABEL not in node.labels()
    assert node.labels()[DEPLOY] == "false"


@pytest.mark.parametrize("label", ["none", "dra"])
def test_a_label_that_a_former_release_left_is_no_permission_for_the_plugin(node: DraNode, label: str) -> None:
    node.label(**{BACKEND_LABEL: label})
    node.wait(10)
    outcome = run(node, PLUGIN)
    assert outcome.reason is ConditionReason.READY
    assert BACKEND_LABEL not in node.labels()


def test_without_an_answer_of_the_api_server_no_gpu_of_a_driver_changes(node: DraNode) -> None:
    run(node, BY_MIG)
    node.fake_nvml.set_mode(0, False)
    node.seen, node.is_down = None, True
    assert run(node, BY_MIG).reason is ConditionReason.PARTITIONING
    assert not node.fake_nvml.mode(0)[0]
    node.is_down = False
    assert run(node, BY_MIG).reason is ConditionReason.READY


def test_an_observer_says_which_back_end_the_node_would_get(node: DraNode) -> None:
    session = Session.open()
    found = observe(DRA, session.survey(), node.server().node(), (), node._backend(DRA))
    session.close()
    assert '"gpushare.dev/backend":"dra"' in found.would
    assert REPARTITIONING_TAINT in found.would
    assert node.api.writes() == []


def test_a_node_of_the_plugin_costs_no_request_for_slices(node: DraNode) -> None:
    run(node, PLUGIN)
    run(node, replace(PLUGIN, profile="time-slicing-00000009"))
    assert not [line for line in node.api.lines if "resource.k8s.io" in line or BACKEND_LABEL in line]
