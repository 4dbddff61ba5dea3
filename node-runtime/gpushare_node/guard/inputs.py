"""What one cycle hands to the guard: devices, identities, grants and the guard's settings. Values only."""

from collections.abc import Mapping
from enum import Enum

from gpushare_node.core.structs import Struct, field
from gpushare_node.guard.identity import ContainerId, Owner, Process
from gpushare_node.guard.process_list import Device


class CapAction(Enum):
    """What happens to a container that stays over its cap."""

    KILL = "kill"
    EVICT = "evict"
    WARN = "warn"
    NONE = "none"


class Exemption(Struct):
    """Why nothing follows: the container ran before there was a cap. `until`: seconds since 1970; None: while it runs."""

    until: int | None


class Cap(Struct):
    """How much of one device one container may use, and what follows when it uses more for longer than the grace."""

    bytes: int
    tolerance_bytes: int = 0
    action: CapAction = CapAction.KILL
    grace_seconds: float = 10
    exemption: Exemption | None = None

    @property
    def limit_bytes(self) -> int:
        """The most that is still no offence."""
        return self.bytes + self.tolerance_bytes


class Grant(Struct):
    """What kubelet allocated to a container, the caps under which it was started, and who answers for it.

    Devices are those that tenants hold: a GPU's uuid, or a MIG instance's. A device without a cap is not watched. A container
    that was given several replicas of one device has the sum of their caps. `stray_cap` holds on devices that it was not given;
    None: there it is only reported. `is_gone`: its pod is known no more; whoever runs on in it is held to its cap all the same.
    """

    owner: Owner
    devices: frozenset[str]
    caps: Mapping[str, Cap] = field(default_factory=dict)
    stray_cap: Cap | None = None
    is_gone: bool = False


class GuardInput(Struct):
    """Everything that is known in one cycle. What is missing is unknown, and what is unknown is never touched.

    `identities` may lack pids: they ended, or could not be read. `grants` lacks containers that the API has not shown yet.
    `terminated_clients` are MPS clients whose end the MPS control program has confirmed. `unevictable`: their pods could not be
    evicted, however often that was asked for. `is_allocation_known`: who was given what was read in this very cycle; else who
    is a stray is not known, and no `stray_cap` holds.
    """

    devices: tuple[Device, ...]
    identities: Mapping[int, Process] = field(default_factory=dict)
    grants: Mapping[ContainerId, Grant] = field(default_factory=dict)
    terminated_clients: frozenset[Process] = frozenset()
    unevictable: frozenset[ContainerId] = frozenset()
    is_allocation_known: bool = False


class Settings(Struct):
    """How patient the guard is.

    `interval_seconds` lie between two looks on average. A container that owes `samples` of these is warned; with a cap's grace
    on top it is sent SIGTERM, after `exit_seconds` more SIGKILL, with `client_seconds` for MPS in between. SIGTERM lapses when
    it was calm for `calm_seconds`. SIGKILL is sent again each `stuck_seconds`; after two the process is stuck. An owner with
    `strikes` victims within `strike_seconds` has its container ended as a whole. Of one namespace `kills_per_minute` victims
    are chosen on a device. An offence that cannot be seen on its device, or whose container is gone, is forgotten after
    `stale_seconds`. `mps_fallback` (EVICT or WARN) is for MPS clients that cannot be ended in the way MPS asks for.
    """

    interval_seconds: float = 1
    samples: int = 3
    exit_seconds: float = 5
    client_seconds: float = 5
    calm_seconds: float = 60
    stuck_seconds: float = 30
    stale_seconds: float = 60
    remind_seconds: float = 300
    retry_seconds: float = 30
    strikes: int = 3
    strike_seconds: float = 300
    kills_per_minute: int = 6
    blind_seconds: float = 600
    unattributed_percent: int = 10
    mps_fallback: CapAction = CapAction.EVICT
    dry_run: bool = False

    @property
    def confirm_seconds(self) -> float:
        """How much a container owes when it is warned."""
        return self.samples * self.interval_seconds

    def patience_seconds(self, cap: Cap) -> float:
        """How much a container owes when it is sent the first signal."""
        return self.confirm_seconds + cap.grace_seconds


DEFAULTS = Settings()
"""Three intervals of a second, five seconds to end on SIGTERM, six victims a minute; the rest as above."""
