"""What a node's runtime says, as far as it still holds, and what `enforce` would do where the runtime only observes. Pure.

A condition stays when the program that writes it dies, and a device plugin can lose its devices between two of its looks: the
runtime must be alive, and the node must offer what the plan says.

The runtime writes the annotation `gpushare.dev/would` (gpushare_node/reconcile/observation.py). Long lists in it end with `and
3 more`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set

from gpushare.cluster.live.claims import DRIVER
from gpushare.cluster.live.live_pools import LivePool
from gpushare.cluster.live.objects import RUNTIME_PODS, Condition, DaemonSet, LiveNode, RuntimeMetrics, Snapshot
from gpushare.cluster.live.slices import NodeOffer
from gpushare.core.wording import join_words
from gpushare_node.contract import vendors
from gpushare_node.contract.names import AWAY, RUNTIME_LABEL
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import NOTHING, Struct

NOT_RUNNING = "RuntimeNotRunning"
"""The reason of a condition that no runtime keeps up to date. It is ours: the runtime cannot write it."""

_SENT_AWAY = tuple(
    f"{vendor.deploy_labels}{client}"
    for vendor in vendors.VENDORS.values()
    if vendor.deploy_labels
    for client in ("client", "operator-validator")
)
"""By these labels an operator sends our pods away while it upgrades the driver."""

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
    """Return the reason and message where the node does not offer what its pool wants; empty if it does, or is not known to.

    The reasons are the runtime's, which looks less often.
    """
    offered = _numbers(node.allocatable)
    if node.allocatable and (pool.is_dra or (offer is not None and offer.is_there)):
        by_driver = f" and has ResourceSlices of {DRIVER}: each GPU can be given twice" if offer and offer.is_there else ""
        return ConditionReason.BACK_END_RUNNING.word, f"the node offers {offered} by a device plugin{by_driver}"
    if pool.is_dra:
        problem = "" if offer is None else offer.problem
        reason = ConditionReason.WRONG_SLICES if offer and offer.is_there else ConditionReason.WAITING_FOR_SLICES
        return reason.word, problem
    if pool.side is not None and dict(node.allocatable) != dict(pool.resources):
        return ConditionReason.WRONG_RESOURCES.word, f"the node offers {offered} instead of {_numbers(pool.resources)}"
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
    away, sent = "no pod of the runtime is on the node", [key for key in _SENT_AWAY if key not in daemonset.node_selector]
    paused = next((key for key in sent if node.labels.get(key, "true") != "true"), None)
    if paused is not None:
        return f"{away}: the operator keeps it away by the label {paused}={node.labels[paused]}"
    if lacks is None:
        return away
    key, value = lacks
    return f"{away}: it selects the label {key}={value}, and the node has {node.labels.get(key) or 'none'}"


def _numbers(numbers: Mapping[str, int]) -> str:
    return join_words(f"{number} {name}" for name, number in sorted(numbers.items())) or "no GPU resource"


OBSERVING = "Observing"
"""The condition's reason on a node that is observed: a mode, and not a fault."""
_MORE = re.compile(r"and ([0-9]{1,9}) more\Z")


class Would(Struct):
    """What would change on one node. `gpus` are indexes; `pods` some of the `held` pods that use these GPUs.

    `over` are containers over their caps now, `actions` those that were only counted; None: the runtime was not queried.
    """

    node: str
    gpus: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    resources: Mapping[str, int] = NOTHING
    pods: tuple[str, ...] = ()
    held: int = 0
    unknown: str = ""
    over: int | None = None
    actions: int | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether `enforce` would change nothing on the node."""
        return not (self.gpus or self.labels or self.resources or self.unknown)


class Observed(Struct):
    """All observed nodes. `refused` requests are those that the API server let pass with a warning; None: not queried."""

    nodes: tuple[Would, ...]
    refused: int | None = None

    @property
    def over(self) -> int | None:
        """How many containers are over their caps now, on the nodes whose runtime was queried; None if none was."""
        return _sum(one.over for one in self.nodes)

    @property
    def actions(self) -> int | None:
        """How many actions against containers were only counted, as `over`."""
        return _sum(one.actions for one in self.nodes)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def is_observed(node: LiveNode) -> bool:
    """Whether the node's runtime only observes."""
    return node.condition is not None and node.condition.reason == OBSERVING


def would_change(nodes: Iterable[LiveNode], metrics: Sequence[RuntimeMetrics], refused: int | None) -> Observed | None:
    """Return what `enforce` would do; None if no node is observed."""
    by_node = {one.node: one for one in metrics}
    found = (_would(node, by_node.get(node.name)) for node in sorted(nodes, key=lambda node: node.name) if is_observed(node))
    return _if_any(tuple(found), refused)


def would_change_on(observed: Observed, names: Set[str]) -> Observed | None:
    """Return what `enforce` would do on these nodes alone. `refused` is None: it is not counted by node."""
    return _if_any(tuple(one for one in observed.nodes if one.node in names), None)


def _if_any(nodes: tuple[Would, ...], refused: int | None) -> Observed | None:
    return Observed(nodes=nodes, refused=refused) if nodes else None


def _would(node: LiveNode, metrics: RuntimeMetrics | None) -> Would:
    """Return the annotation's content; anything that is not as the runtime writes it counts as unknown."""
    reported = node.would or {"unknown": "the annotation gpushare.dev/would is missing or malformed"}
    gpus, labels, resources, pods = (reported.get(key) for key in ("gpus", "labels", "resources", "pods"))
    named = [one for one in pods if isinstance(one, str)] if isinstance(pods, list) else []
    more = _MORE.match(named[-1]) if named else None
    shown = named[:-1] if more else named
    numbers = resources.items() if isinstance(resources, dict) else ()
    unknown = reported.get("unknown")
    return Would(
        node=node.name,
        gpus=tuple(gpus) if isinstance(gpus, dict) else (),
        labels=tuple(labels) if isinstance(labels, dict) else (),
        resources={name: number for name, number in numbers if isinstance(number, int)} or NOTHING,
        pods=tuple(shown),
        held=len(shown) + (int(more[1]) if more else 0),
        unknown=unknown if isinstance(unknown, str) else "",
        over=len({(use.namespace, use.pod, use.container) for use in metrics.usages if use.is_over}) if metrics else None,
        actions=metrics.would_act if metrics else None,
    )
