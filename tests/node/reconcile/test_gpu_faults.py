"""A GPU with a fault that only a reset ends is not brought back by a new pod, an upgrade or another policy."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpushare_node.contract.names import REPARTITIONING_TAINT, RETRY_ANNOTATION, RUNTIME_LABEL
from gpushare_node.contract.policy import OnBusy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Stopped
from gpushare_node.gpus.faults import GpuFaults
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.dra_node import SLICE, DraNode, by_claims
from tests.node.reconcile.loop_node import SEVEN, TWO, LoopNode, mig, rollout
from tests.support.fake_api.server import ApiServer

FAULTY = ConditionReason.GPU_FAULTY


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    made = LoopNode(tmp_path, api, A100, A100)
    made.run(mig(SEVEN, SEVEN))
    made.fake_nvml.forget_calls()
    made.api.forget_requests()
    return made


def fault(node: LoopNode, xid: int = 95) -> None:
    GpuFaults(folder=node.folder, boot_id=node.gpus.boot_id).record(node.fake_nvml.uuid(1), xid)


def test_upgrade_leaves_a_faulty_gpu_alone_and_goes_on_to_enforce(node: LoopNode) -> None:
    fault(node)
    node.registered["nvidia.com/mig-1g.5gb"] = node.registered["nvidia.com/mig-1g.5gb"][:7]
    node.publish()
    outcome = node.run(mig(SEVEN, SEVEN))
    assert (outcome.reason, outcome.is_usable, "XID 95" in outcome.message) == (FAULTY, True, True)
    assert [path for _, path in node.api.writes("nodes") if not path.endswith("/status")] == []
    assert node.fake_nvml.calls() == []


@pytest.mark.parametrize("is_live", [False, True], ids=["XID", "recovery action"])
def test_another_policy_waits_until_the_gpu_was_reset(node: LoopNode, *, is_live: bool) -> None:
    node.fake_nvml.recovery(1, 1) if is_live else fault(node)
    outcome = node.run(mig(TWO, TWO, key="mig-00000002"))
    assert (outcome.reason, outcome.is_usable, node.fake_nvml.calls()) == (FAULTY, False, [])
    if is_live:
        node.fake_nvml.recovery(1, 0)
    else:
        node.annotate(RETRY_ANNOTATION, "now")
    assert node.run(mig(TWO, TWO, key="mig-00000002")).reason is ConditionReason.READY


def test_lost_layout_is_not_restored_on_a_faulty_gpu(node: LoopNode) -> None:
    fault(node)
    node.fake_nvml.set_mode(1, False)
    node.fake_nvml.forget_calls()
    assert node.run(mig(SEVEN, SEVEN)).reason is FAULTY
    assert node.fake_nvml.calls() == []


def test_node_that_lost_its_layout_is_tainted_while_a_gpu_of_it_is_faulty(node: LoopNode) -> None:
    """What it offers meanwhile is not the pool's."""
    fault(node)
    node.fake_nvml.set_mode(0, False)
    node.enumerate()
    node.publish()
    assert node.run(mig(SEVEN, SEVEN)).reason is FAULTY
    assert REPARTITIONING_TAINT in node.taints()


def test_fault_that_begins_while_tenants_are_waited_for_stops_the_change(node: LoopNode) -> None:
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    began, former = node.clock.now(), node.gpus.stands(1)
    events = {300: lambda: node.fake_nvml.recovery(1, 1), 600: lambda: node.api.remove("pods", "sleeper", namespace="science")}

    def tick(_: float) -> None:
        for at in [at for at in events if node.clock.now() - began > at]:
            events.pop(at)()

    node.on_tick = tick
    outcome = node.run(rollout(mig(TWO, TWO, key="mig-00000002"), on_busy=OnBusy.WAIT, drain_timeout_seconds=1800))
    assert (outcome.reason, node.gpus.stands(1), node.taints()) == (FAULTY, former, set())
    assert not node.holds_slot(), "it says nothing against the change on other nodes"


def test_run_that_is_sent_away_for_the_reset_forgets_the_fault(node: LoopNode) -> None:
    fault(node)
    policy = mig(TWO, TWO, key="mig-00000002")

    def send_away(time: float) -> None:
        if time > 30:
            node.label(**{RUNTIME_LABEL: "away"})
            node.clock.is_stopped = True

    node.on_tick = send_away
    with pytest.raises(Stopped):
        node.run(policy, hold=True)
    assert node.fake_nvml.calls() == []
    node.on_tick, node.clock.is_stopped = lambda _: None, False
    node.label(**{RUNTIME_LABEL: None})
    assert node.run(policy).reason is ConditionReason.READY


def test_fault_ends_with_a_reboot(node: LoopNode) -> None:
    fault(node)
    node.gpus.reboot()
    assert node.run(mig(SEVEN, SEVEN)).reason is ConditionReason.READY


@pytest.mark.parametrize("xid", [13, 63, 94])
def test_harmless_xid_is_not_remembered(node: LoopNode, xid: int) -> None:
    fault(node, xid)
    assert node.folder.faults() == ("", {})


def test_device_that_the_dra_driver_tainted_is_left_alone(tmp_path: Path) -> None:
    node = DraNode(tmp_path, Random(1), A100)
    node.start(by_claims(mig(SEVEN)))

    def taint(one: Any) -> None:
        one["spec"]["devices"][0].update(taints=[{"key": "gpu.nvidia.com/xid", "value": "95", "effect": "NoSchedule"}])

    node.api.edit("resourceslices", SLICE, taint)
    for policy in (by_claims(mig(TWO)), mig(TWO), by_claims(mig(SEVEN))):
        outcome = node.start(policy)
        assert outcome is not None
        assert (outcome.reason, "gpu.nvidia.com/xid" in outcome.message) == (FAULTY, True)
    assert len(node.gpus.stands(0)) == 7
