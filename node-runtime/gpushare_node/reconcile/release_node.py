"""Leaving a pool: the node becomes exclusive again, or another pool takes it as it is; our marks on it go, the pool label last.

Removing that label takes the node out of its DaemonSet's selection, so nothing may be left to do after it.
"""

from gpushare_node.adapters.host.kubelet import CheckpointError
from gpushare_node.adapters.kube.cluster import (
    FIRST_CAPS_ANNOTATION,
    MIG_LABEL,
    NOT_READY_TAINT,
    PLUGIN_LABEL,
    POOL_LABEL,
    PROFILE_LABEL,
    RELEASED_ANNOTATION,
    REPARTITIONING_TAINT,
    NodeView,
)
from gpushare_node.core.policy import Policy
from gpushare_node.gpus.advertised import find_stale
from gpushare_node.gpus.exclusive import digest, exclusive, exclusive_of
from gpushare_node.reconcile import node_labels
from gpushare_node.reconcile.active_pool import find_successor, is_requested
from gpushare_node.reconcile.drain import Drain, DrainRequest
from gpushare_node.reconcile.partitioning import change_hardware
from gpushare_node.reconcile.publication import remove_labels
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import find_affected
from gpushare_node.reporting.outcome import Blocked, Outcome, Unmet
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import Status

_FORGET_SECONDS = 60.0
"""How long the plugin may take to forget devices that are gone, before pods are let in again."""

_RELEASED = "exclusive"


def release_node(
    context: RunContext, former: Policy | None, pool: str, *, kept_pool: str | None = None, may_stay: bool = False
) -> Outcome:
    """Leave. `former` None: what the pool was is forgotten. Blocked where tenants or hardware are in the way.

    `kept_pool` is the pool whose layout is in force, where it is another than the one that leaves. With `may_stay` that one is
    there still: should it want the node again while tenants are waited for, the leave is called off.
    """
    node = context.cluster.node() if context.deps.cluster is not None else None
    if node is not None and node.labels.get(POOL_LABEL, pool) != pool:
        context.stop_enforcing()
        return Outcome(reason=ConditionReason.RELEASED, message=f"the node already belongs to pool {node.labels[POOL_LABEL]}")
    if node is not None and not is_requested(node):
        successor = find_successor(context.cluster.pods(), pool)
        if successor is not None:
            return _hand_over(context, successor)
        if kept_pool is not None:
            return _hand_back(context, kept_pool)
    devices = _make_exclusive(context, former, pool, node, may_stay=may_stay)
    if node is not None:
        _clean_node(context, devices, is_asked=is_requested(node))
    context.stop_enforcing()
    context.deps.folder.remove()
    if node is not None:
        context.slot.give_back()
        remove_labels(context, keeps=frozenset())
    return Outcome(reason=ConditionReason.RELEASED, message=ConditionReason.RELEASED.value.means)


def _hand_over(context: RunContext, successor: str) -> Outcome:
    """Only the pool's own labels go, in one step. Hardware, folder and the plugin's config stay as they are.

    The plugin's label is overwritten by the next pool. Without it the plugin would offer its default, whole GPUs, while
    tenants still run on their shares; and were the next pool to wait for them, there would be no offer to be kept.
    """
    remove_labels(context, keeps=frozenset({PLUGIN_LABEL}))
    context.stop_enforcing()
    return Outcome(reason=ConditionReason.RELEASED, message=f"pool {successor} takes the GPUs as they are")


def _hand_back(context: RunContext, kept_pool: str) -> Outcome:
    """A label has brought this pool here, but its layout never stood: the keeper may just have no pod at this moment.

    The label brings the keeper's pod, which knows what to do; or, if that pool is gone, the one that releases its nodes.
    """
    context.cluster.write_labels({POOL_LABEL: kept_pool})
    context.record_step("labels", "node", Status.CHANGED, f"{POOL_LABEL} is {kept_pool} again")
    context.stop_enforcing()
    return Outcome(reason=ConditionReason.RELEASED, message=f"the layout is that of pool {kept_pool}")


def _make_exclusive(
    context: RunContext, former: Policy | None, pool: str, node: NodeView | None, *, may_stay: bool
) -> frozenset[str]:
    """The UUIDs of what stands then."""
    policy = exclusive_of((), pool) if former is None else exclusive(former)
    hardware = context.deps.open_hardware(digest(policy))
    try:
        context.await_driver(hardware)
        view = hardware.look(policy, frozenset())
        if former is None:
            policy = exclusive_of(view.surveys, pool)
            view = hardware.look(policy, frozenset())
        request = DrainRequest(
            policy=policy, affected=_affected(former, policy, node), is_partly=node is None, is_leaving=True,
            is_asked=node is not None and is_requested(node), may_stay=may_stay,
        )
        drain = Drain(context=context, hardware=hardware, request=request)
        drain.remember(former, view)
        if node is not None and (view.plan.operations or view.compute_modes):
            drain.close(node)
        if hardware.is_backing_off(view):
            raise Blocked(ConditionReason.PARTITION_FAILED, "the release failed; the next attempt is not due yet")
        if view.plan.operations or view.compute_modes or request.affected:
            view = drain.make(node, view)
        change = change_hardware(
            drain, view, digest(policy), announce=lambda: _remove_profile_label(context, node), publish=lambda: None
        )
        if change.reason is not None:
            raise Blocked(change.reason, f"the node cannot leave the pool: {change.message}")
        return hardware.devices(hardware.look(policy, frozenset()))
    finally:
        hardware.close()


def _remove_profile_label(context: RunContext, node: NodeView | None) -> None:
    """Without its label the device plugin goes back to its default, and MPS's daemon with it."""
    if node is not None:
        remove_labels(context, keeps=frozenset({POOL_LABEL, PROFILE_LABEL, MIG_LABEL}))


def _affected(former: Policy | None, policy: Policy, node: NodeView | None) -> frozenset[str]:
    """Who suffers when the plugin goes back to its default. Nobody, where our label is not there: it is back already."""
    if node is None or PLUGIN_LABEL not in node_labels.standing(node.labels, node.owners):
        return frozenset()
    return find_affected(former, policy, {}, node.allocatable)


def _clean_node(context: RunContext, devices: frozenset[str], *, is_asked: bool) -> None:
    """Everything but the pool label. The answer to the uninstall Job comes before the label, whose end may end this pod."""
    remove_labels(context, keeps=frozenset({POOL_LABEL}))
    context.wait(lambda: _find_stale(context, devices), _FORGET_SECONDS)
    context.remove_taints(NOT_READY_TAINT, REPARTITIONING_TAINT)
    context.cluster.clear_condition()
    annotations = context.cluster.node().annotations
    wanted = {RELEASED_ANNOTATION: _RELEASED} if is_asked else {}
    changed: dict[str, str | None] = {name: text for name, text in wanted.items() if annotations.get(name) != text}
    if FIRST_CAPS_ANNOTATION in annotations:
        changed[FIRST_CAPS_ANNOTATION] = None
    if changed:
        context.cluster.annotate(changed)


def _find_stale(context: RunContext, devices: frozenset[str]) -> Unmet | None:
    """Ids that the plugin still offers and that are gone."""
    try:
        dead = find_stale(context.deps.read_checkpoint().registered, devices)
    except CheckpointError:
        return None
    return Unmet(reason=ConditionReason.RELEASING, message=f"the device plugin still offers {dead[0]}") if dead else None
