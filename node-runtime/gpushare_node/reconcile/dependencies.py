"""Dependencies: what a run needs from outside this package: hardware, cluster, folder, clock, kubelet's files."""

from collections.abc import Callable, Sequence
from typing import Protocol

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.cluster import Cluster, PodView
from gpushare_node.backends.backend import Backend
from gpushare_node.contract.policy import Policy, Vendor
from gpushare_node.contract.struct import Struct
from gpushare_node.core.clock import Clock, wall_seconds
from gpushare_node.core.tenancy import UNKNOWN
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.membership import RELEASE_AFTER_SECONDS
from gpushare_node.reporting.outcome import StepResult

DRIVER_SECONDS = 600.0
"""How long a run waits for the driver. A driver container compiles for minutes."""


class CapEnforcer(Protocol):
    """Enforces the caps of one policy: the part of `enforce.enforcer` that a run uses."""

    def cycle(self) -> None:
        """Enforce once. Never raises because of a tenant or the driver."""
        ...

    def close(self) -> None:
        """Close the driver session: its open handles would block a change of MIG modes."""
        ...


class Dependencies(Struct):
    """Everything outside.

    `open_hardware` takes the digest of the desired policy; `open_enforcer` takes the policy to enforce. A run waits
    `driver_seconds` for the driver. `has_news` returns whether the node may have changed since the last call. `followed`
    returns the node's pods from a watch, without a request, or None if the watch may be behind. `platform` returns the
    namespaces whose pods are never evicted, or None if they are unknown: then no pod is evicted. A node that its pool no
    longer selects is released after `release_after_seconds`. `wall` returns the date in seconds since 1970.
    `vendor` is whose driver `open_hardware` opens. `backend` is that of the desired policy, and `backend_of` returns that of
    another one; None: there is no other. `is_served` returns whether a program may serve this DRA driver on the host.
    """

    open_hardware: Callable[[str], Hardware]
    cluster: Cluster
    folder: StateDir
    clock: Clock
    report: Callable[[StepResult], None]
    backend: Backend
    boot_id: str
    open_enforcer: Callable[[Policy], CapEnforcer] | None = None
    driver_seconds: float = DRIVER_SECONDS
    has_news: Callable[[], bool] = lambda: True
    followed: Callable[[], Sequence[PodView] | None] = lambda: None
    platform: Callable[[], frozenset[str] | None] = lambda: UNKNOWN.platform
    release_after_seconds: float = RELEASE_AFTER_SECONDS
    wall: Callable[[], float] = wall_seconds
    vendor: Vendor = Vendor.NVIDIA
    backend_of: Callable[[Policy], Backend] | None = None
    is_served: Callable[[str], bool] = lambda _: True
