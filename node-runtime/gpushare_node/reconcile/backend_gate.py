"""BackendGate: which back end may offer the node's GPUs: the device plugin, the DRA driver, or for a time neither.

The scheduler gives out what each of the two offers, and neither knows of the other. The node's label is the gate: the
DaemonSets of both follow it, gpu-operator's plugin a label of its own beside it. Invariants, also after a kill at any step:

- A back end may run only after the other one has gone: its pods, and what the API server shows of its offer.
- GPUs of a node with DRA change only while neither may run and neither does, and no claim is prepared: a driver that meets
  another layout hands out parts of it under their former names. The same holds where the driver is to make the instances
  itself from now on, or no more: when it starts it removes those that it does not know.
- Claims that are prepared bring the driver back, whatever the policy is: nothing else can end them, so their pods would stay.
- Where a person wrote the label, so that a back end offers what pods have of the other, no more pods come from that moment on.

The label alone says how far a change has come, so that it survives the node's folder. While it is `none` the node is out of
service, and what is left of the change waits for no window. A node that DRA does not concern costs no request.
"""

from collections.abc import Callable, Mapping, Sequence

from gpushare_node.adapters.kube.cluster import PLUGIN_DEPLOY_LABEL, ClusterError, NodeView, PodView
from gpushare_node.adapters.kube.node_client import WRITER
from gpushare_node.adapters.kube.slices import are_on_demand
from gpushare_node.backends.backend import CheckpointError, about_unregistered, cleanup_commands
from gpushare_node.contract.names import BACKEND_LABEL, NO_BACKEND
from gpushare_node.contract.policy import Backend, Policy, Stack
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.gpus.view import GpuView
from gpushare_node.reconcile.drain import Drain
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import DeviceHolder, asks_for_gpus, find_devices, without_lost
from gpushare_node.reporting.outcome import Blocked, Status, Unmet, join_first
from gpushare_node.vendors import is_gpu_resource, of

_LEAVE_SECONDS = 300.0
"""How long a back end may take to leave: its pod's grace, and what kubelet takes to remove the slices if we cannot."""

_NAME, _APP, _DRIVER = "app.kubernetes.io/name", "app", "kubelet-plugin"
_MAX_NAMED = 3


class BackendGate(Struct, frozen=False):
    """The gate of one node, for the change that `drain` is for. `former` is the policy in force."""

    drain: Drain
    former: Policy | None
    _has_seen_driver: bool = False
    _has_deleted: bool = False
    _before: Backend | None = None
    """Which back end could run before this attempt closed the gate."""

    @property
    def _context(self) -> RunContext:
        return self.drain.context

    @property
    def _policy(self) -> Policy:
        return self.drain.request.policy

    @property
    def is_concerned(self) -> bool:
        """Whether DRA serves the node, is to serve it, or has served it."""
        policies = {self._policy.backend} | ({self.former.backend} if self.former is not None else set())
        return Backend.DRA in policies or self.drain.node.backend is not Backend.DEVICE_PLUGIN

    def prepare(self, view: GpuView) -> None:
        """Have the drain wait for whom the change disturbs, after what the label permits was made to fit what pods hold."""
        context, request = self._context, self.drain.request
        context.is_closed = self.drain.node.backend is None
        if not self.is_concerned:
            return
        if context.cluster.has_server:
            if context.is_closed:
                # What a back end offers first, pods may only get once it is right.
                self.drain.taint()
            self._recover(view)
        node, goal = self.drain.node, request.policy.backend
        others = {name for holder in self._holders() for name in self._foreign(holder)}
        if node.backend not in (None, goal):
            others |= context.deps.backend.advertised(node.allocatable).keys()
        self.drain.request = replace(request, is_partly=False, affected=frozenset(others), find_further=self._find_disturbed)

    def must_close(self, view: GpuView) -> bool:
        """Whether neither back end may run before the node is as desired: the GPUs change, or who offers them."""
        if not self.is_concerned:
            return False
        return bool(view.plan.operations or view.compute_modes) or self._must_change

    @property
    def _must_change(self) -> bool:
        """Whether the other back end may run, or a driver that makes no instances on demand, or does. Unknown without a server.

        As long as nothing is listed, a driver is not known to have started before the gate was closed.
        """
        if not self._context.cluster.has_server:
            return False
        former = self._policy if self.former is None else self.former
        if former.is_on_demand is not self._policy.is_on_demand and self.drain.node.backend is self._policy.backend:
            listed = are_on_demand(self._context.cluster.slices(of(self._policy.vendor).dra_driver))
            return listed is not None and listed is not self._policy.is_on_demand
        return self.drain.node.backend not in (None, self._policy.backend)

    def _find_disturbed(self, view: GpuView) -> frozenset[str]:
        """Return the devices that no claim or pod may hold: those of GPUs that change, or all if the back end does."""
        changing = {gpu.uuid for gpu in view.plan.gpus if gpu.operations} | view.compute_modes
        return find_devices(one for one in view.surveys if self._must_change or one.uuid in changing)

    def close(self, view: GpuView) -> GpuView:
        """Let neither back end run, wait until neither does, and return the GPUs then. Blocked if a pod still holds one."""
        if not self.must_close(view):
            return view
        context = self._context
        if not context.cluster.has_server:
            reason = ConditionReason.PARTITIONING if context.is_offline else ConditionReason.BACK_END_RUNNING
            text = "whether the DRA driver runs is unknown without an API server, so no GPU is changed"
            raise Blocked(reason, text, is_unchanged=True)
        self._before = context.cluster.node().backend
        self._permit(None)
        self._await(self._find_running)
        return self.drain.look_again()

    def reopen(self) -> None:
        """Let the back end run again that ran before, because nothing has been changed."""
        context = self._context
        if self._before is not None and context.is_closed and not context.is_touched:
            self._permit(self._before)

    def open(self, policy: Policy) -> None:
        """Let the policy's back end run, which the GPUs are ready for. Blocked if the other one does not leave."""
        if not self.is_concerned or not self._context.cluster.has_server:
            return
        now = self._context.cluster.node().backend
        if now not in (None, policy.backend):
            # What the GPUs have is the former layout, and an attempt that may drain the node changes that.
            raise Blocked(ConditionReason.BACK_END_RUNNING, f"the GPUs are still offered by {now}")
        if policy.backend is not Backend.DRA:
            self._await(self._find_driver)
        elif now is None:
            self._await(self._find_plugin)
            self._refuse_remembered(policy)
        self._permit(policy.backend)

    def _recover(self, view: GpuView) -> None:
        """Bring the driver back if it may not run, and claims are in the way of what the node is to become.

        Send it away if it may run although pods have devices of the plugin, and none has a claim.
        """
        node, holders = self.drain.node, self._holders()
        if node.backend is Backend.DRA:
            if any(one.resources - one.claimed for one in holders):
                self.drain.taint()
                self._context.may_untaint_on_abort = False
                if not any(one.claimed for one in holders):
                    self._permit(None)
                    self.drain.node = self._context.cluster.node()
            return
        if self._policy.backend is Backend.DRA:
            devices = self._find_disturbed(view)
            must_return = any(one.claimed and one.may_hold(devices) for one in without_lost(holders, view))
        else:
            must_return = any(one.claimed for one in holders)
        if not must_return:
            return
        self.drain.taint()
        self._permit(None)
        self._await(self._find_plugin)
        self._permit(Backend.DRA)
        self.drain.node = self._context.cluster.node()

    # What is still there.

    def _find_running(self) -> Unmet | None:
        node = self._context.cluster.node()
        if node.backend is not None:
            return Unmet(
                reason=ConditionReason.LABEL_CONFLICT, message=", ".join(node.describe_drift({BACKEND_LABEL: NO_BACKEND}))
            )
        pods = self._context.platform_pods()
        return self._find_plugin_in(node, pods) or self._find_driver_in(pods)

    def _find_plugin(self) -> Unmet | None:
        """Return what is left of the device plugin: its pods, its offer, and pods that hold or are about to get its devices."""
        pods = self._context.cluster.pods()
        unmet = self._find_plugin_in(self._context.cluster.node(), self._context.platform_pods(pods))
        if unmet is not None:
            return unmet
        left = [holder.name for holder in self._holders() if holder.resources - holder.claimed]
        left += [f"pod {one.namespace}/{one.name}" for one in pods if one.phase == "Pending" and asks_for_gpus(one)]
        if not left:
            return None
        return Unmet(reason=ConditionReason.GPU_BUSY, message=f"in use by {join_first(sorted(set(left)), _MAX_NAMED)}")

    def _find_driver(self) -> Unmet | None:
        """Return what is left of the DRA driver: pods of it, its offer, and claims that are prepared."""
        unmet = self._find_driver_in(self._context.platform_pods())
        left = [] if unmet is not None else [holder.name for holder in self._holders() if holder.claimed]
        if not left:
            return unmet
        return Unmet(reason=ConditionReason.GPU_BUSY, message=f"in use by {join_first(left, _MAX_NAMED)}")

    def _find_plugin_in(self, node: NodeView, pods: tuple[PodView, ...]) -> Unmet | None:
        apps = of(self._policy.vendor).plugin_apps
        names = _name(pods, lambda labels: not apps.isdisjoint({labels.get(_APP), labels.get(_NAME)}))
        offered = self._context.deps.backend.advertised(node.allocatable)
        if not names and not offered:
            return None
        what = names or f"{', '.join(sorted(offered))} in the node's allocatable{self._about_left(offered)}"
        return Unmet(reason=ConditionReason.BACK_END_RUNNING, message=f"the device plugin still offers GPUs: {what}")

    def _about_left(self, offered: Mapping[str, int]) -> str:
        try:
            return about_unregistered(offered, self._context.deps.backend.read_checkpoint().registered)
        except CheckpointError:
            return ""

    def _find_driver_in(self, pods: tuple[PodView, ...]) -> Unmet | None:
        """Return what is left of the DRA driver. Slices that it left are deleted: kubelet does so half a minute after it.

        Only if this attempt has seen a pod of the driver, none is left, and nothing listens: the rest is kubelet's.
        """
        context, vendor = self._context, of(self._policy.vendor)
        what = _name(pods, lambda labels: labels.get(vendor.dra_component) == _DRIVER)
        self._has_seen_driver = self._has_seen_driver or bool(what)
        if not what:
            slices = [one.name for one in context.cluster.slices(vendor.dra_driver)]
            # That there are none any more is no proof: a driver that lives publishes them again half a minute later.
            may_listen = bool(slices or self._has_deleted) and context.deps.is_served(vendor.dra_driver)
            if not slices and not may_listen:
                return None
            what = f"ResourceSlice {join_first(slices, _MAX_NAMED)}" if slices else "a program listens on its sockets"
            if slices and not may_listen and self._has_seen_driver:
                what += self._delete(slices)
        return Unmet(reason=ConditionReason.BACK_END_RUNNING, message=f"the DRA driver still offers GPUs: {what}")

    def _delete(self, slices: Sequence[str]) -> str:
        """Delete these. Return why that failed, as the end of a sentence."""
        self._has_deleted = True
        try:
            for name in slices:
                self._context.cluster.delete_slice(name)
        except ClusterError as error:
            return f", which kubelet must delete: {error}"
        self._context.record_step("slices", Status.CHANGED, f"deleted {join_first(slices, _MAX_NAMED)}")
        return ""

    def _refuse_remembered(self, policy: Policy) -> None:
        """Raise Blocked if pods that ask by name for devices of DRA would get the plugin's, which is gone."""
        context = self._context
        try:
            allocations = context.deps.backend.read_checkpoint().allocations
        except CheckpointError as error:
            raise Blocked(ConditionReason.GPU_BUSY, str(error)) from error
        left = {one.resource for one in allocations if one.claim is None and is_gpu_resource(one.resource)}
        names = left & context.cluster.extended_names([name for name, _ in policy.resources]) if left else left
        if names:
            # Of each the Node object may still have a capacity.
            shown = names.union(filter(is_gpu_resource, context.cluster.node().allocatable))
            command = cleanup_commands(shown, has_checkpoint=True)
            text = f"kubelet's checkpoint has allocations of {', '.join(sorted(names))}: {command}"
            raise Blocked(ConditionReason.KUBELET_REMEMBERS_PLUGIN, text)

    def _foreign(self, holder: DeviceHolder) -> frozenset[str]:
        """Return the resources that a pod has of the back end that the node is not to have."""
        return holder.resources - holder.claimed if self._policy.backend is Backend.DRA else holder.claimed

    def _holders(self) -> tuple[DeviceHolder, ...]:
        return self._context.holders()

    # The labels.

    def _permit(self, backend: Backend | None) -> None:
        """Write which back end may run, unless the node says so. gpu-operator's label is given back only if it was ours."""
        context, cluster = self._context, self._context.cluster
        node = cluster.node()
        labels: dict[str, str | None] = {}
        if node.backend is not backend:
            labels[BACKEND_LABEL] = NO_BACKEND if backend is None else backend.label
        deploys = node.labels.get(PLUGIN_DEPLOY_LABEL)
        if backend is Backend.DEVICE_PLUGIN:
            if deploys == "false" and node.owners.get(PLUGIN_DEPLOY_LABEL) == WRITER:
                labels[PLUGIN_DEPLOY_LABEL] = "true"
        elif self._policy.stack is Stack.GPU_OPERATOR and deploys != "false":
            labels[PLUGIN_DEPLOY_LABEL] = "false"
        if labels:
            cluster.write_labels(labels)
            context.record_step("back end", Status.CHANGED, "neither may run" if backend is None else f"{backend} may run")
        context.is_closed = backend is None

    def _await(self, find: Callable[[], Unmet | None]) -> None:
        unmet = self._context.wait(find, _LEAVE_SECONDS)
        if unmet is not None:
            raise Blocked(unmet.reason, unmet.message)


def _name(pods: tuple[PodView, ...], is_of: Callable[..., bool]) -> str:
    found = [f"pod {one.namespace}/{one.name}" for one in pods if not one.has_ended and is_of(one.labels)]
    return join_first(found, _MAX_NAMED)
