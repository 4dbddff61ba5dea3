"""A hostile node: real processes whose owners change, and a driver that says anything of them. Knows nothing of the watch.

Pids are real ones, and pass from one owner to the next; owners move between cgroups, come and go in the API server's list, lose
their GPU and get it back. Lists are true, scrambled, or plausible lies about innocents.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.backends.backend import Allocation, Checkpoint
from gpushare_node.contract.struct import replace
from gpushare_node.guard.process_list import Device, Kind, ProcessEntry
from tests.node.enforce.enforcement import MAPPED, NAMESPACE, SHARED, YOUNG, FakePodList, container_id, pod, pod_uid
from tests.support.process_fixtures import FakeProc, MemoryProc, stat_line, systemd_path

MIB = 1 << 20
TOTAL = 163840 * MIB
GPUS = tuple(f"GPU-{number:08d}-0000-0000-0000-000000000000" for number in range(8))
TENANTS = range(1, 31)
UNKNOWN = range(31, 36)
SYSTEM = {41: {"namespace": "kube-system"}, 42: {"namespace": "gpu-operator"}, 43: {"namespace": NAMESPACE}}
RESTARTING = 44
"""A tenant that is over its cap for three quarters of the time, deaf to SIGTERM, and begins anew whenever it is killed."""

HOST, KERNEL, SERVER = "host", "kernel", "server"
PLACES: tuple[Any, ...] = (*TENANTS, *TENANTS, *TENANTS, *UNKNOWN, *SYSTEM, HOST, KERNEL, SERVER)
USES = (0, 300, 500, 900, 1500, 2500, 4500)


@dataclass(kw_only=True)
class FuzzProcess:
    """Who has a pid now: `home` is the number of a pod's container, or one of HOST, KERNEL, SERVER."""

    home: Any
    start_time: int
    uses: dict[str, int]
    has_gpu: bool = True


@dataclass(kw_only=True)
class HostileNode:
    """`pids` are real processes that are nobody's else; the first is the defiant one's.

    `veiled` are the GPUs whose list is not the truth, of which `lying` are those whose list contradicts itself, and `plausible`
    those whose list does not. `veiled_before` are those of the cycle before. `rows` counts all that were listed.
    `is_in_memory`: /proc is a MemoryProc.
    """

    folder: Path
    pids: tuple[int, ...]
    rng: Random
    is_in_memory: bool = False
    rows: int = 0
    starts: int = 0
    beings: dict[int, FuzzProcess] = field(default_factory=dict)
    shown: dict[str, tuple[ProcessEntry, ...]] = field(default_factory=dict)
    lying: set[str] = field(default_factory=set)
    plausible: set[str] = field(default_factory=set)
    veiled: set[str] = field(default_factory=set)
    veiled_before: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        (self.folder / "proc").mkdir()
        self.fake_proc = (MemoryProc if self.is_in_memory else FakeProc)(self.folder / "proc")
        self.given = {number: frozenset(self.rng.sample(GPUS, 2)) for number in (*TENANTS, *UNKNOWN, RESTARTING)}
        numbers = (*TENANTS, *SYSTEM, RESTARTING)
        self.all_pods = {number: pod(f"pod-{number}", number, **SYSTEM.get(number, {})) for number in numbers}
        self.list = FakePodList()
        self.list.known = tuple(self.all_pods.values())
        for pid in self.pids[1:]:
            self.born(pid)
        self.defy()

    def born(self, pid: int) -> None:
        """The pid is somebody else's from now on."""
        self.starts += 1
        home = self.rng.choice(PLACES)
        likely = (*sorted(self.given.get(home, ())), self.rng.choice(GPUS))
        uses = {gpu: self.rng.choice(USES) for gpu in likely if self.rng.random() < 0.7}
        self.beings[pid] = FuzzProcess(home=home, start_time=self.starts, uses=uses)
        name = "nvidia-cuda-mps-server" if home == SERVER else "python3"
        flags = 0x00200000 if home == KERNEL else 0
        self.fake_proc.show(pid, self.path(home))
        self.fake_proc.fake(pid, "stat", stat_line(pid, start_time=self.starts, flags=flags))
        self.fake_proc.fake(pid, "comm", f"{name[:15]}\n")
        self.fake_proc.fake(pid, "maps", MAPPED)
        self.fake_proc.open_nothing(pid)

    def defy(self) -> None:
        """The defiant tenant's process begins, with its first pid."""
        pid = self.pids[0]
        self.starts += 1
        self.beings[pid] = FuzzProcess(home=RESTARTING, start_time=self.starts, uses={})
        self.fake_proc.show(pid, systemd_path(pod_uid(RESTARTING), container_id(RESTARTING)))
        self.fake_proc.fake(pid, "stat", stat_line(pid, start_time=self.starts))
        self.fake_proc.fake(pid, "comm", "python3\n")
        self.fake_proc.fake(pid, "maps", MAPPED)
        self.fake_proc.open_nothing(pid)

    def path(self, home: Any) -> str:
        if isinstance(home, str):
            return "/" if home == KERNEL else "/system.slice/some.service"
        path = systemd_path(pod_uid(home), container_id(home))
        # Some make cgroups of their own and call them like a neighbour's.
        return path + self.rng.choice(("", "", "/init.scope", systemd_path(pod_uid(2), container_id(2))))

    def move(self, pid: int) -> None:
        being = self.beings[pid]
        if being.home != KERNEL:
            being.home = self.rng.choice([place for place in PLACES if place not in (KERNEL, SERVER)])
            self.fake_proc.show(pid, self.path(being.home))

    def tend(self) -> None:
        """Something happens to somebody."""
        pid, event = self.rng.choice(self.pids[1:]), self.rng.randrange(100)
        being = self.beings[pid]
        if event < 60:
            being.uses = {gpu: self.rng.choice(USES) for gpu in being.uses}
        elif event < 75:
            self.born(pid)
        elif event < 85:
            self.move(pid)
        elif event < 90:
            being.has_gpu = not being.has_gpu
            self.fake_proc.fake(pid, "maps", MAPPED if being.has_gpu else "")
        elif event < 97:
            hidden = self.rng.sample(sorted(self.all_pods.keys() - {RESTARTING}), 3)
            self.list.known = tuple(one for number, one in self.all_pods.items() if number not in hidden)
        else:
            self.list.known = tuple(self._renamed(number, one) for number, one in self.all_pods.items())

    def _renamed(self, number: int, one: PodView) -> PodView:
        """The pod with its container, or with the next run of it."""
        is_restarted = number != RESTARTING and self.rng.random() < 0.1
        return replace(
            one,
            containers={container_id(number + 500 if is_restarted else number): "main"},
            started={container_id(either): YOUNG for either in (number, number + 500)},
        )

    def checkpoint(self) -> Checkpoint:
        ids = {number: tuple(f"{gpu}::{number}" for gpu in sorted(gpus)) for number, gpus in self.given.items()}
        allocations = (
            Allocation(pod_uid=pod_uid(number), container="main", resource=SHARED, ids=own) for number, own in ids.items()
        )
        return Checkpoint(registered={}, allocations=tuple(allocations))

    # What the driver says.

    def read_devices(self) -> Mapping[str, Device]:
        self.veiled_before = frozenset(self.veiled)
        for kind in (self.lying, self.plausible, self.veiled):
            kind.clear()
        self.shown = {gpu: self.list_of(gpu) for gpu in GPUS}
        self.rows += sum(len(rows) for rows in self.shown.values())
        return {gpu: Device(uuid=gpu, total_bytes=TOTAL, rows=rows) for gpu, rows in self.shown.items()}

    def list_of(self, gpu: str) -> tuple[ProcessEntry, ...]:
        true = tuple(
            ProcessEntry(pid=pid, used_bytes=being.uses[gpu] * MIB) for pid, being in self.beings.items() if gpu in being.uses
        )
        rows = self._add_strangers(true)
        event = self.rng.randrange(20)
        if event < 4:
            self.veiled.add(gpu)
        if event == 0:
            self.lying.add(gpu)
            return (*rows, ProcessEntry(pid=self.rng.choice((0, 1, 2, 1 << 23, 0xFFFFFFFF)), used_bytes=1184))
        if event == 1:
            self.lying.add(gpu)
            return tuple(ProcessEntry(pid=(row.used_bytes or 0) & 0xFFFFFFFF, used_bytes=row.pid) for row in rows)
        if event == 2:
            # Nobody can tell this from the truth, and the next list says something else.
            self.plausible.add(gpu)
            liars = [row.used_bytes for row in rows]
            self.rng.shuffle(liars)
            return tuple(ProcessEntry(pid=row.pid, used_bytes=used) for row, used in zip(rows, liars, strict=True))
        if event == 3:
            return tuple(ProcessEntry(pid=row.pid, used_bytes=None) if self.rng.random() < 0.2 else row for row in rows)
        return rows

    def _add_strangers(self, rows: tuple[ProcessEntry, ...]) -> tuple[ProcessEntry, ...]:
        """Ourselves, pids of nobody, and lists that overlap."""
        nobody = (1 << 22) - self.rng.randrange(9)
        strangers = (ProcessEntry(pid=os.getpid(), used_bytes=900 * MIB), ProcessEntry(pid=nobody, used_bytes=300 * MIB))
        again = tuple(ProcessEntry(pid=row.pid, used_bytes=row.used_bytes, kind=Kind.GRAPHICS) for row in rows[:3])
        return (*rows, *self.rng.sample(strangers, self.rng.randrange(3)), *again)
