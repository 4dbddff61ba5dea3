"""LimitTiers: what enforces caps on this node besides the watcher: the driver's own limits, and those of MPS.

The watcher always runs in addition: the driver limits each cgroup, MPS each process. A tier is used if the driver reports the
capability, never on a guess: limits that a driver refuses are left to the watcher, and tried again after a while. A limit that
reads back as it was set is set, and no more: no call tells of a refusal, so that the driver is never reported to enforce.
"""

import logging
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Protocol

from gpushare_node.contract.policy import Mechanism, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, field
from gpushare_node.core.worker import WorkQueue
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.guard.inputs import Cap, CapAction, ContainerId, GuardInput, ProcessKind
from gpushare_node.guard.process_list import Device, Mps
from gpushare_node.reporting.outcome import Unmet
from gpushare_node.vendors.bounded_driver import BoundedDriver
from gpushare_node.vendors.driver import Driver, DriverError

_MPS_SECONDS = 10
_RETRY_SECONDS = 300
_MAX_CALLS = 8
"""Limits set or lifted in one cycle: a node full of new containers must not delay enforcement."""

_LIMIT_TOLERANCE = 0.05
"""The plugin's daemon divides the driver's own total, which differs a little between drivers."""

_SILENT = "the MPS control daemon does not answer"
_LOG = logging.getLogger(__name__)


class Tier(StrEnum):
    """What enforces caps. The driver's limits are only reported as set."""

    DRIVER = "driver-set"
    MPS = "mps"
    WATCHER = "watcher"


class CgroupLimit(Struct):
    """Identifies the limit of a cgroup on a device: the most memory that the driver lets it allocate there."""

    device: str
    cgroup: str


class MpsControl(Protocol):
    """The MPS daemons of this node, implemented in `adapters.procs.mps`. For one thread: that of its work queue."""

    def state(self) -> Mps:
        """Return whether MPS runs here, and whether it answers."""

    def limit_mib(self, device: int | str) -> int | None:
        """Return how much one client process may allocate on a device; None: no limit, or not known."""

    def faults(self) -> frozenset[str]:
        """Return which servers serve no client although their daemon answers, and why."""


class LimitTiers(Struct, frozen=False):
    """The tiers below the watcher. Called once a cycle, from one thread; MPS is queried on the thread of its work queue."""

    driver: BoundedDriver
    mps: MpsControl | None
    queue: WorkQueue
    metrics: EnforcementMetrics
    policy: Policy
    _mps_state: Mps = Mps.OFF
    _mps_queried_at: float | None = None
    mps_trouble: Unmet | None = None
    """Why containers with a share get no CUDA context, if two looks in a row have found it."""

    _seen_faults: frozenset[str] = frozenset()
    _has_limits: bool | None = None
    _refused: dict[str, float] = field(default_factory=dict)
    _held: dict[CgroupLimit, tuple[ContainerId, int]] = field(default_factory=dict)

    @property
    def mps_state(self) -> Mps:
        """The state of MPS; if no daemon was found, UNREACHABLE under a policy of mode MPS, else OFF."""
        if self._mps_state is Mps.OFF and self.policy.mode.has_daemon:
            return Mps.UNREACHABLE
        return self._mps_state

    def tiers(self) -> frozenset[Tier]:
        """Return the tiers that enforce caps now."""
        found = {Tier.WATCHER}
        if self._held and not self._refused:
            found.add(Tier.DRIVER)
        if self._mps_state is Mps.REACHABLE and self.policy.mode.has_daemon:
            found.add(Tier.MPS)
        return frozenset(found)

    def query_mps(self, devices: tuple[Device, ...], now: float) -> None:
        """Queue a query for the state of MPS and its limits, every ten seconds."""
        if self.mps is None or (self._mps_queried_at is not None and now - self._mps_queried_at < _MPS_SECONDS):
            return
        if self.queue.send(partial(self._look_at_mps, self.mps, devices)):
            self._mps_queried_at = now

    def hold(self, inputs: GuardInput, now: float) -> None:
        """Set the driver's limits for new containers, and lift those of containers whose pod is gone or whose cap has ended."""
        if self._has_limits is None:
            self._has_limits = self._find_limits()
        if not self._has_limits:
            return
        self._refused = {device: at for device, at in self._refused.items() if now - at < _RETRY_SECONDS}
        desired = self._desired(inputs)
        calls = 0
        for hold in [*(self._held.keys() - desired.keys()), *desired]:
            if calls >= _MAX_CALLS:
                break
            calls += self._renew(hold, desired, now)

    def suspend(self) -> None:
        """Lift every limit that was set: the policy that required them is no longer in force."""
        for hold in tuple(self._held):
            del self._held[hold]
            self._call(hold, None)

    def _find_limits(self) -> bool | None:
        """Whether the driver has limits and the policy permits their use; None while the driver does not answer."""
        if self.policy.mode.isolates_memory or self.policy.enforcement.mechanism not in (Mechanism.AUTO, Mechanism.DRIVER):
            return False
        try:
            return self.driver.ask("has_memory_limits", lambda driver: driver.has_memory_limits())
        except DriverError:
            return None

    def _desired(self, inputs: GuardInput) -> Mapping[CgroupLimit, tuple[ContainerId, int]]:
        """Return the limits that should be set: for every container seen on a GPU, while its cap's action is kill or evict."""
        desired = {}
        for hold, (container, _) in self._held.items():
            cap, grant = _cap(inputs, container, hold.device), inputs.grants.get(container)
            if cap is not None and grant is not None and not grant.is_gone:
                desired[hold] = (container, cap.limit_bytes)
        for device in inputs.devices:
            if device.instances is not None or device.uuid in self._refused:
                continue
            for row in device.rows or ():
                process = inputs.identities.get(row.pid)
                if process is None or process.kind is not ProcessKind.TENANT or process.container is None:
                    continue
                cap = _cap(inputs, process.container, device.uuid)
                if cap is not None:
                    desired[CgroupLimit(device=device.uuid, cgroup=process.cgroup)] = (process.container, cap.limit_bytes)
        return desired

    def _renew(self, hold: CgroupLimit, desired: Mapping[CgroupLimit, tuple[ContainerId, int]], now: float) -> int:
        """Set or lift one limit as desired; return the number of calls. If the driver refuses, only the watcher enforces."""
        if hold not in desired:
            del self._held[hold]
            self._call(hold, None)
            return 1
        if hold in self._held and self._held[hold] == desired[hold]:
            return 0
        problem = self._call(hold, desired[hold][1])
        if problem is None:
            self._held[hold] = desired[hold]
        else:
            self._refused[hold.device] = now
            _LOG.warning("the driver did not set a limit on %s: %s; the watcher enforces it", hold.device, problem)
        return 1

    def _call(self, hold: CgroupLimit, limit_bytes: int | None) -> str | None:
        """Set or lift a limit and read it back; return the error, None if there was none."""

        def change(driver: Driver) -> int | None:
            driver.set_memory_limit(hold.device, hold.cgroup, limit_bytes)
            return limit_bytes if limit_bytes is None else driver.memory_limit(hold.device, hold.cgroup)

        try:
            found = self.driver.ask("set_memory_limit", change)
        except DriverError as error:
            return str(error)
        return None if found == limit_bytes else f"{found} instead of {limit_bytes} bytes"

    def _look_at_mps(self, mps: MpsControl, devices: tuple[Device, ...]) -> None:
        """Read the state, the faults, and whether the daemon's limit matches a client's share. On the work queue's thread."""
        self._mps_state = mps.state()
        is_served = self.policy.mode.has_daemon and self._mps_state is Mps.REACHABLE
        former, self._seen_faults = self._seen_faults, mps.faults() if is_served else frozenset({_SILENT})
        self.mps_trouble = _describe(former & self._seen_faults)
        replicas = {share.replicas for share in self.policy.shares if share.profile is None}
        if not is_served or len(replicas) != 1:
            return
        count = replicas.pop()
        for device in devices:
            if device.total_bytes is not None:
                desired_mib = (device.total_bytes >> 20) // count
                limit_mib = mps.limit_mib(device.uuid)
                is_right = limit_mib is not None and abs(limit_mib - desired_mib) <= desired_mib * _LIMIT_TOLERANCE
                self.metrics.mps_mismatch.set(not is_right, device.uuid)


def _describe(faults: frozenset[str]) -> Unmet | None:
    """Return what is wrong with MPS. A change of the plugin's label cures it: the daemons restart."""
    reason = ConditionReason.MPS_UNAVAILABLE if _SILENT in faults else ConditionReason.MPS_SERVER_FAULT
    return Unmet(reason=reason, message="; ".join(sorted(faults)), is_stale=True) if faults else None


def _cap(inputs: GuardInput, container: ContainerId, device: str) -> Cap | None:
    """Return the cap of a container if its action is kill or evict, else None."""
    grant = inputs.grants.get(container)
    cap = None if grant is None else grant.caps.get(device)
    return cap if cap is not None and cap.action in (CapAction.KILL, CapAction.EVICT) else None
