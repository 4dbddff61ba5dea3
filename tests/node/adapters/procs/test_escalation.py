"""The guard's whole ladder against real processes: only the rows of the GPU are made up."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import Signal, SignalResult
from gpushare_node.contract.struct import replace
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import Cap, ContainerId, Grant, GuardInput, Owner, Process, ProcessKind, Settings
from gpushare_node.guard.process_list import Device, ProcessEntry
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, Kill, KillScope, Terminate, Verdict
from tests.support.process_fixtures import (
    CHANGING,
    CONTAINER_A,
    CONTAINER_B,
    GRACEFUL,
    IGNORING_SIGTERM,
    NOT_REAPING,
    POD_B,
    SLEEPING,
    FakeProc,
    ProcessPool,
    await_exit,
    children,
    needs_root,
    said,
    systemd_path,
    tell,
)
from tests.support.waiting import PATIENCE, wait_for

GIB = 1 << 30
CAP = Cap(bytes=4 * GIB, grace_seconds=0.1)
OWNER = Owner(namespace="team", uid="controller")
CYCLE_SECONDS = 0.02
SHORT_WAITS = Settings(interval_seconds=CYCLE_SECONDS, samples=2, exit_seconds=0.2, stuck_seconds=1.0)
LONG_WAITS = Settings(interval_seconds=CYCLE_SECONDS, samples=2, exit_seconds=PATIENCE)
"""For victims that end when they are asked to, which takes them as long as the machine needs."""


@dataclass(kw_only=True)
class Node:
    """One GPU whose rows say what `used` says for as long as the driver would: until a process has ended, zombies left out.

    For the ladder time passes by cycles: what the machine takes for one is no part of it.
    """

    fake_proc: FakeProc
    settings: Settings = SHORT_WAITS
    used: dict[int, int] = field(default_factory=dict)
    history: GuardState = field(default_factory=GuardState)
    told: list[Verdict] = field(default_factory=list)
    sent: list[tuple[int, Signal, SignalResult]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.processes = LinuxProcesses(self.fake_proc.root)

    def run(self, pid: int, used: int, path: str | None = None) -> int:
        self.used[self.fake_proc.show(pid, path or systemd_path())] = used
        return pid

    def cycle(self) -> None:
        """Read, judge, act, as the agent does."""
        looked = self.processes.look(self.used)
        alive = {pid: seen for pid, seen in looked.items() if not self.processes.has_ended(seen)}
        self.identities = {
            pid: Process(
                pid=pid,
                start_time=seen.start_time,
                cgroup=seen.cgroup,
                container=next(iter(seen.candidates), None),
                kind=ProcessKind.TENANT if seen.candidates else ProcessKind.UNKNOWN,
            )
            for pid, seen in alive.items()
        }
        rows = tuple(ProcessEntry(pid=pid, used_bytes=self.used[pid]) for pid in alive)
        containers = {process.container for process in self.identities.values() if process.container is not None}
        grants = {container: Grant(owner=OWNER, devices=frozenset({"GPU-0"}), caps={"GPU-0": CAP}) for container in containers}
        device = Device(uuid="GPU-0", total_bytes=40 * GIB, rows=rows)
        reading = GuardInput(devices=(device,), identities=self.identities, grants=grants)
        verdicts, self.history = evaluate(reading, self.history, self.now, self.settings)
        for verdict in verdicts:
            self.act(verdict)
        self.told += verdicts

    def act(self, verdict: Verdict) -> None:
        if not isinstance(verdict, Terminate | Kill):
            return
        signal = Signal.TERM if isinstance(verdict, Terminate) else Signal.KILL
        seen = self.processes.look([process.pid for process in verdict.processes])
        whom = [seen[process.pid] for process in verdict.processes]
        if verdict.scope is KillScope.CONTAINER:
            whom = list(self.processes.members(whom[0]))
        self.sent += [(one.pid, signal, self.processes.send(one, signal)) for one in whom]

    def until(self, condition: Callable[..., object]) -> None:
        """Cycles until it is true."""

        def cycle() -> bool:
            if not condition():
                self.cycle()
                self.now += CYCLE_SECONDS
            return bool(condition())

        wait_for(cycle, f"it, with {self.sent} sent,")

    def is_alive(self, pid: int) -> bool:
        return not self.processes.has_ended(self.processes.look([pid])[pid])

    def heard(self, reason: AnomalyKind) -> bool:
        return any(isinstance(verdict, Anomaly) and verdict.reason is reason for verdict in self.told)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(fake_proc=FakeProc(tmp_path))


def pids(sent: Iterable[tuple[int, Signal, SignalResult]]) -> list[tuple[int, str]]:
    return [(pid, signal.name) for pid, signal, outcome in sent if outcome is SignalResult.SENT]


@pytest.mark.failure_case(36)
def test_process_that_handles_sigterm_is_not_killed(node: Node, process_pool: ProcessPool) -> None:
    node.settings = LONG_WAITS
    process = process_pool.start(GRACEFUL)
    assert said(process) == "ready"
    neighbour = node.run(process_pool.pid(GRACEFUL), 3 * GIB, systemd_path(POD_B, CONTAINER_B))
    node.run(process.pid, 9 * GIB)
    node.until(lambda: node.heard(AnomalyKind.GONE))
    assert process.wait(PATIENCE) == 7
    assert pids(node.sent) == [(process.pid, "TERM")]
    assert node.is_alive(neighbour)


@pytest.mark.failure_case(37)
def test_process_that_ignores_sigterm_is_killed(node: Node, process_pool: ProcessPool) -> None:
    pid = node.run(process_pool.pid(IGNORING_SIGTERM), 9 * GIB)
    node.until(lambda: node.heard(AnomalyKind.GONE))
    assert pids(node.sent) == [(pid, "TERM"), (pid, "KILL")]
    await_exit(pid)


@pytest.mark.failure_case(37)
@needs_root
def test_the_first_process_of_a_namespace_is_killed(node: Node, process_pool: ProcessPool) -> None:
    outer = process_pool.run("unshare", "-pf", "--kill-child", "sleep", "30").pid
    wait_for(lambda: children(outer))
    (inner,) = children(outer)
    node.run(inner, 9 * GIB)
    node.until(lambda: node.heard(AnomalyKind.GONE))
    assert pids(node.sent) == [(inner, "TERM"), (inner, "KILL")]


@pytest.mark.failure_case(38)
def test_process_that_frees_memory_after_sigterm_is_not_killed(node: Node, process_pool: ProcessPool) -> None:
    pid = node.run(process_pool.pid(IGNORING_SIGTERM), 9 * GIB)
    node.until(lambda: node.sent)
    node.used[pid] = 3 * GIB
    node.until(lambda: node.heard(AnomalyKind.SPARED))
    later = node.now + 2 * SHORT_WAITS.exit_seconds
    node.until(lambda: node.now > later)
    assert pids(node.sent) == [(pid, "TERM")]
    assert node.is_alive(pid)


@pytest.mark.failure_case(39)
def test_pid_reused_by_another_pod_before_the_signal_is_not_signalled(
    node: Node, process_pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = node.run(process_pool.pid(SLEEPING), 9 * GIB)
    opened = os.pidfd_open

    def pass_on(number: int) -> int:
        node.fake_proc.show(number, systemd_path(POD_B, CONTAINER_B))
        return opened(number)

    monkeypatch.setattr(os, "pidfd_open", pass_on)
    node.until(lambda: node.sent)
    assert node.sent == [(pid, Signal.TERM, SignalResult.REUSED)]


@pytest.mark.failure_case(40)
def test_process_that_execs_after_sigterm_is_killed(node: Node, process_pool: ProcessPool) -> None:
    process = process_pool.start("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + CHANGING)
    assert said(process) == "ready"
    node.run(process.pid, 9 * GIB)
    node.until(lambda: node.sent)
    tell(process, "go")
    node.until(lambda: node.heard(AnomalyKind.GONE))
    assert pids(node.sent) == [(process.pid, "TERM"), (process.pid, "KILL")]


@pytest.mark.failure_case(41)
def test_unreaped_target_counts_as_exited(node: Node, process_pool: ProcessPool) -> None:
    node.settings = LONG_WAITS
    child = node.run(int(said(process_pool.start(NOT_REAPING))), 9 * GIB)
    node.until(lambda: node.heard(AnomalyKind.GONE))
    assert pids(node.sent) == [(child, "TERM")]
    assert Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"


@pytest.mark.failure_case(34)
def test_larger_of_two_processes_over_the_cap_is_signalled(node: Node, process_pool: ProcessPool) -> None:
    node.settings = LONG_WAITS
    small, large = (node.run(process_pool.pid(SLEEPING), used) for used in (2 * GIB, 3 * GIB))
    node.until(lambda: node.heard(AnomalyKind.GONE))
    assert pids(node.sent) == [(large, "TERM")]
    assert node.is_alive(small)


@pytest.mark.failure_case(35)
def test_container_that_restarts_its_process_is_killed_with_all_its_processes(node: Node, process_pool: ProcessPool) -> None:
    node.settings = LONG_WAITS
    idle = node.fake_proc.show(process_pool.pid(SLEEPING), f"{systemd_path()}/sub")
    neighbour = node.run(process_pool.pid(SLEEPING), 3 * GIB, systemd_path(POD_B, CONTAINER_B))
    for _ in range(2):
        pid = node.run(process_pool.pid(SLEEPING), 9 * GIB)
        node.until(lambda pid=pid: (pid, "TERM") in pids(node.sent))
        await_exit(pid)
    scopes = [verdict.scope for verdict in node.told if isinstance(verdict, Terminate)]
    assert scopes == [KillScope.PROCESSES, KillScope.CONTAINER]
    assert (idle, "TERM") in pids(node.sent)
    assert neighbour not in {pid for pid, _ in pids(node.sent)}
    assert node.is_alive(neighbour)
    await_exit(idle)


@pytest.mark.failure_case(66)
def test_a_dry_run_is_reported_and_not_carried_out(node: Node, process_pool: ProcessPool) -> None:
    """The guard marks the verdicts; who carries them out leaves marked ones alone, as here."""
    node.settings = replace(SHORT_WAITS, dry_run=True)
    pid = node.run(process_pool.pid(SLEEPING), 9 * GIB)
    node.act = lambda verdict: None  # type: ignore[method-assign]
    node.until(lambda: any(isinstance(verdict, Kill) for verdict in node.told))
    assert all(verdict.facts.dry_run for verdict in node.told if isinstance(verdict, Terminate | Kill))
    assert node.is_alive(pid)


def test_the_container_named_is_the_one_of_the_cgroup(node: Node, process_pool: ProcessPool) -> None:
    node.run(process_pool.pid(SLEEPING), 9 * GIB)
    node.cycle()
    (process,) = node.identities.values()
    assert isinstance(process.container, ContainerId)
    assert process.container.container == CONTAINER_A
