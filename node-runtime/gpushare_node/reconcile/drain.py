"""Drain: no pod may use what a change destroys. Taints the node, waits as the pool allows, and names the pods in the way.

It changes no hardware, and a drain that fails leaves the node as it was. `check_window` decides when a change may begin.
"""

from collections.abc import Callable

from gpushare_node.adapters.host.state_dir import Journal
from gpushare_node.adapters.kube.cluster import NodeView
from gpushare_node.backends.backend import CheckpointError
from gpushare_node.contract.names import PROFILE_LABEL, VENDOR_LABEL
from gpushare_node.contract.policy import OnBusy, Partitioner, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct
from gpushare_node.contract.windows import locate
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.gpus.view import GpuView, is_converged
from gpushare_node.membership import Standing, claim, layout_request
from gpushare_node.partition.operations import ChangeModes, CreateInstance, DestroyInstance, DisableMig
from gpushare_node.partition.state import Gpu
from gpushare_node.reconcile import client_pause
from gpushare_node.reconcile.run_context import DrainEvictions, RunContext
from gpushare_node.reconcile.usage import Blocker, find_allocated, find_blocker, without_lost
from gpushare_node.reporting.outcome import Blocked, Unmet
from gpushare_node.vendors import of


class PolicyChange(Struct):
    """A change of a node from the policy in force, `former`, to `policy`. `view` and `former_view` are the GPUs by each.

    Where the back end changes, the node's label says whose offer the change takes away. Held back by the pool's `paused` and
    `windows` is what takes a layout, or the plugin's config, from a node that has one of ours. Not held back:

    - a node that never had a layout of ours: neither the folder has a policy nor the node our profile label;
    - a repair: the policy in force and the desired one give the same layout and resources, also if caps or names differ;
    - a node that lost its layout, as in a reboot: no GPU that should be divided is. If only some GPUs lost theirs, the others
      still serve tenants, and another layout waits;
    - a node on which neither back end may offer GPUs: the label says that a change has begun;
    - what is left of a change that has begun, after a restart or a failed attempt, whatever the policy is at that time: the
      node is out of service. The journal has that; mig-manager's label, where it partitions; or the hardware, if only labels
      are missing;
    - a node that leaves its pool for none. Another pool's windows count for a node that it takes over.

    What the plugin offers at the moment does not count: while it restarts it offers nothing, and tenants run on.
    """

    policy: Policy
    former: Policy | None
    view: GpuView
    former_view: GpuView | None
    node: NodeView
    journal: Journal | None

    @property
    def is_disruptive(self) -> bool:
        """Whether the pool's rollout settings hold it back."""
        labels, backend = self.node.labels, self.node.backend
        if backend is None:
            return False
        if self.journal is not None and self.journal.is_changing and self.journal.is_new_layout:
            return False
        if self.former is None or self.former_view is None:
            is_known = PROFILE_LABEL in labels or VENDOR_LABEL in labels or self.node.has_claims
            return is_known and not (backend is self.policy.backend and self._restores_published())
        if self.former.is_alike(self.policy):
            return False
        if self.former.backend is not self.policy.backend:
            return backend is not self.policy.backend
        requested = layout_request(self.policy).items() - layout_request(self.former).items()
        is_requested = bool(requested) and requested <= labels.items()
        return not (is_requested or self._is_changed(self.former_view) or _is_lost(self.former, self.former_view))

    def _restores_published(self) -> bool:
        """Without the former policy: whether nothing goes, and what the node's label names stays."""
        published = {PROFILE_LABEL: self.policy.profile} if self.policy.profile else layout_request(self.policy)
        creates_only = all(isinstance(operation, CreateInstance) for operation in self.view.plan.operations)
        return creates_only and not self.view.compute_modes and published.items() <= self.node.labels.items()

    def _is_changed(self, former_view: GpuView) -> bool:
        """Whether the hardware has the desired layout already, which is not the former one."""
        return not self.view.plan.operations and not self.view.compute_modes and bool(former_view.plan.operations)


def _is_lost(former: Policy, view: GpuView) -> bool:
    """Whether no GPU that should be divided by the former policy is. What a faulty one has is not known."""
    divided = {gpu.index for gpu in former.gpus if gpu.instances or (gpu.partition is not None and gpu.partition.devices > 1)}
    known = [gpu for gpu in view.state.gpus if gpu.index in divided and gpu.fault is None]
    return bool(known) and not any(_is_divided(gpu) for gpu in known)


def _is_divided(gpu: Gpu) -> bool:
    has_instances = gpu.mig is not None and gpu.mig.current and bool(gpu.mig.instances)
    return has_instances or (gpu.modes is not None and gpu.modes.devices > 1)


def check_window(policy: Policy, now: float, seconds: float) -> None:
    """Raise Blocked if a disruptive change that takes so long may not begin at `now`, in seconds since 1970."""
    rollout = policy.rollout
    if rollout.is_paused:
        raise Blocked(ConditionReason.ROLLOUT_PAUSED, f"the rollout of pool {policy.pool} is paused", is_unchanged=True)
    if not rollout.windows:
        return
    position = locate(rollout.windows, now)
    if position.left_seconds and position.left_seconds >= seconds:
        return
    unknown = f"the time zone database has no {', '.join(position.unknown_zones)}" if position.unknown_zones else ""
    if position.opens_at is None:
        raise Blocked(ConditionReason.TIME_ZONE_UNKNOWN, unknown or "no window ever opens", is_unchanged=True)
    text = f"the next window of pool {policy.pool} opens {position.opening}"
    if position.left_seconds:
        text = f"the open window closes before drain and change could end; {text}"
    raise Blocked(ConditionReason.WAITING_FOR_WINDOW, "; ".join(filter(None, (text, unknown))), is_unchanged=True)


class DrainRequest(Struct):
    """The change that a drain is for.

    `affected` are resources whose holders the new label alone disturbs; `find_further` returns devices, of the GPUs as they are
    seen, that no pod may hold beside those that the plan needs. `is_partly`: GPUs that are free may be changed while
    others are blocked; not where the node offers a former layout, because half of each is neither. The node takes no slot with
    `is_repair`, because it becomes what it was, nor with `is_requested`, because a person has requested it to leave. With
    `may_stay` the pool that the node leaves still exists, and may select the node again meanwhile. What `is_disruptive` begins
    only when the pool's rollout settings allow it.
    """

    policy: Policy
    affected: frozenset[str] = frozenset()
    is_partly: bool = False
    is_repair: bool = False
    is_leaving: bool = False
    is_requested: bool = False
    may_stay: bool = False
    is_disruptive: bool = False
    find_further: Callable[[GpuView], frozenset[str]] = lambda _: frozenset()


class Drain(Struct, frozen=False):
    """The drain of one node. `node` is the node as the attempt found it; `view` and `blocker` are from the last look."""

    context: RunContext
    hardware: Hardware
    request: DrainRequest
    node: NodeView
    view: GpuView | None = None
    blocker: Blocker | None = None
    allocated: frozenset[str] = frozenset()
    former_view: GpuView | None = None
    _is_tainted: bool = False
    _is_unselected: bool = False

    def remember(self, former: Policy | None, view: GpuView) -> None:
        """Find out whether an abort may remove the taint: the former layout is in place, and no dead UUID is offered."""
        backend = self.context.deps.backend
        self.former_view = None if former is None else self.hardware.look(former, frozenset())
        is_unchanged = self.former_view is None or is_converged(self.former_view)
        try:
            dead = backend.find_stale(backend.read_checkpoint().registered, self.hardware.devices(view))
        except CheckpointError:
            return
        self.context.may_untaint_on_abort = is_unchanged and not dead

    def taint_if_wrong(self) -> None:
        """Keep new pods away from a node that does not offer what it says, whatever else it must wait for."""
        if not self.context.may_untaint_on_abort:
            self.taint()

    def await_window(self, seconds: float) -> None:
        """Raise Blocked if the change is held back, or if what is left of the window is less than it may take."""
        if not self.request.is_disruptive:
            return
        context, rollout = self.context, self.request.policy.rollout
        try:
            check_window(self.request.policy, context.deps.wall(), seconds)
        except Blocked:
            context.opens_at = locate(rollout.windows, context.deps.wall()).opens_at
            # In the next window the node is drained again.
            context.may_wait_for_tenants, context.drains_at, context.evictions = True, None, DrainEvictions()
            raise

    def run(self, view: GpuView) -> GpuView:
        """Drain the node, seen as `view` before, and return the view in which no pod is in the way.

        Blocked, with nothing changed, if that cannot be reached now, or before the window closes.
        """
        seconds = self._patience()
        self.await_window(seconds + of(self.request.policy.vendor).window_seconds)
        if not seconds or (self._must_queue() and self._gives_way()):
            # A node that does not wait, or not yet, takes no taint and no slot before its GPUs are free.
            self._await(0.0, is_last=False)
        self._begin(view)
        return self._await(seconds, is_last=False)

    def settle(self) -> GpuView:
        """Look for the last time before the hardware changes. GPU clients are paused: any process left is not one of them."""
        return self._await(self._patience(), is_last=True)

    def look_again(self) -> GpuView:
        """Look whether pods hold devices, without waiting for them. Blocked if they do."""
        return self._await(0.0, is_last=False)

    def find_allocated(self) -> frozenset[str]:
        """Return the UUIDs that pods hold now. Pods that tolerate every taint can arrive while other GPUs are changed."""
        holders = self.context.holders()
        self.allocated = find_allocated(holders if self.view is None else without_lost(holders, self.view))
        return self.allocated

    def must_pause(self, view: GpuView) -> bool:
        """Return whether GPU clients must be paused for the change. Without an API server nothing can pause them.

        Where AMD's config manager changes GPUs, its taint sends them away.
        """
        is_managed = of(self.request.policy.vendor).layout_taint is not None
        return self.context.cluster.has_server and (is_managed or client_pause.must_pause(self.request.policy, view.plan))

    def _patience(self) -> float:
        rollout = self.request.policy.rollout
        is_waiting = rollout.on_busy is not OnBusy.FAIL and self.context.may_wait_for_tenants
        return float(rollout.drain_timeout_seconds) if is_waiting else 0.0

    def _yield_seconds(self) -> float:
        """Return for how long other nodes go first: in a window at most half of what its drain and its change leave of it."""
        patience, windows = self._patience(), self.request.policy.rollout.windows
        if not self.request.is_disruptive or not windows:
            return patience
        needed = patience + of(self.request.policy.vendor).window_seconds
        left = locate(windows, self.context.deps.wall()).left_seconds - needed
        return min(patience, max(1.0, left / 2))

    @property
    def _platform(self) -> frozenset[str] | None:
        return self.context.deps.platform()

    def _must_queue(self) -> bool:
        """A node that offers nothing, or not what it should, is unavailable already, and needs no slot."""
        return self.context.offers(self.node) and not self.request.is_requested and not self.request.is_repair

    @property
    def _may_evict(self) -> bool:
        """Whether the node is tainted, and it is its turn, or it needs none."""
        return self._is_tainted and (self.context.slot.is_held or not self._must_queue())

    def _gives_way(self) -> bool:
        """Return whether other nodes go first if tenants are in the way: they may end by themselves, or cannot be moved."""
        if self.context.drains_at is not None and not self.context.yields_to_other_nodes:
            return False
        if self.request.policy.rollout.on_busy is not OnBusy.EVICT:
            return True
        self.context.wait(lambda: self._find(is_last=False), 0.0)
        holders = () if self.blocker is None else self.blocker.holders
        return self.blocker is not None and not any(
            self.context.evictions.can_move(holder, self._platform) for holder in holders
        )

    def _begin(self, view: GpuView) -> None:
        """Take a slot if the node offers GPUs, then taint it."""
        limit = self.request.policy.rollout.max_unavailable
        if self._must_queue() and not self.context.slot.take(limit):
            holder = self.context.slot.holder
            taken = f"{holder} is" if holder else "other nodes took the slots; this node retries"
            text = f"{limit} nodes of pool {self.request.policy.pool} may be changed at once: {taken}"
            raise Blocked(ConditionReason.WAITING_FOR_TURN, text, is_unchanged=True)
        self.taint()
        if self.request.is_leaving or view.plan.operations:
            # A new label alone takes seconds; a change that lasts longer reports what it waits for.
            reason = ConditionReason.RELEASING if self.request.is_leaving else ConditionReason.PARTITIONING
            self.context.set_condition(reason, "the GPUs are being partitioned")

    def taint(self) -> None:
        """Keep new pods away from the node."""
        if not self._is_tainted:
            policy = self.request.policy
            labels = {} if self.request.is_leaving else claim(policy)
            self.context.add_taint(self.node, policy.repartitioning_taint.value, labels)
            self._is_tainted = True

    def _await(self, seconds: float, *, is_last: bool) -> GpuView:
        unmet = self.context.wait(lambda: self._find(is_last=is_last), seconds)
        if self.view is None:
            text = unmet.message if unmet else "the GPUs were not read"
            raise Blocked(ConditionReason.PARTITIONING, text, is_unchanged=True)
        if unmet is not None and not self._may_go_on(self.view):
            if seconds:
                self.context.may_wait_for_tenants = False
            elif self.context.drains_at is None:
                self.context.drains_at = self.context.deps.clock.now() + self._yield_seconds()
            raise Blocked(unmet.reason, unmet.message, is_unchanged=True)
        return self.view

    def _find(self, *, is_last: bool) -> Unmet | None:
        # If this look fails, an earlier one must not count.
        self.view = self.blocker = self.context.blocker = None
        self._stop_if_outdated()
        holders = self.context.holders()
        if any(holder.claimed for holder in holders):
            holders = without_lost(holders, self.hardware.look(self.request.policy, frozenset()))
        self.allocated = find_allocated(holders)
        self.view = self.hardware.look(self.request.policy, self.allocated)
        request = self.request
        if not request.is_leaving and (fault := self.context.faults.find(self.view.surveys)):
            # It began while tenants were waited for.
            raise Blocked(ConditionReason.GPU_FAULTY, fault[0].upper() + fault[1:], is_unchanged=True)
        self.blocker = self.context.blocker = find_blocker(
            self.view, holders, request.affected, self.hardware.names, request.find_further(self.view)
        )
        if self._is_unselected and not self._is_harmless(self.view):
            seconds, pool = self.context.deps.release_after_seconds, self.request.policy.pool
            text = (
                f"the selectors of pool {pool} do not match the node's labels; after {seconds:.0f} s the node leaves the pool"
            )
            raise Blocked(ConditionReason.UNSELECTED, text, is_unchanged=True)
        if self.blocker is None:
            return None
        if not self.blocker.holders and not is_last and self.must_pause(self.view):
            # Processes of no pod may be GPU clients: those are paused next, and the last look decides.
            return None
        if self.request.policy.rollout.on_busy is OnBusy.EVICT and self._may_evict:
            # Before its turn another node's pods come here; without the taint, the next pod would come where one was evicted.
            for result in self.context.evictions.request(self.context.cluster, self.blocker.holders, self._platform):
                self.context.record_result(result)
        back = self.context.evictions.describe_successors(self.blocker.holders)
        return Unmet(reason=ConditionReason.GPU_BUSY, message=f"in use by {self.blocker.message}{back}")

    def _is_harmless(self, view: GpuView) -> bool:
        """Return whether the change is a repair that destroys nothing and is in no process's way, as after a reboot."""
        is_destructive = any(
            isinstance(operation, DestroyInstance | DisableMig | ChangeModes) for operation in view.plan.operations
        )
        return self.request.is_repair and self.blocker is None and not is_destructive

    def _may_go_on(self, view: GpuView) -> bool:
        """Return whether free GPUs are changed although others are blocked."""
        holders = self.blocker.holders if self.blocker is not None else ()
        is_label_alone = any(holder.resources & self.request.affected for holder in holders)
        has_free = any(gpu.operations and not gpu.is_blocked for gpu in view.plan.gpus)
        if self.request.policy.partitioner is Partitioner.CONFIG_MANAGER:
            return False  # It changes all GPUs of the node.
        return self.request.is_partly and not is_label_alone and has_free

    def _stop_if_outdated(self) -> None:
        """Raise Blocked if the change is no longer desired: the node must leave the pool by now, or stay in it."""
        if self.request.is_leaving and not self.request.may_stay:
            return
        standing = self.context.standing(self.context.cluster.node(), self.request.policy.pool)
        self._is_unselected = standing is Standing.UNSELECTED and not self.request.is_leaving
        must_leave = standing is Standing.LEAVES
        if must_leave is self.request.is_leaving:
            return
        why = "the node leaves the pool" if must_leave else "the node stays in the pool"
        raise Blocked(ConditionReason.RELEASING, f"cancelled, because {why}", is_unchanged=True)
