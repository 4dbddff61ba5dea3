"""Tenants in the way: they are waited for, evicted or respected, and the former layout, policy and offer are kept."""

from pathlib import Path

import pytest

from gpushare_node.kube.cluster import PLUGIN_LABEL, REPARTITIONING_TAINT
from gpushare_node.policy import Mode, OnBusy
from gpushare_node.voice.reasons import Reason
from tests.node.api_server import ApiServer
from tests.node.loop_node import NAME, SEVEN, TWO, LoopNode, mig, rollout, text_of, whole


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def busy(node: LoopNode, **more) -> str:
    """Seven instances in force, and a pod that sleeps on the one at 0, outside TWO's reach nowhere."""
    node.run(mig(SEVEN))
    uuid = node.silicon.mig_uuid(0, node.gpus.gi_at(0, 0))
    node.tenant("sleeper", uuid, "nvidia.com/mig-1g.5gb", **more)
    return uuid


def test_08_a_sleeping_pod_is_waited_for_and_what_stood_is_kept(node: LoopNode) -> None:
    busy(node)
    node.silicon.forget_calls()
    outcome = node.run(rollout(mig(TWO), drain_timeout_seconds=30))
    assert outcome.reason is Reason.GPU_BUSY
    assert "science/sleeper" in outcome.message
    assert node.silicon.calls() == []
    assert node.taints() == set()
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-a"
    assert node.folder.policy() == text_of(mig(SEVEN))
    assert node.condition() == "GPUBusy"
    assert not node.holds_turn()


def test_while_it_waits_the_former_policy_is_enforced_once_a_second(node: LoopNode) -> None:
    busy(node)
    seen = []
    node.on_tick = lambda _: seen.append(REPARTITIONING_TAINT in node.taints())
    node.run(rollout(mig(TWO, key="mig-00000002"), drain_timeout_seconds=30))
    assert node.watched[0] == "open mig-00000001"
    assert node.watched.count("cycle mig-00000001") == 30
    assert node.watched[-1] == "close mig-00000001"
    assert all(seen[1:]), "after it took its turn"


def test_a_pod_that_goes_in_time_lets_the_change_happen(node: LoopNode) -> None:
    busy(node)
    node.on_tick = lambda time: time > 40 and node.api.edit(
        "pods", "sleeper", lambda pod: pod["status"].update(phase="Succeeded"), namespace="science")
    assert node.run(mig(TWO)).reason is Reason.READY
    assert node.gpus.stands(0) == set(TWO)
    assert "close mig-00000001" in node.watched


def test_a_pod_that_has_ended_or_is_gone_is_in_nobodys_way(node: LoopNode) -> None:
    busy(node, phase="Failed")
    node.entries.append({**node.entries[0], "PodUID": "long-gone"})
    node.publish()
    assert node.run(mig(TWO)).reason is Reason.READY


def test_fail_says_so_at_once_without_a_taint_or_a_turn(node: LoopNode) -> None:
    busy(node)
    node.api.forget_requests()
    before = node.clock.now()
    assert node.run(rollout(mig(TWO), on_busy=OnBusy.FAIL)).reason is Reason.GPU_BUSY
    assert node.clock.now() == before
    assert node.api.writes("leases") == []
    assert [path for _, path in node.api.writes() if not path.endswith("/status")] == []


def test_evict_asks_for_it_until_the_budget_allows_it(node: LoopNode) -> None:
    busy(node)
    node.api.eviction_budget = 0
    node.on_tick = lambda time: time > 20 and setattr(node.api, "eviction_budget", 1)
    assert node.run(rollout(mig(TWO), on_busy=OnBusy.EVICT)).reason is Reason.READY
    assert len(node.api.writes("eviction")) > 1
    assert "evict" in node.changed()


def test_the_platforms_pods_are_never_evicted(node: LoopNode) -> None:
    busy(node, namespace="kube-system")
    outcome = node.run(rollout(mig(TWO), on_busy=OnBusy.EVICT, drain_timeout_seconds=10))
    assert outcome.reason is Reason.GPU_BUSY
    assert node.api.writes("eviction") == []


def test_a_system_pods_priority_class_keeps_nobody_on_a_gpu_that_is_to_be_changed(node: LoopNode) -> None:
    busy(node, priority_class="system-node-critical")
    assert node.run(rollout(mig(TWO), on_busy=OnBusy.EVICT, drain_timeout_seconds=10)).reason is Reason.READY


def test_a_process_of_no_pod_is_in_the_way_too(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.silicon.put(0, 4711, 100, gi=node.gpus.gi_at(0, 0))
    outcome = node.run(rollout(mig(TWO), drain_timeout_seconds=10))
    assert (outcome.reason, "4711" in outcome.message) == (Reason.GPU_BUSY, True)
    assert node.labels()["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert node.taints() == set()


def test_instances_that_stay_disturb_nobody(node: LoopNode) -> None:
    node.run(mig((("3g.20gb", 0), ("1g.5gb", 4))))
    node.tenant("sleeper", node.silicon.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-3g.20gb")
    outcome = node.run(mig((("3g.20gb", 0), ("2g.10gb", 4)), key="mig-00000002"))
    assert outcome.reason is Reason.READY


def test_08_on_a_node_that_offers_nothing_the_other_gpus_are_done(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, "a100-sxm4-40gb", "a100-sxm4-40gb")
    api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].clear())
    node.silicon.put(0, 4711, 100)
    outcome = node.run(rollout(mig(SEVEN, SEVEN), drain_timeout_seconds=0))
    assert (outcome.reason, outcome.is_usable) == (Reason.GPU_BUSY, False)
    assert (node.gpus.stands(0), node.gpus.stands(1)) == (set(), set(SEVEN))
    assert node.taints() == {REPARTITIONING_TAINT}


@pytest.mark.parametrize(("former", "policy", "disturbs"), [
    (whole(replicas=4), whole(replicas=2), True),
    (whole(replicas=2), whole(replicas=4), False),
    (whole(), whole(replicas=4), True),
    (whole(replicas=4), whole(replicas=8, mode=Mode.MPS), True),
], ids=["fewer replicas", "more replicas", "another name", "mps"])  # fmt: skip
def test_a_label_alone_disturbs_tenants_just_as_a_layout_does(node: LoopNode, former, policy, disturbs) -> None:
    node.run(former)
    node.tenant("sleeper", f"{node.silicon.uuid(0)}::0", former.resources[0][0])
    node.api.forget_requests()
    outcome = node.run(rollout(policy, drain_timeout_seconds=10))
    assert outcome.reason is (Reason.GPU_BUSY if disturbs else Reason.READY)
    assert node.api.writes("leases"), "the plugin starts anew"


def test_a_first_install_that_takes_away_what_the_node_offers_waits_for_its_tenants(node: LoopNode) -> None:
    node.tenant("sleeper", node.silicon.uuid(0))
    assert node.run(rollout(whole(replicas=4), drain_timeout_seconds=10)).reason is Reason.GPU_BUSY


def test_after_waiting_in_vain_a_run_that_holds_does_not_taint_before_they_have_gone(node: LoopNode) -> None:
    busy(node)
    tainted = {}
    start = node.clock.now()

    def watch(time: float) -> None:
        tainted[time] = REPARTITIONING_TAINT in node.taints()
        if time > start + 400 and node.entries:
            node.entries.clear()
            node.publish()

    node.on_tick = watch
    assert node.run(rollout(mig(TWO), drain_timeout_seconds=30), hold=True).reason is Reason.READY
    assert not any(value for time, value in tainted.items() if 31 < time - start < 400)
    assert any(line.startswith("cycle") for line in node.watched[35:])
