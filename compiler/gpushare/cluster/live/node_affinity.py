"""Which pool's DaemonSet selects a node, by Kubernetes' rules of node affinity. Pure.

The label `gpushare.dev/pool` keeps a node that no term selects any more until its runtime has released it: it selects only
where nothing else does. Labels under nvidia.com/gpu.deploy. are paused for moments, as
gpushare.dev/runtime is, and decide nothing here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpushare.cluster.live.snapshot import LiveNode
from gpushare.facts import vendors
from gpushare_node.contract import objects
from gpushare_node.contract.names import POOL_LABEL, RUNTIME_LABEL

Terms = Iterable[Mapping[str, Any]]
_PAUSED = (*filter(None, (vendor.deploy_labels for vendor in vendors.VENDORS.values())), RUNTIME_LABEL)


def pool_of(node: LiveNode, terms: Mapping[str, Terms | None]) -> str:
    """Return the pool to which the node belongs, empty for none. `terms` by pool; None selects every node."""
    chosen = [pool for pool in sorted(terms) if _selects(terms[pool], node)]
    label = node.labels.get(POOL_LABEL, "")
    return label if label in chosen or not chosen else chosen[0]


def _selects(terms: Terms | None, node: LiveNode) -> bool:
    return terms is None or any(_matches(term, node) for term in terms)


def _matches(term: Mapping[str, Any], node: LiveNode) -> bool:
    if any(one.get("key") == POOL_LABEL for one in objects.mappings(term, "matchExpressions")):
        return False
    return objects.term_matches(term, node.name, node.labels, _PAUSED)
