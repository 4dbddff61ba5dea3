"""RunContext: the state of one run with its slot and evictions, and what every step uses: reporting, holders, taints, waiting.

While a run waits, it enforces the caps of the policy in force: no other process does so before the run has ended.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from gpushare_node.adapters.host.state_dir import Journal, StateDir
from gpushare_node.adapters.kube.cluster import (
    Cluster,
    ClusterError,
    Event,
    EventType,
    Eviction,
    NodeView,
    PodView,
    Taint,
    platform_pods,
)
from gpushare_node.backends.backend import NO_CHECKPOINT, CheckpointError, NodeBackend, Socket
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.policy import Policy, PolicyError, Vendor, read
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, field, replace
from gpushare_node.contract.tenancy import UNKNOWN
from gpushare_node.contract.vendors import NoExecuteTaint
from gpushare_node.core.clock import Clock, wall_seconds
from gpushare_node.gpus.faults import GpuFaults
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.membership import RELEASE_AFTER_SECONDS, PoolSelection, Standing, is_requested
from gpushare_node.reconcile.usage import Blocker, DeviceHolder, find_holders
from gpushare_node.reporting.outcome import Blocked, Outcome, Status, StepResult, Unmet
from gpushare_node.vendors import LAYOUT_TAINTS
from gpushare_node.vendors.driver import DriverError

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
    namespaces of the platform, or None if they are unknown: their pods are never evicted, nor any pod while they are unknown,
    and only there is a pod known as a vendor's program. A node that its pool no longer selects is released after
    `release_after_seconds`. `wall` returns the date in seconds since 1970.
    `vendor` is whose driver `open_hardware` opens. `backend` is that of the desired policy, and `backend_of` returns that of
    another one; None: there is no other. `is_served` returns whether a program may serve this DRA driver on the host.
    """

    open_hardware: Callable[[str], Hardware]
    cluster: Cluster
    folder: StateDir
    clock: Clock
    report: Callable[[StepResult], None]
    backend: NodeBackend
    boot_id: str
    open_enforcer: Callable[[Policy], CapEnforcer] | None = None
    driver_seconds: float = DRIVER_SECONDS
    has_news: Callable[[], bool] = lambda: True
    followed: Callable[[], Sequence[PodView] | None] = lambda: None
    platform: Callable[[], frozenset[str] | None] = lambda: UNKNOWN.platform
    release_after_seconds: float = RELEASE_AFTER_SECONDS
    wall: Callable[[], float] = wall_seconds
    vendor: Vendor = Vendor.NVIDIA
    backend_of: Callable[[Policy], NodeBackend] | None = None
    is_served: Callable[[str], bool] = lambda _: True


class DrainEvictions(Struct, frozen=False):
    """Which pods a drain of this run evicts: only those that were there at first.

    If a pod tolerates our taint, as a DaemonSet's may, its controller recreates it on the node: to evict that one as well
    changes nothing.
    """

    _first: frozenset[str] | None = None
    _moved: set[str] = field(default_factory=set)
    """Controllers of which a pod was evicted."""
    _reported: set[str] = field(default_factory=set)

    def request(self, cluster: Cluster, holders: Iterable[DeviceHolder], platform: frozenset[str] | None) -> list[StepResult]:
        """Request the eviction of each pod that can be moved, and return what to report.

        A disruption budget may refuse: the next look requests it again.
        """
        found = tuple(holders)
        if self._first is None:
            self._first = frozenset(holder.pod_uid for holder in found)
        return [result for holder in found if self.can_move(holder, platform) for result in self._evict(cluster, holder)]

    def can_move(self, holder: DeviceHolder, platform: frozenset[str] | None) -> bool:
        """Return whether an eviction frees the GPUs. Pods of `platform` stay; if that is unknown, all pods stay."""
        if holder.pod is None or holder.pod.has_ended or platform is None or holder.pod.namespace in platform:
            return False
        return not self._is_successor(holder)

    def describe_successors(self, holders: Iterable[DeviceHolder]) -> str:
        """Return which controllers recreate their pods, as the end of a sentence; empty if none does."""
        owners = sorted({holder.pod.controller for holder in holders if holder.pod is not None and self._is_successor(holder)})
        return f"; not evicted again, because {', '.join(owners)} recreates it" if owners else ""

    def _is_successor(self, holder: DeviceHolder) -> bool:
        return self._first is not None and holder.pod_uid not in self._first and _controller(holder) in self._moved

    def _evict(self, cluster: Cluster, holder: DeviceHolder) -> list[StepResult]:
        if holder.pod is None or holder.pod.is_terminating:
            return []
        try:
            answer = cluster.evict(holder.pod, is_moved=True)
        except ClusterError as error:
            return [StepResult(step="evict", target=holder.name, status=Status.FAILED, detail=str(error))]
        if answer not in (Eviction.EVICTED, Eviction.FORBIDDEN) or holder.pod_uid in self._reported:
            return []
        self._reported.add(holder.pod_uid)
        if answer is Eviction.FORBIDDEN:
            return [StepResult(step="evict", target=holder.name, status=Status.FAILED, detail="the runtime may not evict it")]
        if holder.pod.controller:
            self._moved.add(_controller(holder))
        return [
            StepResult(step="evict", target=holder.name, status=Status.CHANGED, detail="it holds a GPU that must be changed")
        ]


def _controller(holder: DeviceHolder) -> str:
    return "" if holder.pod is None else f"{holder.pod.namespace}/{holder.pod.controller}"


_RENEWAL_SECONDS = 60.0
"""Far below the Lease's duration: one renewal that fails does no harm."""


class RolloutSlot:
    """The node's slot in the rollout of its pool, renewed while the run needs it.

    A node that fails keeps it, so that a bad change stops; it expires after the program has ended.

    `patience`: for how many seconds a node that waits for a slot need not ask again. `holder`: a node that has one meanwhile.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.patience = 0.0
        self.holder = ""
        self._cluster = cluster
        self._clock = clock
        self._is_held = False
        self._renewed_at = 0.0
        self._limit: int | str = 1

    @property
    def is_held(self) -> bool:
        """Whether this run has the slot, as far as it knows."""
        return self._is_held

    def take(self, limit: int | str) -> bool:
        """Take a slot, or find that this node has one; False: the node must wait. ClusterError."""
        self._limit = limit
        position = self._cluster.take_slot(limit)
        self.patience, self.holder, self._is_held = position.pause_seconds, position.holder, position.is_held
        self._renewed_at = self._clock.now()
        return self._is_held

    def take_again(self) -> bool:
        """Try again to take the slot that was not free. If the API server does not answer, it is not free."""
        with suppress(ClusterError):
            return self.take(self._limit)
        return False

    def find(self) -> bool:
        """Return whether an earlier run has left a slot, to be renewed and given back. Takes none. ClusterError."""
        self._is_held = self._cluster.find_slot()
        return self._is_held

    def renew(self) -> None:
        """Renew the slot once a minute. If it is lost, the next `take` shows that; a change that has begun continues."""
        if not self._is_held or self._clock.now() - self._renewed_at < _RENEWAL_SECONDS:
            return
        self._renewed_at = self._clock.now()
        with suppress(ClusterError):
            self._cluster.renew_slot()

    def give_back(self) -> None:
        """Let another node be changed. A slot that an earlier run kept, because it failed, is also given back.

        ClusterError: the slot stays until it expires.
        """
        had, self._is_held = self._is_held, False
        if had or self._cluster.find_slot():
            self._cluster.release_slot()


_TICK_SECONDS = 1.0

_POLL_SECONDS = 5.0
"""Between two checks: a node that waits half an hour must cost the API server and the driver next to nothing."""

_EARLY_SECONDS = 10.0
"""How long a wait checks every second: a device plugin is ready within a few."""

SILENT_SECONDS = 20.0
"""A wait sets the condition no sooner and no more often than this. Kubelet writes the node's status every ten seconds."""


class Relabelling(Struct):
    """The last change of the device plugin's label: the sockets before it, and its time by `RunContext.slept`."""

    sockets: frozenset[Socket]
    at: float


class RunContext(Struct, frozen=False):
    """The state of one run on its node.

    `slept` is the sum of the seconds that the run asked to sleep. On a slow machine more time has passed, and what the run
    waits for is equally slow. `enforced` is the policy in force, `digest` the name of the desired one. `may_wait_for_tenants`
    is False after the run has waited for tenants without success. From `drains_at` on, by our clock, the node takes a slot and
    waits for its tenants; None if no tenant has blocked it. `is_offline`: the API server does not answer.
    `had_access`: the driver has answered in this run.

    `opens_at`: the next window's opening in seconds since 1970, if the run waits for it.

    `is_closed`: as far as is known, neither back end may offer the node's GPUs now.

    Of one attempt: `may_untaint_on_abort`, the node offers its former layout; `is_touched`, the attempt has begun to change
    things; `blocker`, what blocked it at the last look.
    """

    deps: Dependencies
    slot: RolloutSlot
    enforced: Policy | None = None
    digest: str = ""
    may_wait_for_tenants: bool = True
    drains_at: float | None = None
    opens_at: float | None = None
    is_offline: bool = False
    had_access: bool = False
    is_closed: bool = False
    may_untaint_on_abort: bool = False
    is_touched: bool = False
    blocker: Blocker | None = None
    evictions: DrainEvictions = field(default_factory=DrainEvictions)
    relabelling: Relabelling | None = None
    results: list[StepResult] = field(default_factory=list)
    slept: float = 0.0
    _enforcer: CapEnforcer | None = None

    @property
    def cluster(self) -> Cluster:
        """The API server; `has_server` is False without one."""
        return self.deps.cluster

    def backend_of(self, policy: Policy) -> NodeBackend:
        """Return how the GPUs of this policy's node are offered."""
        return self.deps.backend if self.deps.backend_of is None else self.deps.backend_of(policy)

    @property
    def faults(self) -> GpuFaults:
        """The faults of the node's GPUs that are not the runtime's to undo."""
        return GpuFaults(folder=self.deps.folder, boot_id=self.deps.boot_id)

    def offers(self, node: NodeView) -> bool:
        """Return whether the node offers GPUs to pods, by whichever back end."""
        return node.has_claims or bool(self.deps.backend.advertised(node.allocatable))

    @property
    def yields_to_other_nodes(self) -> bool:
        """Whether tenants block the node, and other nodes of the pool are changed first."""
        return self.drains_at is not None and self.deps.clock.now() < self.drains_at

    # Reporting.

    def record_step(self, step: str, status: Status, detail: str = "") -> None:
        """Add a step of the node to the recap."""
        self.record_result(StepResult(step=step, target="node", status=status, detail=detail))

    def record_result(self, result: StepResult) -> None:
        """Add a result that another part has made."""
        self.slot.renew()
        self.results.append(result)
        self.deps.report(result)

    def set_condition(self, reason: ConditionReason, message: str) -> None:
        """Set the node's condition. If that fails, the next reason or the end of the run sets it."""
        try:
            self.cluster.set_condition(reason, message)
        except ClusterError as error:
            self.record_step("condition", Status.SKIPPED, str(error))

    def report_outcome(self, outcome: Outcome, *, is_news: bool) -> None:
        """Report the end of an attempt: set the condition and, if something is new, send an event.

        The condition belongs to the pool that has the node, so a node that waits for its pool sends only an event, and a
        released node has no condition. A node that waits for its slot or a window sends no event: hundreds may wait.
        """
        if outcome.reason not in (ConditionReason.WAITING_FOR_POOL, ConditionReason.RELEASED):
            self.set_condition(outcome.reason, outcome.message)
        if is_news and outcome.reason is not ConditionReason.WAITING_FOR_TURN and not outcome.reason.value.is_held:
            kind = EventType.NORMAL if outcome.reason.value.is_ready else EventType.WARNING
            self.cluster.record_event(Event(type=kind, reason=outcome.reason.word, message=outcome.message))

    # What is known of the node.

    def holders(self) -> tuple[DeviceHolder, ...]:
        """Return the pods that hold devices. If the API server does not answer, every allocation of kubelet counts.

        Blocked if kubelet's checkpoint cannot be read, or if neither it nor the API server can tell which pods hold GPUs.
        """
        try:
            checkpoint = self.deps.backend.read_checkpoint()
        except CheckpointError as error:
            text = f"which pods hold GPUs cannot be read: {error}"
            raise Blocked(ConditionReason.GPU_BUSY, text, is_unchanged=True) from error
        try:
            pods = self.cluster.pods() if self.cluster.has_server else None
        except ClusterError:
            pods = None
        is_alone = not self.cluster.has_server and not self.is_offline
        if pods is None and not checkpoint.is_there and (checkpoint.has_kubelet or not is_alone):
            who = "no API server is used" if is_alone else "the API server does not answer"
            text = f"it is unknown which pods hold GPUs: {NO_CHECKPOINT}, and {who}"
            raise Blocked(ConditionReason.GPU_BUSY, text, is_unchanged=True)
        return find_holders(checkpoint, pods)

    def platform_pods(self, pods: Iterable[PodView] | None = None) -> tuple[PodView, ...]:
        """Return those of the platform's DaemonSets, of these pods or of all on the node. ClusterError."""
        return platform_pods(self.cluster.pods() if pods is None else pods, self.deps.platform())

    def standing(self, node: NodeView, pool: str) -> Standing:
        """Return whether the node stays in this pool, by the node as it was just read. ClusterError, StateDirError."""
        if is_requested(node):
            return Standing.LEAVES
        deps, former = self.deps, self.former()
        # Where nothing of the pool is in force, or has begun, there is nothing to wait for.
        has_begun = (former is not None and former.pool == pool) or deps.folder.journal() is not None
        return PoolSelection(
            cluster=self.cluster,
            pods=self.cluster.pods,
            folder=deps.folder,
            clock=deps.clock,
            boot_id=deps.boot_id,
            pool=pool,
            release_after_seconds=deps.release_after_seconds if has_begun else 0.0,
        ).find(node)

    def are_blockers_gone(self) -> bool:
        """Return whether the pods that blocked the last attempt have gone, as far as is known without a request."""
        pods = None if self.blocker is None else self.deps.followed()
        if self.blocker is None or pods is None:
            return False
        with suppress(CheckpointError):
            return self.blocker.is_left_by(find_holders(self.deps.backend.read_checkpoint(), pods))
        return False

    def former(self) -> Policy | None:
        """Return the policy that was last in force; None if there was none, or if it cannot be read."""
        text = self.deps.folder.policy()
        try:
            return None if text is None else read(text)
        except PolicyError:
            return None

    def journal(self, digest: str) -> Journal:
        """Return the journal, or a new one for the policy of this digest."""
        return self.deps.folder.journal() or Journal(policy_digest=digest, boot_id=self.deps.boot_id)

    def is_half_done(self) -> bool:
        """Return whether a change of the hardware, or of the back end, has begun and has not finished."""
        journal = self.deps.folder.journal()
        return self.is_closed or (journal is not None and journal.is_changing)

    def has_failed(self) -> bool:
        """Return whether an attempt at this policy has failed here. Such a node keeps its slot, so that the rollout stops."""
        journal = self.deps.folder.journal()
        return journal is not None and journal.attempts > 0 and journal.policy_digest == self.digest

    # Taints.

    def add_taint(self, node: NodeView, key: str, labels: Mapping[str, str]) -> None:
        """Keep new pods away from the node, by the taint of this key.

        A node without a pool label also gets these: if the pool is deleted, its nodes are found by them.
        """
        if not self.cluster.has_server:
            return
        claim = {} if POOL_LABEL in node.labels else labels
        if claim or not any(taint.key == key for taint in node.taints):
            self.cluster.change_taints(add=(Taint(key=key, effect="NoSchedule"),), labels=claim)
            self.record_step("taint", Status.CHANGED, f"{key} is set")

    def evict_by_taint(self, taint: NoExecuteTaint) -> None:
        """Evict every pod that does not tolerate this taint, platform's and clients of the GPUs included.

        The journal says that it is ours: an administrator divides GPUs under the same one.
        """
        if not any((one.key, one.value) == (taint.key, taint.value) for one in self.cluster.node().taints):
            self.deps.folder.write_journal(replace(self.journal(self.digest), is_evicting=True))
            self.cluster.change_taints(add=(Taint(key=taint.key, effect="NoExecute", value=taint.value),))
            self.record_step("taint", Status.CHANGED, f"{taint.key}={taint.value}:NoExecute is set")

    def is_evicting(self) -> bool:
        """Return whether a taint that evicts every pod is ours, as far as the journal knows."""
        journal = self.deps.folder.journal()
        return journal is not None and journal.is_evicting

    def remove_taints(self, *keys: str, is_lost: bool = False) -> None:
        """Remove those of these taints that the node has, and that are not an administrator's. `is_lost`: the journal is."""
        journal, is_evicting = self.deps.folder.journal(), self.is_evicting()
        ours = {key for key in keys if is_evicting or is_lost or key not in LAYOUT_TAINTS}
        here = tuple(taint.key for taint in self.cluster.node().taints if taint.key in ours)
        if here:
            self.cluster.change_taints(remove=here)
            self.record_step("taint", Status.CHANGED, f"{', '.join(here)} removed")
        if journal is not None and is_evicting and not ours.isdisjoint(LAYOUT_TAINTS):
            self.deps.folder.write_journal(replace(journal, is_evicting=False))

    # Waiting.

    def await_driver(self, hardware: Hardware) -> None:
        """Wait until the driver answers. Blocked if it does not."""
        reason = hardware.wait(
            self.deps.driver_seconds,
            lambda text: self.set_condition(ConditionReason.WAITING_FOR_DRIVER, text),
            self.sleep,
            had_access=self.had_access,
        )
        if reason is not None:
            raise Blocked(reason, reason.value.means, is_unchanged=True)
        self.had_access = True

    def wait(self, find: Callable[[], Unmet | None], seconds: float) -> Unmet | None:
        """Call `find` until it returns None, and return None; or return what it found when `seconds` are over.

        If the API server does not answer, that is unmet too, with the last reason that was found.
        """
        end = self.deps.clock.now() + seconds
        begun = reported_at = self.slept
        last: Unmet | None = None
        while True:
            try:
                found = find()
            except ClusterError as error:
                found = Unmet(reason=last.reason if last else ConditionReason.PARTITIONING, message=str(error))
            if found is None:
                return None
            if self.slept - reported_at >= SILENT_SECONDS:
                reported_at = self.slept
                self.set_condition(found.reason, found.message)
            last = found
            if self.deps.clock.now() >= end:
                return found
            pause = _TICK_SECONDS if self.slept - begun < _EARLY_SECONDS else _POLL_SECONDS
            self.sleep(min(pause, max(_TICK_SECONDS, end - self.deps.clock.now())))

    def sleep(self, seconds: float) -> None:
        """Sleep, and once a second enforce the policy in force. Stopped if a signal stops the program."""
        end = self.deps.clock.now() + seconds
        while (left := end - self.deps.clock.now()) > 0:
            if self._enforcer is None and self.deps.open_enforcer is not None and self.enforced is not None:
                # Without a driver no process uses a GPU.
                with suppress(DriverError):
                    self._enforcer = self.deps.open_enforcer(self.enforced)
            if self._enforcer is not None:
                self._enforcer.cycle()
            self.slot.renew()
            self.deps.clock.sleep(min(_TICK_SECONDS, left))
        self.slept += seconds

    def close_driver(self) -> None:
        """Close the enforcer's driver session, before hardware changes and at the end."""
        enforcer, self._enforcer = self._enforcer, None
        if enforcer is not None:
            enforcer.close()

    def stop_enforcing(self) -> None:
        """Stop enforcing: the pool no longer has the node, and an enforcer would write into the folder."""
        self.close_driver()
        self.enforced = None
