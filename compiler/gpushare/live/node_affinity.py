"""Which pool's DaemonSet selects a node, by Kubernetes' rules of node affinity. Pure.

The label `gpushare.dev/pool` keeps a node that no term selects any more until its runtime has released it: it selects only
where nothing else does. Labels under nvidia.com/gpu.deploy. are paused for moments, as
gpushare.dev/runtime is, and decide nothing here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpushare import vendors
from gpushare.live.snapshot import LiveNode
from gpushare.nodes.own_labels import AWAY_LABEL, POOL_LABEL

Terms = Iterable[Mapping[str, Any]]
_PAUSED = (*filter(None, (vendor.deploy_labels for vendor in vendors.VENDORS.values())), AWAY_LABEL)
_TESTS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, listed: value in listed,
    "NotIn": lambda value, listed: value not in listed,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, listed: _compare(value, listed) > 0,
    "Lt": lambda value, listed: _compare(value, listed) < 0,
}


def pool_of(node: LiveNode, terms: Mapping[str, Terms | None]) -> str:
    """Return the pool to which the node belongs, empty for none. `terms` by pool; None selects every node."""
    chosen = [pool for pool in sorted(terms) if _selects(terms[pool], node)]
    label = node.labels.get(POOL_LABEL, "")
    return label if label in chosen or not chosen else chosen[0]


def _selects(terms: Terms | None, node: LiveNode) -> bool:
    return terms is None or any(_matches(term, node) for term in terms)


def _matches(term: Mapping[str, Any], node: LiveNode) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if any(one.get("key") == POOL_LABEL for one in expressions) or not (expressions or fields):
        return False
    labelled = (one for one in expressions if not str(one.get("key")).startswith(_PAUSED))
    return all(_holds(one, node.labels.get(str(one.get("key")))) for one in labelled) and all(
        _holds(one, node.name if one.get("key") == "metadata.name" else None) for one in fields
    )


def _holds(requirement: Mapping[str, Any], value: str | None) -> bool:
    test = _TESTS.get(str(requirement.get("operator")))
    return test is not None and test(value, [str(one) for one in requirement.get("values") or ()])


def _compare(value: str | None, listed: list[str]) -> int:
    """Return the sign of the difference; 0, which neither Gt nor Lt accepts, unless both are integers."""
    try:
        return int(value or "") - int(listed[0])
    except (ValueError, IndexError):
        return 0
