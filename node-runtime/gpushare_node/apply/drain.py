"""Making room: nobody may use what a change destroys. Taint, wait as the pool says, and name who is in the way.

Nothing is changed on the hardware here, and whoever waited in vain leaves the node as it was.
"""

from dataclasses import dataclass, field

from gpushare_node.apply.busy import Obstacle, find_allocated, find_obstacle
from gpushare_node.apply.clients import must_pause
from gpushare_node.apply.faults import is_right
from gpushare_node.apply.hardware import Hardware
from gpushare_node.apply.offer import find_dead, offered
from gpushare_node.apply.outcome import Halted, Lack
from gpushare_node.apply.pools import is_leaving
from gpushare_node.apply.sight import Sight
from gpushare_node.apply.visit import Visit
from gpushare_node.host.kubelet import CheckpointError
from gpushare_node.kube.cluster import ClusterError, Eviction, NodeView
from gpushare_node.policy import OnBusy, Policy
from gpushare_node.voice.reasons import Reason
from gpushare_node.voice.results import Status


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A change of the node that is wanted.

    `disturbed` are resources whose holders suffer from it by the label alone. `is_partly`: GPUs that nobody uses may be
    changed while others are blocked; not where the node offers a former layout, for half of each is neither. `is_asked`:
    somebody has asked the node to release, so no turn is taken.
    """

    policy: Policy
    disturbed: frozenset[str] = frozenset()
    is_partly: bool = False
    is_leaving: bool = False
    is_asked: bool = False


@dataclass(kw_only=True)
class Room:
    """The wait for room on one node. `sight` and `obstacle` are from the last look."""

    visit: Visit
    hardware: Hardware
    wish: Wish
    sight: Sight | None = None
    obstacle: Obstacle | None = None
    allocated: frozenset[str] = frozenset()
    _asked: set[str] = field(default_factory=set)

    def remember(self, former: Policy | None, sight: Sight) -> None:
        """Find out whether the node is what it was before, and may be left so: the former layout, and no dead ids on offer."""
        is_right_still = former is None or is_right(self.hardware.look(former, frozenset()))
        try:
            dead = find_dead(self.visit.site.read_checkpoint().registered, self.hardware.devices(sight))
        except CheckpointError:
            return
        self.visit.is_former_standing = is_right_still and not dead

    def make(self, node: NodeView | None, sight: Sight) -> Sight:
        """What is seen when no pod is in the way, after `sight`. Halted where the change cannot be now: nothing was changed."""
        seconds = self._patience()
        if not seconds:
            # Who will not wait gets no taint and takes no turn while it is in vain.
            self._await(0.0, is_last=False)
        if node is not None:
            self._begin(node, sight)
        return self._await(seconds, is_last=False)

    def settle(self) -> Sight:
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

    def _begin(self, node: NodeView, sight: Sight) -> None:
        """A turn where the node offers GPUs, then the taint. A release that was asked for ends the offer anyway: no turn."""
        limit = self.wish.policy.rollout.max_unavailable
        if offered(node.allocatable) and not self.wish.is_asked and not self.visit.pace.take(limit):
            text = f"{limit} of the nodes of pool {self.wish.policy.pool} may be changed at once, and so many are"
            raise Halted(Reason.WAITING_FOR_TURN, text, is_kept=True)
        self.visit.keep_off(node, None if self.wish.is_leaving else self.wish.policy.pool)
        if self.wish.is_leaving or sight.plan.operations:
            # Another label alone is done in seconds; what lasts longer says what it waits for.
            reason = Reason.RELEASING if self.wish.is_leaving else Reason.PARTITIONING
            self.visit.say(reason, "the GPUs are being brought to the layout")

    def _await(self, seconds: float, *, is_last: bool) -> Sight:
        lack = self.visit.wait(lambda: self._find(is_last=is_last), seconds)
        if self.sight is None:
            text = lack.message if lack else "nothing was seen"
            raise Halted(Reason.PARTITIONING, text, is_kept=True)
        if lack is not None and not self._may_go_on(self.sight):
            self.visit.is_patient = False
            raise Halted(lack.reason, lack.message, is_kept=True)
        return self.sight

    def _find(self, *, is_last: bool) -> Lack | None:
        # What was seen before is no ground to go on, should this look fail.
        self.sight = self.obstacle = None
        self._stop_if_unwanted()
        holders = self.visit.holders()
        self.allocated = find_allocated(holders)
        self.sight = self.hardware.look(self.wish.policy, self.allocated)
        self.obstacle = find_obstacle(self.sight, holders, self.wish.disturbed)
        if self.obstacle is None:
            return None
        if not self.obstacle.holders and not is_last and self._pauses(self.sight):
            # Processes of no pod may be GPU clients: those are paused next, and looked at again.
            return None
        if self.wish.policy.rollout.on_busy is OnBusy.EVICT and self.visit.site.cluster is not None:
            self._evict(self.obstacle)
        return Lack(reason=Reason.GPU_BUSY, message=f"in the way: {self.obstacle.message}")

    def _pauses(self, sight: Sight) -> bool:
        """Whether clients will be paused for the change."""
        return self.visit.site.cluster is not None and must_pause(self.wish.policy, sight.plan)

    def _may_go_on(self, sight: Sight) -> bool:
        """Whether GPUs that nobody uses are changed although others are blocked."""
        holders = self.obstacle.holders if self.obstacle is not None else ()
        is_label_alone = any(holder.resources & self.wish.disturbed for holder in holders)
        has_free = any(gpu.operations and not gpu.is_blocked for gpu in sight.plan.gpus)
        return self.wish.is_partly and not is_label_alone and has_free

    def _stop_if_unwanted(self) -> None:
        """A node that must leave the pool meanwhile does not wait for a layout that nobody wants any more."""
        if self.visit.site.cluster is None or self.wish.is_leaving:
            return
        node = self.visit.cluster.node()
        if is_leaving(node, is_selected=self.visit.cluster.selects(node)):
            raise Halted(Reason.RELEASING, "the node is to leave the pool before its GPUs were changed", is_kept=True)

    def _evict(self, obstacle: Obstacle) -> None:
        """Ask for evictions. A disruption budget may refuse: asked again at the next look. The platform's pods stay."""
        for holder in obstacle.holders:
            pod = holder.pod
            if pod is None or pod.is_terminating or pod.namespace in self.wish.policy.tenancy.platform():
                continue
            try:
                answer = self.visit.cluster.evict(pod)
            except ClusterError as error:
                self.visit.note("evict", holder.name, Status.FAILED, str(error))
                continue
            if answer is Eviction.EVICTED and holder.pod_uid not in self._asked:
                self._asked.add(holder.pod_uid)
                self.visit.note("evict", holder.name, Status.CHANGED, "it holds a GPU that is to be changed")
