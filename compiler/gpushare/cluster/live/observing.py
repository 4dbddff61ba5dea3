"""What `enforce` would do where the runtime only observes: from the annotation `gpushare.dev/would`, and its metrics. Pure.

The runtime writes the annotation (gpushare_node/reconcile/observation.py). Long lists in it end with `and 3 more`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set

from gpushare.cluster.live.snapshot import LiveNode, RuntimeMetrics
from gpushare_node.contract.struct import NOTHING, Struct

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


def assess(nodes: Iterable[LiveNode], metrics: Sequence[RuntimeMetrics], refused: int | None) -> Observed | None:
    """Return what `enforce` would do; None if no node is observed."""
    by_node = {one.node: one for one in metrics}
    found = (_would(node, by_node.get(node.name)) for node in sorted(nodes, key=lambda node: node.name) if is_observed(node))
    return _if_any(tuple(found), refused)


def only(observed: Observed, names: Set[str]) -> Observed | None:
    """Return what `enforce` would do on these nodes alone. `refused` is None: it is not counted by node."""
    return _if_any(tuple(one for one in observed.nodes if one.node in names), None)


def _if_any(nodes: tuple[Would, ...], refused: int | None) -> Observed | None:
    return Observed(nodes=nodes, refused=refused) if nodes else None


def _over(metrics: RuntimeMetrics) -> int:
    return len({(use.namespace, use.pod, use.container) for use in metrics.usages if use.is_over})


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
        over=_over(metrics) if metrics else None,
        actions=metrics.would_act if metrics else None,
    )
