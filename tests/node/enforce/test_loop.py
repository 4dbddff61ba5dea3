"""The loop: its rhythm, health and readiness, drivers that are slow, replaced or lost, and how it ends."""

import itertools
from pathlib import Path

import pytest

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Stopped
from gpushare_node.enforce import inventory
from gpushare_node.enforce.loop import EXIT_HUNG
from gpushare_node.vendors.bounded_driver import NODE
from tests.node.enforce.enforcement import EnforcementFixture, await_end, lives
from tests.node.enforce.enforcement_loop import EnforcementLoop
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import IGNORING_SIGTERM, ProcessPool
from tests.support.waiting import wait_for


@pytest.mark.failure_case(48)
def test_hung_driver_fails_the_health_check_then_exits_for_a_restart(
    enforcement_loop: EnforcementLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcement_loop.run(1)
    assert (enforcement_loop.loop.health()[0], enforcement_loop.loop.readiness()[0]) == (True, True)
    monkeypatch.setattr(enforcement_loop.enforcement.driver, "hung_seconds", lambda: {NODE: 31.0})
    enforcement_loop.run(1)
    assert enforcement_loop.loop.health() == (False, "the driver has not answered for 31 s")
    monkeypatch.setattr(enforcement_loop.enforcement.driver, "hung_seconds", lambda: {NODE: 61.0})
    assert enforcement_loop.loop.run() == EXIT_HUNG


def _replace_driver(two_gpus: FakeNvml, code: int) -> None:
    """The open session is over, and a new one meets this."""
    two_gpus.unload(code)
    two_gpus.fail("nvmlDeviceGetComputeRunningProcesses_v3", code)


@pytest.mark.failure_case(97)
def test_replaced_driver_ends_the_runtime_for_a_restart(
    enforcement_loop: EnforcementLoop,
    two_gpus: FakeNvml,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enforcement_loop.run(1)
    clock = enforcement_loop.enforcement.clock

    def sleep(seconds: float) -> None:
        clock.time += max(0.0, seconds)
        if clock.time > 1300:
            raise Stopped

    monkeypatch.setattr(clock, "sleep", sleep)
    _replace_driver(two_gpus, 18)
    assert enforcement_loop.loop.run() == EXIT_HUNG
    assert enforcement_loop.api.said[-1][0] is ConditionReason.DRIVER_MISMATCH


@pytest.mark.failure_case(97)
def test_unavailable_driver_is_waited_for(enforcement_loop: EnforcementLoop, two_gpus: FakeNvml) -> None:
    enforcement_loop.run(1)
    _replace_driver(two_gpus, 9)
    enforcement_loop.run(70)
    assert (enforcement_loop.loop._useless_at, enforcement_loop.api.said[-1][0]) == (None, ConditionReason.WAITING_FOR_DRIVER)


@pytest.mark.failure_case(97)
def test_short_driver_mismatch_does_not_end_the_runtime(enforcement_loop: EnforcementLoop, two_gpus: FakeNvml) -> None:
    enforcement_loop.run(1)
    _replace_driver(two_gpus, 18)
    enforcement_loop.run(20)
    assert enforcement_loop.loop._useless_at is not None
    two_gpus.reload()
    two_gpus.heal()

    def is_over() -> bool:
        enforcement_loop.run(1)
        return enforcement_loop.loop._useless_at is None

    enforcement_loop.enforcement.clock.time += 60
    wait_for(is_over)


def test_cycles_that_fail_are_survived_and_turn_health_bad_when_they_last(
    enforcement_loop: EnforcementLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcement_loop.run(1)
    monkeypatch.setattr(enforcement_loop.enforcement.enforcer, "cycle", lambda: 1 / 0)
    enforcement_loop.run(20)
    assert enforcement_loop.loop.health()[0]
    enforcement_loop.run(20)
    assert not enforcement_loop.loop.health()[0]


def test_readiness_waits_for_a_cycle_that_saw_a_gpu_and_not_for_the_api_server(
    enforcement_loop: EnforcementLoop, two_gpus: FakeNvml
) -> None:
    enforcement_loop.api.is_down = True
    two_gpus.unload()
    enforcement_loop.run(2)
    assert not enforcement_loop.loop.readiness()[0]
    two_gpus.reload()
    enforcement_loop.run(40)
    assert enforcement_loop.loop.readiness()[0]


def test_slow_driver_lengthens_the_interval_within_bounds(enforcement_loop: EnforcementLoop) -> None:
    for list_seconds, interval in ((0.01, 1.0), (0.4, 4.0), (9.0, 15.0)):
        enforcement_loop.loop._list_seconds.clear()
        enforcement_loop.loop._list_seconds.append(list_seconds)
        assert enforcement_loop.loop.interval() == interval


def test_cycles_that_are_late_are_skipped_and_the_rhythm_stays(
    enforcement_loop: EnforcementLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[float] = []
    costs = itertools.chain((0.2, 3.5), itertools.repeat(0.2))

    def step() -> None:
        if len(began) == 5:
            raise Stopped
        began.append(enforcement_loop.enforcement.clock.time - 1000)
        enforcement_loop.enforcement.clock.time += next(costs)

    monkeypatch.setattr(enforcement_loop.loop, "step", step)
    monkeypatch.setattr(enforcement_loop.loop, "_finish", lambda: None)
    enforcement_loop.enforcement.clock.time = 1000
    assert enforcement_loop.loop.run() == 0
    assert began == pytest.approx([0, 1, 5, 6, 7])
    assert enforcement_loop.enforcement.metric("cycles_skipped_total") == ["cycles_skipped_total 3"]


def test_shutdown_finishes_the_current_kill_and_starts_no_other(enforcement_loop: EnforcementLoop) -> None:
    enforcement_loop.enforcement.admit(1, "deaf")
    enforcement_loop.enforcement.admit(2, "next", 1)
    target = enforcement_loop.enforcement.begin(1, 5000, IGNORING_SIGTERM)
    enforcement_loop.run(6)
    other = enforcement_loop.enforcement.begin(2, 5000, gpu=1)
    enforcement_loop.loop._finish()
    await_end(target)
    assert lives(other)


@pytest.mark.failure_case(57, 70)
def test_kills_continue_without_the_api_server_and_are_reported_later(enforcement_loop: EnforcementLoop) -> None:
    enforcement_loop.enforcement.admit(1, "greedy")
    enforcement_loop.run(1)
    enforcement_loop.api.is_down, enforcement_loop.enforcement.list.age_seconds = True, 3600.0
    pid = enforcement_loop.enforcement.begin(1, 5000)
    enforcement_loop.run(70)
    await_end(pid)
    assert [reason for reason, _ in enforcement_loop.api.said] == [ConditionReason.READY]
    assert enforcement_loop.enforcement.metric('api_errors_total{op="condition"}')
    enforcement_loop.api.is_down = False
    enforcement_loop.run(61)
    assert len(enforcement_loop.api.said) > 1


@pytest.mark.failure_case(48)
def test_gpu_hanging_at_startup_does_not_stop_enforcement_on_others(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    """It answers neither the survey nor the question for its processes; the offender on the other is ended."""
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, deadline=0.5)
    for call in ("nvmlDeviceGetName", "nvmlDeviceGetComputeRunningProcesses_v3"):
        two_gpus.delay(call, 600, gpu=0)
    enforcement.admit(1, "greedy", 1)
    pid = enforcement.begin(1, 5000, gpu=1)

    def is_over() -> bool:
        enforcement.run(1)
        return not lives(pid)

    wait_for(is_over)
    reason = enforcement.enforcer.reason()
    assert reason is not None
    assert reason[0] is ConditionReason.DRIVER_HUNG
    assert [device.uuid for device in enforcement.metrics.snapshot.devices if device.rows is not None] == [two_gpus.uuid(1)]


def test_survey_result_that_arrives_after_the_deadline_is_used(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "_SURVEY_WAIT_SECONDS", 0.05)
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, deadline=0.5)
    two_gpus.delay("nvmlDeviceGetName", 1.0)
    pid = enforcement.admit_and_begin(1, "greedy", 5000)

    def is_ended() -> bool:
        enforcement.run(1)
        return not lives(pid)

    wait_for(is_ended)


@pytest.mark.failure_case(50)
def test_lost_gpu_is_an_event_and_does_not_restart_the_runtime(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement_loop = EnforcementLoop(tmp_path, two_gpus, process_pool)
    enforcement_loop.enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement_loop.run(2)
    two_gpus.lose(0)
    enforcement_loop.run(100)
    assert enforcement_loop.api.reasons() == ["GpuLost"]
    assert enforcement_loop.api.deleted == 0
