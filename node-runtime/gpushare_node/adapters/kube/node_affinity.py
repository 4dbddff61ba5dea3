"""Determines whether a DaemonSet selects a node by more than what the runtime itself wrote on it. Pure.

The chart's DaemonSets select by node affinity: the intent's terms, or the label `gpushare.dev/pool` that keeps a node whose
terms no longer match. That label is our own and proves nothing. Labels under nvidia.com/gpu.deploy remove GPU clients for a
while, and do not remove a node from its pool.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpushare_node.adapters.kube.cluster import POOL_LABEL, RUNTIME_LABEL, NodeView
from gpushare_node.vendors import DEPLOY_LABELS

Json = Mapping[str, Any]

_DEPLOY = (*DEPLOY_LABELS, RUNTIME_LABEL)
"""Labels by which gpu-operator, or an administrator, sends GPU clients away for a while: the pool keeps the node."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


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
    """Whether the node selector term matches. An empty term matches nothing, as in Kubernetes."""
    expressions = [one for one in term.get("matchExpressions") or () if not one["key"].startswith(_DEPLOY)]
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    named = {"metadata.name": node.name}
    return all(_holds(expression, node.labels) for expression in expressions) and all(_holds(field, named) for field in fields)


def _counts(term: Json) -> bool:
    return all(one["key"] != POOL_LABEL for one in term.get("matchExpressions") or ())


def _holds(requirement: Json, values: Mapping[str, str]) -> bool:
    value = values.get(requirement["key"])
    desired: Sequence[str] = requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in desired
        case "NotIn":
            return value not in desired
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(value, operator, desired)
        case _:
            return False


def _compares(value: str | None, operator: str, desired: Sequence[str]) -> bool:
    """Compare integers; any other text does not match."""
    if value is None or len(desired) != 1 or not (_WHOLE.fullmatch(value) and _WHOLE.fullmatch(desired[0])):
        return False
    have, than = int(value), int(desired[0])
    return have > than if operator == "Gt" else have < than
