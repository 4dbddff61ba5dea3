"""A model of a busy, hostile node, and an oracle that holds every signal against the model's own truth.

Tenants grow, shrink, fork, exec, move between cgroups, have their pods replaced and die; pids are used again at once; system
pods, an MPS server and strangers stand beside them; rows get scrambled or lost, memory unknown, identities and grants hidden,
and the clock jumps.
The oracle counts samples by itself from what the model showed; it shares nothing with the guard but the values that
go in and come out.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from gpushare_node.core.structs import replace
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.identity import ContainerId, Owner, Process, ProcessKind
from gpushare_node.guard.inputs import Cap, Grant, GuardInput, Settings
from gpushare_node.guard.process_list import Device, Mps, ProcessEntry
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Kill, KillScope, Terminate, TerminateClient, Verdict

MIB = 1 << 20
TOTAL = 80 << 30
CAP = Cap(bytes=2048 * MIB, tolerance_bytes=64 * MIB, grace_seconds=4)
PATIENCE_SECONDS = 3 + 4
MAX_OWED_SECONDS = 2 * PATIENCE_SECONDS
PAID_PER_SECOND = 0.5
BREATH_SECONDS = 0.5
"""What is promised: nobody owes more than this, and calm pays back half of its length but for its first half of a second."""

SIGNALS = (Terminate, TerminateClient, Kill)
KINDS = [ProcessKind.TENANT] * 16 + [ProcessKind.SYSTEM, ProcessKind.SYSTEM, ProcessKind.MPS_SERVER, ProcessKind.UNKNOWN]


@dataclass(kw_only=True, eq=False)
class Life:
    """One process of the model: who it is, what it truly uses, and what NVML says of it."""

    process: Process
    device: int
    used: int
    row: ProcessEntry
    obeys: bool
    shrinks: bool
    dies: bool


@dataclass(kw_only=True)
class Run:
    """The oracle's own count for one container on one device: what it owes, exactly, and for how long it has been calm."""

    owed: float = 0.0
    calm: float = 0.0
    is_over: bool = False
    was_over: bool = False
    is_within: bool = False
    pids: frozenset[int] = frozenset()


@dataclass(kw_only=True)
class GuardModel:
    """A node of `gpus` devices with about `each` processes; the last device is under MPS."""

    rng: Random
    settings: Settings = field(default_factory=Settings)
    gpus: int = 4
    each: int = 60
    now: float = 0.0
    clock: float = -math.inf
    starts: int = 0
    rows: int = 0
    lives: dict[int, Life] = field(default_factory=dict)
    hidden: dict[int, int] = field(default_factory=dict)
    lost_grants: dict[ContainerId, int] = field(default_factory=dict)
    grants: dict[ContainerId, Grant] = field(default_factory=dict)
    terminated: set[Process] = field(default_factory=set)
    runs: dict[tuple[ContainerId, int], Run] = field(default_factory=dict)
    asked: dict[Process, float] = field(default_factory=dict)
    killed: dict[int, list[tuple[object, float]]] = field(default_factory=dict)
    left: dict[tuple[Owner, int], tuple[float, float]] = field(default_factory=dict)
    inherited: int = 0
    chosen: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    history: GuardState = field(default_factory=GuardState)
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in range(self.gpus * self.each // 2):
            container = ContainerId(pod_uid=f"pod{number}", container=f"c{number}")
            device = f"GPU-{number % self.gpus}"
            owner = Owner(namespace=f"ns{number % 5}", uid=f"pod{number}")
            self.grants[container] = Grant(owner=owner, devices=frozenset({device}), caps={device: CAP})
        self.containers = list(self.grants)
        self.owners = {container: grant.owner for container, grant in self.grants.items()}
        for number in range(self.gpus * self.each):
            self.born(1000 + number, number % self.gpus)

    def born(self, pid: int, device: int) -> None:
        """A new process, of a container of this device unless it is nobody's."""
        rng, kind = self.rng, self.rng.choice(KINDS)
        self.starts += 1
        container = None
        if kind in (ProcessKind.TENANT, ProcessKind.SYSTEM):
            container = self.containers[rng.randrange(len(self.containers) // self.gpus) * self.gpus + device]
        process = Process(pid=pid, start_time=self.starts, cgroup=f"/kubepods/{self.starts}", container=container, kind=kind)
        used = rng.choice((0, 300, 500, 700, 900)) * MIB
        self.lives[pid] = Life(
            process=process, device=device, used=used, row=ProcessEntry(pid=pid, used_bytes=used),
            obeys=rng.random() < 0.4, shrinks=rng.random() < 0.2, dies=rng.random() < 0.97,
        )

    def tend(self, life: Life) -> None:
        """Something happens to a process."""
        rng, pid = self.rng, life.process.pid
        event = rng.randrange(100)
        if event < 60:
            life.used = rng.choice((0, 300, 500, 900, 1500, 2500)) * MIB
            life.row = ProcessEntry(pid=pid, used_bytes=life.used if event < 57 else None)
        elif event < 75:
            del self.lives[pid]
            self.born(pid, life.device if event < 70 else rng.randrange(self.gpus))
        elif event < 78:
            old = life.process
            life.process = Process(
                pid=pid, start_time=old.start_time, cgroup=old.cgroup + "/x", container=old.container, kind=old.kind
            )
        elif event < 90:
            self.hidden[pid] = rng.randrange(1, 6)
        elif event < 94 and life.process.container is not None:
            self.lost_grants[life.process.container] = rng.randrange(1, 6)
        elif life.process.container is not None:
            self.replace_pod(life.process.container)

    def replace_pod(self, old: ContainerId) -> None:
        """Its controller makes the pod anew, and all that ran in it runs on, with new processes."""
        self.starts += 1
        new = ContainerId(pod_uid=f"{old.pod_uid.partition('-')[0]}-{self.starts}", container=f"c-{self.starts}")
        self.grants[new] = self.grants.pop(old)
        self.owners[new] = self.grants[new].owner
        self.containers[self.containers.index(old)] = new
        for pid, life in self.lives.items():
            if life.process.container == old:
                process = replace(life.process, start_time=self.starts, cgroup=f"/kubepods/{self.starts}", container=new)
                self.lives[pid] = dataclasses.replace(life, process=process)

    def scramble(self, rows: tuple[ProcessEntry, ...]) -> tuple[ProcessEntry, ...] | None:
        """What a driver with the wrong record size makes of a list; or no list at all."""
        if self.rng.random() < 0.3:
            return None
        flat = [word for row in rows for word in (row.pid, 0, (row.used_bytes or 0) & 0xFFFFFFFF, 0, 0xFFFFFFFF, 0xFFFFFFFF)]
        shift = self.rng.choice((2, 4))
        words = [*flat[:1], *flat[shift:]]
        return (
            *(ProcessEntry(pid=words[n], used_bytes=words[n + 1]) for n in range(0, len(words) - 1, 4)),
            ProcessEntry(pid=0, used_bytes=1184),
        )

    def cycle(self) -> tuple[Verdict, ...]:
        """One cycle: life goes on, the guard judges, the oracle checks, and what was ordered is carried out."""
        rng = self.rng
        for _ in range(rng.randrange(6)):
            self.tend(self.lives[rng.choice(tuple(self.lives))])
        self.hidden = {pid: cycles - 1 for pid, cycles in self.hidden.items() if cycles > 1}
        self.lost_grants = {container: cycles - 1 for container, cycles in self.lost_grants.items() if cycles > 1}
        jump = rng.randrange(400)
        self.now += {0: 0.0, 1: -20.0, 2: 200.0, 3: 30.0}.get(jump, 1.0)
        has_moved, seconds = self.now > self.clock, self.now - self.clock
        self.clock = max(self.clock, self.now)
        devices, clean = self.devices()
        visible = {pid: life.process for pid, life in self.lives.items() if pid not in self.hidden}
        known = {container: grant for container, grant in self.grants.items() if container not in self.lost_grants}
        inputs = GuardInput(devices=devices, identities=visible, grants=known, terminated_clients=frozenset(self.terminated))
        if has_moved:
            self.count(clean, known, seconds)
        verdicts, self.history = evaluate(inputs, self.history, self.now, self.settings)
        signals = [verdict for verdict in verdicts if isinstance(verdict, SIGNALS)]
        for verdict in signals:
            assert has_moved
            self.check(verdict, clean)
        for verdict in signals:
            self.carry_out(verdict)
        return verdicts

    def devices(self) -> tuple[tuple[Device, ...], set[int]]:
        """What NVML says of each device, and the numbers of those of which it says the truth."""
        lists: list[list[ProcessEntry]] = [[] for _ in range(self.gpus)]
        for life in self.lives.values():
            lists[life.device].append(life.row)
        self.rows += len(self.lives)
        clean = set()
        devices = []
        for number, listed in enumerate(lists):
            rows: tuple[ProcessEntry, ...] | None = tuple(listed)
            if self.rng.random() < 0.04:
                rows = self.scramble(tuple(listed))
            else:
                clean.add(number)
            mps = Mps.REACHABLE if number == self.gpus - 1 else Mps.OFF
            devices.append(Device(uuid=f"GPU-{number}", total_bytes=TOTAL, rows=rows, mps=mps))
        return tuple(devices), clean

    def count(self, clean: set[int], known: dict[ContainerId, Grant], seconds: float) -> None:
        """The oracle's samples of this cycle, from what was shown on devices that showed the truth."""
        shown: dict[tuple[ContainerId, int], int] = {}
        unclear: set[tuple[ContainerId, int]] = set()
        members: dict[tuple[ContainerId, int], set[int]] = {}
        for pid, life in self.lives.items():
            container = life.process.container
            if container is None or life.process.kind is not ProcessKind.TENANT or life.device not in clean:
                continue
            unit = (container, life.device)
            if pid in self.hidden or life.row.used_bytes is None or container not in known:
                unclear.add(unit)
            members.setdefault(unit, set()).add(pid)
            shown[unit] = shown.get(unit, 0) + (0 if pid in self.hidden else life.row.used_bytes or 0)
        counted = min(seconds, 2 * self.settings.interval_seconds)
        for unit, run in tuple(self.runs.items()):
            run.was_over, run.is_over = run.is_over, False
            was_calm, run.is_within = run.is_within, False
            if any(pid in self.hidden and pid in self.lives and self.lives[pid].device == unit[1] for pid in run.pids):
                continue
            if unit[0] not in self.grants and unit[1] in clean:
                self.leave(unit, run)
            elif unit[1] in clean and unit not in unclear and shown.get(unit, 0) <= CAP.limit_bytes:
                # Like the time over the cap, calm counts between two looks that both tell of it.
                run.is_within = True
                self.pay(unit, run, counted if was_calm else 0.0)
        for unit, used in shown.items():
            if used > CAP.limit_bytes and unit[0] in known:
                run = self.runs.setdefault(unit, Run())
                run.owed += counted if run.was_over else 0
                run.owed = min(run.owed, MAX_OWED_SECONDS) + self.inherit(unit)
                run.is_over, run.was_over, run.is_within, run.calm = True, False, False, 0.0
                run.pids = frozenset(members[unit] - self.hidden.keys())

    def pay(self, unit: tuple[ContainerId, int], run: Run, seconds: float) -> None:
        """So much more calm; whoever owes nothing any more begins anew."""
        before, run.calm = run.calm, run.calm + seconds
        run.owed -= (max(run.calm - BREATH_SECONDS, 0) - max(before - BREATH_SECONDS, 0)) * PAID_PER_SECOND
        if run.owed <= 0:
            del self.runs[unit]

    def leave(self, unit: tuple[ContainerId, int], run: Run) -> None:
        """The container is seen to be gone: what it owes is for its owner's next one."""
        heir = (self.owners[unit[0]], unit[1])
        self.left[heir] = (max(run.owed, self.owed_before(heir)), self.clock)
        del self.runs[unit]

    def owed_before(self, heir: tuple[Owner, int]) -> float:
        """What the owner's containers that have gone owe by now: time pays it like calm."""
        owed, at = self.left.get(heir, (0.0, 0.0))
        return max(owed - (self.clock - at) * PAID_PER_SECOND, 0.0)

    def inherit(self, unit: tuple[ContainerId, int]) -> float:
        """What this container owes for those before it: the first one that is over its cap pays for all."""
        heir = (self.grants[unit[0]].owner, unit[1])
        owed = self.owed_before(heir)
        self.left.pop(heir, None)
        self.inherited += owed > 0
        return owed

    def check(self, verdict: Terminate | TerminateClient | Kill, clean: set[int]) -> None:
        """The invariant: each named process is a verified one, of a container that is over its cap and was for long enough."""
        unit, device = verdict.facts.unit, int(verdict.facts.unit.device.removeprefix("GPU-"))
        assert device in clean
        assert verdict.processes
        for process in verdict.processes:
            life = self.lives[process.pid]
            assert life.process == process
            assert life.device == device
            assert process.pid not in self.hidden
            assert (process.kind, process.container) == (ProcessKind.TENANT, unit.container)
        run = self.runs[unit.container, device]
        assert run.is_over
        # All the patience for the first signal; those that follow need some of that debt not to be paid yet.
        assert run.owed >= PATIENCE_SECONDS if isinstance(verdict, Terminate) else run.owed > 0, run
        assert sum(self.truth(unit.container, device)) > CAP.limit_bytes
        self.check_order(verdict, device)

    def truth(self, container: ContainerId, device: int) -> Iterable[int]:
        """What the container's processes truly use of the device."""
        for life in self.lives.values():
            if life.device == device and life.process.container == container and life.process.kind is ProcessKind.TENANT:
                yield life.used

    def check_order(self, verdict: Terminate | TerminateClient | Kill, device: int) -> None:
        """SIGTERM first, in its time; one victim at a time; the breaker; and MPS's own way on its device."""
        name = type(verdict).__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        if isinstance(verdict, Terminate):
            waited = [at for one, at in self.killed.get(device, []) if any(one is life for life in self.lives.values())]
            assert all(self.clock - at >= self.settings.stuck_seconds for at in waited)
            room = (self.grants[verdict.facts.unit.container].owner.namespace, device)
            recent = [time for time in self.chosen.get(room, ()) if self.clock - time < 60]
            self.chosen[room] = [*recent, self.clock]
            assert len(self.chosen[room]) <= self.settings.kills_per_minute
            return
        is_mps = device == self.gpus - 1
        assert not (isinstance(verdict, TerminateClient) and not is_mps)
        if isinstance(verdict, Kill) and is_mps:
            assert self.terminated.issuperset(verdict.processes)
            assert verdict.scope is KillScope.PROCESSES
        if isinstance(verdict, TerminateClient) or verdict.scope is KillScope.PROCESSES:
            assert all(self.clock - self.asked[process] >= self.settings.exit_seconds for process in verdict.processes)

    def carry_out(self, verdict: Terminate | TerminateClient | Kill) -> None:
        """The processes do as they are told, or do not."""
        for process in verdict.processes:
            if isinstance(verdict, Terminate):
                self.asked[process] = self.clock
            life = self.lives.get(process.pid)
            if life is None or life.process != process:
                continue
            if isinstance(verdict, TerminateClient):
                if life.obeys:
                    self.terminated.add(process)
            elif isinstance(verdict, Terminate) and life.shrinks:
                life.used = 300 * MIB
                life.row = ProcessEntry(pid=process.pid, used_bytes=life.used)
            elif (isinstance(verdict, Terminate) and life.obeys and life.device != self.gpus - 1) or (
                isinstance(verdict, Kill) and life.dies
            ):
                del self.lives[process.pid]
                self.born(process.pid, life.device)
            elif isinstance(verdict, Kill):
                # It is killed again while it lives; others wait from the first time on.
                killed = self.killed.setdefault(life.device, [])
                if all(former is not life for former, _ in killed):
                    killed.append((life, self.clock))
