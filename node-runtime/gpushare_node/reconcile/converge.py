"""Bringing a node to its policy, when nothing speaks against it: look, make room, change, publish, verify, let pods in.

What is there already is only verified: no turn, no taint, no pause, nothing written.
"""

from enum import Enum

from gpushare_node.adapters.kube.cluster import NOT_READY_TAINT, PLUGIN_LABEL, REPARTITIONING_TAINT, NodeView
from gpushare_node.core.clock import wall_seconds
from gpushare_node.core.policy import Policy
from gpushare_node.core.structs import Struct, replace
from gpushare_node.gpus.advertised import offered, promised
from gpushare_node.gpus.gpu_faults import is_right, missing_gpus, worst
from gpushare_node.gpus.hardware import PartitionResult
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile.desired_policy import DesiredPolicy
from gpushare_node.reconcile.drain import Drain, DrainRequest
from gpushare_node.reconcile.partitioning import change_hardware
from gpushare_node.reconcile.publication import ProfilePublication
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import find_disturbed
from gpushare_node.reporting.outcome import Blocked, Outcome, Unmet
from gpushare_node.reporting.reasons import ConditionReason


class _Stand(Enum):
    """What the hardware is: as the goal wants it, as the former policy wanted it, or neither."""

    GOAL = "goal"
    FORMER = "former"
    NEITHER = "neither"


def bring(visit: RunContext, goal: DesiredPolicy, node: NodeView | None) -> Outcome:
    """Bring the node to the policy. `node` None: without an API server. Blocked, with the reason, where it cannot be."""
    hardware = visit.site.open_hardware(goal.digest)
    try:
        visit.await_driver(hardware)
        former = visit.former()
        sight = hardware.look(goal.policy, frozenset())
        if not sight.plan.gpus:
            raise Blocked(*worst(sight), is_kept=True)
        wish = _wish(goal.policy, former, node)
        room = Drain(visit=visit, hardware=hardware, wish=wish)
        room.remember(former, sight)
        if not wish.is_partly and sight.plan.operations and len(missing_gpus(sight)) < len(sight.plan.unfit):
            # A GPU that cannot follow would leave the node with half of each layout, and the tenants' work gone for it.
            raise Blocked(*worst(sight), is_kept=True)
        needs_room = sight.plan.operations or sight.compute_modes or wish.disturbed or _is_relabelled(goal.policy, former, node)
        if needs_room and node is not None:
            room.close(node)
        if needs_room and not hardware.is_backing_off(sight):
            sight = room.make(node, sight)
        return _Bringing(visit=visit, goal=goal, former=former, room=room, before=hardware.devices(sight)).run(sight)
    finally:
        hardware.close()


def _wish(policy: Policy, former: Policy | None, node: NodeView | None) -> DrainRequest:
    """A node that offers a former layout is kept whole; one that is repaired, or offers nothing, has nothing to be kept."""
    if node is None:
        return DrainRequest(policy=policy, is_partly=True)
    is_repair = former is not None and former.is_alike(policy)
    return DrainRequest(
        policy=policy,
        disturbed=find_disturbed(former, policy, node.labels, node.allocatable),
        is_partly=is_repair or not offered(node.allocatable),
        is_repair=is_repair,
    )


def _is_relabelled(policy: Policy, former: Policy | None, node: NodeView | None) -> bool:
    """Whether the plugin gets another config on a node that offers GPUs: until it has started anew, the node offers none.

    What is put right under the policy in force is no change, and queues behind nobody.
    """
    if node is None or (former is not None and former.is_alike(policy)) or not offered(node.allocatable):
        return False
    return node.labels.get(PLUGIN_LABEL, "")[:-2] != policy.profile


class _Bringing(Struct, frozen=False):
    """The part where things are changed. `before` are the devices that stood when it began."""

    visit: RunContext
    goal: DesiredPolicy
    former: Policy | None
    room: Drain
    before: frozenset[str]
    _stand: _Stand = _Stand.NEITHER
    _sight: GpuView | None = None
    _offering: ProfilePublication | None = None

    def run(self, sight: GpuView) -> Outcome:
        if self.room.hardware.is_backing_off(sight):
            # Nobody is sent away, and no client paused, for what is not tried any more. What stands is offered.
            change = self.room.hardware.change(self.goal.policy, sight, frozenset(), self.visit.take)
            self._publish()
        else:
            change = change_hardware(
                self.room, sight, self.goal.digest, announce=lambda: self._announce(sight), publish=self._publish
            )
        if self._sight is None:
            # mig-manager was at work, and failed.
            raise Blocked(change.reason or ConditionReason.PARTITION_FAILED, change.message)
        lack = self._offering.await_plugin() if self._offering is not None and self._stand is not _Stand.NEITHER else None
        if self._stand is _Stand.GOAL:
            return self._finish(self._sight, lack)
        if self._stand is _Stand.FORMER and lack is None and self.visit.site.cluster is not None:
            # The former layout is offered as before, though its instances may be new ones.
            _forget_change(self.visit)
            self.visit.let_in(REPARTITIONING_TAINT)
        return self._fail(change)

    def _announce(self, sight: GpuView) -> None:
        """Have the node's other programs learn of the goal before the hardware follows. The taint keeps pods away."""
        if self.visit.site.cluster is not None:
            devices = self.room.hardware.devices(sight)
            ProfilePublication(visit=self.visit, policy=self.goal.policy, devices=devices, wanted={}).publish()

    def _publish(self) -> None:
        """Look what stands now, and have the plugin offer it. Where nothing was changed and nothing is right, say nothing."""
        hardware = self.room.hardware
        self._sight = hardware.look(self.goal.policy, self.room.allocated)
        policy: Policy | None = self.goal.policy
        if is_right(self._sight):
            self._stand = _Stand.GOAL
        elif self.former is not None and is_right(hardware.look(self.former, self.room.allocated)):
            self._stand, policy = _Stand.FORMER, self.former
        elif hardware.devices(self._sight) == self.before:
            policy = None
        if policy is None or self.visit.site.cluster is None:
            return
        now = hardware.look(policy, self.room.allocated)
        wanted = promised(policy, missing_gpus(now))
        self._offering = ProfilePublication(visit=self.visit, policy=policy, devices=hardware.devices(now), wanted=wanted)
        self._offering.publish()

    def _finish(self, sight: GpuView, lack: Unmet | None) -> Outcome:
        """The node is what the policy says, but for GPUs that are lost. The taint stays while the offer is not right."""
        if lack is not None:
            raise Blocked(lack.reason, lack.message)
        visit = self.visit
        # Before pods come: who is started from here on is not exempt from a first cap.
        capped = {share.resource for share in self.goal.policy.shares if share.cap_mib is not None}
        visit.site.folder.begin_caps(capped, wall_seconds())
        if not visit.is_offline:
            _keep(visit, self.goal.text)
        if visit.site.cluster is not None:
            visit.let_in(NOT_READY_TAINT, REPARTITIONING_TAINT)
        visit.enforced = self.goal.policy
        visit.pace.give_back()
        if sight.plan.unfit:
            reason, message = worst(sight)
            return Outcome(reason=reason, message=message, is_usable=True)
        return Outcome(reason=ConditionReason.READY, message=ConditionReason.READY.value.means, is_usable=True)

    def _fail(self, change: PartitionResult) -> Outcome:
        """The turn is kept: a change that fails here must not go on to other nodes."""
        if change.reason is not None:
            return Outcome(reason=change.reason, message=change.message)
        if self._sight is not None and self._sight.plan.unfit:
            reason, message = worst(self._sight)
            return Outcome(reason=reason, message=message)
        text = self.room.obstacle.message if self.room.obstacle is not None else "processes on the GPUs"
        return Outcome(reason=ConditionReason.GPU_BUSY, message=f"in the way: {text}; the other GPUs have the layout")


def _forget_change(visit: RunContext) -> None:
    """The former layout stands whole again: no change is under way."""
    journal = visit.site.folder.journal()
    if journal is not None and journal.is_changing:
        visit.site.folder.write_journal(replace(journal, is_changing=False))


def _keep(visit: RunContext, text: str) -> None:
    """From now on this is the policy in force, and nothing is under way."""
    folder = visit.site.folder
    if folder.policy() != text:
        folder.keep_policy(text)
    if folder.journal() is not None:
        folder.clear_journal()
