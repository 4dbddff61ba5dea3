"""Publishing a profile: sets the node's labels, and waits until the device plugin and the node offer what they say.

Owns the labels and the flips between a profile's two names. Changes no hardware and no taints.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpushare_node import membership
from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, Eviction, NodeView, PodView
from gpushare_node.backends.backend import CheckpointError, NodeBackend, find_rival
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.reconcile.run_context import Relabelling, RunContext
from gpushare_node.reporting.outcome import Status, Unmet
from gpushare_node.vendors import UUIDS

_WAIT_SECONDS = 300.0
_GRACE_SECONDS = 30.0
"""A flip shows in kubelet's checkpoint within two seconds; a plugin that restarts takes somewhat longer."""
_MPS_GRACE_SECONDS = 120.0
"""The plugin checks every half minute whether its MPS daemon answers; the daemon starts after the feature labels are set.
A flip ends both. A pod that is deleted instead takes as long to start."""

_MAX_FLIPS = 3
_CONFLICT_SECONDS = 60.0
"""A label that another writer changes is set again at most this often: each change restarts the plugin."""


class ProfilePublication(Struct, frozen=False):
    """The publication of one profile: the policy's labels for these devices. `desired` is what the node must then offer."""

    context: RunContext
    policy: Policy
    devices: frozenset[str]
    desired: Mapping[str, int]
    _published: Published | None = None
    _applied_at: float | None = None
    """By `RunContext.slept`: each flip restarts the plugin, which would make a slow machine even slower."""
    _conflict_at: float | None = None
    _flips: int = 0

    @property
    def _backend(self) -> NodeBackend:
        return self.context.backend_of(self.policy)

    def publish(self) -> None:
        """Set the labels, unless they are set. ClusterError."""
        node = self.context.cluster.node()
        last = self.context.deps.folder.profile()
        backend, label = self._backend, node.labels.get(PLUGIN_LABEL, "")
        published = backend.publish(last, label, self.policy.profile, self.devices)
        self._published = published
        if published != last:
            self.context.deps.folder.keep_profile(published.key, published.devices)
        if membership.must_apply(membership.desired(self.policy, published), node.labels, node.owners):
            self._apply(published, node)
        else:
            self.context.record_step("labels", Status.OK, published.key or self.policy.pool)

    def await_plugin(self) -> Unmet | None:
        """Wait until the node offers `desired`; return what is wrong after five minutes. `publish` must have been called."""
        unmet = self.context.wait(self._find, _WAIT_SECONDS)
        if unmet is not None and unmet.reason in (ConditionReason.WAITING_FOR_PLUGIN, ConditionReason.WRONG_RESOURCES):
            why = self._backend.explain(self.context.platform_pods(), self.policy)
            unmet = replace(unmet, message=unmet.message + why)
        text = "as planned" if unmet is None else unmet.message
        self.context.record_step("offer", Status.OK if unmet is None else Status.FAILED, text)
        return unmet

    def _apply(self, published: Published, node: NodeView) -> None:
        if node.labels.get(PLUGIN_LABEL, "") != published.key:
            # The plugin watches no other label.
            self.context.relabelling = Relabelling(sockets=self._backend.find_sockets(), at=self.context.slept)
        self.context.cluster.apply_labels(membership.desired(self.policy, published))
        self._published = published
        self._applied_at = self.context.slept
        self.context.record_step("labels", Status.CHANGED, published.key or self.policy.pool)

    def _find(self) -> Unmet | None:
        assert self._published is not None  # noqa: S101 - `publish` comes first
        node, backend = self.context.cluster.node(), self._backend
        taken = node.describe_drift(membership.desired(self.policy, self._published))
        if taken:
            return self._answer(taken, node)
        try:
            registered = backend.read_checkpoint().registered
        except CheckpointError as error:
            return Unmet(reason=ConditionReason.WAITING_FOR_PLUGIN, message=str(error))
        mismatch = backend.find_mismatch(self.desired, self.devices, registered, node.allocatable)
        if mismatch is not None and mismatch.is_stale:
            self._flip_in_time(node)
        context = self.context
        return mismatch or self._find_former(registered) or find_rival(context.cluster, self.policy, context.deps.is_served)

    def _find_former(self, registered: Mapping[str, frozenset[str]]) -> Unmet | None:
        """Return whether the plugin still has its former config: two configs can offer the same ids with other limits.

        After the grace time a plugin that keeps its sockets counts as restarted: some plugins follow no labels.
        """
        last = self.context.relabelling
        if last is None or not last.sockets or self.context.slept - last.at >= _GRACE_SECONDS:
            return None
        if not any(device_id.startswith(UUIDS) for ids in registered.values() for device_id in ids):
            return None
        if self._backend.find_sockets() - last.sockets:
            return None
        return Unmet(
            reason=ConditionReason.WAITING_FOR_PLUGIN, message="the device plugin has not restarted since its label changed"
        )

    def _flip_in_time(self, node: NodeView) -> None:
        """Publish under the other name, so that the plugin enumerates again. Each flip waits twice as long as the last one."""
        now = self.context.slept
        if self._applied_at is None:
            self._applied_at = now
        is_slow = self.policy.mode.has_daemon or (self._published is not None and not self._published.key)
        grace = _MPS_GRACE_SECONDS if is_slow else _GRACE_SECONDS
        if self._published is None or self._flips >= _MAX_FLIPS or now - self._applied_at < grace * 2**self._flips:
            return
        self._flips += 1
        if not self._published.key:
            self._applied_at = now
            restart_plugin(self.context, self._backend.restartable(self.context.platform_pods(), self.policy))
            return
        other = self._backend.flip(self._published)
        self.context.deps.folder.keep_profile(other.key, other.devices)
        self._apply(other, node)

    def _answer(self, taken: Sequence[str], node: NodeView) -> Unmet:
        """Set labels again that another writer has changed or removed, at most once a minute, and return which they were."""
        now = self.context.deps.clock.now()
        if self._published is not None and (self._conflict_at is None or now - self._conflict_at >= _CONFLICT_SECONDS):
            self._conflict_at = now
            self._apply(self._published, node)
        return Unmet(reason=ConditionReason.LABEL_CONFLICT, message=", ".join(taken))


def restart_plugin(context: RunContext, pods: Iterable[PodView]) -> None:
    """Delete these pods, whose DaemonSets create others. ClusterError."""
    for pod in pods:
        outcome = context.cluster.evict(pod, is_forced=True)
        status = Status.CHANGED if outcome in (Eviction.EVICTED, Eviction.GONE) else Status.FAILED
        context.record_step("restart", status, f"pod {pod.namespace}/{pod.name} {outcome.value}")


def remove_labels(context: RunContext, *, keeps: frozenset[str]) -> None:
    """Remove our labels except these. Writes nothing if there are no others. ClusterError."""
    node = context.cluster.node()
    here = membership.own_labels(node.labels, node.owners)
    if here.keys() <= keeps:
        return
    context.cluster.apply_labels({name: value for name, value in here.items() if name in keeps})
    # A label that another field manager has set to the same value stays when we no longer apply it. Another value, or any label
    # once the node has another pool's label, belongs to that pool: it may have taken the node already.
    after = context.cluster.node()
    still = membership.own_labels(after.labels, after.owners)
    left = [name for name, value in still.items() if name not in keeps and here.get(name) == value]
    if left and after.labels.get(POOL_LABEL) in (None, node.labels.get(POOL_LABEL)):
        context.cluster.write_labels(dict.fromkeys(left, None))
    context.record_step("labels", Status.CHANGED, f"{', '.join(sorted(here.keys() - keeps))} removed")
