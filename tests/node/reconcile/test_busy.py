"""Tenants in the way: they are waited for, evicted or respected, and the former layout, policy and offer are kept."""

from pathlib import Path

import pytest

from gpushare_node.adapters.kube import rollout_slots
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import REPARTITIONING_TAINT
from gpushare_node.contract.policy import Mode, OnBusy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Stopped
from tests.node.reconcile.loop_node import NAME, SEVEN, SLOT, TWO, LoopNode, mig, rollout, take_slot, text_of, whole
from tests.support.fake_api.server import ApiServer

EXPORTER = {"kind": "DaemonSet", "name": "exporter", "controller": True}
WORKERS = {"kind": "ReplicaSet", "name": "workers", "controller": True}


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def busy(node: LoopNode, **more) -> str:
    """Seven instances in force, and a pod that sleeps on the one at 0, outside TWO's reach nowhere."""
    node.run(mig(SEVEN))
    return busy_now(node, **more)


def busy_now(node: LoopNode, **more) -> str:
    uuid = node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0))
    node.tenant("sleeper", uuid, "nvidia.com/mig-1g.5gb", **more)
    return uuid


@pytest.mark.failure_case(8)
def test_sleeping_pod_is_waited_for_and_the_layout_is_kept(node: LoopNode) -> None:
    busy(node)
    node.fake_nvml.forget_calls()
    outcome = node.run(rollout(mig(TWO), drain_timeout_seconds=30))
    assert outcome.reason is ConditionReason.GPU_BUSY
    assert "science/sleeper" in outcome.message
    assert node.fake_nvml.calls() == []
    assert node.taints() == set()
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-a"
    assert node.folder.policy() == text_of(mig(SEVEN))
    assert node.condition() == "GPUBusy"
    assert not node.holds_slot()


@pytest.mark.parametrize(
    ("resource", "form"), [("volcano.sh/vgpu-number", "{}-7"), ("nvidia.com/gpu", "{}-0"), ("example.com/renamed", "{}::3")]
)
def test_an_idle_pod_that_another_program_gave_a_gpu_is_in_the_way(node: LoopNode, resource: str, form: str) -> None:
    """Its ids say less than they seem to: HAMi and Volcano choose the GPU themselves."""
    node.tenant("theirs", form.format(node.fake_nvml.uuid(0)), resource)
    node.fake_nvml.forget_calls()
    outcome = node.run(rollout(mig(TWO), drain_timeout_seconds=10))
    assert (outcome.reason, "science/theirs" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert node.fake_nvml.calls() == []


def test_an_idle_pod_with_a_network_card_is_not(node: LoopNode) -> None:
    node.tenant("nic", "mlx5_0", "rdma/hca")
    assert node.run(mig(TWO)).reason is ConditionReason.READY


@pytest.mark.parametrize("arrival", [0.0, 0.095])
def test_previous_policy_is_enforced_every_second_while_waiting(
    node: LoopNode, monkeypatch: pytest.MonkeyPatch, arrival: float
) -> None:
    monkeypatch.setattr(rollout_slots, "jitter", lambda *_: arrival)
    busy(node)
    seen = []
    node.on_tick = lambda _: seen.append(REPARTITIONING_TAINT in node.taints())
    node.run(rollout(mig(TWO, key="mig-00000002"), drain_timeout_seconds=30))
    assert node.watched[0] == "open mig-00000001"
    assert node.watched.count("cycle mig-00000001") == 30
    assert node.watched[-1] == "close mig-00000001"
    assert all(seen[1:]), "after it took its slot"


def test_pod_that_ends_in_time_lets_the_change_proceed(node: LoopNode) -> None:
    busy(node)
    node.on_tick = lambda time: (
        time > 40 and node.api.edit("pods", "sleeper", lambda pod: pod["status"].update(phase="Succeeded"), namespace="science")
    )
    assert node.run(mig(TWO)).reason is ConditionReason.READY
    assert node.gpus.stands(0) == set(TWO)
    assert "close mig-00000001" in node.watched


def test_completed_or_deleted_pod_does_not_block_the_change(node: LoopNode) -> None:
    busy(node, phase="Failed")
    node.entries.append({**node.entries[0], "PodUID": "long-gone"})
    node.publish()
    assert node.run(mig(TWO)).reason is ConditionReason.READY


def test_on_busy_fail_reports_immediately_without_a_taint_or_slot(node: LoopNode) -> None:
    busy(node)
    node.api.forget_requests()
    before = node.clock.now()
    assert node.run(rollout(mig(TWO), on_busy=OnBusy.FAIL)).reason is ConditionReason.GPU_BUSY
    assert node.clock.now() == before
    assert node.api.writes("leases") == []
    assert [path for _, path in node.api.writes() if not path.endswith("/status")] == []


def test_on_busy_evict_retries_until_the_budget_allows_it(node: LoopNode) -> None:
    busy(node)
    node.api.eviction_budget = 0
    node.on_tick = lambda time: setattr(node.api, "eviction_budget", 1) if time > 20 else None
    assert node.run(rollout(mig(TWO), on_busy=OnBusy.EVICT)).reason is ConditionReason.READY
    assert len(node.api.writes("eviction")) > 1
    assert "evict" in node.changed()


def test_the_platforms_pods_are_never_evicted(node: LoopNode) -> None:
    busy(node, namespace="kube-system")
    outcome = node.run(rollout(mig(TWO), on_busy=OnBusy.EVICT, drain_timeout_seconds=10))
    assert outcome.reason is ConditionReason.GPU_BUSY
    assert node.api.writes("eviction") == []


def test_system_priority_class_does_not_prevent_eviction(node: LoopNode) -> None:
    busy(node, priority_class="system-node-critical")
    assert node.run(rollout(mig(TWO), on_busy=OnBusy.EVICT, drain_timeout_seconds=10)).reason is ConditionReason.READY


def test_process_outside_pods_blocks_the_change(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.fake_nvml.put(0, 4711, 100, gi=node.gpus.gi_at(0, 0))
    outcome = node.run(rollout(mig(TWO), drain_timeout_seconds=10))
    assert (outcome.reason, "4711" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert node.labels()["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert node.taints() == set()


def test_kept_instances_do_not_disturb_their_tenants(node: LoopNode) -> None:
    node.run(mig((("3g.20gb", 0), ("1g.5gb", 4))))
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-3g.20gb")
    outcome = node.run(mig((("3g.20gb", 0), ("2g.10gb", 4)), key="mig-00000002"))
    assert outcome.reason is ConditionReason.READY


@pytest.mark.failure_case(8)
def test_idle_gpus_are_partitioned_on_a_node_that_advertises_nothing(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, "a100-sxm4-40gb", "a100-sxm4-40gb")
    api.edit("nodes", NAME, lambda one: one["status"]["allocatable"].clear())
    node.fake_nvml.put(0, 4711, 100)
    outcome = node.run(rollout(mig(SEVEN, SEVEN), drain_timeout_seconds=0))
    assert (outcome.reason, outcome.is_usable) == (ConditionReason.GPU_BUSY, False)
    assert (node.gpus.stands(0), node.gpus.stands(1)) == (set(), set(SEVEN))
    assert node.taints() == {REPARTITIONING_TAINT}


@pytest.mark.parametrize(
    ("former", "policy", "disturbs"),
    [
        (whole(replicas=4), whole(replicas=2), True),
        (whole(replicas=2), whole(replicas=4), False),
        (whole(), whole(replicas=4), True),
        (whole(replicas=4), whole(replicas=8, mode=Mode.MPS), True),
    ],
    ids=["fewer replicas", "more replicas", "another name", "mps"],
)
def test_label_change_waits_for_tenants_that_lose_resources(node: LoopNode, former, policy, disturbs) -> None:
    node.run(former)
    node.tenant("sleeper", f"{node.fake_nvml.uuid(0)}::0", former.resources[0][0])
    node.api.forget_requests()
    outcome = node.run(rollout(policy, drain_timeout_seconds=10))
    assert outcome.reason is (ConditionReason.GPU_BUSY if disturbs else ConditionReason.READY)
    assert node.api.writes("leases"), "the plugin starts anew"


def test_first_install_that_removes_resources_waits_for_tenants(node: LoopNode) -> None:
    node.tenant("sleeper", node.fake_nvml.uuid(0))
    assert node.run(rollout(whole(replicas=4), drain_timeout_seconds=10)).reason is ConditionReason.GPU_BUSY


@pytest.mark.failure_case(90)
def test_busy_node_yields_then_drains_once_then_waits_without_a_taint(node: LoopNode) -> None:
    """No slot and no taint for as long as the drain may take; then both; and after that, in vain, neither."""
    busy(node)
    seen: dict[float, tuple[bool, bool]] = {}
    start = node.clock.now()

    def watch(time: float) -> None:
        seen[time - start] = (REPARTITIONING_TAINT in node.taints(), node.holds_slot())
        if time > start + 400 and node.entries:
            node.entries.clear()
            node.publish()

    node.on_tick = watch
    assert node.run(rollout(mig(TWO), drain_timeout_seconds=40), hold=True).reason is ConditionReason.READY
    assert {both for time, both in seen.items() if time < 40} == {(False, False)}
    assert {both for time, both in seen.items() if 42 < time < 78} == {(True, True)}
    assert {both for time, both in seen.items() if 85 < time < 400} == {(False, False)}
    assert sum(line.startswith("cycle") for line in node.watched) > 390, "the former caps are held all the time"


@pytest.mark.failure_case(90)
def test_busy_node_is_changed_as_soon_as_its_tenants_end(node: LoopNode) -> None:
    busy(node)

    def leave(time: float) -> None:
        if time > 100 and node.entries:
            node.entries.clear()
            node.publish()

    node.on_tick = leave
    assert node.run(mig(TWO), hold=True).reason is ConditionReason.READY
    assert node.clock.now() < 150


@pytest.mark.failure_case(111)
@pytest.mark.parametrize("leaves", ["ends", "is deleted"])
def test_change_starts_when_tenants_end_hours_after_a_failed_drain(node: LoopNode, leaves: str) -> None:
    """Kubelet goes on to list what it gave to pods that have ended: the file is no news of it."""
    busy(node)
    start = node.clock.now()

    def end(time: float) -> None:
        if time > start + 7000 and leaves == "ends":
            node.api.edit("pods", "sleeper", lambda pod: pod["status"].update(phase="Succeeded"), namespace="science")
        elif time > start + 7000 and any(pod["metadata"]["name"] == "sleeper" for pod in node.api.all("pods")):
            node.api.remove("pods", "sleeper", namespace="science")

    node.on_tick = end
    assert node.run(rollout(mig(TWO), drain_timeout_seconds=60), hold=True).reason is ConditionReason.READY
    assert node.clock.now() - start < 7030


@pytest.mark.failure_case(111)
def test_no_attempt_is_made_while_successive_tenants_are_present(node: LoopNode) -> None:
    """Each comes before the one before it has ended."""
    uuid = busy(node)
    start, number = node.clock.now(), 0

    def relay(time: float) -> None:
        nonlocal number
        if time - start > 1000 + 20 * number:
            number += 1
            node.tenant(f"next-{number}", uuid, "nvidia.com/mig-1g.5gb")
            node.api.edit(
                "pods",
                f"next-{number - 1}" if number > 1 else "sleeper",
                lambda pod: pod["status"].update(phase="Succeeded"),
                namespace="science",
            )
        if time - start < 1000:
            node.api.forget_requests()
        node.clock.is_stopped = time - start > 4000

    node.on_tick = relay
    with pytest.raises(Stopped):
        node.run(rollout(mig(TWO), drain_timeout_seconds=60), hold=True)
    assert len([path for _, path in node.api.requests if "leases" not in path]) <= 0.02 * 3000


@pytest.mark.failure_case(111)
def test_wrongly_watched_pods_cause_attempts_with_growing_backoff(node: LoopNode) -> None:
    """A watch that shows nobody, and looks alive, while the API server itself shows the tenant."""
    busy(node)
    node.followed = list
    start = node.clock.now()

    def count(time: float) -> None:
        if time - start < 3600:
            node.api.forget_requests()
        node.clock.is_stopped = time - start > 4 * 3600

    node.on_tick = count
    with pytest.raises(Stopped):
        node.run(rollout(mig(TWO), drain_timeout_seconds=60), hold=True)
    assert len(node.api.requests) <= 0.02 * 3 * 3600


@pytest.mark.failure_case(117)
def test_attempts_use_the_normal_backoff_if_pods_cannot_be_watched(node: LoopNode) -> None:
    """Requests are answered, and somebody between ends every watch at once."""
    busy(node)
    node.followed = lambda: None
    start = node.clock.now()
    node.on_tick = lambda time: (
        time > start + 150
        and node.api.edit("pods", "sleeper", lambda pod: pod["status"].update(phase="Succeeded"), namespace="science")
    )
    assert node.run(rollout(mig(TWO), drain_timeout_seconds=30), hold=True).reason is ConditionReason.READY
    assert node.clock.now() - start < 350


@pytest.mark.failure_case(90)
def test_tenants_that_arrive_before_the_slot_do_not_delay_other_nodes(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    take_slot(node)
    node.api.forget_requests()

    def come(time: float) -> None:
        if time > 20 and not node.entries:
            busy_now(node)
            node.api.remove("leases", SLOT, namespace="gpushare")
        node.clock.is_stopped = time > 600

    node.on_tick = come
    with pytest.raises(Stopped):
        node.run(mig(TWO), hold=True)
    assert (node.holds_slot(), node.taints(), node.condition()) == (False, set(), "GPUBusy")


@pytest.mark.failure_case(90)
@pytest.mark.parametrize(("more", "drains"), [({}, True), ({"namespace": "kube-system"}, False)])
def test_evictable_pods_are_evicted_at_once_and_others_make_the_node_yield(node: LoopNode, more, drains: bool) -> None:
    busy(node, **more)
    node.on_tick = lambda time: setattr(node.clock, "is_stopped", time > 300)
    desired = rollout(mig(TWO), on_busy=OnBusy.EVICT)
    if drains:
        assert node.run(desired, hold=True).reason is ConditionReason.READY
        return
    with pytest.raises(Stopped):
        node.run(desired, hold=True)
    assert (node.api.writes("eviction"), node.holds_slot(), node.taints()) == ([], False, set())


@pytest.mark.failure_case(90)
def test_interrupted_drain_is_resumed(node: LoopNode) -> None:
    busy(node)
    desired = rollout(mig(TWO), drain_timeout_seconds=600)
    node.on_tick = lambda time: setattr(node.clock, "is_stopped", REPARTITIONING_TAINT in node.taints() and time > 900)
    with pytest.raises(Stopped):
        node.run(desired, hold=True)
    node.clock.is_stopped = False
    node.api.edit("nodes", NAME, lambda one: one["spec"].update(taints=[{"key": REPARTITIONING_TAINT, "effect": "NoSchedule"}]))
    take_slot(node, NAME)
    start, seen = node.clock.now(), []

    def look(time: float) -> None:
        seen.append(node.holds_slot())
        node.clock.is_stopped = time > start + 300

    node.on_tick = look
    with pytest.raises(Stopped):
        node.run(desired, hold=True)
    assert all(seen[:300]), "no second time of giving way"


@pytest.mark.failure_case(93)
def test_pod_recreated_by_its_controller_is_evicted_once(node: LoopNode) -> None:
    uuid = busy(node, owner=EXPORTER)
    asked: list[int] = []

    def bring_back(_: float) -> None:
        gone = len(node.api.writes("eviction"))
        if gone > len(asked):
            asked.append(gone)
            node.entries.clear()
            node.tenant(f"again-{gone}", uuid, "nvidia.com/mig-1g.5gb", owner=EXPORTER)

    node.on_tick = bring_back
    outcome = node.run(rollout(mig(TWO), on_busy=OnBusy.EVICT, drain_timeout_seconds=600))
    assert outcome.reason is ConditionReason.GPU_BUSY
    assert "DaemonSet/exporter recreates it" in outcome.message
    assert len(node.api.writes("eviction")) == 1


@pytest.mark.failure_case(93)
def test_every_initial_pod_of_a_controller_is_evicted(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    for start in range(3):
        uuid = node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, start))
        node.tenant(f"worker-{start}", uuid, "nvidia.com/mig-1g.5gb", owner=WORKERS)
    assert node.run(rollout(mig(TWO), on_busy=OnBusy.EVICT)).reason is ConditionReason.READY
    assert len(node.api.writes("eviction")) == 3
