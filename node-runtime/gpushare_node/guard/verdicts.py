"""The guard's verdicts: plain values with everything that an Event, a metric or a log line needs. Nothing here acts.

ContainerStatus and Anomaly are true in the cycle that returns them, and are repeated while they are true. Warn, Terminate,
Kill and Evict are returned once for each step: the code that carries one out need not remember it.
"""

from enum import Enum
from typing import NamedTuple

from gpushare_node.contract.struct import Struct
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import Cap, ContainerId, Process
from gpushare_node.guard.process_list import RejectReason


class CapState(Enum):
    """The state of a container on a device."""

    OK = "ok"
    OVER = "over"
    WARNED = "warned"
    TERM_SENT = "term-sent"
    KILL_SENT = "kill-sent"
    STUCK = "stuck"
    UNKNOWN = "unknown"


class Next(Enum):
    """The next step if nothing changes."""

    NOTHING = "nothing"
    TERMINATE = "sigterm"
    KILL = "sigkill"
    EVICT = "evict"


class KillScope(Enum):
    """The receivers of a signal. CONTAINER: every process of the container, listed again when acting, because it may fork."""

    PROCESSES = "processes"
    CONTAINER = "container"


class AnomalyKind(Enum):
    """The kind of an anomaly."""

    DISTRUSTED = "the rows of the device cannot be true"
    UNRESOLVED = "no process of the device could be identified"
    MEMORY_UNKNOWN = "the memory of a process is not known"
    ORPHAN = "a process on the device belongs to no known container"
    STRAY = "a container uses a device that was not allocated to it"
    BLIND = "the device is allocated and has never shown a process"
    UNATTRIBUTED = "memory of the device is in use that no process accounts for"
    CROWDED = "most containers of the device, of many namespaces, are over their caps at once: no process is terminated"
    CONTRADICTED = "process lists of several namespaces contradict the memory in use on their devices: no process is terminated"
    GONE = "the chosen processes have exited"
    SPARED = "the container is within its cap again"
    LOST = "the chosen processes can no longer be verified"
    OVERDUE = "the container is still over its cap, although it should have been terminated by now"
    DOUBTFUL = "memory is held of a process that exited before it was seen: whose it is cannot be known"
    STUCK = "a process that SIGKILL does not end (D state) still holds the device"


class ContainerStatus(NamedTuple):
    """One container on one device in this cycle. `used_bytes` is None if unknown; `cap` is None if there is none."""

    unit: Unit
    state: CapState
    used_bytes: int | None
    cap: Cap | None
    since_seconds: float


class ViolationDetails(Struct):
    """What every verdict on an offender has: usage, cap, for how long, the next step and when (None: no step follows).

    `has_paused`: in that time it was also within its cap. `dry_run`: the step must be reported and not taken. `ended`: as the
    containers of its namespace come again at once, how many were ended on the device in the last `ended_seconds`; else 0.
    """

    unit: Unit
    used_bytes: int
    cap: Cap
    since_seconds: float
    next: Next
    next_seconds: float | None
    dry_run: bool
    has_paused: bool = False
    ended: int = 0
    ended_seconds: float = 0.0

    @property
    def cause(self) -> str:
        """Return why the container is an offender, as metrics name it."""
        return "over-cap" if self.cap.bytes else "not-allocated"


class Warn(Struct):
    """Warn the tenant, before any step is taken."""

    facts: ViolationDetails


class Terminate(Struct):
    """Send SIGTERM to these processes, after checking each again."""

    facts: ViolationDetails
    processes: tuple[Process, ...]
    scope: KillScope


class Kill(Struct):
    """Send SIGKILL to these processes, after checking each again. `is_repeated`: they survived an earlier SIGKILL."""

    facts: ViolationDetails
    processes: tuple[Process, ...]
    scope: KillScope
    is_repeated: bool = False


class Evict(Struct):
    """Ask the API server to evict the container's pod; repeated while the pod stays, because a disruption budget may refuse."""

    facts: ViolationDetails


class Anomaly(Struct):
    """A report that is not a step against an offender. Fields that do not belong to the reason are None or empty."""

    reason: AnomalyKind
    device: str
    unit: Unit | None = None
    processes: tuple[Process, ...] = ()
    since_seconds: float | None = None
    used_bytes: int | None = None
    distrust: RejectReason | None = None
    candidates: tuple[ContainerId, ...] = ()


Verdict = ContainerStatus | Warn | Terminate | Kill | Evict | Anomaly
