"""Publishing: labels on the node, and the wait until the device plugin and the node offer what they say.

Owns the labels and the flips between a profile's two names. Touches no hardware and no taints.
"""

from collections.abc import Mapping, Sequence

from gpushare_node.adapters.host.kubelet import CheckpointError
from gpushare_node.adapters.host.state_dir import Published
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, POOL_LABEL, NodeView
from gpushare_node.core.policy import Mode, Policy
from gpushare_node.core.structs import Struct
from gpushare_node.gpus.advertised import UUIDS, find_mismatch
from gpushare_node.reconcile import node_labels
from gpushare_node.reconcile.run_context import Relabelling, RunContext
from gpushare_node.reporting.outcome import Unmet
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import Status

_WAIT_SECONDS = 300.0
_GRACE_SECONDS = 30.0
"""A flip shows in kubelet's checkpoint within two seconds; a plugin that starts anew takes some more."""
_MPS_GRACE_SECONDS = 120.0
"""The plugin looks every half minute whether its MPS daemon answers, which comes after the feature labels. A flip ends both."""

_MOST_FLIPS = 3
_CONFLICT_SECONDS = 60.0
"""A label that somebody else rewrites is set again no faster: two managers that fight restart the plugin each time."""


class ProfilePublication(Struct, frozen=False):
    """One offer on its way: the policy's labels for these devices, until the node shows `wanted` and nothing else."""

    context: RunContext
    policy: Policy
    devices: frozenset[str]
    wanted: Mapping[str, int]
    _published: Published | None = None
    _applied_at: float | None = None
    """By `RunContext.slept`: a flip restarts the plugin, and a machine that is slow would be all the slower for it."""
    _conflict_at: float | None = None
    _flips: int = 0

    def publish(self) -> None:
        """Set the labels; nothing where they stand already. ClusterError."""
        node = self.context.cluster.node()
        last = self.context.deps.folder.profile()
        published = node_labels.publish(last, node.labels.get(PLUGIN_LABEL, ""), self.policy.profile, self.devices)
        self._published = published
        if published != last:
            self.context.deps.folder.keep_profile(published.key, published.devices)
        if node_labels.must_apply(node_labels.wanted(self.policy, published), node.labels, node.owners):
            self._apply(published, node)
        else:
            self.context.record_step("labels", "node", Status.OK, published.key)

    def await_plugin(self) -> Unmet | None:
        """Wait until the node offers it; what is wrong after five minutes. The labels must have been published."""
        mismatch = self.context.wait(self._find, _WAIT_SECONDS)
        text = "as promised" if mismatch is None else mismatch.message
        self.context.record_step("offer", "node", Status.OK if mismatch is None else Status.FAILED, text)
        return mismatch

    def _apply(self, published: Published, node: NodeView) -> None:
        if node.labels.get(PLUGIN_LABEL) != published.key:
            # Of the other labels the plugin hears nothing.
            self.context.relabelling = Relabelling(sockets=self.context.deps.plugin_sockets(), at=self.context.slept)
        self.context.cluster.apply_labels(node_labels.wanted(self.policy, published))
        self._published = published
        self._applied_at = self.context.slept
        self.context.record_step("labels", "node", Status.CHANGED, published.key)

    def _find(self) -> Unmet | None:
        assert self._published is not None  # noqa: S101 - `publish` comes first
        node = self.context.cluster.node()
        taken = node.taken(node_labels.wanted(self.policy, self._published))
        if taken:
            return self._answer(taken, node)
        try:
            registered = self.context.deps.read_checkpoint().registered
        except CheckpointError as error:
            return Unmet(reason=ConditionReason.WAITING_FOR_PLUGIN, message=str(error))
        mismatch = find_mismatch(self.wanted, self.devices, registered, node.allocatable)
        if mismatch is not None and mismatch.is_stale:
            self._flip_in_time(node)
        return mismatch or self._find_former(registered)

    def _find_former(self, registered: Mapping[str, frozenset[str]]) -> Unmet | None:
        """Whether the offer is still that of the former config: two can have the same ids, and give tenants other things.

        A plugin that keeps its sockets, or knows no labels, is believed after a while.
        """
        last = self.context.relabelling
        if last is None or not last.sockets or self.context.slept - last.at >= _GRACE_SECONDS:
            return None
        if not any(one.startswith(UUIDS) for ids in registered.values() for one in ids):
            return None
        if self.context.deps.plugin_sockets() - last.sockets:
            return None
        return Unmet(
            reason=ConditionReason.WAITING_FOR_PLUGIN, message="the device plugin has not restarted since its label changed"
        )

    def _flip_in_time(self, node: NodeView) -> None:
        """The other name makes the plugin enumerate again. Each try gets twice the time of the one before."""
        now = self.context.slept
        if self._applied_at is None:
            self._applied_at = now
        grace = _MPS_GRACE_SECONDS if self.policy.mode is Mode.MPS else _GRACE_SECONDS
        if self._published is None or self._flips >= _MOST_FLIPS or now - self._applied_at < grace * 2**self._flips:
            return
        self._flips += 1
        other = node_labels.flip(self._published)
        self.context.deps.folder.keep_profile(other.key, other.devices)
        self._apply(other, node)

    def _answer(self, taken: Sequence[str], node: NodeView) -> Unmet:
        """Set again what somebody else has rewritten or removed, once a minute at most, and say what it was."""
        now = self.context.deps.clock.now()
        if self._published is not None and (self._conflict_at is None or now - self._conflict_at >= _CONFLICT_SECONDS):
            self._conflict_at = now
            self._apply(self._published, node)
        return Unmet(reason=ConditionReason.LABEL_CONFLICT, message=", ".join(taken))


def remove_labels(context: RunContext, *, keeps: frozenset[str]) -> None:
    """Take our labels away but for these. Nothing where there are no others. ClusterError."""
    node = context.cluster.node()
    here = node_labels.standing(node.labels, node.owners)
    if here.keys() <= keeps:
        return
    context.cluster.apply_labels({name: value for name, value in here.items() if name in keeps})
    # What somebody else has written with the same value is owned by both, and stays when we let go. Another value, or any under
    # another pool's label, is that pool's, which may have taken the node at once.
    after = context.cluster.node()
    still = node_labels.standing(after.labels, after.owners)
    left = [name for name, value in still.items() if name not in keeps and here.get(name) == value]
    if left and after.labels.get(POOL_LABEL) in (None, node.labels.get(POOL_LABEL)):
        context.cluster.write_labels(dict.fromkeys(left, None))
    context.record_step("labels", "node", Status.CHANGED, f"{', '.join(sorted(here.keys() - keeps))} removed")
