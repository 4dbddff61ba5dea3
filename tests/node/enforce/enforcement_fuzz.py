"""The whole watch on a hostile node, and an oracle that knows the truth.

Nothing that the watch sends arrives: it is held against what the node is like at that very moment. Things happen there between
judgement and signal, too.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.host.tenancy import TenancyFile
from gpushare_node.adapters.kube.cluster import Eviction, PodView
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import GpuUse, ProcessIdentity
from gpushare_node.backends.device_plugin import DevicePlugin
from gpushare_node.enforce.enforcer import Adapters, Enforcer, EnforcerConfig
from gpushare_node.enforce.inventory import STALE_SECONDS
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.guard.inputs import Settings
from gpushare_node.guard.process_list import Device, Mps
from gpushare_node.reporting.metrics import Registry
from gpushare_node.vendors.driver import GpuInfo, Versions
from tests.node.enforce.enforcement import (
    CAP_MIB,
    NAMESPACE,
    NODE,
    NOON,
    InlineQueue,
    ManualClock,
    RecordedCluster,
    container_id,
    pod_uid,
    tenancy_text,
)
from tests.node.enforce.enforcement import policy as policy_of
from tests.node.enforce.hostile_node import GPUS, MIB, RESTARTING, TENANTS, UNKNOWN, HostileNode
from tests.support.process_fixtures import MemoryFiles, MemoryProc, systemd_path

_ENDED_SECONDS = 60
"""Within this time of its SIGTERM a whole container is killed, and emptied of what was started in it since."""

JUDGED = (*TENANTS, *UNKNOWN, RESTARTING)
"""Who has been given a share: the API server never shows the pods of some."""

SETTINGS = Settings(exit_seconds=2, stuck_seconds=5)


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

    def evict(self, pod: PodView, *, is_forced: bool = False, is_moved: bool = False) -> Eviction:
        """`asked` has a letter for each request: b while the pod's budget counts, f where it does not."""
        self.asked[pod.uids[0]] = self.asked.get(pod.uids[0], "") + ("f" if is_forced else "b")
        return Eviction.EVICTED

    def is_in_vain(self, uid: str) -> bool:
        """Whether it was asked for six times, of which three or more heeded the pod's budget before others did not.

        A pod on two GPUs is asked for twice at once, so that its budget may be asked a fourth time.
        """
        return re.search("b{4,}f{2,}$|b{3}f{3,}$", self.asked.get(uid, "")) is not None


@dataclass(kw_only=True)
class EnforcementFuzz(HostileNode):
    """The watch on a hostile node, and what it sends there."""

    mode: str = "time-slicing"
    admission: str = "none"
    sent: dict[str, int] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    raw: int = 0
    defied: list[float] = field(default_factory=list)
    waited: float = 0.0
    unproven: int = 0
    trace: list[str] = field(default_factory=list)
    longest_trace: list[str] = field(default_factory=list)

    """`ended`: when a whole container, by its cgroup, was last being ended while it was over its cap.

    `waited`: for how many cycles that prove it the defiant one has been over its cap while its GPU was free and nothing paused
    the node: their list and the one before are true. `unproven` counts the others in which it was over.
    `defied`: that, whenever it ended. `trace` has a line for each cycle since it began, `longest_trace` those of the longest
    wait that has ended.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.folder / "state").mkdir()
        self.clock, self.told = ManualClock(), EvictingCluster()
        self.began = self.clock.time
        self.last_shown = {one.uids[0]: one for one in self.list.known}
        self.processes = LinuxProcesses(self.fake_proc.root)
        if isinstance(self.fake_proc, MemoryProc):
            self.processes._files = MemoryFiles(self.fake_proc)
        self._uses_gpu = self.processes.uses_gpu
        self.processes.uses_gpu = self._meddle  # type: ignore[method-assign]
        self._list_members = self.processes.members
        self.processes.members = self._note_whole  # type: ignore[method-assign]
        tenancy = self.folder / "tenancy.json"
        tenancy.write_text(tenancy_text(admission=self.admission))
        adapters = Adapters(
            driver=Driver(self.read_devices),  # type: ignore[arg-type]
            processes=self.processes,
            pods=self.list,
            cluster=self.told,
            folder=StateDir(self.folder / "state"),
            clock=self.clock,
            backend=DevicePlugin(read_checkpoint=self.checkpoint),
            mps=self if self.mode == "mps" else None,
            tenants=TenancyFile(tenancy, NAMESPACE),
            wall=lambda: NOON + self.clock.now(),
        )
        policy = policy_of(
            enforcement={"graceSeconds": 0, "mechanism": "watcher"},
            mode=self.mode,
            profile=f"{self.mode}-01234567",
            gpusPerNode=8,
            gpus=[{"indexes": list(range(8)), "mig": False, "instances": []}],
        )
        config = EnforcerConfig(policy=policy, policy_digest="d", node=NODE, settings=SETTINGS)
        self.metrics = EnforcementMetrics(Registry())
        self.enforcer = Enforcer(
            adapters=adapters, config=config, metrics=self.metrics, queue=InlineQueue(), mps_queue=InlineQueue()
        )

    def defy(self) -> None:
        """The defiant one's wait begins anew with it."""
        super().defy()
        self.waited, self.trace = 0.0, []

    def _meddle(self, pid: int) -> GpuUse:
        """Between judgement and signal, things happen too."""
        if self.rng.random() < 0.2 and pid != self.pids[0]:
            self.born(pid) if self.rng.random() < 0.5 else self.move(pid)
        return self._uses_gpu(pid)

    def _note_whole(self, seen: ProcessIdentity) -> tuple[ProcessIdentity, ...]:
        """Only who ends a whole container asks for all that lives in it."""
        home = next((one for one in JUDGED if seen.cgroup == self.cgroup(one)), None)
        if home is not None and self.is_over(home) and self.is_known(home):
            self.ended[seen.cgroup] = self.clock.time
        is_known = home is not None and self.is_known(home)
        assert self.is_being_ended(seen.cgroup), f"all of {home} is ended: {'not over' if is_known else 'unknown'}"
        return self._list_members(seen)

    # MPS.

    def state(self) -> Mps:
        return Mps.REACHABLE

    def limit_mib(self, _device: int | str) -> int | None:
        return CAP_MIB

    def faults(self) -> frozenset[str]:
        return frozenset()

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
        """The process is of a container whose pod is known, and over its cap on one of its own GPUs.

        A whole container that was sent SIGTERM while this held is ended whatever has happened since, but no other's process is.
        """
        being = self.beings[pid]
        assert being.home in JUDGED, f"{name} to {being}"
        is_over, is_last = self.is_over(being.home), name != "SIGTERM" and self.is_being_ended(self.cgroup(being.home))
        assert is_over or is_last, f"{name} to {being}: not over"
        assert self.is_known(being.home) or is_last, f"{name} to an unknown container's"
        if self.mode == "mps" and name == "SIGKILL":
            assert self.told.is_in_vain(pod_uid(being.home)), f"raw under MPS, {self.told.asked}"
            self.raw += 1
        self.sent[name] = self.sent.get(name, 0) + 1

    def is_over(self, home: int) -> bool:
        """Whether the container is over a cap, by lists that do not contradict themselves."""
        caps = {gpu: CAP_MIB if gpu in self.given[home] else 0 for gpu in self.fenced(home) - self.lying}
        return any(self.used_mib(home, gpu) > cap for gpu, cap in caps.items())

    def is_known(self, home: int) -> bool:
        """Whether the API server has shown its pod; it may list the container later, or the next run of it before.

        A pod that it never shows is known by kubelet's files alone, after a minute.
        """
        return pod_uid(home) in self.last_shown or (home in UNKNOWN and self.clock.time - self.began >= STALE_SECONDS)

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
        """What the container uses there, if the list is taken at its word."""
        uses: dict[int, int] = {}
        for row in self.shown[gpu]:
            if self.homes.get(row.pid) == home:
                uses[row.pid] = max(uses.get(row.pid, 0), row.used_bytes or 0)
        return sum(uses.values()) / MIB

    def cycle(self) -> None:
        """Life goes on, and the watch looks."""
        for _ in range(self.rng.randrange(8)):
            self.tend()
        is_over = self.clock.time % 8 < 6
        self.beings[self.pids[0]].uses = {min(self.given[RESTARTING]): 9000 if is_over else 300}
        self.homes = {pid: being.home for pid, being in self.beings.items()}
        self.clock.time += 1
        self.last_shown.update((one.uids[0], one) for one in self.list.known)
        self.enforcer.cycle()
        gpu = min(self.given[RESTARTING])
        states = {
            status.unit.container.container: status.state
            for status in self.metrics.snapshot.observe()
            if status.unit.device == gpu
        }
        mine = states.pop(container_id(RESTARTING), None)
        # A list of another GPU that contradicts itself pauses the whole node.
        pauses = self.metrics.breaker.lines()
        is_paused = any(not line.startswith("#") and not line.endswith(" 0") for line in pauses)
        if gpu in self.plausible:
            # This list said that the tenant uses what another does: its debt may have been paid back, rightly.
            self.waited = 0.0
        is_true = gpu not in self.veiled | self.veiled_before
        self.waited += is_over and is_true and not is_paused
        self.unproven += is_over and not is_true
        listed = [row.used_bytes for row in self.shown[gpu] if row.pid == self.pids[0]]
        self.trace.append(
            f"{self.clock.time:.0f} s: over {is_over}, listed {listed}, lying {gpu in self.lying}, {mine}, paused {is_paused};"
            f" waited {self.waited:.0f}; others {sorted(str(state) for state in states.values())}"
        )
