"""Making room: nobody may use what a change destroys. Taint, wait as the pool says, and name who is in the way.

Nothing is changed on the hardware here, and whoever waited in vain leaves the node as it was.
"""


from gpushare_node.adapters.host.kubelet import CheckpointError
from gpushare_node.adapters.kube.cluster import NodeView
from gpushare_node.core.policy import OnBusy, Policy
from gpushare_node.core.structs import Struct
from gpushare_node.gpus.advertised import advertised, find_stale
from gpushare_node.gpus.gpu_faults import is_converged
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile.active_pool import is_leaving
from gpushare_node.reconcile.gpu_clients import must_pause
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import Blocker, find_allocated, find_blocker
from gpushare_node.reporting.outcome import Blocked, Unmet
from gpushare_node.reporting.reasons import ConditionReason


class DrainRequest(Struct):
    """A change of the node that is wanted.

    `affected` are resources whose holders suffer from it by the label alone. `is_partly`: GPUs that nobody uses may be
    changed while others are blocked; not where the node offers a former layout, for half of each is neither. No turn is taken
    with `is_repair`, for the node is to become again what it was, nor with `is_asked`: somebody has asked it to release.
    With `may_stay` the pool that the node leaves is there still, and may want it again meanwhile.
    """

    policy: Policy
    affected: frozenset[str] = frozenset()
    is_partly: bool = False
    is_repair: bool = False
    is_leaving: bool = False
    is_asked: bool = False
    may_stay: bool = False


class Drain(Struct, frozen=False):
    """The wait for room on one node. `view` and `blocker` are from the last look."""

    context: RunContext
    hardware: Hardware
    request: DrainRequest
    view: GpuView | None = None
    blocker: Blocker | None = None
    allocated: frozenset[str] = frozenset()
    _is_closed: bool = False

    def remember(self, former: Policy | None, view: GpuView) -> None:
        """Find out whether the node is what it was before, and may be left so: the former layout, and no dead ids on offer."""
        is_right_still = former is None or is_converged(self.hardware.look(former, frozenset()))
        try:
            dead = find_stale(self.context.deps.read_checkpoint().registered, self.hardware.devices(view))
        except CheckpointError:
            return
        self.context.may_untaint_on_abort = is_right_still and not dead

    def close(self, node: NodeView) -> None:
        """Let no pods come to a node that is not what it says it is, whatever else it must wait for."""
        if not self.context.may_untaint_on_abort:
            self._add_taint(node)

    def make(self, node: NodeView | None, view: GpuView) -> GpuView:
        """What is seen when no pod is in the way, after `view`. Blocked, with nothing changed, where that cannot be now."""
        seconds = self._patience()
        if not seconds or (node is not None and self._must_queue(node) and self._gives_way()):
            # Who will not wait, or not yet, gets no taint and takes no turn while it is in vain.
            self._await(0.0, is_last=False)
        if node is not None:
            self._begin(node, view)
        return self._await(seconds, is_last=False)

    def settle(self) -> GpuView:
        """The last look before the hardware is changed. Clients are paused: a process that is left now is nobody's client."""
        return self._await(self._patience(), is_last=True)

    def find_allocated(self) -> frozenset[str]:
        """The UUIDs that pods hold now. Some tolerate every taint, and come while others' GPUs are being changed."""
        self.allocated = find_allocated(self.context.holders())
        return self.allocated

    def _patience(self) -> float:
        rollout = self.request.policy.rollout
        is_waiting = rollout.on_busy is not OnBusy.FAIL and self.context.may_wait_for_tenants
        return float(rollout.drain_timeout_seconds) if is_waiting else 0.0

    @property
    def _platform(self) -> frozenset[str] | None:
        return self.context.deps.platform()

    def _must_queue(self, node: NodeView) -> bool:
        """A node that offers nothing, or not what it should, is out already, and takes no turn from another."""
        return bool(advertised(node.allocatable)) and not self.request.is_asked and not self.request.is_repair

    def _gives_way(self) -> bool:
        """Whether other nodes go first, should tenants be in the way here: they may end by themselves, or cannot be moved."""
        if self.context.drains_at is not None and not self.context.is_giving_way:
            return False
        if self.request.policy.rollout.on_busy is not OnBusy.EVICT:
            return True
        self.context.wait(lambda: self._find(is_last=False), 0.0)
        holders = () if self.blocker is None else self.blocker.holders
        return self.blocker is not None and not any(self.context.evictions.can_move(one, self._platform) for one in holders)

    def _begin(self, node: NodeView, view: GpuView) -> None:
        """A turn where the node offers GPUs, then the taint. A release that was asked for ends the offer anyway: no turn."""
        limit = self.request.policy.rollout.max_unavailable
        if self._must_queue(node) and not self.context.slot.take(limit):
            text = f"{limit} nodes of pool {self.request.policy.pool} may be changed at once, and that many are"
            raise Blocked(ConditionReason.WAITING_FOR_TURN, text, is_unchanged=True)
        self._add_taint(node)
        if self.request.is_leaving or view.plan.operations:
            # Another label alone is done in seconds; what lasts longer says what it waits for.
            reason = ConditionReason.RELEASING if self.request.is_leaving else ConditionReason.PARTITIONING
            self.context.set_condition(reason, "the GPUs are being partitioned")

    def _add_taint(self, node: NodeView) -> None:
        if not self._is_closed:
            self.context.add_taint(node, None if self.request.is_leaving else self.request.policy.pool)
            self._is_closed = True

    def _await(self, seconds: float, *, is_last: bool) -> GpuView:
        mismatch = self.context.wait(lambda: self._find(is_last=is_last), seconds)
        if self.view is None:
            text = mismatch.message if mismatch else "nothing was seen"
            raise Blocked(ConditionReason.PARTITIONING, text, is_unchanged=True)
        if mismatch is not None and not self._may_go_on(self.view):
            if seconds:
                self.context.may_wait_for_tenants = False
            elif self.context.drains_at is None:
                self.context.drains_at = self.context.deps.clock.now() + self._patience()
            raise Blocked(mismatch.reason, mismatch.message, is_unchanged=True)
        return self.view

    def _find(self, *, is_last: bool) -> Unmet | None:
        # What was seen before is no ground to go on, should this look fail.
        self.view = self.blocker = self.context.blocker = None
        self._stop_if_unwanted()
        holders = self.context.holders()
        self.allocated = find_allocated(holders)
        self.view = self.hardware.look(self.request.policy, self.allocated)
        self.blocker = self.context.blocker = find_blocker(self.view, holders, self.request.affected)
        if self.blocker is None:
            return None
        if not self.blocker.holders and not is_last and self._pauses(self.view):
            # Processes of no pod may be GPU clients: those are paused next, and looked at again.
            return None
        if self.request.policy.rollout.on_busy is OnBusy.EVICT and self._is_closed:
            # Where pods may still come, one that is moved away makes room for the next.
            for said in self.context.evictions.ask(self.context.cluster, self.blocker.holders, self._platform):
                self.context.record_result(said)
        back = self.context.evictions.tell_successors(self.blocker.holders)
        return Unmet(reason=ConditionReason.GPU_BUSY, message=f"in the way: {self.blocker.message}{back}")

    def _pauses(self, view: GpuView) -> bool:
        """Whether clients will be paused for the change."""
        return self.context.deps.cluster is not None and must_pause(self.request.policy, view.plan)

    def _may_go_on(self, view: GpuView) -> bool:
        """Whether GPUs that nobody uses are changed although others are blocked."""
        holders = self.blocker.holders if self.blocker is not None else ()
        is_label_alone = any(holder.resources & self.request.affected for holder in holders)
        has_free = any(gpu.operations and not gpu.is_blocked for gpu in view.plan.gpus)
        return self.request.is_partly and not is_label_alone and has_free

    def _stop_if_unwanted(self) -> None:
        """Who waits looks whether the change is still wanted: the node may have to leave the pool by now, or to stay."""
        if self.context.deps.cluster is None or (self.request.is_leaving and not self.request.may_stay):
            return
        node = self.context.cluster.node()
        must_leave = is_leaving(node, is_selected=self.context.cluster.selects(node))
        if must_leave is self.request.is_leaving:
            return
        why = "the node leaves the pool" if must_leave else "the node stays in the pool"
        raise Blocked(ConditionReason.RELEASING, f"cancelled, because {why}", is_unchanged=True)
