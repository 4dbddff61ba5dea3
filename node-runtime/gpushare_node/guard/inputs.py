"""The guard's input in one cycle: devices, identities of processes and containers, grants and settings. Values only."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from gpushare_node.contract.struct import Struct, field
from gpushare_node.guard.process_list import Device


class ContainerId(NamedTuple):
    """One run of one container: the pod's uid and the container runtime's id, both as in the cgroup path.

    Without the latter it is the pod itself, in whose own cgroup sandboxes (gVisor, Kata) run everything.

    A tuple, like everything that is made or looked up for each process in each cycle: a dataclass takes three times as long.
    """

    pod_uid: str
    container: str


class Owner(NamedTuple):
    """Whose a container is: its pod's namespace, and its place there: the pod's uid and the container's name in it.

    It outlives the container: a debt does not end when kubelet starts the container again.
    """

    namespace: str
    uid: str

    def may_be(self, other: "Owner") -> bool:
        """Whether both are the same container: one that was not listed had the place of its pod alone."""
        (pod, slash, _), (others, other_slash, _) = self.uid.partition("/"), other.uid.partition("/")
        return self == other or (self.namespace == other.namespace and pod == others and not (slash and other_slash))


class ProcessKind(Enum):
    """How the guard classifies a process: by pod and cgroup, never by command name alone, which a tenant can choose."""

    TENANT = "tenant"
    SYSTEM = "system"
    MPS_SERVER = "mps-server"
    UNKNOWN = "unknown"


class Process(Struct):
    """An identified process: two are the same process only if all fields are equal.

    `start_time` is in clock ticks since boot and distinguishes a reused pid. exec changes none of the fields, so a target
    cannot lose its identity. `container` is None outside pods and if it could not be determined. `is_gone`: it has ended, and
    the driver still lists its memory, which its children or open files keep: it ends with the whole container.
    """

    pid: int
    start_time: int
    cgroup: str
    container: ContainerId | None = None
    kind: ProcessKind = ProcessKind.UNKNOWN
    is_gone: bool = False


class CapAction(Enum):
    """The action against a container that stays over its cap."""

    KILL = "kill"
    EVICT = "evict"
    WARN = "warn"
    NONE = "none"


class Exemption(Struct):
    """An exemption from the cap: the container started before the cap existed. `until`: Unix time; None: while it runs."""

    until: int | None


class Cap(Struct):
    """How much of one device one container may use, and the action if it uses more for longer than the grace."""

    bytes: int
    tolerance_bytes: int = 0
    action: CapAction = CapAction.KILL
    grace_seconds: float = 10
    exemption: Exemption | None = None

    @property
    def limit_bytes(self) -> int:
        """The largest usage that is not a violation."""
        return self.bytes + self.tolerance_bytes


class Grant(Struct):
    """What kubelet allocated to a container, the caps under which it was started, and its owner.

    Devices are those that kubelet allocates: a GPU's uuid, or a MIG instance's. On a device without a cap nothing is
    enforced. A container with several replicas of one device has the sum of their caps. `stray_cap` applies on devices that
    were not allocated to it; None: there it is only reported. `is_gone`: its pod is no longer known; processes that still run
    in it stay under its cap.
    """

    owner: Owner
    devices: frozenset[str]
    caps: Mapping[str, Cap] = field(default_factory=dict)
    stray_cap: Cap | None = None
    is_gone: bool = False


class GuardInput(Struct):
    """Everything that is known in one cycle. What is missing is unknown, and the guard takes no step on unknown data.

    `identities` may lack pids: they could not be read. `unseen` are those that ended before they were ever read, or that have
    passed to another container meanwhile: whose their memory is cannot be known. `grants` lacks containers that the API has not
    shown yet. `unevictable`: containers whose pods could not be evicted despite retries. `is_allocation_known`: the allocations
    were read in this very cycle; if not, it is unknown which container is a stray, and no `stray_cap` applies.
    """

    devices: tuple[Device, ...]
    identities: Mapping[int, Process] = field(default_factory=dict)
    unseen: frozenset[int] = frozenset()
    grants: Mapping[ContainerId, Grant] = field(default_factory=dict)
    unevictable: frozenset[ContainerId] = frozenset()
    is_allocation_known: bool = False


class Settings(Struct):
    """The guard's time limits.

    `interval_seconds` is the average time between two samples. A container that owes `samples` of these is warned; with the
    cap's grace on top it is sent SIGTERM, and SIGKILL `exit_seconds` later. SIGTERM lapses if the container was within its
    cap for `within_seconds`. SIGKILL is repeated every `stuck_seconds`; after two the process is stuck. While more than
    `crowd` pods that were given a device, at most four of a namespace, are over, and more than half of all containers under a
    cap there, no signal is sent there. A violation whose device or pod is gone is dropped after `stale_seconds`. A
    container that is still over its cap `overdue_seconds` after its action was due is reported. `is_ending`: the program
    ends, so it selects no new target.
    """

    interval_seconds: float = 1
    samples: int = 3
    exit_seconds: float = 5
    within_seconds: float = 60
    stuck_seconds: float = 30
    stale_seconds: float = 60
    remind_seconds: float = 300
    retry_seconds: float = 30
    overdue_seconds: float = 90
    crowd: int = 16
    blind_seconds: float = 600
    unattributed_percent: int = 10
    dry_run: bool = False
    is_ending: bool = False

    @property
    def warn_seconds(self) -> float:
        """The debt at which a container is warned."""
        return self.samples * self.interval_seconds

    @property
    def confirm_seconds(self) -> float:
        """The least time that a container itself must have been over its cap before it is ended, whatever others owe."""
        return 0.4 * self.warn_seconds

    def patience_seconds(self, cap: Cap) -> float:
        """The debt at which a container is sent the first signal."""
        return self.warn_seconds + cap.grace_seconds


DEFAULTS = Settings()
"""Three intervals of one second, five seconds to exit on SIGTERM; the rest as above."""
