"""Bringing a node to its policy, when nothing speaks against it: look, make room, change, publish, verify, let pods in.

What is there already is only verified: no turn, no taint, no pause, nothing written.
"""

from enum import Enum

from gpushare_node.adapters.kube.cluster import NOT_READY_TAINT, PLUGIN_LABEL, REPARTITIONING_TAINT, NodeView
from gpushare_node.core.clock import wall_seconds
from gpushare_node.core.policy import Policy
from gpushare_node.core.structs import Struct, replace
from gpushare_node.gpus.advertised import advertised, expected
from gpushare_node.gpus.gpu_faults import is_converged, missing_gpus, worst
from gpushare_node.gpus.hardware import PartitionResult
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile.desired_policy import DesiredPolicy
from gpushare_node.reconcile.drain import Drain, DrainRequest
from gpushare_node.reconcile.partitioning import change_hardware
from gpushare_node.reconcile.publication import ProfilePublication
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import find_affected
from gpushare_node.reporting.outcome import Blocked, Outcome, Unmet
from gpushare_node.reporting.reasons import ConditionReason


class _Stand(Enum):
    """What the hardware is: as the desired policy wants it, as the former policy wanted it, or neither."""

    DESIRED = "desired"
    FORMER = "former"
    NEITHER = "neither"


def converge(context: RunContext, desired: DesiredPolicy, node: NodeView | None) -> Outcome:
    """Bring the node to the policy. `node` None: without an API server. Blocked, with the reason, where it cannot be."""
    hardware = context.deps.open_hardware(desired.digest)
    try:
        context.await_driver(hardware)
        former = context.former()
        view = hardware.look(desired.policy, frozenset())
        if not view.plan.gpus:
            raise Blocked(*worst(view), is_unchanged=True)
        request = _drain_request(desired.policy, former, node)
        drain = Drain(context=context, hardware=hardware, request=request)
        drain.remember(former, view)
        if not request.is_partly and view.plan.operations and len(missing_gpus(view)) < len(view.plan.unfit):
            # A GPU that cannot follow would leave the node with half of each layout, and the tenants' work gone for it.
            raise Blocked(*worst(view), is_unchanged=True)
        needs_room = (
            view.plan.operations or view.compute_modes or request.affected or _is_relabelled(desired.policy, former, node)
        )
        if needs_room and node is not None:
            drain.close(node)
        if needs_room and not hardware.is_backing_off(view):
            view = drain.make(node, view)
        return _Convergence(context=context, desired=desired, former=former, drain=drain, before=hardware.devices(view)).run(
            view
        )
    finally:
        hardware.close()


def _drain_request(policy: Policy, former: Policy | None, node: NodeView | None) -> DrainRequest:
    """A node that offers a former layout is kept whole; one that is repaired, or offers nothing, has nothing to be kept."""
    if node is None:
        return DrainRequest(policy=policy, is_partly=True)
    is_repair = former is not None and former.is_alike(policy)
    return DrainRequest(
        policy=policy,
        affected=find_affected(former, policy, node.labels, node.allocatable),
        is_partly=is_repair or not advertised(node.allocatable),
        is_repair=is_repair,
    )


def _is_relabelled(policy: Policy, former: Policy | None, node: NodeView | None) -> bool:
    """Whether the plugin gets another config on a node that offers GPUs: until it has started anew, the node offers none.

    What is put right under the policy in force is no change, and queues behind nobody.
    """
    if node is None or (former is not None and former.is_alike(policy)) or not advertised(node.allocatable):
        return False
    return node.labels.get(PLUGIN_LABEL, "")[:-2] != policy.profile


class _Convergence(Struct, frozen=False):
    """The part where things are changed. `before` are the devices that stood when it began."""

    context: RunContext
    desired: DesiredPolicy
    former: Policy | None
    drain: Drain
    before: frozenset[str]
    _stand: _Stand = _Stand.NEITHER
    _view: GpuView | None = None
    _offering: ProfilePublication | None = None

    def run(self, view: GpuView) -> Outcome:
        if self.drain.hardware.is_backing_off(view):
            # Nobody is sent away, and no client paused, for what is not tried any more. What stands is offered.
            change = self.drain.hardware.change(self.desired.policy, view, frozenset(), self.context.record_result)
            self._publish()
        else:
            change = change_hardware(
                self.drain, view, self.desired.digest, announce=lambda: self._announce(view), publish=self._publish
            )
        if self._view is None:
            # mig-manager was at work, and failed.
            raise Blocked(change.reason or ConditionReason.PARTITION_FAILED, change.message)
        mismatch = self._offering.await_plugin() if self._offering is not None and self._stand is not _Stand.NEITHER else None
        if self._stand is _Stand.DESIRED:
            return self._finish(self._view, mismatch)
        if self._stand is _Stand.FORMER and mismatch is None and self.context.deps.cluster is not None:
            # The former layout is offered as before, though its instances may be new ones.
            _forget_change(self.context)
            self.context.remove_taints(REPARTITIONING_TAINT)
        return self._fail(change)

    def _announce(self, view: GpuView) -> None:
        """Have the node's other programs learn of the goal before the hardware follows. The taint keeps pods away."""
        if self.context.deps.cluster is not None:
            devices = self.drain.hardware.devices(view)
            ProfilePublication(context=self.context, policy=self.desired.policy, devices=devices, wanted={}).publish()

    def _publish(self) -> None:
        """Look what stands now, and have the plugin offer it. Where nothing was changed and nothing is right, say nothing."""
        hardware = self.drain.hardware
        self._view = hardware.look(self.desired.policy, self.drain.allocated)
        policy: Policy | None = self.desired.policy
        if is_converged(self._view):
            self._stand = _Stand.DESIRED
        elif self.former is not None and is_converged(hardware.look(self.former, self.drain.allocated)):
            self._stand, policy = _Stand.FORMER, self.former
        elif hardware.devices(self._view) == self.before:
            policy = None
        if policy is None or self.context.deps.cluster is None:
            return
        now = hardware.look(policy, self.drain.allocated)
        wanted = expected(policy, missing_gpus(now))
        self._offering = ProfilePublication(context=self.context, policy=policy, devices=hardware.devices(now), wanted=wanted)
        self._offering.publish()

    def _finish(self, view: GpuView, mismatch: Unmet | None) -> Outcome:
        """The node is what the policy says, but for GPUs that are lost. The taint stays while the offer is not right."""
        if mismatch is not None:
            raise Blocked(mismatch.reason, mismatch.message)
        context = self.context
        # Before pods come: who is started from here on is not exempt from a first cap.
        capped = {share.resource for share in self.desired.policy.shares if share.cap_mib is not None}
        context.deps.folder.begin_caps(capped, wall_seconds())
        if not context.is_offline:
            _keep(context, self.desired.text)
        if context.deps.cluster is not None:
            context.remove_taints(NOT_READY_TAINT, REPARTITIONING_TAINT)
        context.enforced = self.desired.policy
        context.slot.give_back()
        if view.plan.unfit:
            reason, message = worst(view)
            return Outcome(reason=reason, message=message, is_usable=True)
        return Outcome(reason=ConditionReason.READY, message=ConditionReason.READY.value.means, is_usable=True)

    def _fail(self, change: PartitionResult) -> Outcome:
        """The turn is kept: a change that fails here must not go on to other nodes."""
        if change.reason is not None:
            return Outcome(reason=change.reason, message=change.message)
        if self._view is not None and self._view.plan.unfit:
            reason, message = worst(self._view)
            return Outcome(reason=reason, message=message)
        text = self.drain.blocker.message if self.drain.blocker is not None else "processes on the GPUs"
        return Outcome(reason=ConditionReason.GPU_BUSY, message=f"in the way: {text}; the other GPUs have the layout")


def _forget_change(context: RunContext) -> None:
    """The former layout stands whole again: no change is under way."""
    journal = context.deps.folder.journal()
    if journal is not None and journal.is_changing:
        context.deps.folder.write_journal(replace(journal, is_changing=False))


def _keep(context: RunContext, text: str) -> None:
    """From now on this is the policy in force, and nothing is under way."""
    folder = context.deps.folder
    if folder.policy() != text:
        folder.keep_policy(text)
    if folder.journal() is not None:
        folder.clear_journal()
