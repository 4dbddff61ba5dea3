"""When a container is over its cap, for how long, and what it is told before anything happens."""

import pytest

from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import Cap, CapAction
from gpushare_node.guard.verdicts import AnomalyKind, CapState, ContainerStatus, Evict, Next, Terminate, Warn
from tests.node.guard.guard_fixture import CAP, GIB, GPU, OTHER, Node, container, reasons, signalled, states, steps, tenant

TOLERANT = Cap(bytes=4 * GIB, tolerance_bytes=GIB)


@pytest.mark.failure_case(32)
@pytest.mark.parametrize(
    ("cap", "used", "is_over"),
    [
        (CAP, 4 * GIB - 1, False),
        (CAP, 4 * GIB, False),
        (CAP, 4 * GIB + 1, True),
        (TOLERANT, 5 * GIB, False),
        (TOLERANT, 5 * GIB + 1, True),
    ],
    ids=["under", "at the cap", "over by a byte", "at the tolerance", "over the tolerance"],
)
def test_usage_up_to_cap_plus_tolerance_is_allowed(cap: Cap, used: int, *, is_over: bool) -> None:
    node = Node(cap=cap)
    node.run(tenant(500), used)
    assert (steps(node.cycles(40))[:1] == ["Warn"]) is is_over


@pytest.mark.failure_case(32)
def test_three_intervals_over_the_cap_give_a_warning_with_the_next_step() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    for _ in range(3):
        assert states(node.cycle()) == {"a": CapState.OVER}
    warn, observed = node.cycle()
    assert isinstance(warn, Warn)
    facts = warn.facts
    assert (facts.used_bytes, facts.cap, facts.since_seconds) == (9 * GIB, CAP, 3.0)
    assert (facts.next, facts.next_seconds, facts.dry_run) == (Next.TERMINATE, 10.0, False)
    assert observed == ContainerStatus(unit=facts.unit, state=CapState.WARNED, used_bytes=9 * GIB, cap=CAP, since_seconds=3.0)


def test_the_grace_passes_between_the_warning_and_the_first_signal() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(13)) == ["Warn"]
    assert steps(node.cycle()) == ["Terminate"]


@pytest.mark.failure_case(33)
def test_short_spikes_followed_by_low_usage_are_not_an_offence() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    for _ in range(30):
        assert steps(node.cycles(3)) == []
        node.used[GPU][500] = 3 * GIB
        node.cycles(8)
        assert states(node.cycle()) == {"a": CapState.OK}
        node.used[GPU][500] = 9 * GIB


@pytest.mark.failure_case(33)
def test_briefly_lower_usage_does_not_clear_the_debt() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.cycles(5)
    node.used[GPU][500] = 3 * GIB
    assert states(node.cycle()) == {"a": CapState.WARNED}
    assert states(node.cycles(20)) == {"a": CapState.OK}


@pytest.mark.failure_case(33)
def test_an_unknown_sample_neither_counts_nor_resets() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.cycles(3)
    node.used[GPU][500] = None
    assert states(node.cycle()) == {"a": CapState.UNKNOWN}
    assert steps(node.cycles(5)) == []
    node.used[GPU][500] = 9 * GIB
    assert steps(node.cycle()) == []
    assert steps(node.cycle()) == ["Warn"]


def test_hidden_process_does_not_count_as_lower_usage() -> None:
    node = Node()
    hidden = node.run(tenant(500), 3 * GIB)
    node.run(tenant(501), 3 * GIB)
    node.cycles(3)
    del node.processes[500]
    assert states(node.cycle()) == {"a": CapState.UNKNOWN}
    node.processes[500] = hidden
    assert steps(node.cycles(2)) == ["Warn"]


@pytest.mark.failure_case(86)
@pytest.mark.parametrize(("apart", "warned", "ended"), [(0.25, 12, 52), (1, 3, 13), (2.5, 2, 6), (7, 1, 2), (60, 1, 1)])
def test_time_between_two_samples_over_the_cap_counts_whole(apart: float, warned: int, ended: int) -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.cycle()
    told = [steps(node.cycle(apart)) for _ in range(ended)]
    assert [number for number, one in enumerate(told, start=1) if "Warn" in one] == [warned]
    assert [number for number, one in enumerate(told, start=1) if "Terminate" in one] == [ended]


@pytest.mark.failure_case(86)
def test_nothing_is_known_of_a_gap_of_more_than_a_minute() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(20, seconds=61)) == []


@pytest.mark.failure_case(86)
@pytest.mark.parametrize("change", [{"action": CapAction.KILL}, {"action": CapAction.EVICT, "bytes": 5 * GIB}])
def test_changed_action_restarts_the_grace_with_a_new_warning(change: dict[str, object]) -> None:
    node = Node(cap=replace(CAP, action=CapAction.WARN))
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(30)) == ["Warn"]
    cap = replace(CAP, **change)
    node.grants = {one: replace(grant, caps={GPU: cap}) for one, grant in node.grants.items()}
    assert steps(node.cycles(int(cap.grace_seconds))) == ["Warn"]
    assert steps(node.cycle()) == ["Evict" if cap.action is CapAction.EVICT else "Terminate"]


@pytest.mark.failure_case(67)
def test_clock_that_goes_back_or_stops_gives_no_samples_or_signals() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.cycles(13)
    verdicts = node.cycle(seconds=-3600) + node.cycles(100, seconds=0)
    assert steps(verdicts) == []
    node.now += 3600
    assert steps(node.cycle()) == ["Terminate"]


@pytest.mark.failure_case(34)
def test_sum_of_processes_counts_and_the_largest_is_killed() -> None:
    node = Node()
    node.run(tenant(500), 2 * GIB)
    node.run(tenant(501), 3 * GIB)
    node.run(tenant(600, "b"), 4 * GIB)
    assert signalled(node.cycles(14)) == [tenant(501)]


@pytest.mark.failure_case(34)
def test_fewest_equal_processes_are_killed_youngest_first() -> None:
    node = Node()
    node.run(tenant(500, start_time=1000), 3 * GIB)
    node.run(tenant(501, start_time=3000), 3 * GIB)
    node.run(tenant(502, start_time=2000), 3 * GIB)
    assert signalled(node.cycles(14)) == [tenant(501, start_time=3000), tenant(502, start_time=2000)]


@pytest.mark.failure_case(59)
def test_each_device_of_a_container_has_its_own_cap() -> None:
    node = Node(gpus=(GPU, OTHER))
    node.run(tenant(500), 3 * GIB)
    node.run(tenant(500), 3 * GIB, gpu=OTHER)
    assert steps(node.cycles(30)) == []
    node.used[OTHER][500] = 5 * GIB
    terminate = node.until(Terminate)
    assert isinstance(terminate, Terminate)
    assert terminate.facts.unit.device == OTHER


@pytest.mark.failure_case(59)
def test_use_of_an_unallocated_device_is_only_reported() -> None:
    node = Node()
    node.run(tenant(500), 3 * GIB)
    node.gpus = (GPU, OTHER)
    node.used[OTHER] = {500: 30 * GIB}
    verdicts = node.cycles(30)
    assert AnomalyKind.STRAY in reasons(verdicts)
    assert steps(verdicts) == []


def stray() -> Node:
    """A container on a device that it was not given, where that has a cap of nothing."""
    node = Node()
    node.run(tenant(500), 3 * GIB)
    node.gpus = (GPU, OTHER)
    node.used[OTHER] = {500: 2 * GIB}
    own = node.grants[container("a")]
    node.grants[container("a")] = replace(own, stray_cap=Cap(bytes=0, grace_seconds=0))
    return node


@pytest.mark.failure_case(59)
def test_unallocated_device_has_cap_zero_if_allocations_are_known() -> None:
    node = stray()
    node.is_allocation_known = True
    terminate = node.until(Terminate, limit=4)
    assert isinstance(terminate, Terminate)
    assert (terminate.facts.unit.device, terminate.facts.cap.bytes) == (OTHER, 0)


@pytest.mark.failure_case(59)
def test_no_foreign_use_is_killed_while_allocations_are_unknown() -> None:
    node = stray()
    verdicts = node.cycles(60)
    assert steps(verdicts) == []
    assert AnomalyKind.STRAY in reasons(verdicts)
    node.is_allocation_known = True
    assert steps(node.cycles(2)) == []
    node.is_allocation_known = False
    assert steps(node.cycles(60)) == []


@pytest.mark.failure_case(55, 56)
def test_a_container_that_the_api_does_not_know_is_not_judged() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    grants, node.grants = node.grants, {}
    verdicts = node.cycles(30)
    assert steps(verdicts) == []
    assert AnomalyKind.STRAY not in reasons(verdicts)
    node.grants = grants
    assert signalled(node.cycles(14)) == [tenant(500)]


@pytest.mark.failure_case(57)
def test_temporarily_lost_cap_keeps_the_offence_without_signals() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.cycles(13)
    grants, node.grants = node.grants, {}
    assert steps(node.cycles(20)) == []
    node.grants = grants
    assert steps(node.cycle()) == []
    assert steps(node.cycle()) == ["Terminate"]


def test_container_keeps_its_cap_beside_one_with_a_lower_cap() -> None:
    node = Node()
    node.run(tenant(500, "old"), 6 * GIB, cap=Cap(bytes=8 * GIB))
    node.run(tenant(600, "new"), 6 * GIB, cap=Cap(bytes=4 * GIB))
    assert {process.pid for process in signalled(node.cycles(30))} == {600}


@pytest.mark.failure_case(75)
def test_a_container_with_two_replicas_has_the_sum_of_their_caps() -> None:
    node = Node()
    node.run(tenant(500), 8 * GIB, cap=replace(CAP, bytes=2 * CAP.bytes))
    assert steps(node.cycles(30)) == []
    node.used[GPU][500] = 8 * GIB + 1
    assert steps(node.cycles(4)) == ["Warn"]


def test_action_none_only_observes() -> None:
    node = Node(cap=replace(CAP, action=CapAction.NONE))
    node.run(tenant(500), 9 * GIB)
    verdicts = node.cycles(60)
    assert steps(verdicts) == []
    assert states(verdicts[-1:]) == {"a": CapState.OVER}


def test_action_warn_warns_and_reminds() -> None:
    node = Node(cap=replace(CAP, action=CapAction.WARN))
    node.run(tenant(500), 9 * GIB)
    verdicts = node.cycles(304)
    warnings = [verdict for verdict in verdicts if isinstance(verdict, Warn)]
    assert steps(verdicts) == ["Warn", "Warn"]
    assert [(warn.facts.next, warn.facts.next_seconds) for warn in warnings] == [(Next.NOTHING, None)] * 2


def test_action_evict_warns_then_evicts_and_retries_while_the_pod_stays() -> None:
    node = Node(cap=replace(CAP, action=CapAction.EVICT))
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(13)) == ["Warn"]
    evict = node.cycle()[0]
    assert isinstance(evict, Evict)
    assert evict.facts.since_seconds == 13.0
    assert steps(node.cycles(29)) == []
    assert steps(node.cycle()) == ["Evict"]


def test_grace_zero_warns_and_signals_in_one_cycle() -> None:
    node = Node(cap=replace(CAP, grace_seconds=0))
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(4)) == ["Warn", "Terminate"]
