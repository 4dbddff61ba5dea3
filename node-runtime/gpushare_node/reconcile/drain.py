"""Making room: nobody may use what a change destroys. Taint, wait as the pool says, and name who is in the way.

Nothing is changed on the hardware here, and whoever waited in vain leaves the node as it was.
"""


from gpushare_node.adapters.host.kubelet import CheckpointError
from gpushare_node.adapters.kube.cluster import NodeView
from gpushare_node.core.policy import OnBusy, Policy
from gpushare_node.core.structs import Struct
from gpushare_node.gpus.advertised import find_dead, offered
from gpushare_node.gpus.gpu_faults import is_right
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile.active_pool import is_leaving
from gpushare_node.reconcile.gpu_clients import must_pause
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import Blocker, find_allocated, find_obstacle
from gpushare_node.reporting.outcome import Blocked, Unmet
from gpushare_node.reporting.reasons import ConditionReason


class DrainRequest(Struct):
    """A change of the node that is wanted.

    `disturbed` are resources whose holders suffer from it by the label alone. `is_partly`: GPUs that nobody uses may be
    changed while others are blocked; not where the node offers a former layout, for half of each is neither. No turn is taken
    with `is_repair`, for the node is to become again what it was, nor with `is_asked`: somebody has asked it to release.
    With `may_stay` the pool that the node leaves is there still, and may want it again meanwhile.
    """

    policy: Policy
    disturbed: frozenset[str] = frozenset()
    is_partly: bool = False
    is_repair: bool = False
    is_leaving: bool = False
    is_asked: bool = False
    may_stay: bool = False


class Drain(Struct, frozen=False):
    """The wait for room on one node. `sight` and `obstacle` are from the last look."""

    visit: RunContext
    hardware: Hardware
    wish: DrainRequest
    sight: GpuView | None = None
    obstacle: Blocker | None = None
    allocated: frozenset[str] = frozenset()
    _is_closed: bool = False

    def remember(self, former: Policy | None, sight: GpuView) -> None:
        """Find out whether the node is what it was before, and may be left so: the former layout, and no dead ids on offer."""
        is_right_still = former is None or is_right(self.hardware.look(former, frozenset()))
        try:
            dead = find_dead(self.visit.site.read_checkpoint().registered, self.hardware.devices(sight))
        except CheckpointError:
            return
        self.visit.is_former_standing = is_right_still and not dead

    def close(self, node: NodeView) -> None:
        """Let no pods come to a node that is not what it says it is, whatever else it must wait for."""
        if not self.visit.is_former_standing:
            self._keep_off(node)

    def make(self, node: NodeView | None, sight: GpuView) -> GpuView:
        """What is seen when no pod is in the way, after `sight`. Blocked, with nothing changed, where that cannot be now."""
        seconds = self._patience()
        if not seconds or (node is not None and self._must_queue(node) and self._gives_way()):
            # Who will not wait, or not yet, gets no taint and takes no turn while it is in vain.
            self._await(0.0, is_last=False)
        if node is not None:
            self._begin(node, sight)
        return self._await(seconds, is_last=False)

    def settle(self) -> GpuView:
        """The last look before the hardware is changed. Clients are paused: a process that is left now is nobody's client."""
        return self._await(self._patience(), is_last=True)

    def find_allocated(self) -> frozenset[str]:
        """The UUIDs that pods hold now. Some tolerate every taint, and come while others' GPUs are being changed."""
        self.allocated = find_allocated(self.visit.holders())
        return self.allocated

    def _patience(self) -> float:
        rollout = self.wish.policy.rollout
        is_waiting = rollout.on_busy is not OnBusy.FAIL and self.visit.is_patient
        return float(rollout.drain_timeout_seconds) if is_waiting else 0.0

    @property
    def _platform(self) -> frozenset[str] | None:
        return self.visit.site.platform()

    def _must_queue(self, node: NodeView) -> bool:
        """A node that offers nothing, or not what it should, is out already, and takes no turn from another."""
        return bool(offered(node.allocatable)) and not self.wish.is_asked and not self.wish.is_repair

    def _gives_way(self) -> bool:
        """Whether other nodes go first, should tenants be in the way here: they may end by themselves, or cannot be moved."""
        if self.visit.drains_at is not None and not self.visit.is_giving_way:
            return False
        if self.wish.policy.rollout.on_busy is not OnBusy.EVICT:
            return True
        self.visit.wait(lambda: self._find(is_last=False), 0.0)
        holders = () if self.obstacle is None else self.obstacle.holders
        return self.obstacle is not None and not any(self.visit.evictions.can_move(one, self._platform) for one in holders)

    def _begin(self, node: NodeView, sight: GpuView) -> None:
        """A turn where the node offers GPUs, then the taint. A release that was asked for ends the offer anyway: no turn."""
        limit = self.wish.policy.rollout.max_unavailable
        if self._must_queue(node) and not self.visit.pace.take(limit):
            text = f"{limit} nodes of pool {self.wish.policy.pool} may be changed at once, and that many are"
            raise Blocked(ConditionReason.WAITING_FOR_TURN, text, is_kept=True)
        self._keep_off(node)
        if self.wish.is_leaving or sight.plan.operations:
            # Another label alone is done in seconds; what lasts longer says what it waits for.
            reason = ConditionReason.RELEASING if self.wish.is_leaving else ConditionReason.PARTITIONING
            self.visit.say(reason, "the GPUs are being partitioned")

    def _keep_off(self, node: NodeView) -> None:
        if not self._is_closed:
            self.visit.keep_off(node, None if self.wish.is_leaving else self.wish.policy.pool)
            self._is_closed = True

    def _await(self, seconds: float, *, is_last: bool) -> GpuView:
        lack = self.visit.wait(lambda: self._find(is_last=is_last), seconds)
        if self.sight is None:
            text = lack.message if lack else "nothing was seen"
            raise Blocked(ConditionReason.PARTITIONING, text, is_kept=True)
        if lack is not None and not self._may_go_on(self.sight):
            if seconds:
                self.visit.is_patient = False
            elif self.visit.drains_at is None:
                self.visit.drains_at = self.visit.site.clock.now() + self._patience()
            raise Blocked(lack.reason, lack.message, is_kept=True)
        return self.sight

    def _find(self, *, is_last: bool) -> Unmet | None:
        # What was seen before is no ground to go on, should this look fail.
        self.sight = self.obstacle = self.visit.obstacle = None
        self._stop_if_unwanted()
        holders = self.visit.holders()
        self.allocated = find_allocated(holders)
        self.sight = self.hardware.look(self.wish.policy, self.allocated)
        self.obstacle = self.visit.obstacle = find_obstacle(self.sight, holders, self.wish.disturbed)
        if self.obstacle is None:
            return None
        if not self.obstacle.holders and not is_last and self._pauses(self.sight):
            # Processes of no pod may be GPU clients: those are paused next, and looked at again.
            return None
        if self.wish.policy.rollout.on_busy is OnBusy.EVICT and self._is_closed:
            # Where pods may still come, one that is moved away makes room for the next.
            for said in self.visit.evictions.ask(self.visit.cluster, self.obstacle.holders, self._platform):
                self.visit.take(said)
        back = self.visit.evictions.tell_successors(self.obstacle.holders)
        return Unmet(reason=ConditionReason.GPU_BUSY, message=f"in the way: {self.obstacle.message}{back}")

    def _pauses(self, sight: GpuView) -> bool:
        """Whether clients will be paused for the change."""
        return self.visit.site.cluster is not None and must_pause(self.wish.policy, sight.plan)

    def _may_go_on(self, sight: GpuView) -> bool:
        """Whether GPUs that nobody uses are changed although others are blocked."""
        holders = self.obstacle.holders if self.obstacle is not None else ()
        is_label_alone = any(holder.resources & self.wish.disturbed for holder in holders)
        has_free = any(gpu.operations and not gpu.is_blocked for gpu in sight.plan.gpus)
        return self.wish.is_partly and not is_label_alone and has_free

    def _stop_if_unwanted(self) -> None:
        """Who waits looks whether the change is still wanted: the node may have to leave the pool by now, or to stay."""
        if self.visit.site.cluster is None or (self.wish.is_leaving and not self.wish.may_stay):
            return
        node = self.visit.cluster.node()
        must_leave = is_leaving(node, is_selected=self.visit.cluster.selects(node))
        if must_leave is self.wish.is_leaving:
            return
        why = "the node leaves the pool" if must_leave else "the node stays in the pool"
        raise Blocked(ConditionReason.RELEASING, f"cancelled, because {why}", is_kept=True)
