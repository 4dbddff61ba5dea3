"""From SIGTERM to the end: what stops the ladder, what it waits for, and whom it may name."""

import pytest

from gpushare_node.core.structs import replace
from gpushare_node.guard.identity import Owner, Process, ProcessKind
from gpushare_node.guard.inputs import CapAction, Grant, Settings
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
def test_who_ignores_sigterm_is_killed_when_the_time_is_over() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    verdicts = node.cycles(19)
    assert steps(verdicts) == ["Warn", "Terminate", "Kill"]
    terminate, kill = (verdict for verdict in verdicts if isinstance(verdict, Terminate | Kill))
    assert (terminate.facts.next, terminate.facts.next_seconds) == (Next.KILL, 5)
    assert (kill.facts.next, kill.facts.next_seconds, kill.facts.since_seconds) == (Next.NOTHING, None, 18.0)
    assert terminate.processes == kill.processes == (tenant(500),)


@pytest.mark.failure_case(36)
def test_who_ends_on_sigterm_is_not_killed() -> None:
    node = terminated()
    node.end(500)
    verdicts = node.cycles(30)
    assert steps(verdicts) == []
    assert AnomalyKind.GONE in reasons(verdicts)
    assert (node.history.targets, node.history.violations) == ({}, {})


@pytest.mark.failure_case(38)
def test_who_stays_below_the_cap_after_sigterm_is_spared() -> None:
    node = terminated()
    node.used[GPU][500] = 4 * GIB
    verdicts = node.cycles(28)
    assert AnomalyKind.SPARED in reasons(verdicts)
    assert (node.history.targets, node.history.violations) == ({}, {})
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycles(13)) == ["Warn"]


@pytest.mark.failure_case(86)
def test_who_drops_below_the_cap_for_a_look_after_sigterm_is_killed_when_it_is_over_again() -> None:
    node = terminated()
    node.used[GPU][500] = 4 * GIB
    assert steps(node.cycles(20)) == []
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycle()) == ["Kill"]


@pytest.mark.failure_case(86)
def test_sigterm_lapses_after_a_minute_of_calm_however_large_the_debt() -> None:
    node = Node(cap=replace(CAP, grace_seconds=200))
    node.run(tenant(500), 9 * GIB)
    node.until(Terminate, limit=300)
    node.used[GPU][500] = 4 * GIB
    assert AnomalyKind.SPARED not in reasons(node.cycles(60))
    assert AnomalyKind.SPARED in reasons(node.cycle())
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycles(100))[0] != "Kill"


@pytest.mark.failure_case(86)
def test_who_owes_much_pays_within_twice_its_patience() -> None:
    node = Node(cap=replace(CAP, action=CapAction.WARN))
    node.run(tenant(500), 9 * GIB)
    node.cycles(1000)
    node.used[GPU][500] = 4 * GIB
    node.cycles(2 * 26 + 1)
    assert node.history.violations != {}
    node.cycle()
    assert node.history.violations == {}


@pytest.mark.failure_case(86)
def test_one_who_waits_calmly_after_sigterm_keeps_no_other_waiting() -> None:
    node = terminated()
    node.used[GPU][500] = 4 * GIB
    node.run(tenant(600, "b"), 9 * GIB)
    assert signalled(node.cycles(15)) == [tenant(600, "b")]


@pytest.mark.failure_case(86)
@pytest.mark.parametrize("is_hidden", [False, True])
def test_one_who_cannot_be_seen_after_sigterm_keeps_no_other_waiting(is_hidden: bool) -> None:
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
def test_who_drops_below_the_cap_after_the_warning_is_sent_nothing() -> None:
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
def test_a_reused_pid_is_not_signalled_and_the_victim_counts_as_gone() -> None:
    node = terminated()
    node.processes[500] = tenant(500, start_time=2000)
    node.used[GPU][500] = 4 * GIB
    verdicts = node.cycles(20)
    assert AnomalyKind.GONE in reasons(verdicts)
    assert signalled(verdicts) == []


@pytest.mark.failure_case(86)
def test_a_container_that_is_over_with_its_next_process_owes_what_it_owed() -> None:
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


def test_a_process_that_moved_to_another_cgroup_is_let_go_and_judged_again() -> None:
    node = terminated()
    node.processes[500] = moved = tenant(500, cgroup="/kubepods/poda/a/init.scope")
    verdicts = node.cycle()
    assert AnomalyKind.LOST in reasons(verdicts)
    assert signalled(verdicts) == [moved]


@pytest.mark.failure_case(86)
def test_a_process_that_moves_after_each_sigterm_is_ended_with_its_container() -> None:
    node = terminated()
    verdicts: list[Verdict] = []
    for number in range(4):
        node.processes[500] = tenant(500, cgroup=f"/kubepods/poda/a/{number}")
        verdicts += node.cycles(2)
    assert [(type(one), one.scope) for one in verdicts if isinstance(one, Terminate | Kill)] == [
        (Terminate, KillScope.CONTAINER), (Kill, KillScope.CONTAINER)]


@pytest.mark.failure_case(40)
def test_exec_during_the_ladder_keeps_the_identity_so_the_kill_follows() -> None:
    node = terminated()
    node.processes[500] = replace(node.processes[500])
    assert signalled(node.cycles(5)) == [tenant(500)]


def test_a_victim_that_cannot_be_recognised_is_waited_for() -> None:
    node = terminated()
    target = node.processes.pop(500)
    assert steps(node.cycles(30)) == []
    node.processes[500] = target
    assert steps(node.cycle()) == ["Kill"]


def test_a_victim_that_is_not_recognised_for_too_long_is_let_go() -> None:
    node = terminated()
    del node.processes[500]
    verdicts = node.cycles(70)
    assert AnomalyKind.LOST in reasons(verdicts)
    assert node.history.targets == {}


@pytest.mark.failure_case(41)
def test_a_zombie_without_a_row_is_gone() -> None:
    node = terminated()
    node.cycles(5)
    del node.used[GPU][500]
    assert AnomalyKind.GONE in reasons(node.cycle())


def test_one_victim_at_a_time_on_a_device_and_the_worst_first() -> None:
    node = Node()
    node.run(tenant(500, "a"), 5 * GIB)
    node.run(tenant(600, "b"), 9 * GIB)
    verdicts = node.cycles(15)
    assert signalled(verdicts) == [tenant(600, "b")]
    node.end(600)
    assert signalled(node.cycles(2)) == [tenant(500, "a")]


def test_a_process_on_two_devices_is_ended_once() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 9 * GIB)
    node.run(tenant(500), 9 * GIB, gpu=OTHER)
    assert steps(node.cycles(20)) == ["Warn", "Warn", "Terminate", "Kill"]


@pytest.mark.failure_case(35)
@pytest.mark.parametrize("rest", [0, 1, 2, 3, 5, 10])
def test_a_container_that_starts_its_gpu_process_anew_is_ended_as_a_whole(rest: int) -> None:
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
def test_a_whole_container_that_was_sent_sigterm_is_killed_whatever_its_processes_do(then: str) -> None:
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
        verdict for _ in range(5)
        for verdict in (node.cycle(gpu0=Device(uuid=GPU, total_bytes=40 * GIB, rows=rows)) if rows is None else node.cycle())
        if isinstance(verdict, Kill)
    ]
    assert [(kill.scope, kill.processes) for kill in told] == [(KillScope.CONTAINER, (tenant(501),))]


@pytest.mark.failure_case(35)
def test_a_debt_that_time_within_the_cap_has_paid_is_no_offence_any_more() -> None:
    node = terminated()
    node.end(500)
    node.cycles(40)
    assert (node.history.violations, node.history.namespaces) == ({}, {})
    node.run(tenant(501), 9 * GIB)
    terminate = node.until(Terminate)
    assert isinstance(terminate, Terminate)
    assert terminate.scope is KillScope.PROCESSES


@pytest.mark.failure_case(65)
def test_a_namespace_loses_so_many_a_minute_on_a_device_and_no_more() -> None:
    node = Node(cap=replace(CAP, grace_seconds=0, bytes=GIB))
    for number in range(8):
        process = tenant(500 + number, f"t{number}")
        own = Owner(namespace="team", uid=f"u{number}")
        assert process.container is not None
        node.grants[process.container] = Grant(owner=own, devices=frozenset({GPU}), caps={GPU: node.cap})
        node.run(process, 2 * GIB)
    ended: list[Process] = []
    verdicts: list[Verdict] = []
    for _ in range(40):
        verdicts += node.cycle()
        ended += signalled(verdicts[-40:])
        node.end(*(process.pid for process in ended))
    assert len(set(ended)) == 6
    assert AnomalyKind.BUDGET_SPENT in reasons(verdicts)
    later = node.cycles(30)
    assert AnomalyKind.BUDGET_SPENT not in reasons(later[-9:])
    assert len(signalled(later)) > 0


@pytest.mark.failure_case(65)
def test_victims_that_were_chosen_are_still_ended_when_the_budget_is_spent() -> None:
    node = Node(settings=Settings(kills_per_minute=1))
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(19)) == ["Warn", "Terminate", "Kill"]


@pytest.mark.failure_case(66)
@pytest.mark.parametrize(
    ("action", "told"),
    [(CapAction.KILL, ["Warn", "Terminate", "Kill"]), (CapAction.EVICT, ["Warn", "Evict"])],
    ids=["kill", "evict"],
)
def test_a_dry_run_tells_everything_once_and_marks_it(action: CapAction, told: list[str]) -> None:
    node = Node(cap=replace(CAP, action=action), settings=Settings(dry_run=True))
    node.run(tenant(500), 9 * GIB)
    verdicts = node.cycles(200)
    assert steps(verdicts) == told
    assert {verdict.facts.dry_run for verdict in verdicts if not isinstance(verdict, Anomaly | ContainerStatus)} == {True}
    assert AnomalyKind.STUCK not in reasons(verdicts)


@pytest.mark.failure_case(66)
def test_a_dry_run_goes_on_to_the_next_offender_of_the_device() -> None:
    node = Node(settings=Settings(dry_run=True))
    node.run(tenant(500, "a"), 9 * GIB)
    node.run(tenant(600, "b"), 8 * GIB)
    assert [process.pid for process in signalled(node.cycles(60))] == [500, 500, 600, 600]


@pytest.mark.failure_case(68)
def test_an_agent_that_restarts_in_the_ladder_counts_again_and_kills_once() -> None:
    node = terminated()
    node.history = GuardState()
    verdicts = node.cycles(45)
    assert steps(verdicts) == ["Warn", "Terminate", "Kill"]
    assert signalled(verdicts) == [tenant(500)] * 2


def test_a_victim_on_a_device_that_left_the_node_is_forgotten() -> None:
    node = terminated()
    node.cycles(6)
    assert len(node.history.targets) == 1
    node.gpus = (OTHER,)
    node.cycles(70)
    assert node.history.targets == {}


def test_after_a_long_gap_a_victim_that_is_still_over_is_killed() -> None:
    node = terminated()
    assert steps(node.cycle(seconds=61)) == ["Kill"]


def test_a_pid_reused_by_a_stranger_does_not_hide_that_the_offender_is_calm() -> None:
    node = Node()
    node.run(tenant(500), 3 * GIB)
    node.run(tenant(501), 3 * GIB)
    node.cycles(12)
    node.processes[501] = stranger(501, ProcessKind.UNKNOWN, start_time=2000)
    node.cycle()
    assert [violation.is_within for violation in node.history.violations.values()] == [True]
