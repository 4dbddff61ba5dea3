"""What follows SIGKILL: a process that is gone, one that it does not end, and those that wait meanwhile."""

import pytest

from gpushare_node.guard.verdicts import AnomalyKind, CapState, Kill
from tests.node.guard.guard_fixture import GIB, GPU, OTHER, Node, reasons, signalled, states, steps, tenant, terminated


@pytest.mark.failure_case(42)
def test_a_victim_in_d_state_is_stuck_and_has_no_successor_on_its_device() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 9 * GIB)
    node.until(Kill)
    node.run(tenant(600, "b"), 8 * GIB)
    node.run(tenant(700, "c"), 8 * GIB, gpu=OTHER)
    verdicts = node.cycles(29)
    assert {process.pid for process in signalled(verdicts)} == {700}
    assert AnomalyKind.STUCK not in reasons(verdicts)
    verdicts = node.cycles(2)
    assert AnomalyKind.STUCK in reasons(verdicts)
    assert states(verdicts)["a"] is CapState.STUCK
    assert [process.pid for process in signalled(verdicts)] == [500, 600]


@pytest.mark.failure_case(89)
def test_sigkill_is_sent_again_while_it_does_not_end_a_process_and_not_to_a_calm_one() -> None:
    node = terminated()
    kills = [verdict for verdict in node.cycles(5 + 4 * 30) if isinstance(verdict, Kill)]
    assert [kill.is_repeated for kill in kills] == [False, True, True, True, True]
    node.used[GPU][500] = 4 * GIB
    assert steps(node.cycles(100)) == []


@pytest.mark.failure_case(89)
def test_a_debt_that_has_been_paid_gives_no_right_to_sigkill_again() -> None:
    """It was calm for so long that it owes nothing; then it is an offender like others, with a warning and a grace."""
    node = terminated()
    node.until(Kill)
    node.used[GPU][500] = 4 * GIB
    node.cycles(40)
    assert node.history.violations == {}
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycles(3)) == []
    node.run(tenant(501), 5 * GIB)
    assert steps(node.cycles(10)) == ["Warn"]
    assert steps(node.cycles(30)) == ["Terminate", "Kill"]


@pytest.mark.failure_case(89)
def test_a_killed_process_is_gone_whatever_memory_others_hold_for_ended_processes() -> None:
    """Its container has another process, within its cap; on the same device a neighbour holds what an ended process left."""
    node = terminated()
    node.run(tenant(501), GIB)
    node.until(Kill)
    node.end(500)
    node.used[GPU][77], node.holders[77, GPU] = GIB, (tenant(600, "b"),)
    assert AnomalyKind.GONE in reasons(node.cycle())


@pytest.mark.failure_case(89)
def test_a_killed_process_that_still_holds_the_memory_of_an_ended_one_is_not_gone() -> None:
    node = Node()
    node.run(tenant(501), GIB)
    node.used[GPU][77], node.holders[77, GPU] = 9 * GIB, (tenant(500),)
    node.until(Kill)
    assert AnomalyKind.GONE not in reasons(node.cycles(20))
    del node.holders[77, GPU]
    assert AnomalyKind.GONE in reasons(node.cycle())


@pytest.mark.failure_case(89)
def test_a_killed_process_that_cannot_be_seen_any_more_keeps_nobody_waiting_either() -> None:
    node = terminated()
    node.until(Kill)
    node.processes.pop(500)
    node.run(tenant(600, "b"), 8 * GIB)
    assert signalled(node.cycles(59)) == []
    assert signalled(node.cycles(2)) == [tenant(600, "b")]
