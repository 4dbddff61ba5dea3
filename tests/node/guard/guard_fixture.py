"""A small node for the guard's tests: processes with memory, and an agent that judges them cycle by cycle."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import Cap, ContainerId, Grant, GuardInput, Owner, Process, ProcessKind, Settings
from gpushare_node.guard.process_list import Device, Mps, ProcessEntry
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import (
    Anomaly,
    AnomalyKind,
    CapState,
    ContainerStatus,
    Evict,
    Kill,
    Terminate,
    Verdict,
    Warn,
)

GIB = 1 << 30
GPU = "GPU-0"
OTHER = "GPU-1"
CAP = Cap(bytes=4 * GIB, grace_seconds=10)


def container(name: str) -> ContainerId:
    return ContainerId(pod_uid=f"uid-{name}", container=f"cid-{name}")


def owner(name: str) -> Owner:
    """Each container of these scenes is a pod of its own, in a namespace of its own."""
    return Owner(namespace=f"ns-{name}", uid=f"uid-{name}")


def tenant(pid: int, name: str = "a", start_time: int = 1000, cgroup: str | None = None) -> Process:
    return Process(
        pid=pid,
        start_time=start_time,
        cgroup=cgroup or f"/kubepods/pod{name}/{name}",
        container=container(name),
        kind=ProcessKind.TENANT,
    )


def stranger(pid: int, kind: ProcessKind, container_id: ContainerId | None = None, start_time: int = 1000) -> Process:
    return Process(pid=pid, start_time=start_time, cgroup="/system.slice/x.service", container=container_id, kind=kind)


@dataclass(kw_only=True)
class Node:
    """`used[device][pid]` is what NVML lists; `processes` who they are; every container may use `gpus` under `cap`."""

    gpus: tuple[str, ...] = (GPU,)
    cap: Cap = CAP
    settings: Settings = field(default_factory=Settings)
    mps: Mps = Mps.OFF
    used: dict[str, dict[int, int | None]] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    unseen: frozenset[int] = frozenset()
    grants: dict[ContainerId, Grant] = field(default_factory=dict)
    unevictable: frozenset[ContainerId] = frozenset()
    is_allocation_known: bool = False
    history: GuardState = field(default_factory=GuardState)
    now: float = 1000.0

    def run(self, process: Process, used: int | None, gpu: str = GPU, cap: Cap | None = None) -> Process:
        """A process appears on a device; its container is granted the node's devices unless it already has a grant."""
        self.processes[process.pid] = process
        self.used.setdefault(gpu, {})[process.pid] = used
        if process.container is not None and process.kind is ProcessKind.TENANT:
            caps = dict.fromkeys(self.gpus, cap or self.cap)
            name = process.container.container.removeprefix("cid-")
            self.grants.setdefault(process.container, Grant(owner=owner(name), devices=frozenset(self.gpus), caps=caps))
        return process

    def end(self, *pids: int) -> None:
        for pid in pids:
            self.processes.pop(pid, None)
            for uses in self.used.values():
                uses.pop(pid, None)

    def device(self, gpu: str) -> Device:
        rows = tuple(ProcessEntry(pid=pid, used_bytes=used) for pid, used in self.used.get(gpu, {}).items())
        return Device(uuid=gpu, total_bytes=40 * GIB, rows=rows, mps=self.mps)

    def cycle(self, seconds: float = 1.0, **devices: Device) -> tuple[Verdict, ...]:
        """One cycle later. Keyword arguments (`gpu0=…`) replace what is read of a device by its position."""
        self.now += seconds
        read = tuple(devices.get(f"gpu{number}", self.device(gpu)) for number, gpu in enumerate(self.gpus))
        inputs = GuardInput(
            devices=read,
            identities=dict(self.processes),
            unseen=self.unseen,
            grants=dict(self.grants),
            unevictable=self.unevictable,
            is_allocation_known=self.is_allocation_known,
        )
        verdicts, self.history = evaluate(inputs, self.history, self.now, self.settings)
        return verdicts

    def cycles(self, count: int, seconds: float = 1.0) -> tuple[Verdict, ...]:
        return tuple(verdict for _ in range(count) for verdict in self.cycle(seconds))

    def until(self, desired: type[Verdict], limit: int = 60) -> Verdict:
        """The first verdict of this type; fails when none comes in time."""
        for _ in range(limit):
            for verdict in self.cycle():
                if isinstance(verdict, desired):
                    return verdict
        raise AssertionError(f"no {desired.__name__} in {limit} cycles")


def terminated(used: int = 9 * GIB) -> Node:
    """A node whose one tenant has just been sent SIGTERM."""
    node = Node()
    node.run(tenant(500), used)
    node.until(Terminate)
    return node


STEPS = (Warn, Terminate, Kill, Evict)


def steps(verdicts: Iterable[Verdict]) -> list[str]:
    """The names of the steps against offenders, in order."""
    return [type(verdict).__name__ for verdict in verdicts if isinstance(verdict, STEPS)]


def signalled(verdicts: Iterable[Verdict]) -> list[Process]:
    """Everyone who is sent anything."""
    named = (verdict.processes for verdict in verdicts if isinstance(verdict, Terminate | Kill))
    return [process for processes in named for process in processes]


def reasons(verdicts: Iterable[Verdict]) -> set[AnomalyKind]:
    return {verdict.reason for verdict in verdicts if isinstance(verdict, Anomaly)}


def states(verdicts: Iterable[Verdict]) -> dict[str, CapState]:
    """Container name → state; for scenes with one device."""
    seen = (verdict for verdict in verdicts if isinstance(verdict, ContainerStatus))
    return {verdict.unit.container.container.removeprefix("cid-"): verdict.state for verdict in seen}
