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
from gpushare_node.gpus.advertised import find_dead
from gpushare_node.gpus.exclusive import digest, exclusive, exclusive_of
from gpushare_node.reconcile import node_labels
from gpushare_node.reconcile.active_pool import find_heir, is_requested
from gpushare_node.reconcile.drain import Drain, DrainRequest
from gpushare_node.reconcile.partitioning import change_hardware
from gpushare_node.reconcile.publication import withdraw
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reconcile.usage import find_disturbed
from gpushare_node.reporting.outcome import Blocked, Outcome, Unmet
from gpushare_node.reporting.reasons import ConditionReason
from gpushare_node.reporting.results import Status

_FORGET_SECONDS = 60.0
"""How long the plugin may take to forget devices that are gone, before pods are let in again."""

_RELEASED = "exclusive"


def leave(
    visit: RunContext, former: Policy | None, pool: str, *, keeper: str | None = None, may_stay: bool = False
) -> Outcome:
    """Leave. `former` None: what the pool was is forgotten. Blocked where tenants or hardware are in the way.

    `keeper` is the pool whose layout is in force, where it is another than the one that leaves. With `may_stay` that one is
    there still: should it want the node again while tenants are waited for, the leave is called off.
    """
    node = visit.cluster.node() if visit.site.cluster is not None else None
    if node is not None and node.labels.get(POOL_LABEL, pool) != pool:
        visit.let_go()
        return Outcome(reason=ConditionReason.RELEASED, message=f"the node already belongs to pool {node.labels[POOL_LABEL]}")
    if node is not None and not is_requested(node):
        heir = find_heir(visit.cluster.pods(), pool)
        if heir is not None:
            return _hand_over(visit, heir)
        if keeper is not None:
            return _hand_back(visit, keeper)
    devices = _make_exclusive(visit, former, pool, node, may_stay=may_stay)
    if node is not None:
        _clean_node(visit, devices, is_asked=is_requested(node))
    visit.let_go()
    visit.site.folder.remove()
    if node is not None:
        visit.pace.give_back()
        withdraw(visit, keeps=frozenset())
    return Outcome(reason=ConditionReason.RELEASED, message=ConditionReason.RELEASED.value.means)


def _hand_over(visit: RunContext, heir: str) -> Outcome:
    """Only the pool's own labels go, in one step. Hardware, folder and the plugin's config stay as they are.

    The plugin's label is overwritten by the next pool. Without it the plugin would offer its default, whole GPUs, while
    tenants still run on their shares; and were the next pool to wait for them, there would be no offer to be kept.
    """
    withdraw(visit, keeps=frozenset({PLUGIN_LABEL}))
    visit.let_go()
    return Outcome(reason=ConditionReason.RELEASED, message=f"pool {heir} takes the GPUs as they are")


def _hand_back(visit: RunContext, keeper: str) -> Outcome:
    """A label has brought this pool here, but its layout never stood: the keeper may just have no pod at this moment.

    The label brings the keeper's pod, which knows what to do; or, if that pool is gone, the one that releases its nodes.
    """
    visit.cluster.write_labels({POOL_LABEL: keeper})
    visit.note("labels", "node", Status.CHANGED, f"{POOL_LABEL} is {keeper} again")
    visit.let_go()
    return Outcome(reason=ConditionReason.RELEASED, message=f"the layout is that of pool {keeper}")


def _make_exclusive(
    visit: RunContext, former: Policy | None, pool: str, node: NodeView | None, *, may_stay: bool
) -> frozenset[str]:
    """The UUIDs of what stands then."""
    policy = exclusive_of((), pool) if former is None else exclusive(former)
    hardware = visit.site.open_hardware(digest(policy))
    try:
        visit.await_driver(hardware)
        sight = hardware.look(policy, frozenset())
        if former is None:
            policy = exclusive_of(sight.surveys, pool)
            sight = hardware.look(policy, frozenset())
        wish = DrainRequest(
            policy=policy, disturbed=_disturbed(former, policy, node), is_partly=node is None, is_leaving=True,
            is_asked=node is not None and is_requested(node), may_stay=may_stay,
        )  # fmt: skip
        room = Drain(visit=visit, hardware=hardware, wish=wish)
        room.remember(former, sight)
        if node is not None and (sight.plan.operations or sight.compute_modes):
            room.close(node)
        if hardware.is_backing_off(sight):
            raise Blocked(ConditionReason.PARTITION_FAILED, "the release failed; the next attempt is not due yet")
        if sight.plan.operations or sight.compute_modes or wish.disturbed:
            sight = room.make(node, sight)
        change = change_hardware(
            room, sight, digest(policy), announce=lambda: _withdraw_profile(visit, node), publish=lambda: None
        )
        if change.reason is not None:
            raise Blocked(change.reason, f"the node cannot leave the pool: {change.message}")
        return hardware.devices(hardware.look(policy, frozenset()))
    finally:
        hardware.close()


def _withdraw_profile(visit: RunContext, node: NodeView | None) -> None:
    """Without its label the device plugin goes back to its default, and MPS's daemon with it."""
    if node is not None:
        withdraw(visit, keeps=frozenset({POOL_LABEL, PROFILE_LABEL, MIG_LABEL}))


def _disturbed(former: Policy | None, policy: Policy, node: NodeView | None) -> frozenset[str]:
    """Who suffers when the plugin goes back to its default. Nobody, where our label is not there: it is back already."""
    if node is None or PLUGIN_LABEL not in node_labels.standing(node.labels, node.owners):
        return frozenset()
    return find_disturbed(former, policy, {}, node.allocatable)


def _clean_node(visit: RunContext, devices: frozenset[str], *, is_asked: bool) -> None:
    """Everything but the pool label. The answer to the uninstall Job comes before the label, whose end may end this pod."""
    withdraw(visit, keeps=frozenset({POOL_LABEL}))
    visit.wait(lambda: _find_dead(visit, devices), _FORGET_SECONDS)
    visit.let_in(NOT_READY_TAINT, REPARTITIONING_TAINT)
    visit.cluster.clear_condition()
    annotations = visit.cluster.node().annotations
    wanted = {RELEASED_ANNOTATION: _RELEASED} if is_asked else {}
    changed: dict[str, str | None] = {name: text for name, text in wanted.items() if annotations.get(name) != text}
    if FIRST_CAPS_ANNOTATION in annotations:
        changed[FIRST_CAPS_ANNOTATION] = None
    if changed:
        visit.cluster.annotate(changed)


def _find_dead(visit: RunContext, devices: frozenset[str]) -> Unmet | None:
    """Ids that the plugin still offers and that are gone."""
    try:
        dead = find_dead(visit.site.read_checkpoint().registered, devices)
    except CheckpointError:
        return None
    return Unmet(reason=ConditionReason.RELEASING, message=f"the device plugin still offers {dead[0]}") if dead else None
