"""Determines whether a DaemonSet selects a node by more than what the runtime itself wrote on it. Pure.

The chart's DaemonSets select by node affinity: the intent's terms, or the label `gpushare.dev/pool` that keeps a node whose
terms no longer match. That label is our own and proves nothing. Labels under nvidia.com/gpu.deploy remove GPU clients for a
while, and do not remove a node from its pool.
"""

from collections.abc import Mapping
from typing import Any

from gpushare_node.adapters.kube.cluster import NodeView
from gpushare_node.contract import objects
from gpushare_node.contract.names import POOL_LABEL, RUNTIME_LABEL
from gpushare_node.vendors import DEPLOY_LABELS

Json = Mapping[str, Any]

_DEPLOY = (*DEPLOY_LABELS, RUNTIME_LABEL)
"""Labels by which gpu-operator, or an administrator, sends GPU clients away for a while: the pool keeps the node."""


def is_selected(daemonset: Json, node: NodeView) -> bool:
    """Whether the DaemonSet of this object selects the node for another reason than our own label."""
    spec = daemonset["spec"]["template"].get("spec") or {}
    selector = spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in selector.items() if not key.startswith(_DEPLOY)):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_counts(term) and matches(term, node) for term in required["nodeSelectorTerms"])


def matches(term: Json, node: NodeView) -> bool:
    """Whether the node selector term matches."""
    return objects.term_matches(term, node.name, node.labels, _DEPLOY)


def _counts(term: Json) -> bool:
    return all(one["key"] != POOL_LABEL for one in term.get("matchExpressions") or ())
