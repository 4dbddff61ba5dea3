"""The loop: its rhythm, health and readiness, drivers that are slow, replaced or lost, and how it ends."""

import itertools
from pathlib import Path

import pytest

from gpushare_node.core.clock import Stopped
from gpushare_node.enforce import inventory
from gpushare_node.enforce.evaluator import Evaluator
from gpushare_node.enforce.loop import EXIT_HUNG
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import GuardInput, Settings
from gpushare_node.guard.state import GuardState
from gpushare_node.reporting.reasons import ConditionReason
from tests.node.enforce.enforcement import EnforcementFixture, await_end, lives
from tests.node.enforce.rig import Rig
from tests.node.guard import guard_fixture
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import DEAF, ProcessPool
from tests.support.waiting import wait_for


@pytest.mark.failure_case(48)
def test_health_turns_bad_then_the_program_ends_to_be_started_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.run(1)
    assert (rig.loop.health()[0], rig.loop.readiness()[0]) == (True, True)
    monkeypatch.setattr(rig.stage.driver, "hung_seconds", lambda: {"GPU-0": 31.0})
    rig.run(1)
    assert rig.loop.health() == (False, "the driver has not answered for 31 s")
    monkeypatch.setattr(rig.stage.driver, "hung_seconds", lambda: {"GPU-0": 61.0})
    assert rig.loop.run() == EXIT_HUNG


def _replace_driver(two: FakeNvml, code: int) -> None:
    """The open session is over, and a new one meets this."""
    two.unload(code)
    two.fail("nvmlDeviceGetComputeRunningProcesses_v3", code)


@pytest.mark.failure_case(97)
def test_a_driver_that_was_replaced_under_our_library_ends_the_program_to_be_started_with_the_new_one(
    rig: Rig, two: FakeNvml, monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig.run(1)
    clock = rig.stage.clock

    def sleep(seconds: float) -> None:
        clock.time += max(0.0, seconds)
        if clock.time > 1300:
            raise Stopped

    monkeypatch.setattr(clock, "sleep", sleep)
    _replace_driver(two, 18)
    assert rig.loop.run() == EXIT_HUNG
    assert rig.api.said[-1][0] is ConditionReason.DRIVER_MISMATCH


@pytest.mark.failure_case(97)
def test_a_driver_that_is_away_is_waited_for(rig: Rig, two: FakeNvml) -> None:
    rig.run(1)
    _replace_driver(two, 9)
    rig.run(70)
    assert (rig.loop._mismatch_at, rig.api.said[-1][0]) == (None, ConditionReason.WAITING_FOR_DRIVER)


@pytest.mark.failure_case(97)
def test_a_mismatch_that_ends_in_time_ends_nothing(rig: Rig, two: FakeNvml) -> None:
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
    monkeypatch.setattr(rig.stage.enforcer, "cycle", lambda: 1 / 0)
    rig.run(20)
    assert rig.loop.health()[0]
    rig.run(20)
    assert not rig.loop.health()[0]


def test_readiness_waits_for_a_cycle_that_saw_a_gpu_and_not_for_the_api_server(rig: Rig, two: FakeNvml) -> None:
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
    target = rig.stage.begin(1, 5000, DEAF)
    rig.run(6)
    other = rig.stage.begin(2, 5000, gpu=1)
    rig.loop._finish()
    await_end(target)
    assert lives(other)


@pytest.mark.failure_case(57, 70)
def test_an_hour_without_the_api_server_kills_on_and_says_it_later(rig: Rig) -> None:
    rig.stage.admit(1, "greedy")
    rig.run(1)
    rig.api.is_down, rig.stage.list.age_seconds = True, 3600.0
    pid = rig.stage.begin(1, 5000)
    rig.run(70)
    await_end(pid)
    assert [reason for reason, _ in rig.api.said] == [ConditionReason.READY]
    assert rig.stage.metric('api_errors_total{op="condition"}')
    rig.api.is_down = False
    rig.run(61)
    assert len(rig.api.said) > 1


def test_a_reading_that_is_as_before_has_the_verdicts_that_the_guard_would_give() -> None:
    calm, over = guard_fixture.Node(), guard_fixture.Node()
    for node, used in ((calm, 3), (over, 5)):
        node.run(guard_fixture.tenant(100), used * guard_fixture.GIB)
    court, history = Evaluator(Settings()), GuardState()
    for second in range(60):
        inputs = reading_of(over if 10 <= second < 20 or second >= 40 else calm)
        expected, history = evaluate(inputs, history, float(second), Settings())
        assert court.evaluate(inputs, float(second)) == expected


def reading_of(node: guard_fixture.Node) -> GuardInput:
    """The same objects for a node as long as it does not change."""
    return GuardInput(devices=(node.device(guard_fixture.GPU),), identities=node.processes, grants=node.grants)


def test_a_survey_that_takes_longer_than_any_deadline_is_taken_up_when_it_comes(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "_SURVEY_WAIT_SECONDS", 0.05)
    stage = EnforcementFixture(tmp_path, two, started, deadline=0.5)
    two.delay("nvmlDeviceGetName", 1.0)
    pid = stage.admit_and_begin(1, "greedy", 5000)

    def is_ended() -> bool:
        stage.run(1)
        return not lives(pid)

    wait_for(is_ended)


@pytest.mark.failure_case(50)
def test_a_lost_gpu_is_an_event_and_no_reason_to_start_anew_and_leave_the_others_alone(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    rig = Rig(tmp_path, two, started)
    rig.stage.admit_and_begin(1, "greedy", 5000)
    rig.run(2)
    two.lose(0)
    rig.run(100)
    assert rig.api.reasons() == ["GpuLost"]
    assert rig.api.deleted == 0
