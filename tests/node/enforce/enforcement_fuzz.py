"""A hostile node: the whole watch over real processes, a driver that says anything, and an oracle that knows the truth.

Pids are real ones, and pass from one owner to the next; owners move between cgroups, come and go in the API server's list, lose
their GPU and get it back, also between judgement and signal. Lists are true, scrambled, or plausible lies about innocents.
Nothing that the watch sends arrives: it is held against what the node is like at that very moment.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from gpushare_node.adapters.host.kubelet import Allocation, Checkpoint
from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.host.tenancy import TenancyFile
from gpushare_node.adapters.kube.cluster import Eviction, PodView
from gpushare_node.adapters.nvml.driver import GpuInfo, Versions
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import GpuUse, ProcessIdentity
from gpushare_node.core.structs import replace
from gpushare_node.enforce.enforcer import Adapters, Enforcer, EnforcerConfig
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.guard.identity import Process
from gpushare_node.guard.inputs import Settings
from gpushare_node.guard.process_list import Device, Kind, Mps, ProcessEntry
from gpushare_node.guard.verdicts import CapState
from gpushare_node.reporting.metrics import Registry
from tests.node.enforce.enforcement import (
    CAP_MIB,
    MAPPED,
    NAMESPACE,
    NODE,
    NOON,
    SHARED,
    YOUNG,
    FakePodList,
    InlineQueue,
    ManualClock,
    RecordedCluster,
    container_id,
    pod,
    pod_uid,
    tenancy_text,
)
from tests.node.enforce.enforcement import policy as policy_of
from tests.support.process_fixtures import FakeProc, stat_line, systemd_path

MIB = 1 << 20
TOTAL = 163840 * MIB
GPUS = tuple(f"GPU-{number:08d}-0000-0000-0000-000000000000" for number in range(8))
TENANTS = range(1, 31)
UNKNOWN = range(31, 36)
SYSTEM = {41: {"namespace": "kube-system"}, 42: {"namespace": "gpu-operator"}, 43: {"namespace": NAMESPACE}}
DEFIANT = 44
"""A tenant that is over its cap for three quarters of the time, deaf to SIGTERM, and begins anew whenever it is killed."""

HOST, KERNEL, SERVER = "host", "kernel", "server"
PLACES: tuple[Any, ...] = (*TENANTS, *TENANTS, *TENANTS, *UNKNOWN, *SYSTEM, HOST, KERNEL, SERVER)
USES = (0, 300, 500, 900, 1500, 2500, 4500)
_ENDING = frozenset({CapState.TERM_SENT, CapState.CLIENT_SENT, CapState.KILL_SENT})
_ENDED_SECONDS = 60
"""Within this time of its SIGTERM a whole container is killed, and emptied of what was started in it since."""

SETTINGS = Settings(exit_seconds=2, stuck_seconds=5, kills_per_minute=100_000)


@dataclass(kw_only=True)
class FuzzProcess:
    """Who has a pid now: `home` is the number of a pod's container, or one of HOST, KERNEL, SERVER."""

    home: Any
    start_time: int
    uses: dict[str, int]
    has_gpu: bool = True


class Driver:
    """What `BoundedDriver` is to the enforcer; lists are the fuzz's."""

    def __init__(self, read_devices: Callable[[], Mapping[str, Device]]) -> None:
        self._read_devices = read_devices

    def ask(self, name: str, _question: object) -> Any:
        if name == "has_memory_limits":
            return False
        surveys = tuple(GpuInfo(index=index, uuid=uuid, name="NVIDIA A100-SXM4-40GB") for index, uuid in enumerate(GPUS))
        return Versions(driver="580.95.05", nvml="13.580.95.05", cuda=None), surveys

    def survey(self, *, wait_seconds: float) -> Any:
        return self.ask("survey", wait_seconds)

    def read_devices(self, _uuids: Iterable[str]) -> Mapping[str, Device]:
        return self._read_devices()

    def unreliable(self) -> frozenset[str]:
        return frozenset()

    def refresh(self) -> None:
        """Nothing is kept."""


class EvictingCluster(RecordedCluster):
    """A cluster that says yes to every eviction, and whose pods stay."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, str] = {}

    def evict(self, pod: PodView, *, is_forced: bool = False) -> Eviction:
        """`asked` has a letter for each request: b while the pod's budget counts, f where it does not."""
        self.asked[pod.uids[0]] = self.asked.get(pod.uids[0], "") + ("f" if is_forced else "b")
        return Eviction.EVICTED

    def is_in_vain(self, uid: str) -> bool:
        """Whether it was asked for six times, of which three or more heeded the pod's budget before others did not.

        A pod on two GPUs is asked for twice at once, so that its budget may be asked a fourth time.
        """
        return re.search("b{4,}f{2,}$|b{3}f{3,}$", self.asked.get(uid, "")) is not None


@dataclass(kw_only=True)
class EnforcementFuzz:
    """`pids` are real processes that are nobody's else."""

    folder: Path
    pids: tuple[int, ...]
    rng: Random
    mode: str = "time-slicing"
    admission: str = "none"
    rows: int = 0
    starts: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    raw: int = 0
    beings: dict[int, FuzzProcess] = field(default_factory=dict)
    shown: dict[str, tuple[ProcessEntry, ...]] = field(default_factory=dict)
    lying: set[str] = field(default_factory=set)
    plausible: set[str] = field(default_factory=set)
    veiled: set[str] = field(default_factory=set)
    veiled_before: frozenset[str] = frozenset()
    open_in: set[frozenset[Any]] = field(default_factory=set)
    confirmed: set[Process] = field(default_factory=set)
    defied: list[float] = field(default_factory=list)
    waited: float = 0.0
    unproven: int = 0
    trace: list[str] = field(default_factory=list)
    longest_trace: list[str] = field(default_factory=list)

    """`ended`: when a whole container, by its cgroup, was last being ended while it was over its cap.

    `veiled` are the GPUs whose list is not the truth, of which `lying` are those whose list contradicts itself, and `plausible`
    those whose list does not. `veiled_before` are those of the cycle before.
    `open_in`: the homes that have a GPU open, at each moment of this cycle.
    `waited`: for how many cycles that prove it the defiant one has been over its cap while its GPU was free and nothing paused
    the node: their list and the one before are true. `unproven` counts the others in which it was over.
    `defied`: that, whenever it ended. `trace` has a line for each cycle since it began, `longest_trace` those of the longest
    wait that has ended.
    """

    def __post_init__(self) -> None:
        (self.folder / "proc").mkdir()
        (self.folder / "state").mkdir()
        self.fake_proc = FakeProc(self.folder / "proc")
        self.given = {number: frozenset(self.rng.sample(GPUS, 2)) for number in (*TENANTS, *UNKNOWN, DEFIANT)}
        numbers = (*TENANTS, *SYSTEM, DEFIANT)
        self.all_pods = {number: pod(f"pod-{number}", number, **SYSTEM.get(number, {})) for number in numbers}
        self.clock, self.list, self.told = ManualClock(), FakePodList(), EvictingCluster()
        self.list.known = tuple(self.all_pods.values())
        self.last_shown = {one.uids[0]: one for one in self.list.known}
        for pid in self.pids[1:]:
            self.born(pid)
        self.defy()
        self.processes = LinuxProcesses(self.fake_proc.root)
        self._uses_gpu = self.processes.uses_gpu
        self.processes.uses_gpu = self._meddle  # type: ignore[method-assign]
        self._list_members = self.processes.members
        self.processes.members = self._note_whole  # type: ignore[method-assign]
        tenancy = self.folder / "tenancy.json"
        tenancy.write_text(tenancy_text(admission=self.admission))
        adapters = Adapters(
            driver=Driver(self.read_devices),  # type: ignore[arg-type]
            processes=self.processes, pods=self.list, cluster=self.told,
            folder=StateDir(self.folder / "state"), clock=self.clock, checkpoint=self.checkpoint,
            mps=self if self.mode == "mps" else None, tenants=TenancyFile(tenancy, NAMESPACE),
            wall=lambda: NOON + self.clock.now(),
        )
        policy = policy_of(
            enforcement={"graceSeconds": 0, "mechanism": "watcher"}, mode=self.mode, profile=f"{self.mode}-01234567",
            gpusPerNode=8, gpus=[{"indexes": list(range(8)), "mig": False, "instances": []}],
        )
        config = EnforcerConfig(policy=policy, policy_digest="d", node=NODE, settings=SETTINGS)
        self.metrics = EnforcementMetrics(Registry())
        self.enforcer = Enforcer(
            adapters=adapters, config=config, metrics=self.metrics, queue=InlineQueue(), mps_queue=InlineQueue()
        )

    # The node.

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
        self.beings[pid] = FuzzProcess(home=DEFIANT, start_time=self.starts, uses={})
        self.fake_proc.show(pid, systemd_path(pod_uid(DEFIANT), container_id(DEFIANT)))
        self.fake_proc.fake(pid, "stat", stat_line(pid, start_time=self.starts))
        self.fake_proc.fake(pid, "comm", "python3\n")
        self.fake_proc.fake(pid, "maps", MAPPED)
        self.fake_proc.open_nothing(pid)
        self.waited, self.trace = 0.0, []

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
            hidden = self.rng.sample(sorted(self.all_pods.keys() - {DEFIANT}), 3)
            self.list.known = tuple(one for number, one in self.all_pods.items() if number not in hidden)
        else:
            self.list.known = tuple(self._renamed(number, one) for number, one in self.all_pods.items())

    def _renamed(self, number: int, one: PodView) -> PodView:
        """The pod with its container, or with the next run of it."""
        is_restarted = number != DEFIANT and self.rng.random() < 0.1
        return replace(one, containers={container_id(number + 500 if is_restarted else number): "main"}, started={
            container_id(either): YOUNG for either in (number, number + 500)})

    def checkpoint(self) -> Checkpoint:
        ids = {number: tuple(f"{gpu}::{number}" for gpu in sorted(gpus)) for number, gpus in self.given.items()}
        allocations = (
            Allocation(pod_uid=pod_uid(number), container="main", resource=SHARED, ids=own) for number, own in ids.items())
        return Checkpoint(registered={}, allocations=tuple(allocations))

    def _meddle(self, pid: int) -> GpuUse:
        """Between judgement and signal, things happen too."""
        if self.rng.random() < 0.1 and pid != self.pids[0]:
            self.born(pid) if self.rng.random() < 0.5 else self.move(pid)
            self.note_open()
        return self._uses_gpu(pid)

    def note_open(self) -> None:
        self.open_in.add(frozenset(being.home for being in self.beings.values() if being.has_gpu))

    def _note_whole(self, seen: ProcessIdentity) -> tuple[ProcessIdentity, ...]:
        """Only who ends a whole container asks for all that lives in it."""
        home = next((one for one in (*TENANTS, DEFIANT) if seen.cgroup == self.cgroup(one)), None)
        if home is not None and self.is_over(home) and self.is_known(home):
            self.ended[seen.cgroup] = self.clock.time
        is_known = home is not None and self.is_known(home)
        assert self.is_being_ended(seen.cgroup), f"all of {home} is ended: {'not over' if is_known else 'unknown'}"
        return self._list_members(seen)

    # The driver.

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

    # MPS, that ends every second client.

    def state(self) -> Mps:
        return Mps.REACHABLE

    def limit_mib(self, _device: int | str) -> int | None:
        return CAP_MIB

    def terminate(self, targets: Iterable[Process]) -> frozenset[Process]:
        chosen = sorted(targets, key=lambda one: one.pid)
        for target in chosen:
            seen = self.processes.look((target.pid,)).get(target.pid)
            if seen is not None and (seen.start_time, seen.cgroup) == (target.start_time, target.cgroup):
                self.check(target.pid, "terminate_client")
                if self.rng.random() < 0.5:
                    self.confirmed.add(target)
        return frozenset(chosen) & self.confirmed

    # The oracle.

    def take(self, held: int, number: int) -> None:
        """In place of pidfd_send_signal: who would be hit, and whether it may be."""
        fields = dict(line.split(":\t", 1) for line in Path(f"/proc/self/fdinfo/{held}").read_text().splitlines())
        pid, name = int(fields["Pid"]), {15: "SIGTERM", 9: "SIGKILL"}[number]
        self.check(pid, name)
        if pid == self.pids[0]:
            if number == 9:
                if self.waited > max(self.defied, default=0.0):
                    self.longest_trace = self.trace
                self.defied.append(self.waited)
                self.defy()
        elif self.rng.random() < (0.9 if number == 9 else 0.3):
            self.born(pid)

    def check(self, pid: int, name: str) -> None:
        """The process is of a container of a pod as the API server last showed it, and over its cap on one of its own GPUs.

        A whole container that was sent SIGTERM while this held is ended whatever has happened since, but no other's process is.
        """
        being = self.beings[pid]
        assert being.home in (*TENANTS, DEFIANT), f"{name} to {being}"
        is_over, is_last = self.is_over(being.home), name != "SIGTERM" and self.is_being_ended(self.cgroup(being.home))
        assert is_over or is_last, f"{name} to {being}: not over"
        assert self.is_known(being.home) or is_last, f"{name} to an unknown container's"
        if self.mode == "mps" and name == "SIGKILL":
            confirmed = {(one.pid, one.start_time) for one in self.confirmed}
            is_left = self.told.is_in_vain(pod_uid(being.home))
            assert is_left or (pid, being.start_time) in confirmed, f"raw under MPS, {self.told.asked}"
            self.raw += (pid, being.start_time) not in confirmed
        self.sent[name] = self.sent.get(name, 0) + 1

    def is_over(self, home: int) -> bool:
        """Whether the container is over a cap, by lists that do not contradict themselves."""
        caps = {gpu: CAP_MIB if gpu in self.given[home] else 0 for gpu in self.fenced(home) - self.lying}
        return any(self.used_mib(home, gpu) > cap for gpu, cap in caps.items())

    def is_known(self, home: int) -> bool:
        """Whether the API server showed the container as one of its pod's, when it last showed that."""
        return container_id(home) in self.last_shown[pod_uid(home)].containers

    def is_being_ended(self, cgroup: str) -> bool:
        """Whether the whole container was over its cap when its end began, not long ago."""
        return self.clock.time - self.ended.get(cgroup, -_ENDED_SECONDS) < _ENDED_SECONDS

    @staticmethod
    def cgroup(home: int) -> str:
        """The container's own cgroup, without those that its processes have made in it."""
        return systemd_path(pod_uid(home), container_id(home))

    def fenced(self, home: int) -> frozenset[str]:
        """The GPUs on which the container has a cap: where admission refuses strays, one of nothing on those of others."""
        return frozenset(GPUS) if self.admission == "deny" else self.given[home]

    def used_mib(self, home: int, gpu: str) -> float:
        """What the container uses there, if the list is taken at its word.

        What is listed for no process of the node's is its, too, if nobody else could have held it at some moment.
        """
        uses: dict[int, int] = {}
        is_heir = any(self._may_hold(homes, gpu) <= {home} for homes in self.open_in)
        for row in self.shown[gpu]:
            if self.homes.get(row.pid, home if is_heir else None) == home:
                uses[row.pid] = max(uses.get(row.pid, 0), row.used_bytes or 0)
        return sum(uses.values()) / MIB

    def _may_hold(self, homes: frozenset[Any], gpu: str) -> set[Any]:
        """Those of the homes whose memory on this GPU may be listed for a pid of nobody: it was given to them, or who knows."""
        return {home for home in homes if home in UNKNOWN or gpu in self.given.get(home, ())}

    def cycle(self) -> None:
        """Life goes on, and the watch looks."""
        for _ in range(self.rng.randrange(8)):
            self.tend()
        is_over = self.clock.time % 8 < 6
        self.beings[self.pids[0]].uses = {min(self.given[DEFIANT]): 9000 if is_over else 300}
        self.homes = {pid: being.home for pid, being in self.beings.items()}
        self.open_in.clear()
        self.note_open()
        self.clock.time += 1
        self.last_shown.update((one.uids[0], one) for one in self.list.known)
        self.enforcer.cycle()
        gpu = min(self.given[DEFIANT])
        states = {
            one.unit.container.container: one.state for one in self.metrics.snapshot.observe() if one.unit.device == gpu
        }
        mine = states.pop(container_id(DEFIANT), None)
        # Another is being ended on this GPU: one at a time, the oldest offence first.
        is_taken = not _ENDING.isdisjoint(states.values())
        # A list of another GPU that contradicts itself pauses the whole node, and so does a budget that is spent.
        pauses = (*self.metrics.breaker.lines(), *self.metrics.budgets.lines())
        is_paused = any(not line.startswith("#") and not line.endswith(" 0") for line in pauses)
        if gpu in self.plausible:
            # This list said that the tenant uses what another does: its debt may have been paid back, rightly.
            self.waited = 0.0
        is_true = gpu not in self.veiled | self.veiled_before
        self.waited += is_over and is_true and not is_taken and not is_paused
        self.unproven += is_over and not is_true
        listed = [row.used_bytes for row in self.shown[gpu] if row.pid == self.pids[0]]
        self.trace.append(
            f"{self.clock.time:.0f} s: over {is_over}, listed {listed}, lying {gpu in self.lying}, {mine}, paused {is_paused};"
            f" waited {self.waited:.0f}; others {sorted(str(state) for state in states.values())}"
        )
