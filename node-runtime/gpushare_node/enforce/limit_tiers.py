"""LimitTiers: what holds caps on this node besides the watcher: limits of the driver's own, and those of MPS.

The watcher always stands on top: a driver limit is one for each cgroup, an MPS limit one for each process. By capability, never
by guess: what a driver refuses is left to the watcher, and tried again after a while.
"""

import logging
from collections.abc import Mapping
from enum import StrEnum
from functools import partial

from gpushare_node.adapters.nvml.driver import Driver, DriverError
from gpushare_node.adapters.nvml.supervised_driver import SupervisedDriver
from gpushare_node.core.policy import Mechanism, Mode, Policy
from gpushare_node.core.structs import Struct, field
from gpushare_node.enforce.actions import MpsControl
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.enforce.work_queue import WorkQueue
from gpushare_node.guard.identity import ContainerId, ProcessKind
from gpushare_node.guard.inputs import Cap, CapAction, GuardInput
from gpushare_node.guard.process_list import Device, Mps

_MPS_SECONDS = 10
_RETRY_SECONDS = 300
_MOST_CALLS = 8
"""Limits set or lifted in one cycle: a node full of new containers must not hold up the watch."""

_LIMIT_TOLERANCE = 0.05
"""The plugin's daemon divides the driver's own total, which differs a little between drivers."""

_LOG = logging.getLogger(__name__)


class Tier(StrEnum):
    """What holds caps."""

    DRIVER = "driver"
    MPS = "mps"
    WATCHER = "watcher"


class CgroupLimit(Struct):
    """A cgroup's limit on a device: the most that the driver lets it allocate there."""

    device: str
    cgroup: str


class LimitTiers(Struct, frozen=False):
    """The lower rungs. Called once a cycle, from one thread; MPS is asked on the thread of its errands."""

    driver: SupervisedDriver
    mps: MpsControl | None
    queue: WorkQueue
    figures: EnforcementMetrics
    policy: Policy
    _mps_state: Mps = Mps.OFF
    _mps_asked_at: float | None = None
    _has_limits: bool | None = None
    _refused: dict[str, float] = field(default_factory=dict)
    _held: dict[CgroupLimit, tuple[ContainerId, int]] = field(default_factory=dict)

    @property
    def mps_state(self) -> Mps:
        """Under MPS by policy, silence is an unreachable daemon; elsewhere it is that there is none."""
        if self._mps_state is Mps.OFF and self.policy.mode is Mode.MPS:
            return Mps.UNREACHABLE
        return self._mps_state

    def tiers(self) -> frozenset[Tier]:
        """What holds caps now."""
        found = {Tier.WATCHER}
        if self._has_limits and not self._refused:
            found.add(Tier.DRIVER)
        if self._mps_state is Mps.REACHABLE and self.policy.mode is Mode.MPS:
            found.add(Tier.MPS)
        return frozenset(found)

    def ask_mps(self, devices: tuple[Device, ...], now: float) -> None:
        """Have the state of MPS and its limits looked at, every ten seconds."""
        if self.mps is None or (self._mps_asked_at is not None and now - self._mps_asked_at < _MPS_SECONDS):
            return
        if self.queue.send(partial(self._look_at_mps, self.mps, devices)):
            self._mps_asked_at = now

    def hold(self, inputs: GuardInput, now: float) -> None:
        """Set the driver's limits for containers that have come, lift those of containers that are ending."""
        if self._has_limits is None:
            self._has_limits = self._find_limits()
        if not self._has_limits:
            return
        self._refused = {device: at for device, at in self._refused.items() if now - at < _RETRY_SECONDS}
        wanted = self._wanted(inputs)
        calls = 0
        for hold in [*(self._held.keys() - wanted.keys()), *wanted]:
            if calls >= _MOST_CALLS:
                break
            calls += self._renew(hold, wanted, now)

    def suspend(self) -> None:
        """Lift every limit that is held: the policy for which they were set holds no longer."""
        for hold in tuple(self._held):
            del self._held[hold]
            self._call(hold, None)

    def _find_limits(self) -> bool | None:
        """Whether the driver has limits and the policy lets us use them; None while the driver does not answer."""
        if self.policy.mode is Mode.MIG or self.policy.enforcement.mechanism not in (Mechanism.AUTO, Mechanism.DRIVER):
            return False
        try:
            return self.driver.ask("has_memory_limits", lambda driver: driver.has_memory_limits())
        except DriverError:
            return None

    def _wanted(self, inputs: GuardInput) -> Mapping[CgroupLimit, tuple[ContainerId, int]]:
        """The limits that should stand: of every container seen on a GPU, as long as its cap is one that is acted upon."""
        wanted = {}
        for hold, (container, _) in self._held.items():
            cap, grant = _cap(inputs, container, hold.device), inputs.grants.get(container)
            if cap is not None and grant is not None and not grant.is_gone:
                wanted[hold] = (container, cap.limit_bytes)
        for device in inputs.devices:
            if device.instances is not None or device.uuid in self._refused:
                continue
            for row in device.rows or ():
                process = inputs.identities.get(row.pid)
                if process is None or process.kind is not ProcessKind.TENANT or process.container is None:
                    continue
                cap = _cap(inputs, process.container, device.uuid)
                if cap is not None:
                    wanted[CgroupLimit(device=device.uuid, cgroup=process.cgroup)] = (process.container, cap.limit_bytes)
        return wanted

    def _renew(self, hold: CgroupLimit, wanted: Mapping[CgroupLimit, tuple[ContainerId, int]], now: float) -> int:
        """Bring one limit to what is wanted; how many calls that took. A refusal leaves the device to the watcher."""
        if hold not in wanted:
            del self._held[hold]
            self._call(hold, None)
            return 1
        if hold in self._held and self._held[hold] == wanted[hold]:
            return 0
        problem = self._call(hold, wanted[hold][1])
        if problem is None:
            self._held[hold] = wanted[hold]
        else:
            self._refused[hold.device] = now
            _LOG.warning("the driver holds no limit on %s: %s; the watcher does", hold.device, problem)
        return 1

    def _call(self, hold: CgroupLimit, limit_bytes: int | None) -> str | None:
        """Set or lift a limit and read it back; what went wrong."""

        def change(driver: Driver) -> int | None:
            driver.set_memory_limit(hold.device, hold.cgroup, limit_bytes)
            return limit_bytes if limit_bytes is None else driver.memory_limit(hold.device, hold.cgroup)

        try:
            found = self.driver.ask("set_memory_limit", change)
        except DriverError as error:
            return str(error)
        return None if found == limit_bytes else f"{found} instead of {limit_bytes} bytes"

    def _look_at_mps(self, mps: MpsControl, devices: tuple[Device, ...]) -> None:
        """On the errands' thread: the state, and whether MPS holds each client to its share."""
        self._mps_state = mps.state()
        replicas = {share.replicas for share in self.policy.shares if share.profile is None}
        if self.policy.mode is not Mode.MPS or len(replicas) != 1 or self._mps_state is not Mps.REACHABLE:
            return
        count = replicas.pop()
        for device in devices:
            if device.total_bytes is not None:
                wanted_mib = (device.total_bytes >> 20) // count
                limit_mib = mps.limit_mib(device.uuid)
                is_right = limit_mib is not None and abs(limit_mib - wanted_mib) <= wanted_mib * _LIMIT_TOLERANCE
                self.figures.mps_mismatch.set(not is_right, device.uuid)


def _cap(inputs: GuardInput, container: ContainerId, device: str) -> Cap | None:
    """The cap of a container, if more than words follows from it."""
    grant = inputs.grants.get(container)
    cap = None if grant is None else grant.caps.get(device)
    return cap if cap is not None and cap.action in (CapAction.KILL, CapAction.EVICT) else None
