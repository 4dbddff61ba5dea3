"""From SIGTERM to the end: what stops the ladder, what it waits for, and whom it may name."""

import pytest

from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import CapAction, Grant, Owner, ProcessKind, Settings
from gpushare_node.guard.process_list import Device, ProcessEntry
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import (
    Anomaly,
    AnomalyKind,
    ContainerStatus,
    Kill,
    KillScope,
    Next,
    Terminate,
    Verdict,
)
from tests.node.guard.guard_fixture import (
    CAP,
    GIB,
    GPU,
    OTHER,
    Node,
    reasons,
    signalled,
    steps,
    stranger,
    tenant,
    terminated,
)


@pytest.mark.failure_case(37)
def test_process_that_ignores_sigterm_is_killed_after_the_exit_time() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    verdicts = node.cycles(19)
    assert steps(verdicts) == ["Warn", "Terminate", "Kill"]
    terminate, kill = (verdict for verdict in verdicts if isinstance(verdict, Terminate | Kill))
    assert (terminate.facts.next, terminate.facts.next_seconds) == (Next.KILL, 5)
    assert (kill.facts.next, kill.facts.next_seconds, kill.facts.since_seconds) == (Next.NOTHING, None, 18.0)
    assert terminate.processes == kill.processes == (tenant(500),)


@pytest.mark.failure_case(36)
def test_process_that_exits_on_sigterm_is_not_killed() -> None:
    node = terminated()
    node.end(500)
    verdicts = node.cycles(30)
    assert steps(verdicts) == []
    assert AnomalyKind.GONE in reasons(verdicts)
    assert (node.history.targets, node.history.violations) == ({}, {})


@pytest.mark.failure_case(38)
def test_process_that_stays_below_the_cap_after_sigterm_is_not_killed() -> None:
    node = terminated()
    node.used[GPU][500] = 4 * GIB
    verdicts = node.cycles(28)
    assert AnomalyKind.SPARED in reasons(verdicts)
    assert (node.history.targets, node.history.violations) == ({}, {})
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycles(13)) == ["Warn"]


@pytest.mark.failure_case(86)
def test_process_over_the_cap_again_after_sigterm_is_killed() -> None:
    node = terminated()
    node.used[GPU][500] = 4 * GIB
    assert steps(node.cycles(20)) == []
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycle()) == ["Kill"]


@pytest.mark.failure_case(86)
def test_escalation_is_cancelled_after_a_minute_below_the_cap() -> None:
    node = Node(cap=replace(CAP, grace_seconds=200))
    node.run(tenant(500), 9 * GIB)
    node.until(Terminate, limit=300)
    node.used[GPU][500] = 4 * GIB
    assert AnomalyKind.SPARED not in reasons(node.cycles(60))
    assert AnomalyKind.SPARED in reasons(node.cycle())
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycles(100))[0] != "Kill"


@pytest.mark.failure_case(86)
def test_debt_is_capped_at_twice_the_grace() -> None:
    node = Node(cap=replace(CAP, action=CapAction.WARN))
    node.run(tenant(500), 9 * GIB)
    node.cycles(1000)
    node.used[GPU][500] = 4 * GIB
    node.cycles(2 * 26 + 1)
    assert node.history.violations != {}
    node.cycle()
    assert node.history.violations == {}


@pytest.mark.failure_case(86)
def test_target_below_its_cap_after_sigterm_does_not_block_others() -> None:
    node = terminated()
    node.used[GPU][500] = 4 * GIB
    node.run(tenant(600, "b"), 9 * GIB)
    assert signalled(node.cycles(15)) == [tenant(600, "b")]


@pytest.mark.failure_case(86)
@pytest.mark.parametrize("is_hidden", [False, True])
def test_unreadable_target_after_sigterm_does_not_block_others(is_hidden: bool) -> None:
    """Its process is in no container that is known, or the driver does not tell what it uses."""
    node = terminated()
    target = node.processes[500]
    if is_hidden:
        del node.processes[500]
    else:
        node.used[GPU][500] = None
    node.run(tenant(600, "b"), 9 * GIB)
    assert signalled(node.cycles(15)) == [tenant(600, "b")]
    node.processes[500], node.used[GPU][500] = target, 9 * GIB
    assert [one.facts.unit.container for one in node.cycle() if isinstance(one, Kill)] == [target.container]


@pytest.mark.failure_case(38)
def test_process_below_the_cap_after_the_warning_is_not_signalled() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(13)) == ["Warn"]
    node.used[GPU][500] = 4 * GIB
    assert steps(node.cycles(60)) == []


def test_no_signal_while_the_use_is_unknown() -> None:
    node = terminated()
    node.used[GPU][500] = None
    assert steps(node.cycles(30)) == []
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycle()) == ["Kill"]


def test_no_signal_while_the_rows_are_implausible() -> None:
    node = terminated()
    bad = Device(
        uuid=GPU, total_bytes=40 * GIB, rows=(ProcessEntry(pid=0, used_bytes=1), ProcessEntry(pid=500, used_bytes=9 * GIB))
    )
    assert steps([verdict for _ in range(30) for verdict in node.cycle(gpu0=bad)]) == []
    assert steps(node.cycle()) == ["Kill"]


@pytest.mark.failure_case(39)
def test_reused_pid_is_not_signalled_and_the_target_counts_as_exited() -> None:
    node = terminated()
    node.processes[500] = tenant(500, start_time=2000)
    node.used[GPU][500] = 4 * GIB
    verdicts = node.cycles(20)
    assert AnomalyKind.GONE in reasons(verdicts)
    assert signalled(verdicts) == []


@pytest.mark.failure_case(86)
def test_next_process_of_a_container_inherits_its_debt() -> None:
    node = terminated()
    node.processes[500] = tenant(500, start_time=2000)
    verdicts = node.cycle()
    assert AnomalyKind.GONE in reasons(verdicts)
    assert signalled(verdicts) == [tenant(500, start_time=2000)]


@pytest.mark.failure_case(39)
def test_a_pid_reused_by_a_neighbour_is_not_signalled() -> None:
    node = terminated()
    node.processes[500] = tenant(500, "b", start_time=2000)
    node.used[GPU][500] = 4 * GIB
    assert signalled(node.cycles(40)) == []


def test_process_moved_to_another_cgroup_is_evaluated_again() -> None:
    node = terminated()
    node.processes[500] = moved = tenant(500, cgroup="/kubepods/poda/a/init.scope")
    verdicts = node.cycle()
    assert AnomalyKind.LOST in reasons(verdicts)
    assert signalled(verdicts) == [moved]


@pytest.mark.failure_case(86)
def test_process_that_moves_after_each_sigterm_is_killed_with_its_container() -> None:
    node = terminated()
    verdicts: list[Verdict] = []
    for number in range(4):
        node.processes[500] = tenant(500, cgroup=f"/kubepods/poda/a/{number}")
        verdicts += node.cycles(2)
    assert [(type(verdict), verdict.scope) for verdict in verdicts if isinstance(verdict, Terminate | Kill)] == [
        (Terminate, KillScope.CONTAINER),
        (Kill, KillScope.CONTAINER),
    ]


@pytest.mark.failure_case(40)
def test_exec_during_the_escalation_does_not_prevent_the_kill() -> None:
    node = terminated()
    node.processes[500] = replace(node.processes[500])
    assert signalled(node.cycles(5)) == [tenant(500)]


def test_unrecognised_target_is_waited_for() -> None:
    node = terminated()
    target = node.processes.pop(500)
    assert steps(node.cycles(30)) == []
    node.processes[500] = target
    assert steps(node.cycle()) == ["Kill"]


def test_target_unrecognised_for_too_long_is_dropped() -> None:
    node = terminated()
    del node.processes[500]
    verdicts = node.cycles(70)
    assert AnomalyKind.LOST in reasons(verdicts)
    assert node.history.targets == {}


@pytest.mark.failure_case(41)
def test_zombie_without_a_row_counts_as_exited() -> None:
    node = terminated()
    node.cycles(5)
    del node.used[GPU][500]
    assert AnomalyKind.GONE in reasons(node.cycle())


def test_no_offender_waits_for_another() -> None:
    node = Node()
    for number in range(7):
        node.run(tenant(500 + number, f"t{number}"), (5 + number // 4) * GIB)
    assert {process.pid for process in signalled(node.cycles(14))} == set(range(500, 507))


def test_process_on_two_devices_is_killed_once() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 9 * GIB)
    node.run(tenant(500), 9 * GIB, gpu=OTHER)
    assert steps(node.cycles(20)) == ["Warn", "Warn", "Terminate", "Kill"]


@pytest.mark.failure_case(35)
@pytest.mark.parametrize("rest", [0, 1, 2, 3, 5, 10])
def test_container_that_restarts_its_gpu_process_is_killed_as_a_whole(rest: int) -> None:
    """Its GPU process heeds SIGTERM, its supervisor does not. The debt stands, whoever has left."""
    node, pid, back = Node(), 500, -1
    node.run(tenant(pid, start_time=pid), 30 * GIB)
    for second in range(60):
        if second == back:
            pid += 1
            node.run(tenant(pid, start_time=pid), 30 * GIB)
        for verdict in node.cycle():
            if isinstance(verdict, Kill):
                assert verdict.scope is KillScope.CONTAINER
                return
            if isinstance(verdict, Terminate):
                node.end(pid)
                back = second + 1 + rest
    raise AssertionError("never ended")


@pytest.mark.failure_case(35)
@pytest.mark.parametrize("then", ["gone", "within", "unread", "unknown"])
def test_container_sent_sigterm_as_a_whole_is_always_killed(then: str) -> None:
    node = terminated()
    node.end(500)
    node.cycle()
    node.run(tenant(501), 9 * GIB)
    terminate = node.until(Terminate)
    assert isinstance(terminate, Terminate)
    assert terminate.scope is KillScope.CONTAINER
    rows = None if then == "unread" else ()
    match then:
        case "gone":
            node.end(501)
        case "within":
            node.used[GPU][501] = GIB
        case "unknown":
            del node.processes[501]
    told = [
        verdict
        for _ in range(5)
        for verdict in (node.cycle(gpu0=Device(uuid=GPU, total_bytes=40 * GIB, rows=rows)) if rows is None else node.cycle())
        if isinstance(verdict, Kill)
    ]
    assert [(kill.scope, kill.processes) for kill in told] == [(KillScope.CONTAINER, (tenant(501),))]


@pytest.mark.failure_case(35)
def test_paid_debt_is_no_longer_an_offence() -> None:
    node = terminated()
    node.end(500)
    node.cycles(40)
    assert (node.history.violations, node.history.namespaces) == ({}, {})
    node.run(tenant(501), 9 * GIB)
    terminate = node.until(Terminate)
    assert isinstance(terminate, Terminate)
    assert terminate.scope is KillScope.PROCESSES


@pytest.mark.failure_case(65)
def test_every_offender_of_a_namespace_is_ended_however_many_there_are() -> None:
    node = Node(cap=replace(CAP, grace_seconds=0, bytes=GIB))
    for number in range(14):
        process = tenant(500 + number, f"t{number}")
        own = Owner(namespace="team", uid=f"u{number}")
        assert process.container is not None
        node.grants[process.container] = Grant(owner=own, devices=frozenset({GPU}), caps={GPU: node.cap})
        node.run(process, 2 * GIB)
    assert len(set(signalled(node.cycles(4)))) == 14


@pytest.mark.failure_case(65)
def test_present_targets_are_killed_and_no_others_selected_while_the_program_ends() -> None:
    node = terminated()
    node.run(tenant(600, "b"), 9 * GIB)
    node.settings = replace(node.settings, is_ending=True)
    verdicts = node.cycles(40)
    assert set(signalled(verdicts)) == {tenant(500)}
    assert "Kill" in steps(verdicts)


@pytest.mark.failure_case(66)
@pytest.mark.parametrize(
    ("action", "told"),
    [(CapAction.KILL, ["Warn", "Terminate", "Kill"]), (CapAction.EVICT, ["Warn", "Evict"])],
    ids=["kill", "evict"],
)
def test_dry_run_reports_every_step_once_and_marks_it(action: CapAction, told: list[str]) -> None:
    node = Node(cap=replace(CAP, action=action), settings=Settings(dry_run=True))
    node.run(tenant(500), 9 * GIB)
    verdicts = node.cycles(200)
    assert steps(verdicts) == told
    assert {verdict.facts.dry_run for verdict in verdicts if not isinstance(verdict, Anomaly | ContainerStatus)} == {True}
    assert AnomalyKind.STUCK not in reasons(verdicts)


@pytest.mark.failure_case(66)
def test_dry_run_reports_every_offender_of_the_device() -> None:
    node = Node(settings=Settings(dry_run=True))
    node.run(tenant(500, "a"), 9 * GIB)
    node.run(tenant(600, "b"), 8 * GIB)
    assert sorted(process.pid for process in signalled(node.cycles(60))) == [500, 500, 600, 600]


@pytest.mark.failure_case(68)
def test_runtime_restart_during_the_escalation_kills_once() -> None:
    node = terminated()
    node.history = GuardState()
    verdicts = node.cycles(45)
    assert steps(verdicts) == ["Warn", "Terminate", "Kill"]
    assert signalled(verdicts) == [tenant(500)] * 2


def test_target_on_a_removed_device_is_dropped() -> None:
    node = terminated()
    node.cycles(6)
    assert len(node.history.targets) == 1
    node.gpus = (OTHER,)
    node.cycles(70)
    assert node.history.targets == {}


def test_target_still_over_its_cap_after_a_long_gap_is_killed() -> None:
    node = terminated()
    assert steps(node.cycle(seconds=61)) == ["Kill"]


def test_pid_reused_by_another_process_does_not_stop_debt_repayment() -> None:
    node = Node()
    node.run(tenant(500), 3 * GIB)
    node.run(tenant(501), 3 * GIB)
    node.cycles(12)
    node.processes[501] = stranger(501, ProcessKind.UNKNOWN, start_time=2000)
    node.cycle()
    assert [violation.is_within for violation in node.history.violations.values()] == [True]
