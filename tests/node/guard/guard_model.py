"""A crowded node as its memory curve: who uses how much of which device at every moment, whoever acts and however.

Two things are promised of it. Nobody is signalled while it is within its cap, but a whole container that was sent SIGTERM while
it was over. And every container, or namespace, that is over its cap for half of the time or more loses a container to SIGKILL,
or all that held its memory, within the bound. The model knows no debts: it has only the curve, and what the guard tells.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from gpushare_node.contract.struct import replace
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import Cap, ContainerId, Grant, GuardInput, Owner, Process, ProcessKind, Settings
from gpushare_node.guard.process_list import Device, ProcessEntry
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Kill, KillScope, Terminate

MIB = 1 << 20
TOTAL = 800 << 30
CAP = Cap(bytes=2048 * MIB, tolerance_bytes=64 * MIB, grace_seconds=4)
HIGH, LOW = 9000 * MIB, 300 * MIB
PATIENCE_SECONDS = 3 + 4
EXIT_SECONDS = 5


@dataclass(kw_only=True, eq=False)
class Member:
    """A process of the model. `is_left`: it has ended itself, and others of its container keep the memory listed for it."""

    process: Process
    device: str
    used: int = LOW
    heeds: bool = False
    is_left: bool = False


@dataclass(kw_only=True, eq=False)
class Actor:
    """Somebody with a namespace of its own: what it does is a generator that is resumed every second.

    `over_since`: since when it is over its cap for half of the time or more, without an end; `is_offender`: it means to be.
    """

    name: str
    device: str
    is_offender: bool = True
    over_since: float | None = None
    ends: int = 0
    longest: float = 0.0


@dataclass(kw_only=True)
class GuardModel:
    """`each` calm containers on each device beside one actor of each kind."""

    rng: Random
    gpus: int = 2
    each: int = 60
    noise: float = 0.04
    settings: Settings = field(default_factory=lambda: Settings(exit_seconds=EXIT_SECONDS))
    now: float = 1000.0
    pids: int = 1000
    rows: int = 0
    members: dict[int, Member] = field(default_factory=dict)
    grants: dict[ContainerId, Grant] = field(default_factory=dict)
    actors: dict[str, Actor] = field(default_factory=dict)
    asked: dict[ContainerId, float] = field(default_factory=dict)
    history: GuardState = field(default_factory=GuardState)

    def __post_init__(self) -> None:
        kinds = (
            self.hog,
            self.wave,
            self.supervisor,
            self.orphans,
            self.turns,
            self.bare_pods,
            self.sandbox,
            self.churn,
            self.side,
        )
        self.lives: list[Iterator[None]] = []
        for gpu in range(self.gpus):
            device = f"GPU-{gpu}"
            for number in range(self.each):
                calm = Actor(name=f"calm-{gpu}-{number}", device=device, is_offender=False)
                self.lives.append(self.calm(calm))
                self.actors[calm.name] = calm
            for kind in kinds:
                actor = Actor(name=f"{kind.__name__}-{gpu}", device=device)
                self.actors[actor.name] = actor
                self.lives.append(kind(actor))

    # What actors are made of.

    def container(self, actor: Actor, place: str, run: int = 0) -> ContainerId:
        """A container of this place in the actor's namespace, with a share of its device."""
        made = ContainerId(pod_uid=f"{actor.name}/{place}", container=f"run-{run}")
        owner = Owner(namespace=actor.name, uid=place)
        self.grants[made] = Grant(owner=owner, devices=frozenset({actor.device}), caps={actor.device: CAP})
        return made

    def start(self, actor: Actor, container: ContainerId, used: int = LOW, *, heeds: bool = False) -> Member:
        self.pids += 1
        process = Process(
            pid=self.pids,
            start_time=self.pids,
            cgroup=f"/kubepods/{container.pod_uid}/{container.container}",
            container=container,
            kind=ProcessKind.TENANT,
        )
        member = Member(process=process, device=actor.device, used=used, heeds=heeds)
        self.members[self.pids] = member
        return member

    def lives_on(self, member: Member) -> bool:
        return self.members.get(member.process.pid) is member

    def end(self, container: ContainerId) -> None:
        self.grants.pop(container, None)
        self.members = {pid: one for pid, one in self.members.items() if one.process.container != container}

    # Who acts.

    def calm(self, actor: Actor) -> Iterator[None]:
        """Within its cap, whatever happens around it."""
        member = self.start(actor, self.container(actor, "pod"))
        while True:
            member.used = self.rng.choice((0, 300, 900, 2000)) * MIB
            yield

    def hog(self, actor: Actor) -> Iterator[None]:
        """Over its cap, deaf, and started again by kubelet."""
        for run in range(1 << 30):
            member = self.start(actor, self.container(actor, "pod", run), HIGH)
            while self.lives_on(member):
                yield
            yield from self.wait(10)

    def wave(self, actor: Actor) -> Iterator[None]:
        """Over its cap for a little more than half of the time."""
        for run in range(1 << 30):
            member = self.start(actor, self.container(actor, "pod", run))
            while self.lives_on(member):
                for used in (HIGH,) * 7 + (LOW,) * 6:
                    member.used = used
                    yield
            yield from self.wait(10)

    def supervisor(self, actor: Actor) -> Iterator[None]:
        """Its workers heed SIGTERM and are started again after a moment; it ends only with its container."""
        for run in range(1 << 30):
            container = self.container(actor, "pod", run)
            while container in self.grants:
                worker = self.start(actor, container, HIGH, heeds=True)
                while self.lives_on(worker):
                    yield
                yield from self.wait(self.rng.randrange(1, 6))
            yield from self.wait(10)

    def orphans(self, actor: Actor) -> Iterator[None]:
        """The process that the driver names has ended; another one holds its memory."""
        for run in range(1 << 30):
            container = self.container(actor, "pod", run)
            member = self.start(actor, container, HIGH)
            yield from self.wait(4)
            member.is_left = True
            while self.lives_on(member):
                yield
            yield from self.wait(10)

    def turns(self, actor: Actor) -> Iterator[None]:
        """Three pods, one of which is always over its cap, none for as long as its grace."""
        for run in range(1 << 30):
            pods = [self.start(actor, self.container(actor, f"pod-{number}", run)) for number in range(3)]
            while any(map(self.lives_on, pods)):
                for number in range(3):
                    for _ in range(5):
                        for other, member in enumerate(pods):
                            member.used = HIGH if other == number else LOW
                        yield
            yield from self.wait(10)

    def bare_pods(self, actor: Actor) -> Iterator[None]:
        """A new pod every few seconds, over its cap for less than its grace."""
        for number in range(1 << 30):
            container = self.container(actor, f"pod-{number}")
            member = self.start(actor, container, HIGH)
            for _ in range(11):
                if self.lives_on(member):
                    yield
            self.end(container)
            yield from self.wait(3)

    def churn(self, actor: Actor) -> Iterator[None]:
        """A new pod of another name three seconds after the end of the last, over its cap from its start."""
        for number in range(1 << 30):
            member = self.start(actor, self.container(actor, f"name-{number}"), HIGH)
            while self.lives_on(member):
                yield
            yield from self.wait(3)

    def side(self, actor: Actor) -> Iterator[None]:
        """Beside a container with a share, within its cap, one on the same device to which nothing was given."""
        self.start(actor, self.container(actor, "main"))
        for run in range(1 << 30):
            side = self.container(actor, "side", run)
            nothing = Cap(bytes=0, grace_seconds=CAP.grace_seconds)
            self.grants[side] = replace(self.grants[side], caps={actor.device: nothing})
            member = self.start(actor, side, LOW)
            while self.lives_on(member):
                yield
            yield from self.wait(10)

    def sandbox(self, actor: Actor) -> Iterator[None]:
        """Its memory is in its pod's own cgroup."""
        for run in range(1 << 30):
            container = self.container(actor, f"pod-{run}")
            member = self.start(actor, container, HIGH)
            member.process = Process(
                pid=member.process.pid,
                start_time=member.process.start_time,
                cgroup=f"/kubepods/{container.pod_uid}",
                container=container,
                kind=ProcessKind.TENANT,
            )
            while self.lives_on(member):
                yield
            yield from self.wait(10)

    def wait(self, seconds: int) -> Iterator[None]:
        for _ in range(seconds):
            yield

    # What is seen of it, and what must hold.

    def cycle(self, seconds: float = 1.0) -> None:
        """A second of everybody's life, then a look; what was ordered is carried out."""
        for life in self.lives:
            next(life)
        self.now += seconds
        devices = tuple(self.device(f"GPU-{gpu}") for gpu in range(self.gpus))
        known = {
            pid: replace(one.process, is_gone=one.is_left)
            for pid, one in self.members.items()
            if one.is_left or self.rng.random() >= self.noise / 20
        }
        inputs = GuardInput(devices=devices, identities=known, grants=dict(self.grants))
        verdicts, self.history = evaluate(inputs, self.history, self.now, self.settings)
        orders = [verdict for verdict in verdicts if isinstance(verdict, Terminate | Kill)]
        for order in orders:
            self.check(order)
        for order in orders:
            self.carry_out(order)
        self.measure()

    def device(self, device: str) -> Device:
        """What NVML says of it; now and then nonsense, or not everything."""
        rows = tuple(
            ProcessEntry(pid=pid, used_bytes=None if self.rng.random() < self.noise / 20 else one.used)
            for pid, one in self.members.items()
            if one.device == device
        )
        self.rows += len(rows)
        if self.rng.random() < self.noise:
            rows = tuple(ProcessEntry(pid=(row.used_bytes or 0) & 0xFFFFFFFF, used_bytes=row.pid) for row in rows)
        return Device(uuid=device, total_bytes=TOTAL, rows=rows)

    def used(self, container: ContainerId) -> int:
        return sum(member.used for member in self.members.values() if member.process.container == container)

    def limit(self, container: ContainerId) -> int:
        """The most that it may use of any device; of one that has left no grant, a share's."""
        grant = self.grants.get(container)
        return CAP.limit_bytes if grant is None else max(cap.limit_bytes for cap in grant.caps.values())

    def check(self, order: Terminate | Kill) -> None:
        """Nobody within its cap is signalled, but a container that was asked to end as a whole, and that only."""
        container = order.facts.unit.container
        namespace = container.pod_uid.partition("/")[0]
        assert self.actors[namespace].is_offender, f"{order} to an innocent"
        assert {process.container for process in order.processes} == {container}
        was_asked = isinstance(order, Kill) and order.scope is KillScope.CONTAINER and container in self.asked
        assert was_asked or self.used(container) > self.limit(container), f"{order}: within its cap"

    def carry_out(self, order: Terminate | Kill) -> None:
        container = order.facts.unit.container
        if isinstance(order, Kill) and order.scope is KillScope.CONTAINER:
            self.end(container)
        elif isinstance(order, Terminate) and order.scope is KillScope.CONTAINER:
            self.asked[container] = self.now
        for pid, one in tuple(self.members.items()):
            is_meant = one.process in order.processes and not one.is_left
            is_whole = order.scope is KillScope.CONTAINER and one.process.container == container
            is_asked = isinstance(order, Terminate) and is_whole
            if (is_meant and (isinstance(order, Kill) or one.heeds)) or (is_asked and one.heeds):
                del self.members[pid]
        actor = self.actors[container.pod_uid.partition("/")[0]]
        if isinstance(order, Kill):
            actor.ends += 1
            actor.over_since = None

    def measure(self) -> None:
        """For how long each offender is over without having lost anything to SIGKILL."""
        over = {
            member.process.container.pod_uid.partition("/")[0]
            for member in self.members.values()
            if member.process.container is not None and member.used > self.limit(member.process.container)
        }
        for name in over:
            actor = self.actors[name]
            actor.over_since = self.now if actor.over_since is None else actor.over_since
            actor.longest = max(actor.longest, self.now - actor.over_since)

    def bound(self) -> float:
        """Twice for two offences: four times the patience at half of the time, and the time to exit; none waits for another."""
        return 2 * (4 * PATIENCE_SECONDS + EXIT_SECONDS + 2)
