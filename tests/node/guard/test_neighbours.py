"""Who is never a victim: neighbours, system pods, the MPS server, processes outside pods. And how MPS clients are ended."""

from typing import Any

import pytest

import gpushare_node.guard
from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import CapAction, GuardInput, ProcessKind, Settings
from gpushare_node.guard.process_list import Device, Kind, Mps, ProcessEntry
from gpushare_node.guard.verdicts import (
    Anomaly,
    AnomalyKind,
    Evict,
    Kill,
    KillScope,
    Next,
    Terminate,
    Verdict,
    Warn,
)
from tests.node.guard.guard_fixture import CAP, GIB, GPU, Node, container, reasons, signalled, steps, stranger, tenant


@pytest.mark.failure_case(64)
@pytest.mark.parametrize("kind", [ProcessKind.SYSTEM, ProcessKind.MPS_SERVER, ProcessKind.UNKNOWN])
def test_process_outside_tenants_is_never_signalled(kind: ProcessKind) -> None:
    node = Node()
    node.run(tenant(500), GIB)
    node.run(stranger(700, kind, container("a")), 20 * GIB)
    node.run(stranger(701, kind), 18 * GIB)
    assert steps(node.cycles(60)) == []


@pytest.mark.failure_case(63)
def test_mps_server_is_recognised_by_its_kind_only() -> None:
    node = Node()
    node.run(stranger(700, ProcessKind.MPS_SERVER), 20 * GIB)
    node.run(tenant(500), 9 * GIB)
    assert signalled(node.cycles(14)) == [tenant(500)]


def test_a_process_without_a_pod_is_reported() -> None:
    node = Node()
    orphan = node.run(stranger(700, ProcessKind.UNKNOWN), 20 * GIB)
    reports = [verdict for verdict in node.cycle() if isinstance(verdict, Anomaly) and verdict.reason is AnomalyKind.ORPHAN]
    assert [report.processes for report in reports] == [(orphan,)]


@pytest.mark.failure_case(52)
def test_unresolved_processes_are_reported_and_not_signalled() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.processes.clear()
    verdicts = node.cycles(60)
    assert steps(verdicts) == []
    assert AnomalyKind.UNRESOLVED in reasons(verdicts)


def test_identity_with_another_pid_is_rejected() -> None:
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.processes[500] = tenant(501)
    assert steps(node.cycles(60)) == []


def test_unrecognised_process_does_not_affect_an_oscillating_tenant() -> None:
    node = Node()
    node.run(stranger(700, ProcessKind.UNKNOWN), 20 * GIB)
    node.run(tenant(500), 9 * GIB)
    for _ in range(20):
        assert steps(node.cycles(2)) == []
        node.used[GPU][500] = 3 * GIB
        assert steps(node.cycles(6)) == []
        node.used[GPU][500] = 9 * GIB


def client_node(mps: Mps, **settings: Any) -> Node:
    node = Node(mps=mps, settings=Settings(**settings))
    node.run(tenant(500), 9 * GIB)
    return node


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("mps", [Mps.REACHABLE, Mps.UNREACHABLE])
def test_pod_of_an_mps_client_is_evicted_without_a_signal(mps: Mps) -> None:
    """Whatever it does, and as often as it comes again: a signal to one client can end every other."""
    verdicts = client_node(mps).cycles(40)
    assert steps(verdicts) == ["Warn", "Evict"]
    assert [verdict.facts.next for verdict in verdicts if isinstance(verdict, Warn)] == [Next.EVICT]


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("mps", [Mps.REACHABLE, Mps.UNREACHABLE])
def test_no_client_is_signalled_when_its_namespace_owes_the_most(mps: Mps) -> None:
    node = Node(mps=mps, cap=replace(CAP, grace_seconds=0))
    found: list[str] = []
    for pid in range(500, 520):
        node.run(tenant(pid, start_time=pid), 9 * GIB)
        found += steps(node.cycles(6))
        node.end(pid)
        found += steps(node.cycle())
    assert set(found) == {"Warn", "Evict"}


@pytest.mark.failure_case(62)
def test_client_of_a_tenants_own_mps_server_is_killed_with_its_container() -> None:
    """Outside pools under MPS a row in the MPS list means that a tenant has started a server itself: no reason to spare it."""
    node = Node()
    node.run(tenant(500), 9 * GIB)
    node.run(tenant(501), 0)
    listed = (
        ProcessEntry(pid=500, used_bytes=9 * GIB),
        ProcessEntry(pid=500, used_bytes=9 * GIB, kind=Kind.MPS),
        ProcessEntry(pid=501, used_bytes=0),
    )
    device = Device(uuid=GPU, total_bytes=40 * GIB, rows=listed)
    verdicts = [verdict for _ in range(20) for verdict in node.cycle(gpu0=device)]
    assert steps(verdicts) == ["Warn", "Terminate", "Kill"]
    assert {verdict.scope for verdict in verdicts if isinstance(verdict, Terminate | Kill)} == {KillScope.CONTAINER}
    assert set(signalled(verdicts)) == {tenant(500), tenant(501)}


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("mps", [Mps.REACHABLE, Mps.UNREACHABLE, Mps.OFF])
def test_unevictable_pod_under_mps_is_killed_by_signals(mps: Mps) -> None:
    node = client_node(mps)
    node.unevictable = frozenset({container("a")})
    verdicts = node.cycles(20)
    assert steps(verdicts) == ["Warn", "Terminate", "Kill"]
    assert {verdict.scope for verdict in verdicts if isinstance(verdict, Terminate | Kill)} == {KillScope.CONTAINER}


@pytest.mark.failure_case(62)
def test_action_evict_kills_by_signals_if_the_pod_cannot_be_evicted() -> None:
    node = Node(cap=replace(CAP, action=CapAction.EVICT))
    node.run(tenant(500), 9 * GIB)
    assert steps(node.cycles(14)) == ["Warn", "Evict"]
    node.unevictable = frozenset({container("a")})
    assert steps(node.cycles(6)) == ["Terminate", "Kill"]


def test_process_that_becomes_an_mps_client_is_not_sent_sigkill() -> None:
    node = client_node(Mps.OFF)
    node.until(Terminate)
    node.mps = Mps.REACHABLE
    assert steps(node.cycles(5)) == ["Evict"]


@pytest.mark.failure_case(62)
def test_dry_run_shows_the_eviction_under_mps() -> None:
    assert steps(client_node(Mps.REACHABLE, dry_run=True).cycles(60)) == ["Warn", "Evict"]


def test_the_same_reading_and_history_give_the_same_verdicts() -> None:
    node = Node()
    for number in range(8):
        node.run(tenant(500 + number, f"t{number}"), 4 * GIB + number)
    node.cycles(12)
    device = node.device(GPU)
    inputs = GuardInput(devices=(device,), identities=node.processes, grants=node.grants)
    judge = gpushare_node.guard.evaluate.evaluate
    assert judge(inputs, node.history, 2000.0) == judge(inputs, node.history, 2000.0)


def test_verdict_has_all_facts_of_its_step() -> None:
    node = Node()
    target = node.run(tenant(500), 9 * GIB)
    verdicts: list[Verdict] = [node.until(Warn), node.until(Terminate), node.until(Kill)]
    for verdict in verdicts:
        assert isinstance(verdict, Warn | Terminate | Kill | Evict)
        assert verdict.facts.unit.container == target.container
        assert (verdict.facts.unit.device, verdict.facts.used_bytes, verdict.facts.cap) == (GPU, 9 * GIB, CAP)
