"""Whether a node's condition still holds: its runtime must be alive, and the node must offer what the plan says. Pure.

A condition stays when the program that writes it dies, and a device plugin can lose its devices between two of its looks.
"""

from collections.abc import Mapping

from gpushare.cluster.live.live_pools import LivePool
from gpushare.cluster.live.observing import is_observed
from gpushare.cluster.live.slices import NodeOffer
from gpushare.cluster.live.snapshot import RUNTIME_PODS, Condition, DaemonSet, LiveNode, Snapshot
from gpushare.core.wording import join_words
from gpushare.offering.backends.dra import DRIVER
from gpushare_node.contract.names import AWAY, RUNTIME_LABEL

NOT_RUNNING = "RuntimeNotRunning"
"""The reason of a condition that no runtime keeps up to date. It is ours: the runtime cannot write it."""

_WRONG_RESOURCES = "WrongResources"
WRONG_SLICES, WAITING_FOR_SLICES, _BACK_END_RUNNING = "WrongSlices", "WaitingForSlices", "BackEndRunning"
"""Reasons of the runtime's about what a node offers: it looks less often than this does."""

_NOT_SEEN = Condition(status="", reason="NotReported", message="the node runtime has not reported on this node", since="")


def condition(node: LiveNode, pool: LivePool | None, snapshot: Snapshot, offer: NodeOffer | None = None) -> Condition:
    """Return the node's condition as far as it still holds: not True where the runtime is dead, or the offer is not as planned.

    `offer` are the node's slices, None if they were not read.
    """
    condition = node.condition
    if condition is None:
        return _NOT_SEEN
    trouble = _trouble(node, condition, pool.daemonset, snapshot) if pool is not None and pool.daemonset is not None else ""
    if trouble:
        text = f"{trouble}; the earlier condition {condition.reason} may be out of date"
        return Condition(status="False", reason=NOT_RUNNING, message=text, since=condition.since)
    reason, text = _wrong_offer(node, pool, offer) if condition.is_true and pool is not None else ("", "")
    return Condition(status="False", reason=reason, message=text, since="") if text else condition


def _wrong_offer(node: LiveNode, pool: LivePool, offer: NodeOffer | None) -> tuple[str, str]:
    """Return the reason and message where the node does not offer what its pool wants; empty if it does, or is not known to."""
    offered = _numbers(node.allocatable)
    if node.allocatable and (pool.is_dra or (offer is not None and offer.is_there)):
        by_driver = f" and has ResourceSlices of {DRIVER}: each GPU can be given twice" if offer and offer.is_there else ""
        return _BACK_END_RUNNING, f"the node offers {offered} by a device plugin{by_driver}"
    if pool.is_dra:
        problem = "" if offer is None else offer.problem
        return (WRONG_SLICES if offer and offer.is_there else WAITING_FOR_SLICES), problem
    if pool.side is not None and dict(node.allocatable) != dict(pool.resources):
        return _WRONG_RESOURCES, f"the node offers {offered} instead of {_numbers(pool.resources)}"
    return "", ""


def _trouble(node: LiveNode, condition: Condition, daemonset: DaemonSet, snapshot: Snapshot) -> str:
    """Return why no runtime keeps the condition up to date; empty if one does, or if the runtime's pods were not read."""
    if not snapshot.has_seen(RUNTIME_PODS) or is_observed(node):
        return ""
    own = [pod for pod in snapshot.runtime if pod.node == node.name]
    if not own:
        return _why_away(node, daemonset)
    stuck = next(((pod, pod.problems[0]) for pod in own if pod.problems), None)
    if stuck is not None:
        return f"pod {stuck[0].full_name} does not run: {stuck[1]}"
    written, created = condition.heartbeat, max(pod.created for pod in own)
    if written and created and written < created:
        return f"pod {own[0].full_name} has not reported yet: the condition of {written} is older than the pod"
    return ""


def _why_away(node: LiveNode, daemonset: DaemonSet) -> str:
    if node.labels.get(RUNTIME_LABEL) == AWAY:
        return f"the label {RUNTIME_LABEL}={AWAY} keeps the runtime off the node"
    lacks = next(((key, value) for key, value in daemonset.node_selector.items() if node.labels.get(key) != value), None)
    away = "no pod of the runtime is on the node"
    if lacks is None:
        return away
    key, value = lacks
    return f"{away}: it selects the label {key}={value}, and the node has {node.labels.get(key) or 'none'}"


def _numbers(numbers: Mapping[str, int]) -> str:
    return join_words(f"{number} {name}" for name, number in sorted(numbers.items())) or "no GPU resource"
