"""Drain: no pod may use what a change destroys. Taints the node, waits as the pool allows, and names the pods in the way.

It changes no hardware, and a drain that fails leaves the node as it was.
"""

from collections.abc import Callable

from gpushare_node.adapters.kube.cluster import NodeView
from gpushare_node.backends.backend import CheckpointError
from gpushare_node.contract.policy import OnBusy, Partitioner, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct
from gpushare_node.contract.windows import locate
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.gpus.view import GpuView, is_converged
from gpushare_node.membership import Standing, claim
from gpushare_node.partition.operations import ChangeModes, DestroyInstance, DisableMig
from gpushare_node.reconcile import client_pause, rollout_window
from gpushare_node.reconcile.run_context import DrainEvictions, RunContext
from gpushare_node.reconcile.usage import Blocker, find_allocated, find_blocker, without_lost
from gpushare_node.reporting.outcome import Blocked, Unmet
from gpushare_node.vendors import of


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
            rollout_window.check(self.request.policy, context.deps.wall(), seconds)
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
        self.await_window(seconds + rollout_window.change_seconds(self.request.policy))
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
        needed = patience + rollout_window.change_seconds(self.request.policy)
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
