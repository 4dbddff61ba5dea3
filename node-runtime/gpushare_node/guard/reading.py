"""What one cycle hands to the guard: devices, identities, grants and the guard's settings. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpushare_node.guard.identity import ContainerId, Process
from gpushare_node.guard.rows import Device


class Action(Enum):
    """What happens to a container that stays over its cap."""

    KILL = "kill"
    EVICT = "evict"
    WARN = "warn"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Exemption:
    """Why nothing follows: the container ran before there was a cap. `until`: seconds since 1970; None: while it runs."""

    until: int | None


@dataclass(frozen=True, kw_only=True)
class Cap:
    """How much of one device one container may use, and what follows when it uses more for longer than the grace."""

    bytes: int
    tolerance_bytes: int = 0
    action: Action = Action.KILL
    grace_seconds: float = 10
    exemption: Exemption | None = None

    @property
    def limit_bytes(self) -> int:
        """The most that is still no offence."""
        return self.bytes + self.tolerance_bytes


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What kubelet allocated to a container, and the caps under which it was started.

    Both speak of devices as tenants hold them: a GPU's uuid, or a MIG instance's. A device without a cap is not watched. A
    container that was given several replicas of one device has the sum of their caps. `stray_cap` holds on devices that it was
    not given; None: there it is only reported.
    """

    devices: frozenset[str]
    caps: Mapping[str, Cap] = field(default_factory=dict)
    stray_cap: Cap | None = None


@dataclass(frozen=True, kw_only=True)
class Reading:
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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How patient the guard is.

    `samples` over the cap in a row make an offence, and none may be older than `stale_seconds`. After a cap's grace SIGTERM is
    sent, after `exit_seconds` more SIGKILL, with `client_seconds` for MPS in between; what still holds the device
    `stuck_seconds` later is stuck. A container with `strikes` victims within `strike_seconds` is ended as a whole.
    `kills_per_minute` victims on the node open the breaker. `mps_fallback` (EVICT or WARN) is for MPS clients that cannot be
    ended in the way MPS asks for.
    """

    samples: int = 3
    exit_seconds: float = 5
    client_seconds: float = 5
    stuck_seconds: float = 30
    stale_seconds: float = 60
    remind_seconds: float = 300
    retry_seconds: float = 30
    strikes: int = 3
    strike_seconds: float = 300
    kills_per_minute: int = 6
    blind_seconds: float = 600
    unattributed_percent: int = 10
    mps_fallback: Action = Action.EVICT
    dry_run: bool = False


DEFAULTS = Settings()
"""Three readings, five seconds to end on SIGTERM, six victims a minute; the rest as above."""
