"""What enforcement does beside the caps: rhythm, health, drift, labels, leaving, XIDs, driver limits; an API that is gone."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.apply.sight import see
from gpushare_node.clock import Stopped
from gpushare_node.enforce.court import Court
from gpushare_node.enforce.loop import EXIT_HUNG, Loop
from gpushare_node.enforce.upkeep import Upkeep
from gpushare_node.guard.judge import judge
from gpushare_node.guard.ledger import History
from gpushare_node.guard.reading import Reading, Settings
from gpushare_node.kube.cluster import PLUGIN_LABEL, POOL_LABEL, RELEASE_ANNOTATION, ClusterError, NodeView
from gpushare_node.partition.plan import PartitionPlan
from gpushare_node.voice.reasons import Reason
from tests.node import scenes
from tests.node.api_server import ApiServer
from tests.node.enforcement import Stage, Told, await_end, lives
from tests.node.kube_scene import server
from tests.node.silicon import Silicon
from tests.node.victims import DEAF, Ward
from tests.tools.waiting import wait_for

LABELS = {POOL_LABEL: "pool", PLUGIN_LABEL: "time-slicing-01234567-a"}


VIEW = NodeView(
    name="node-1", uid="u", resource_version="1", labels=LABELS, annotations={}, taints=(), allocatable={},
    is_unschedulable=False,
)  # fmt: skip


@dataclass(kw_only=True)
class Api(Told):
    """The part of the API server that upkeep asks."""

    view: NodeView = VIEW
    is_selected: bool = True
    is_down: bool = False
    said: list[tuple[Reason, str]] = field(default_factory=list)
    applied: list[Mapping[str, str]] = field(default_factory=list)
    deleted: int = 0

    def node(self) -> NodeView:
        self._answer()
        return self.view

    def selects(self, _node: NodeView) -> bool:
        return self.is_selected

    def apply_labels(self, labels: Mapping[str, str]) -> None:
        self._answer()
        self.applied.append(labels)

    def set_condition(self, reason: Reason, message: str) -> None:
        self._answer()
        self.said.append((reason, message))

    def delete_own_pod(self) -> None:
        self._answer()
        self.deleted += 1

    def evict(self, pod: Any, *, is_forced: bool = False) -> Any:
        self._answer()
        return super().evict(pod, is_forced=is_forced)

    def _answer(self) -> None:
        if self.is_down:
            raise ClusterError("GET node", None, "gone")


class Rig:
    """A stage with upkeep and loop."""

    def __init__(self, folder: Path, two: Silicon, started: Ward, **changes: Any) -> None:
        self.stage = Stage(folder, two, started, **changes)
        self.api = Api()
        self.stage.told = self.api
        self.start()

    def start(self) -> None:
        watch = self.stage.start()
        self.upkeep = Upkeep(
            watch=watch, cluster=self.api, labels=LABELS, plan=self.plan, boot_id="b1")
        clock = self.stage.clock
        self.loop = Loop(watch=watch, upkeep=self.upkeep, clock=clock, pause=clock.sleep, spread=lambda: 1.0)

    def plan(self, surveys: Any) -> PartitionPlan:
        return see(surveys, self.stage.policy, allocated=frozenset(), pending_modes={}).plan

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.stage.clock.time += 1
            self.loop.step()


@pytest.fixture
def rig(tmp_path: Path, two: Silicon, started: Ward) -> Rig:
    return Rig(tmp_path, two, started)


def test_a_node_where_all_is_well_says_ready_and_again_once_a_minute(rig: Rig) -> None:
    rig.run(150)
    assert rig.api.said == [(Reason.READY, Reason.READY.value.means)] * 3
    assert rig.api.deleted == 0


@pytest.fixture
def mig(tmp_path: Path, two: Silicon, started: Ward) -> Rig:
    """A node whose first GPU has the two instances that its policy wants."""
    two.set_mode(0, current=True)
    for start in (0, 2):
        two.add_instance(0, 14, start)
    gpus = [
        {"indexes": [0], "mig": True, "instances": [
            {"profile": "2g.10gb", "profileId": 14, "start": start, "size": 2} for start in (0, 2)]},
        {"indexes": [1], "mig": False, "instances": []},
    ]  # fmt: skip
    return Rig(tmp_path, two, started, mode="mig", profile="mig-01234567", gpus=gpus)


def test_drift_is_said_and_repaired_once_not_again_and_again(mig: Rig, two: Silicon) -> None:
    mig.run(31)
    assert mig.api.said[-1][0] is Reason.READY
    two.add_instance(0, 14, 4)
    mig.run(70)
    assert mig.api.said[-1] == (Reason.DRIFTED, "GPU 0 is not as the policy says any more.")
    assert mig.api.deleted == 1
    assert "GPULayoutDrifted" in mig.api.reasons()
    mig.start()
    mig.run(200)
    assert mig.api.deleted == 1
    mig.stage.clock.time += 3600
    mig.run(1)
    assert mig.api.deleted == 2


def test_a_change_of_mode_that_shows_only_once_repairs_nothing(rig: Rig, two: Silicon) -> None:
    rig.run(31)
    two.set_mode(1, current=False, pending=True)
    rig.run(30)
    assert rig.upkeep.reason(0)[0] is Reason.PENDING_FOREIGN_CHANGE
    two.set_mode(1, current=False, pending=False)
    rig.run(90)
    assert rig.api.deleted == 0
    assert rig.api.said[-1][0] is Reason.READY


def test_a_gpu_that_somebody_switched_under_our_session_is_repaired_too(rig: Rig, two: Silicon) -> None:
    rig.run(31)
    two.set_mode(1, current=True)

    def is_repaired() -> bool:
        rig.run(31)
        return rig.api.deleted == 1

    wait_for(is_repaired)


def test_a_repair_that_cannot_be_remembered_is_not_asked_for(rig: Rig, two: Silicon, tmp_path: Path) -> None:
    two.set_mode(1, current=True)
    (tmp_path / "state").rmdir()
    (tmp_path / "state").write_text("no folder")
    rig.run(120)
    assert rig.api.deleted == 0


@pytest.mark.parametrize("reason", ["release", "pool", "selector"])
def test_a_node_that_is_to_leave_deletes_the_runtimes_pod(rig: Rig, reason: str) -> None:
    rig.run(1)
    match reason:
        case "release":
            rig.api.view = replace(rig.api.view, annotations={RELEASE_ANNOTATION: "requested"})
        case "pool":
            rig.api.view = replace(rig.api.view, labels={**LABELS, POOL_LABEL: "other"})
        case _:
            rig.api.is_selected = False
    rig.upkeep.stir()
    rig.run(2)
    assert rig.api.deleted == 1
    assert rig.api.said[-1][0] is Reason.RELEASING


def test_a_node_that_nobody_changes_is_looked_at_every_ten_minutes_at_most(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    node = rig.api.node
    monkeypatch.setattr(rig.api, "node", lambda: looks.append(1) or node())
    rig.run(290)
    assert len(looks) == 1
    rig.run(320)
    assert len(looks) == 2


def test_a_look_that_failed_is_repeated_soon(rig: Rig) -> None:
    rig.api.is_down = True
    rig.run(1)
    rig.api.is_down = False
    rig.api.is_selected = False
    rig.run(17)
    assert rig.api.deleted == 1


def test_a_node_that_changes_is_looked_at_with_the_next_cycle_and_not_before_its_time_otherwise(rig: Rig) -> None:
    rig.run(2)
    rig.api.view = replace(rig.api.view, annotations={RELEASE_ANNOTATION: "requested"})
    rig.run(5)
    assert rig.api.deleted == 0
    rig.upkeep.stir()
    rig.run(1)
    assert rig.api.deleted == 1


def test_what_partition_has_said_is_not_written_again(rig: Rig, api: ApiServer, tmp_path: Path) -> None:
    """Both say Ready in the same words, so the condition of a node that starts again is left as it is."""
    api.add_node("n1", labels=LABELS)
    api.add_daemonset("gpushare-train")
    (tmp_path / "account").mkdir()
    partition, enforce = (server(api, tmp_path / "account") for _ in range(2))
    partition.set_condition(Reason.READY, Reason.READY.value.means)
    api.forget_requests()
    rig.upkeep.cluster = enforce
    rig.run(70)
    assert ("GET", "/api/v1/nodes/n1") in api.requests
    assert api.writes() == []
    partition.close()
    enforce.close()


def test_a_label_that_was_removed_is_put_right_and_nobody_is_blamed(rig: Rig) -> None:
    """A pool's runtime that hands the node over removes labels, and the API server does not keep who did."""
    rig.api.view = replace(rig.api.view, labels={PLUGIN_LABEL: LABELS[PLUGIN_LABEL]}, owners={PLUGIN_LABEL: "gpushare"})
    rig.run(1)
    assert rig.api.applied == [LABELS]
    assert rig.api.said[-1] == (Reason.LABEL_CONFLICT, f"Labels of the runtime are put right: {POOL_LABEL} was removed.")


def test_a_label_that_somebody_rewrites_is_put_right_once_a_minute_and_named(rig: Rig) -> None:
    rig.api.view = replace(rig.api.view, labels={**LABELS, PLUGIN_LABEL: "theirs"}, owners={PLUGIN_LABEL: "kubectl"})
    rig.run(59)
    assert rig.api.applied == [LABELS]
    assert rig.api.said[-1][0] is Reason.LABEL_CONFLICT
    assert "by kubectl" in rig.api.said[-1][1]
    rig.run(20)
    assert len(rig.api.applied) == 2
    assert rig.stage.metric("label_conflicts_total ") == ["label_conflicts_total 2"]


def test_69_an_xid_after_a_kill_of_ours_is_no_fault_and_others_are_told(rig: Rig, two: Silicon) -> None:
    rig.stage.admit(1, "greedy")
    pid = rig.stage.begin(1, 5000)
    rig.run(6)
    await_end(pid)
    _hear(rig, two, [(0, 43), (0, 45), (1, 43), (0, 79)])
    told = [event.message for event in rig.api.events if event.reason == "GPUXid"]
    assert [text.split()[4] for text in told] == ["43", "79"]
    assert two.uuid(1) in told[0]


def _hear(rig: Rig, two: Silicon, xids: list[tuple[int, int]]) -> list[Any]:
    """What upkeep has heard, once the driver has told all of these."""
    for gpu, xid in xids:
        two.xid(gpu, xid)

    def has_heard_all() -> bool:
        rig.run(1)
        return len(rig.upkeep.recent) == len(xids)

    wait_for(has_heard_all)
    return list(rig.upkeep.recent)


def test_48_health_turns_bad_then_the_program_ends_to_be_started_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.run(1)
    assert (rig.loop.health()[0], rig.loop.readiness()[0]) == (True, True)
    monkeypatch.setattr(rig.stage.driver, "hung_seconds", lambda: {"GPU-0": 31.0})
    rig.run(1)
    assert rig.loop.health() == (False, "the driver has not answered for 31 s")
    monkeypatch.setattr(rig.stage.driver, "hung_seconds", lambda: {"GPU-0": 61.0})
    assert rig.loop.run() == EXIT_HUNG


def _replace_driver(two: Silicon, code: int) -> None:
    """The open session is over, and a new one meets this."""
    two.unload(code)
    two.fail("nvmlDeviceGetComputeRunningProcesses_v3", code)


def test_97_a_driver_that_was_replaced_under_our_library_ends_the_program_to_be_started_with_the_new_one(
    rig: Rig, two: Silicon, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rig.run(1)
    clock = rig.stage.clock

    def sleep(seconds: float) -> None:
        clock.time += max(0.0, seconds)
        if clock.time > 1300:
            raise Stopped

    monkeypatch.setattr(clock, "sleep", sleep)
    _replace_driver(two, 18)
    assert rig.loop.run() == EXIT_HUNG
    assert rig.api.said[-1][0] is Reason.DRIVER_MISMATCH


def test_97_a_driver_that_is_away_is_waited_for(rig: Rig, two: Silicon) -> None:
    rig.run(1)
    _replace_driver(two, 9)
    rig.run(70)
    assert (rig.loop._mismatch_at, rig.api.said[-1][0]) == (None, Reason.WAITING_FOR_DRIVER)


def test_97_a_mismatch_that_ends_in_time_ends_nothing(rig: Rig, two: Silicon) -> None:
    rig.run(1)
    _replace_driver(two, 18)
    rig.run(20)
    assert rig.loop._mismatch_at is not None
    two.reload()
    two.heal()

    def is_over() -> bool:
        rig.run(1)
        return rig.loop._mismatch_at is None

    rig.stage.clock.time += 60
    wait_for(is_over)


def test_cycles_that_fail_are_survived_and_turn_health_bad_when_they_last(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.run(1)
    monkeypatch.setattr(rig.stage.watch, "cycle", lambda: 1 / 0)
    rig.run(20)
    assert rig.loop.health()[0]
    rig.run(20)
    assert not rig.loop.health()[0]


def test_readiness_waits_for_a_cycle_that_saw_a_gpu_and_not_for_the_api_server(rig: Rig, two: Silicon) -> None:
    rig.api.is_down = True
    two.unload()
    rig.run(2)
    assert not rig.loop.readiness()[0]
    two.reload()
    rig.run(40)
    assert rig.loop.readiness()[0]


def test_a_slow_driver_is_asked_less_often_but_within_bounds(rig: Rig) -> None:
    for list_seconds, interval in ((0.01, 1.0), (0.4, 4.0), (9.0, 15.0)):
        rig.loop._list_seconds.clear()
        rig.loop._list_seconds.append(list_seconds)
        assert rig.loop.interval() == interval


def test_cycles_that_are_late_are_skipped_and_the_rhythm_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[float] = []
    costs = itertools.chain((0.2, 3.5), itertools.repeat(0.2))

    def step() -> None:
        if len(began) == 5:
            raise Stopped
        began.append(rig.stage.clock.time - 1000)
        rig.stage.clock.time += next(costs)

    monkeypatch.setattr(rig.loop, "step", step)
    monkeypatch.setattr(rig.loop, "_finish", lambda: None)
    rig.stage.clock.time = 1000
    assert rig.loop.run() == 0
    assert began == pytest.approx([0, 1, 5, 6, 7])
    assert rig.stage.metric("cycles_skipped_total") == ["cycles_skipped_total 3"]


def test_asked_to_end_it_finishes_its_victim_and_begins_with_no_other(rig: Rig) -> None:
    rig.stage.admit(1, "deaf")
    rig.stage.admit(2, "next", 1)
    victim = rig.stage.begin(1, 5000, DEAF)
    rig.run(6)
    other = rig.stage.begin(2, 5000, gpu=1)
    rig.loop._finish()
    await_end(victim)
    assert lives(other)


def test_57_70_an_hour_without_the_api_server_kills_on_and_says_it_later(rig: Rig) -> None:
    rig.stage.admit(1, "greedy")
    rig.run(1)
    rig.api.is_down, rig.stage.list.age_seconds = True, 3600.0
    pid = rig.stage.begin(1, 5000)
    rig.run(70)
    await_end(pid)
    assert [reason for reason, _ in rig.api.said] == [Reason.READY]
    assert rig.stage.metric('api_errors_total{op="condition"}')
    rig.api.is_down = False
    rig.run(61)
    assert len(rig.api.said) > 1


def test_evictions_are_asked_for_and_failures_are_counted(tmp_path: Path, two: Silicon, started: Ward) -> None:
    rig = Rig(tmp_path, two, started, enforcement={"action": "evict"})
    rig.stage.admit(1, "greedy")
    pid = rig.stage.begin(1, 5000)
    rig.api.is_down = True
    rig.run(10)
    rig.api.is_down = False
    rig.run(30)
    assert lives(pid)
    assert [pod.name for pod in rig.api.evicted] == ["greedy"]
    assert rig.stage.metric("evictions_total{") == [
        'evictions_total{outcome="failed"} 1', 'evictions_total{outcome="evicted"} 1']


def test_55_the_driver_holds_caps_where_it_can_until_processes_are_gone(tmp_path: Path, two: Silicon, started: Ward) -> None:
    two.offer_limits()
    two.load()
    rig = Rig(tmp_path, two, started)
    rig.stage.admit(1, "modest")
    pid = rig.stage.begin(1, 3000)
    rig.run(2)
    cgroup = rig.stage.processes.look([pid])[pid].cgroup
    assert two.limits(0) == {cgroup: 4096 << 20}
    assert 'enforcement_tier{tier="driver"} 1' in rig.stage.metric("enforcement_tier{")
    rig.stage.list.known = (replace(rig.stage.list.known[0], is_terminating=True),)
    rig.run(2)
    assert two.limits(0) == {cgroup: 4096 << 20}
    rig.stage.list.known = ()
    rig.run(2)
    assert two.limits(0) == {cgroup: 4096 << 20}
    two.take(0, pid)
    rig.run(2)
    assert cgroup not in two.limits(0) or two.limits(0)[cgroup] == (1 << 64) - 1


@pytest.mark.parametrize("changes", [{"enforcement": {"mechanism": "watcher"}}, {"enforcement": {"action": "warn"}}])
def test_the_driver_holds_no_cap_that_the_policy_does_not_want_held_so(
    tmp_path: Path, two: Silicon, started: Ward, changes: dict[str, Any]
) -> None:
    two.offer_limits()
    two.load()
    rig = Rig(tmp_path, two, started, **changes)
    rig.stage.admit(1, "modest")
    rig.stage.begin(1, 3000)
    rig.run(3)
    assert two.limits(0) == {}


def test_a_driver_that_refuses_a_limit_leaves_the_cap_to_the_watcher(tmp_path: Path, two: Silicon, started: Ward) -> None:
    two.offer_limits()
    two.load()
    two.fail("nvmlDeviceSetMemoryLimits_v1", 3)
    rig = Rig(tmp_path, two, started)
    rig.stage.admit(1, "greedy")
    pid = rig.stage.begin(1, 5000)
    rig.run(6)
    await_end(pid)
    assert rig.stage.metric("enforcement_tier{") == ['enforcement_tier{tier="watcher"} 1']


def test_a_reading_that_is_as_before_has_the_verdicts_that_the_guard_would_give() -> None:
    calm, over = scenes.Node(), scenes.Node()
    for node, used in ((calm, 3), (over, 5)):
        node.run(scenes.tenant(100), used * scenes.GIB)
    court, history = Court(Settings()), History()
    for second in range(60):
        reading = reading_of(over if 10 <= second < 20 or second >= 40 else calm)
        expected, history = judge(reading, history, float(second), Settings())
        assert court.judge(reading, float(second)) == expected


def reading_of(node: scenes.Node) -> Reading:
    """The same objects for a node as long as it does not change."""
    return Reading(devices=(node.device(scenes.GPU),), identities=node.processes, grants=node.grants)
