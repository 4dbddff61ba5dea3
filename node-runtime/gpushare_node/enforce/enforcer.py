"""Enforcer: one cycle of enforcement, from the driver's process lists to the steps against offenders.

Makes no call to the API server itself: pods come from a cache, Events and evictions are queued. Never changes hardware.
The reconcile loop uses it too while it waits, with the policy that is still in force. Evaluator is the guard within a cycle.
"""

import logging
import math
import os
from collections.abc import Callable, Collection, Mapping

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.kube.cluster import Cluster
from gpushare_node.adapters.procs.capabilities import UNKNOWN_RIGHTS, Capabilities
from gpushare_node.adapters.procs.processes import Processes
from gpushare_node.backends.backend import NodeBackend
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, field, replace
from gpushare_node.core.clock import Clock, wall_seconds
from gpushare_node.core.worker import WorkQueue
from gpushare_node.enforce.actions import Actions
from gpushare_node.enforce.anomaly_tracker import AnomalyTracker
from gpushare_node.enforce.exemptions import FollowedNode, WallClock
from gpushare_node.enforce.identities import Identities
from gpushare_node.enforce.inventory import Inventory, Pods, Tenants
from gpushare_node.enforce.kill_log import KillLog
from gpushare_node.enforce.limit_tiers import LimitTiers, MpsControl
from gpushare_node.enforce.metrics import CycleReading, EnforcementMetrics
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import DEFAULTS, GuardInput, ProcessKind, Settings
from gpushare_node.guard.process_list import Device, Mps
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, ContainerStatus, Verdict
from gpushare_node.vendors.bounded_driver import BoundedDriver
from gpushare_node.vendors.driver import ACCESS_LOST, Code, DriverError

_SUSPENDED_SECONDS = 300
"""How long an offender whose processes cannot be signalled is suspended: the next signal would not reach them either."""


class Evaluator:
    """The guard with its state between two cycles, and the offenders that no signal reaches. For one thread."""

    def __init__(self, settings: Settings) -> None:
        self.history = GuardState()
        self.settings = settings
        self._suspended: dict[Unit, float] = {}

    def evaluate(self, inputs: GuardInput, now: float) -> tuple[Verdict, ...]:
        """Return the guard's verdicts on this input."""
        due = [unit for unit, at in self._suspended.items() if now - at >= _SUSPENDED_SECONDS]
        for unit in due:
            del self._suspended[unit]
        self._mark_settled(due, is_settled=False)
        verdicts, self.history = evaluate(inputs, self.history, now, self.settings)
        return verdicts

    @property
    def is_counting(self) -> bool:
        """Whether a container owes: shorter intervals measure better for how long a container is over its cap."""
        return bool(self.history.violations or self.history.namespaces)

    def suspend(self, units: Collection[Unit], now: float) -> None:
        """Suspend offenders that cannot be terminated: others do not wait for their end, and for a while no step is taken."""
        if units:
            targets = {unit: target for unit, target in self.history.targets.items() if unit not in units}
            self.history = replace(self.history, targets=targets)
            self._mark_settled(units, is_settled=True)
            self._suspended.update(dict.fromkeys(units, now))

    def stop_selecting(self) -> None:
        """Continue with the present targets, and select no others: the program ends."""
        self.settings = replace(self.settings, is_ending=True)

    def _mark_settled(self, units: Collection[Unit], *, is_settled: bool) -> None:
        if units:
            self.history = replace(
                self.history,
                violations={
                    unit: violation._replace(is_settled=is_settled) if unit in units else violation
                    for unit, violation in self.history.violations.items()
                },
            )


class Adapters(Struct):
    """What an enforcer reads and acts upon. It does not share `processes` and `driver`; `mps` None if MPS is not used.

    `followed_node` None: this enforcer does not follow the Node object. `is_served` returns whether a program may serve this
    DRA driver on the host.
    """

    driver: BoundedDriver
    processes: Processes
    pods: Pods
    cluster: Cluster
    folder: StateDir
    clock: Clock
    tenants: Tenants
    backend: NodeBackend
    mps: MpsControl | None = None
    followed_node: FollowedNode | None = None
    wall: Callable[[], float] = wall_seconds
    is_served: Callable[[str], bool] = lambda _: True


class EnforcerConfig(Struct):
    """What the enforcer enforces, and where: the policy in force and its digest, this node and our capabilities."""

    policy: Policy
    policy_digest: str
    node: str
    settings: Settings = DEFAULTS
    rights: Capabilities = UNKNOWN_RIGHTS


_LOG = logging.getLogger(__name__)

_DENIED_SECONDS = 600
"""How long the node's condition reports that a security module refused a signal."""


class Enforcer(Struct, frozen=False):
    """Enforces the caps on one node. For one thread."""

    adapters: Adapters
    config: EnforcerConfig
    metrics: EnforcementMetrics
    queue: WorkQueue = field(default_factory=WorkQueue)
    mps_queue: WorkQueue = field(default_factory=WorkQueue)
    list_seconds: float = 0.0
    is_surveyed: bool = False

    def __post_init__(self) -> None:
        adapters, config = self.adapters, self.config
        self.metrics.describe(config.policy, config.policy_digest, adapters.folder.changed_at())
        dates = WallClock(clock=adapters.clock, wall=adapters.wall)
        self.inventory = Inventory(
            driver=adapters.driver,
            pods=adapters.pods,
            read_checkpoint=adapters.backend.read_checkpoint,
            folder=adapters.folder,
            policy=config.policy,
            tenants=adapters.tenants,
            dry_run=config.settings.dry_run,
            dates=dates,
        )
        self._identities = Identities(adapters.processes, own_pid=os.getpid())
        self._records = KillLog(
            node=config.node, policy_digest=config.policy_digest, processes=adapters.processes, metrics=self.metrics
        )
        self._actions = Actions(
            processes=adapters.processes,
            cluster=adapters.cluster,
            queue=self.queue,
            metrics=self.metrics,
            records=self._records,
        )
        self._anomalies = AnomalyTracker(cluster=adapters.cluster, metrics=self.metrics, records=self._records)
        self.limit_tiers = LimitTiers(
            driver=adapters.driver, mps=adapters.mps, queue=self.mps_queue, metrics=self.metrics, policy=config.policy
        )
        self._evaluator = Evaluator(config.settings)
        self._has_strays = False
        self._had_access = False
        self._spans_node = adapters.processes.sees_host()

    def cycle(self) -> None:
        """Read, evaluate, act, report. Raises no exception that an adapter may cause."""
        now = self.adapters.clock.now()
        self.is_surveyed = self.inventory.renew(now, has_strays=self._has_strays)
        if self.is_surveyed and self.inventory.versions is not None:
            self.metrics.show(self.inventory.versions, self.inventory.surveys or ())
        devices = self._read()
        self.limit_tiers.query_mps(devices, now)
        former = {device.uuid: device for device in self.metrics.snapshot.devices}
        last = tuple(former.get(device.uuid, device) if device.is_pending else device for device in devices)
        pids = {row.pid for device in last for row in device.rows or ()}
        suspects = self._suspects()
        identities = self._identities.recognise(pids, self.inventory.pod_index, suspects, now)
        self.inventory.note_present(identities.values(), now)
        self.inventory.note_ended(self._identities.find_ended(), now)
        self._spans_node = self._spans_node or any(
            process.kind in (ProcessKind.TENANT, ProcessKind.SYSTEM) and process.container is not None
            for process in identities.values()
        )
        inputs = GuardInput(
            devices=devices,
            identities=identities,
            # Pids of another namespace all look as if their processes had ended.
            unseen=self._identities.unseen(now) if self._spans_node else frozenset(),
            grants=self.inventory.grants,
            unevictable=self._actions.unevictable(),
            is_allocation_known=self.inventory.is_allocation_known,
        )
        verdicts = self._evaluator.evaluate(inputs, now)
        self._records.history = self._evaluator.history
        pod_index = self.inventory.pod_index
        steps = [verdict for verdict in verdicts if type(verdict) is not ContainerStatus]
        self._has_strays = any(isinstance(step, Anomaly) and step.reason is AnomalyKind.STRAY for step in steps)
        out_of_reach = self._actions.carry_out(steps, inputs, pod_index, now)
        self._evaluator.suspend(out_of_reach, now)
        self._records.history = self._evaluator.history
        self._anomalies.update(steps, pod_index, now)
        self._anomalies.notify(self.inventory.noticed, pod_index)
        self._records.prune(now)
        if not self.config.settings.dry_run:
            self.limit_tiers.hold(inputs, now)
        statuses = [verdict for verdict in verdicts if type(verdict) is ContainerStatus]
        pending = {place for device in devices if device.is_pending for place in device.places()}
        if pending:
            statuses += [status for status in self.metrics.snapshot.observe() if status.unit.device in pending]
        self.metrics.snapshot = CycleReading(observe=lambda: statuses, devices=last, pod_index=pod_index)

    @property
    def is_counting(self) -> bool:
        """Whether a container has an open violation, so that cycles should be more frequent."""
        return self._evaluator.is_counting

    def signalled_at(self, gpu: str) -> float:
        """Return when a process on this GPU, or on one of its instances, was last sent a signal; minus infinity if never."""
        places = {place for device in self.metrics.snapshot.devices if device.uuid == gpu for place in device.places()}
        return max((self._records.signalled.get(place, -math.inf) for place in places | {gpu}), default=-math.inf)

    def close(self, *, is_leaving: bool = False) -> None:
        """End the session with the driver: our open handles would block mode changes and upgrades.

        The driver's own limits stay in force while the program does not run, unless the node leaves the pool.
        """
        if is_leaving:
            self.limit_tiers.suspend()
        self.adapters.driver.close()

    def stop_selecting(self) -> None:
        """Continue with the present targets, and select no others: the program ends."""
        self._evaluator.stop_selecting()

    @property
    def has_targets(self) -> bool:
        """Whether a target is being terminated; stuck ones do not count."""
        return any(target.step.value != "stuck" for target in self._evaluator.history.targets.values())

    def reason(self) -> tuple[ConditionReason, str] | None:
        """Return why caps are not fully enforced, and where; None if they are."""
        hung = self.adapters.driver.hung_seconds()
        if hung:
            names = ", ".join(sorted(hung))
            return ConditionReason.DRIVER_HUNG, f"The driver has not answered calls for {names} for {max(hung.values()):.0f} s."
        troubles = self.adapters.driver.troubles()
        if self.inventory.surveys is None or troubles:
            return _describe(troubles, self._had_access, len(self.inventory.gpus))
        unreliable = sorted(self.adapters.driver.unreliable())
        if unreliable:
            return (
                ConditionReason.PROCESS_LIST_UNRELIABLE,
                f"The driver may scramble the process lists of {', '.join(unreliable)}.",
            )
        if not self._spans_node:
            return ConditionReason.ENFORCEMENT_BLIND, "The host's processes are not visible to the runtime."
        if self.config.rights.may_kill is False and not self.config.settings.dry_run:
            return ConditionReason.CAPABILITY_MISSING, "The runtime's process does not have the capability KILL."
        denied_at = self._actions.denied_at
        if denied_at is not None and self.adapters.clock.now() - denied_at < _DENIED_SECONDS:
            profile = self.config.rights.profile or "none"
            return ConditionReason.SIGNALS_DENIED, f"Signals were blocked; the runtime's security profile is {profile}."
        now = self.adapters.clock.now()
        blindness = self.inventory.blindness(now)
        if blindness:
            return ConditionReason.ENFORCEMENT_BLIND, blindness
        problem = self.adapters.tenants.problem
        return self._anomalies.reason(now) or ((ConditionReason.TENANCY_UNKNOWN, f"{problem}.") if problem else None)

    def _read(self) -> tuple[Device, ...]:
        """Read the devices. Lists that the driver may scramble count as not read; MPS applies to the whole node."""
        began = self.adapters.clock.now()
        found = self.adapters.driver.read_devices(self.inventory.gpus)
        self.list_seconds = self.adapters.clock.now() - began
        self._had_access |= any(device.rows is not None for device in found.values())
        unreliable, mps = self.adapters.driver.unreliable(), self.limit_tiers.mps_state
        devices = (
            replace(device, rows=None) if uuid in unreliable and device.rows is not None else device
            for uuid, device in found.items()
        )
        return tuple(devices if mps is Mps.OFF else (replace(device, mps=mps) for device in devices))

    def _suspects(self) -> Collection[int]:
        """Return the pids that may be signalled next: their identities are read again in every cycle.

        All processes of an offender's pod are included: it has a violation already, which the container's next run takes over,
        and a pid that another process has reused must not put it over its cap again.
        """
        history = self._evaluator.history
        if not history.violations and not history.targets:
            return ()
        offenders = {unit.container.pod_uid for unit in (*history.violations, *history.targets)}
        chosen = {process.pid for target in history.targets.values() for process in target.processes}
        return chosen.union(self._identities.of_pods(offenders))


def _describe(troubles: Mapping[str, DriverError], had_access: bool, gpus: int) -> tuple[ConditionReason, str]:
    """Return the reason for GPUs that could not be read. `had_access`: one of the `gpus` was read in this container before."""
    if not troubles:
        return ConditionReason.WAITING_FOR_DRIVER, "The driver has not answered yet."
    codes = {problem.code for problem in troubles.values()}
    text = "; ".join(f"{uuid}: {problem}" for uuid, problem in sorted(troubles.items()))
    if Code.LIB_RM_VERSION_MISMATCH in codes:
        return ConditionReason.DRIVER_MISMATCH, text
    if had_access and codes <= ACCESS_LOST and len(troubles) == gpus:
        return ConditionReason.ACCESS_LOST, text
    if Code.NO_PERMISSION in codes:
        return ConditionReason.NO_PERMISSION, text
    if codes & {Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIBRARY_NOT_FOUND}:
        return ConditionReason.WAITING_FOR_DRIVER, text
    return (ConditionReason.GPU_LOST if Code.GPU_IS_LOST in codes else ConditionReason.GPU_UNREADABLE), text
