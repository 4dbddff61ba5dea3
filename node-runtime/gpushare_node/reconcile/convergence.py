"""Bringing a node to its policy: look, drain, change the hardware, publish, verify, remove the taints.

If the node is as the policy wants it, that is only verified: no slot, no taint, no pause, no write.
"""

from enum import Enum

from gpushare_node.adapters.host.state_files import FirstCaps
from gpushare_node.adapters.kube.cluster import CHANGE_TAINTS, PLUGIN_LABEL, NodeView
from gpushare_node.contract.names import NOT_READY_TAINTS, RETRY_ANNOTATION
from gpushare_node.contract.policy import Partitioner, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.core.clock import wall_seconds
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.gpus.hardware import Hardware, PartitionResult
from gpushare_node.gpus.view import GpuView, find_fabric, is_converged, missing_gpus, worst
from gpushare_node.reconcile.backend_gate import BackendGate
from gpushare_node.reconcile.config_manager import ConfigManager
from gpushare_node.reconcile.drain import Drain, DrainRequest, PolicyChange
from gpushare_node.reconcile.partitioning import HardwareChange
from gpushare_node.reconcile.publication import ProfilePublication
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import find_affected
from gpushare_node.reporting.outcome import Blocked, Outcome, Unmet
from gpushare_node.vendors import LAYOUT_TAINTS, of

_FABRIC_SECONDS = 300.0
"""How long the fabric manager may take to set up NVLink, after a boot or a change of MIG modes."""

_BACKING_OFF = (
    "attempts have failed under this policy and driver, and the next is not due yet; the annotation "
    f"{RETRY_ANNOTATION}=now starts it immediately"
)


class _Layout(Enum):
    """Which layout the hardware has."""

    DESIRED = "desired"
    FORMER = "former"
    NEITHER = "neither"


def converge(context: RunContext, desired: DesiredPolicy, node: NodeView) -> Outcome:
    """Bring the node, found as `node`, to the policy. Blocked, with the reason, if that cannot be done now."""
    hardware = context.deps.open_hardware(desired.digest)
    try:
        context.await_driver(hardware)
        return _Convergence(context=context, desired=desired, node=node, hardware=hardware, former=context.former()).run()
    finally:
        hardware.close()


class _Reached(Struct):
    """What the GPUs have after the attempt, and what of it the plugin must offer: None if nothing was published."""

    view: GpuView
    layout: _Layout
    publication: ProfilePublication | None


class _Convergence(Struct, frozen=False):
    """One attempt, from `node` as it was found. `former` is the policy that was in force last."""

    context: RunContext
    desired: DesiredPolicy
    node: NodeView
    hardware: Hardware
    former: Policy | None
    _reached: _Reached | None = None
    """None until the attempt is over, and for good if mig-manager or the config manager failed."""

    def run(self) -> Outcome:
        policy, hardware = self.desired.policy, self.hardware
        view = hardware.look(policy, frozenset())
        if not view.plan.gpus:
            raise Blocked(*worst(view), is_unchanged=True)
        drain = Drain(context=self.context, hardware=hardware, request=self._request(), node=self.node)
        drain.remember(self.former, view)
        fault = self._find_fault(view)
        if fault:
            if view.plan.operations:
                drain.taint_if_wrong()
            return self._leave_as_it_is(fault, view)
        if not drain.request.is_partly and view.plan.operations and len(missing_gpus(view)) < len(view.plan.unfit):
            # A GPU that cannot follow would leave the node with half of each layout, after the tenants have lost their work.
            raise Blocked(*worst(view), is_unchanged=True)
        if policy.partitioner is Partitioner.CONFIG_MANAGER and view.plan.operations and view.plan.unfit:
            # It counts all GPUs of the node, and changes none if one is missing.
            drain.taint_if_wrong()
            raise Blocked(*worst(view), is_unchanged=True)
        gate = BackendGate(drain=drain, former=self.former)
        gate.prepare(view)
        needs_drain = self._complete_request(drain, gate, view)
        if needs_drain:
            drain.taint_if_wrong()
            # An attempt whose backoff ends below changes GPUs without a drain.
            drain.await_window(of(policy.vendor).window_seconds)
        is_backing_off = hardware.is_backing_off(view)
        if needs_drain and not is_backing_off:
            view = drain.run(view)
            # The GPUs may need another change by now.
            is_backing_off = hardware.is_backing_off(view)
        devices = hardware.devices(view)
        if is_backing_off and gate.is_concerned:
            # Should the backoff end at this very moment, nothing is changed behind an open gate.
            change = PartitionResult(results=(), reason=ConditionReason.PARTITION_FAILED, message=_BACKING_OFF)
            self._publish(drain, gate, devices)
        elif is_backing_off:
            # The plan is not tried now: no pod is evicted and no client paused. What the hardware has is offered. Should the
            # backoff end at this very moment, only GPUs that no pod holds are changed.
            change = hardware.change(policy, view, drain.find_allocated, self.context.record_result)
            self._publish(drain, gate, devices)
        else:
            change = HardwareChange(
                drain=drain,
                digest=self.desired.digest,
                announce=lambda: self._announce(devices),
                publish=lambda: self._publish(drain, gate, devices),
                gate=gate,
            ).run(view)
        return self._verify(drain, change)

    def _find_fault(self, view: GpuView) -> str:
        """Return which GPU has a fault that only a reset ends; empty if none has. Without a server slices are not known."""
        context, fault = self.context, self.context.faults.find(view.surveys)
        if fault or not context.cluster.has_server or context.is_offline:
            return fault
        policies = (self.desired.policy, *([self.former] if self.former is not None else []))
        return next((found.message for one in policies if (found := context.backend_of(one).find_fault()) is not None), "")

    def _leave_as_it_is(self, fault: str, view: GpuView) -> Outcome:
        """Change and publish nothing, which would bring the GPU back. If nothing must change, the others go on serving."""
        context, text = self.context, f"{fault[0].upper()}{fault[1:]}"
        if context.deps.folder.policy() != self.desired.text or not is_converged(view) or context.is_half_done():
            raise Blocked(ConditionReason.GPU_FAULTY, text, is_unchanged=True)
        context.enforced = self.desired.policy
        context.slot.give_back()
        return Outcome(reason=ConditionReason.GPU_FAULTY, message=text, is_usable=True)

    def _complete_request(self, drain: Drain, gate: BackendGate, view: GpuView) -> bool:
        """Return whether the attempt disturbs pods, and have the drain's request say which, and whether that is a repair."""
        context, node = self.context, drain.node
        is_managed, is_renamed = ConfigManager(drain=drain, digest=self.desired.digest).must_act(view), False
        if is_managed:
            # The manager's taint ends every pod: none may hold a GPU by then, under whatever name.
            held = {resource for holder in context.holders() for resource in holder.resources}
            offered = context.deps.backend.advertised(node.allocatable).keys()
            drain.request = replace(drain.request, affected=drain.request.affected | held | offered)
            # A node whose GPUs are right loses its offer for a name alone: that is no repair.
            is_renamed = bool(offered) and is_converged(view) and not context.is_half_done()
        if not (
            gate.must_close(view)
            or view.plan.operations
            or view.compute_modes
            or drain.request.affected
            or self._is_relabelled(node)
            or is_managed
        ):
            return False
        change = PolicyChange(
            policy=self.desired.policy,
            former=self.former,
            view=view,
            former_view=drain.former_view,
            node=node,
            journal=context.deps.folder.journal(),
        )
        is_repair = drain.request.is_repair and not is_renamed
        drain.request = replace(drain.request, is_disruptive=is_renamed or change.is_disruptive, is_repair=is_repair)
        return True

    def _request(self) -> DrainRequest:
        """A node that offers a former layout is changed as a whole; one that is repaired, or offers nothing, GPU by GPU."""
        policy, node = self.desired.policy, self.node
        is_repair = self.former is not None and self.former.is_alike(policy)
        if not self.context.cluster.has_server:
            return DrainRequest(policy=policy, is_partly=True, is_repair=is_repair)
        offered = self.context.deps.backend.advertised(node.allocatable)
        return DrainRequest(
            policy=policy,
            affected=find_affected(self.former, policy, node.labels, offered),
            is_partly=is_repair or not offered,
            is_repair=is_repair,
        )

    def _is_relabelled(self, node: NodeView) -> bool:
        """Return whether the plugin of a node that offers GPUs gets another config: until it restarts, the node offers none.

        A repair under the policy in force changes no config, and waits for no slot.
        """
        policy, offered = self.desired.policy, self.context.deps.backend.advertised(node.allocatable)
        if (self.former is not None and self.former.is_alike(policy)) or not offered:
            return False
        return node.labels.get(PLUGIN_LABEL, "")[:-2] != policy.profile

    def _announce(self, devices: frozenset[str]) -> None:
        """Publish the goal before the hardware has it, for the node's other programs. The taint keeps pods away."""
        if self.context.cluster.has_server:
            ProfilePublication(context=self.context, policy=self.desired.policy, devices=devices, desired={}).publish()

    def _publish(self, drain: Drain, gate: BackendGate, before: frozenset[str]) -> None:
        """Look what the hardware has now, and have the plugin offer it. If nothing has changed and nothing is right, do not.

        `before` are the devices before the change.
        """
        view, layout = self.hardware.look(self.desired.policy, drain.allocated), _Layout.NEITHER
        policy: Policy | None = self.desired.policy
        if is_converged(view):
            layout = _Layout.DESIRED
        elif self.former is not None and is_converged(self.hardware.look(self.former, drain.allocated)):
            layout, policy = _Layout.FORMER, self.former
        elif self.hardware.devices(view) == before:
            policy = None
        if policy is None or not self.context.cluster.has_server:
            self._reached = _Reached(view=view, layout=layout, publication=None)
            return
        offered = self.hardware.look(policy, drain.allocated)
        desired = self.context.backend_of(policy).expected(policy, missing_gpus(offered))
        devices = self.hardware.devices(offered)
        publication = ProfilePublication(context=self.context, policy=policy, devices=devices, desired=desired)
        publication.publish()
        gate.open(policy)
        self._reached = _Reached(view=view, layout=layout, publication=publication)

    def _verify(self, drain: Drain, change: PartitionResult) -> Outcome:
        reached = self._reached
        if reached is None:
            # The vendor's own program changed the GPUs, and failed.
            raise Blocked(change.reason or ConditionReason.PARTITION_FAILED, change.message)
        unmet = None
        if reached.publication is not None and reached.layout is not _Layout.NEITHER:
            unmet = reached.publication.await_plugin()
        if reached.layout is _Layout.DESIRED:
            return self._finish(reached.view, unmet)
        if reached.layout is _Layout.FORMER and reached.publication is not None and unmet is None:
            # The node offers the former layout again, though its instances may be new ones: no change is under way.
            journal = self.context.deps.folder.journal()
            if journal is not None and journal.is_changing:
                self.context.deps.folder.write_journal(replace(journal, is_changing=False, is_new_layout=False))
            self.context.remove_taints(*CHANGE_TAINTS)
        return _failure(reached.view, change, drain)

    def _look(self) -> GpuView:
        return self.hardware.look(self.desired.policy, frozenset())

    def _finish(self, view: GpuView, unmet: Unmet | None) -> Outcome:
        """The node is as the policy says, except for lost GPUs. The taint stays until the plugin offers the right devices."""
        context, folder = self.context, self.context.deps.folder
        if unmet is None and find_fabric(view.surveys) is not None:
            unmet = context.wait(lambda: find_fabric(self._look().surveys), _FABRIC_SECONDS)
        if unmet is not None:
            now = self._look()
            # A GPU that is lost meanwhile explains what the plugin does not offer.
            reason, message = worst(now) if now.plan.unfit else (unmet.reason, "")
            raise Blocked(reason, f"{message}; {unmet.message}" if message else unmet.message)
        # Before pods arrive: a container that starts after this moment is not exempt from a first cap.
        if not context.is_offline and folder.first_caps() is None:
            today = wall_seconds()
            older = (one for pod in context.cluster.pods() for one in pod.older_than(today))
            folder.keep_first_caps(FirstCaps(since=int(today), older=frozenset(older)))
        if not context.is_offline:
            if folder.policy() != self.desired.text:
                folder.keep_policy(self.desired.text)
            if context.is_evicting():
                context.remove_taints(*LAYOUT_TAINTS)
            if folder.journal() is not None:
                folder.clear_journal()
        context.remove_taints(*NOT_READY_TAINTS, *CHANGE_TAINTS)
        context.enforced = self.desired.policy
        context.slot.give_back()
        if view.plan.unfit:
            reason, message = worst(view)
            return Outcome(reason=reason, message=message, is_usable=True)
        return Outcome(reason=ConditionReason.READY, message=ConditionReason.READY.value.means, is_usable=True)


def _failure(view: GpuView, change: PartitionResult, drain: Drain) -> Outcome:
    """The outcome of a change that did not reach the goal. The slot is kept: the same change must not go on to other nodes."""
    if change.reason is not None:
        return Outcome(reason=change.reason, message=change.message)
    if view.plan.unfit:
        reason, message = worst(view)
        return Outcome(reason=reason, message=message)
    text = drain.blocker.message if drain.blocker is not None else "processes on the GPUs"
    return Outcome(reason=ConditionReason.GPU_BUSY, message=f"in use by {text}; the other GPUs have the layout")
