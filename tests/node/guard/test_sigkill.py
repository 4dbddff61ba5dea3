"""What follows SIGKILL: a process that is gone, one that it does not end, and those that wait meanwhile."""

import pytest

from gpushare_node.contract.struct import replace
from gpushare_node.guard.verdicts import AnomalyKind, CapState, Kill, KillScope
from tests.node.guard.guard_fixture import GIB, GPU, OTHER, Node, reasons, signalled, states, steps, tenant, terminated


@pytest.mark.failure_case(42)
def test_target_in_d_state_is_reported_stuck_and_delays_no_other() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 9 * GIB)
    node.until(Kill)
    node.run(tenant(600, "b"), 8 * GIB)
    node.run(tenant(700, "c"), 8 * GIB, gpu=OTHER)
    verdicts = node.cycles(29)
    assert {process.pid for process in signalled(verdicts)} == {600, 700}
    assert AnomalyKind.STUCK not in reasons(verdicts)
    verdicts = node.cycles(2)
    assert AnomalyKind.STUCK in reasons(verdicts)
    assert states(verdicts)["a"] is CapState.STUCK
    assert [process.pid for process in signalled(verdicts)] == [500]


@pytest.mark.failure_case(89)
def test_sigkill_is_repeated_only_while_the_process_is_over_its_cap() -> None:
    node = terminated()
    kills = [verdict for verdict in node.cycles(5 + 4 * 30) if isinstance(verdict, Kill)]
    assert [kill.is_repeated for kill in kills] == [False, True, True, True, True]
    node.used[GPU][500] = 4 * GIB
    assert steps(node.cycles(100)) == []


@pytest.mark.failure_case(89)
def test_paid_debt_prevents_a_repeated_sigkill() -> None:
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
def test_killed_process_counts_as_exited_despite_memory_held_by_others() -> None:
    """Its container has another process, within its cap; on the same device a neighbour holds what an ended process left."""
    node = terminated()
    node.run(tenant(501), GIB)
    node.until(Kill)
    node.end(500)
    node.used[GPU][77], node.processes[77] = GIB, replace(tenant(77, "b"), is_gone=True)
    assert AnomalyKind.GONE in reasons(node.cycle())


@pytest.mark.failure_case(89)
def test_memory_of_an_ended_process_ends_with_its_whole_container() -> None:
    node = Node()
    node.run(tenant(501), GIB)
    node.used[GPU][77], node.processes[77] = 9 * GIB, replace(tenant(77), is_gone=True)
    killed = node.until(Kill)
    assert isinstance(killed, Kill)
    assert killed.scope is KillScope.CONTAINER
    assert AnomalyKind.GONE not in reasons(node.cycles(20))
    node.end(77, 501)
    assert AnomalyKind.GONE in reasons(node.cycle())


@pytest.mark.failure_case(89)
def test_a_killed_process_whose_memory_others_keep_is_followed_by_its_whole_container() -> None:
    node = terminated()
    node.until(Kill)
    node.processes[500] = replace(node.processes[500], is_gone=True)
    assert AnomalyKind.GONE in reasons(node.cycle())
    killed = node.until(Kill)
    assert isinstance(killed, Kill)
    assert killed.scope is KillScope.CONTAINER


@pytest.mark.failure_case(89)
def test_invisible_killed_process_delays_no_other() -> None:
    node = terminated()
    node.until(Kill)
    node.processes.pop(500)
    node.run(tenant(600, "b"), 8 * GIB)
    assert signalled(node.cycles(13)) == []
    assert signalled(node.cycles(1)) == [tenant(600, "b")]
