"""From SIGTERM to the end: what stops the ladder, what it waits for, and whom it may name."""

from dataclasses import replace

import pytest

from gpushare_node.guard.identity import ProcessKind
from gpushare_node.guard.ledger import History
from gpushare_node.guard.reading import Action, Settings
from gpushare_node.guard.rows import Device, Row
from gpushare_node.guard.verdicts import Kill, Next, Reason, Scope, State, Terminate
from tests.node.scenes import CAP, GIB, GPU, OTHER, Node, reasons, signalled, states, steps, stranger, tenant


def terminated(used: int = 9 * GIB) -> Node:
    """A node whose one tenant has just been sent SIGTERM."""
    node = Node()
    node.run(tenant(500), used)
    node.until(Terminate)
    return node


def test_37_who_ignores_sigterm_is_killed_when_the_time_is_over() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    verdicts = node.cycles(18)
    assert steps(verdicts) == ["Warn", "Terminate", "Kill"]
    terminate, kill = (verdict for verdict in verdicts if isinstance(verdict, Terminate | Kill))
    assert (terminate.facts.next, terminate.facts.next_seconds) == (Next.KILL, 5)
    assert (kill.facts.next, kill.facts.next_seconds, kill.facts.since_seconds) == (Next.NOTHING, None, 17.0)
    assert terminate.processes == kill.processes == (tenant(500),)


def test_36_who_ends_on_sigterm_is_not_killed() -> None:
    node = terminated()
    node.end(500)
    verdicts = node.cycles(30)
    assert steps(verdicts) == []
    assert Reason.GONE in reasons(verdicts)
    assert (node.history.victims, node.history.offences) == ({}, {})


def test_38_who_drops_below_the_cap_after_sigterm_is_spared() -> None:
    node = terminated()
    node.used[GPU][500] = 4 * GIB
    verdicts = node.cycle()
    assert Reason.SPARED in reasons(verdicts)
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycles(12)) == ["Warn"]


def test_38_who_drops_below_the_cap_after_the_warning_is_sent_nothing() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(12)) == ["Warn"]
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
    bad = Device(uuid=GPU, total_bytes=40 * GIB, rows=(Row(pid=0, used_bytes=1), Row(pid=500, used_bytes=9 * GIB)))
    assert steps([verdict for _ in range(30) for verdict in node.cycle(gpu0=bad)]) == []
    assert steps(node.cycle()) == ["Kill"]


def test_39_a_reused_pid_is_not_signalled_and_the_victim_counts_as_gone() -> None:
    node = terminated()
    node.processes[500] = tenant(500, start_time=2000)
    verdicts = node.cycles(13)
    assert Reason.GONE in reasons(verdicts)
    assert signalled(verdicts) == []
    assert signalled(node.cycle()) == [tenant(500, start_time=2000)]


def test_39_a_pid_reused_by_a_neighbour_is_not_signalled() -> None:
    node = terminated()
    node.processes[500] = tenant(500, "b", start_time=2000)
    node.used[GPU][500] = 4 * GIB
    assert signalled(node.cycles(40)) == []


def test_a_process_that_moved_to_another_cgroup_is_let_go_and_judged_anew() -> None:
    node = terminated()
    node.processes[500] = moved = tenant(500, cgroup="/kubepods/poda/a/init.scope")
    verdicts = node.cycle()
    assert Reason.LOST in reasons(verdicts)
    assert signalled(node.cycles(12)) == []
    assert signalled(node.cycle()) == [moved]


def test_40_exec_during_the_ladder_keeps_the_identity_so_the_kill_follows() -> None:
    node = terminated()
    node.processes[500] = replace(node.processes[500])
    assert signalled(node.cycles(5)) == [tenant(500)]


def test_a_victim_that_cannot_be_recognised_is_waited_for() -> None:
    node = terminated()
    victim = node.processes.pop(500)
    assert steps(node.cycles(30)) == []
    node.processes[500] = victim
    assert steps(node.cycle()) == ["Kill"]


def test_a_victim_that_is_not_recognised_for_too_long_is_let_go() -> None:
    node = terminated()
    del node.processes[500]
    verdicts = node.cycles(70)
    assert Reason.LOST in reasons(verdicts)
    assert node.history.victims == {}


def test_41_a_zombie_without_a_row_is_gone() -> None:
    node = terminated()
    node.cycles(5)
    del node.used[GPU][500]
    assert Reason.GONE in reasons(node.cycle())


def test_42_a_victim_in_d_state_is_stuck_and_has_no_successor_on_its_device() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 9 * GIB)
    node.until(Kill)
    node.run(tenant(600, "b"), 8 * GIB)
    node.run(tenant(700, "c"), 8 * GIB, gpu=OTHER)
    verdicts = node.cycles(30)
    assert Reason.STUCK in reasons(verdicts)
    assert states(verdicts)["a"] is State.STUCK
    verdicts += node.cycles(100)
    assert {process.pid for process in signalled(verdicts)} == {700}
    node.end(500)
    assert signalled(node.cycles(2)) == [tenant(600, "b")]


def test_43_a_signal_that_has_no_effect_is_not_repeated() -> None:
    node = terminated()
    assert steps(node.cycles(600)) == ["Kill"]


def test_one_victim_at_a_time_on_a_device_and_the_worst_first() -> None:
    node = Node()
    node.run(tenant(500, "a"), 5 * GIB)
    node.run(tenant(600, "b"), 9 * GIB)
    verdicts = node.cycles(14)
    assert signalled(verdicts) == [tenant(600, "b")]
    node.end(600)
    assert signalled(node.cycles(2)) == [tenant(500, "a")]


def test_a_process_on_two_devices_is_ended_once() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 9 * GIB)
    node.run(tenant(500), 9 * GIB, gpu=OTHER)
    assert steps(node.cycles(20)) == ["Warn", "Warn", "Terminate", "Kill"]


def test_35_a_container_that_keeps_forking_is_ended_as_a_whole() -> None:
    node = Node(cap=replace(CAP, grace_seconds=0))
    choices: list[Terminate] = []
    for pid in range(500, 508, 2):
        node.run(tenant(pid), 3 * GIB)
        node.run(tenant(pid + 1), 3 * GIB)
        terminate = node.until(Terminate)
        assert isinstance(terminate, Terminate)
        choices.append(terminate)
        node.end(*(process.pid for process in terminate.processes))
        node.cycle()
    assert [choice.scope for choice in choices] == [Scope.PROCESSES] * 3 + [Scope.CONTAINER]
    assert len(choices[-1].processes) > 1


def test_35_the_kill_of_a_container_names_those_who_live_then() -> None:
    node = Node(cap=replace(CAP, grace_seconds=0), settings=Settings(strikes=0))
    node.run(tenant(500), 9 * GIB)
    node.until(Terminate)
    node.end(500)
    node.run(tenant(501), 9 * GIB)
    kill = node.until(Kill)
    assert isinstance(kill, Kill)
    assert (kill.scope, kill.processes) == (Scope.CONTAINER, (tenant(501),))


def test_65_the_breaker_opens_after_so_many_victims_and_closes_a_minute_later() -> None:
    gpus = tuple(f"GPU-{number}" for number in range(8))
    node = Node(gpus=gpus, cap=replace(CAP, grace_seconds=0))
    for number, gpu in enumerate(gpus):
        node.run(tenant(500 + number, f"t{number}"), 9 * GIB, gpu=gpu)
    verdicts = node.cycles(3)
    assert len(signalled(verdicts)) == 6
    assert steps(verdicts).count("Warn") == 8
    assert Reason.BREAKER_OPEN in reasons(verdicts)
    node.end(*(process.pid for process in signalled(verdicts)))
    assert signalled(node.cycles(59)) == []
    later = node.cycles(2)
    assert len(signalled(later)) == 2
    assert Reason.BREAKER_OPEN not in reasons(node.cycle())


def test_65_victims_that_were_chosen_are_still_ended_while_the_breaker_is_open() -> None:
    node = Node(settings=Settings(kills_per_minute=1))
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(18)) == ["Warn", "Terminate", "Kill"]


@pytest.mark.parametrize(
    ("action", "told"), [(Action.KILL, ["Warn", "Terminate", "Kill"]), (Action.EVICT, ["Warn", "Evict"])], ids=["kill", "evict"]
)
def test_66_a_dry_run_tells_everything_once_and_marks_it(action: Action, told: list[str]) -> None:
    node = Node(cap=replace(CAP, action=action), settings=Settings(dry_run=True))
    node.run(tenant(500), 9 * GIB)
    verdicts = node.cycles(200)
    assert steps(verdicts) == told
    assert {verdict.facts.dry_run for verdict in verdicts if hasattr(verdict, "facts")} == {True}
    assert Reason.STUCK not in reasons(verdicts)


def test_66_a_dry_run_goes_on_to_the_next_offender_of_the_device() -> None:
    node = Node(settings=Settings(dry_run=True))
    node.run(tenant(500, "a"), 9 * GIB)
    node.run(tenant(600, "b"), 8 * GIB)
    assert [process.pid for process in signalled(node.cycles(60))] == [500, 500, 600, 600]


def test_68_an_agent_that_restarts_in_the_ladder_counts_anew_and_kills_once() -> None:
    node = terminated()
    node.history = History()
    verdicts = node.cycles(60)
    assert steps(verdicts) == ["Warn", "Terminate", "Kill"]
    assert signalled(verdicts) == [tenant(500)] * 2


def test_a_victim_on_a_device_that_left_the_node_is_forgotten() -> None:
    node = terminated()
    node.cycles(6)
    assert list(node.history.victims) == [GPU]
    node.gpus = (OTHER,)
    node.cycles(70)
    assert node.history.victims == {}


def test_after_a_long_gap_a_victim_is_let_go_and_judged_anew() -> None:
    node = terminated()
    verdicts = node.cycle(seconds=61)
    assert steps(verdicts) == []
    assert Reason.LOST in reasons(verdicts)
    assert signalled(node.cycles(11)) == []
    assert signalled(node.cycle()) == [tenant(500)]


def test_a_pid_reused_by_a_stranger_does_not_hide_that_the_offender_is_calm() -> None:
    node = Node()
    node.run(tenant(500), 3 * GIB)
    node.run(tenant(501), 3 * GIB)
    node.cycles(12)
    node.processes[501] = stranger(501, ProcessKind.UNKNOWN, start_time=2000)
    assert states(node.cycle()) == {"a": State.OK}
