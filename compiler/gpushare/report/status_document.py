"""The `Status` document (schemas/status.v1.json): a cluster's status as plain data. Pure."""

from collections.abc import Iterable
from typing import Any

from gpushare.live.devices import Claim
from gpushare.live.holders import Holder
from gpushare.live.observing import Observed
from gpushare.live.snapshot import Event, ReadFailure, RuntimeMetrics
from gpushare.live.status import ClaimStatus, NodeStatus, PoolStatus, ShareUsage, Status, VmNode


def document(seen: Status) -> dict[str, Any]:
    """Return the document."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Status",
        "pools": {pool.name: _pool(pool) for pool in seen.pools},
        "nodesWithoutPool": [_node(node) for node in seen.others],
        **({"vmNodes": [_vm_node(node) for node in seen.vm_nodes]} if seen.vm_nodes else {}),
        "pendingPods": [
            {"namespace": pod.namespace, "name": pod.name, "requests": dict(pod.requests), "why": list(pod.problems)}
            for pod in seen.pending
        ],
        "observing": None if seen.observed is None else _observed(seen.observed),
        "claims": None if seen.claims is None else _claims(seen.claims),
        "kills": [event(one) for one in seen.kills],
        "unseen": unseen(seen.unseen),
    }


def unseen(missing: Iterable[ReadFailure]) -> list[dict[str, str]]:
    """Return what was not seen."""
    return [{"what": one.what, "why": one.why, "hint": one.hint} for one in dict.fromkeys(missing)]


def event(one: Event) -> dict[str, Any]:
    """Return an Event."""
    return {
        "namespace": one.namespace,
        "kind": one.kind,
        "name": one.name,
        "reason": one.reason,
        "message": one.message,
        "time": one.time or None,
        "count": one.count,
    }


def _observed(observed: Observed) -> dict[str, Any]:
    return {
        "overCap": observed.over,
        "actions": observed.actions,
        "refusedRequests": observed.refused,
        "nodes": [
            {
                "name": one.node,
                "gpus": list(one.gpus),
                "labels": list(one.labels),
                "resources": dict(one.resources),
                "pods": list(one.pods),
                "podCount": one.held,
                "unknown": one.unknown or None,
            }
            for one in observed.nodes
        ],
    }


def _claims(claims: ClaimStatus) -> dict[str, Any]:
    return {
        "allocated": claims.allocated,
        "pending": claims.pending,
        "withoutPods": None if claims.left is None else [_left(one) for one in claims.left],
        "sharedNames": {name: list(classes) for name, classes in claims.names},
    }


def _left(claim: Claim) -> dict[str, Any]:
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "devices": [{"pool": one.pool, "device": one.device} for one in claim.grants or ()],
    }


def _slices(node: NodeStatus) -> dict[str, Any] | None:
    if node.offer is None:
        return None
    devices = {name: len(each) for name, each in node.offer.devices.items()}
    return {"devices": devices, "problem": node.offer.problem or None, "claims": node.claims}


def _pool(pool: PoolStatus) -> dict[str, Any]:
    return {
        "backend": pool.backend or None,
        "card": pool.card or None,
        "mode": pool.mode or None,
        "ready": pool.ready,
        "observed": pool.observed,
        "shares": _shares(pool.shares),
        "nodes": [_node(node) for node in pool.nodes],
    }


def _node(node: NodeStatus) -> dict[str, Any]:
    condition = node.condition
    return {
        "name": node.name,
        "ready": node.is_ready,
        "kubeletReady": node.is_up,
        "cordoned": node.is_cordoned,
        "reason": condition.reason,
        "message": condition.message,
        "since": condition.since or None,
        "taints": list(node.taints),
        "slices": _slices(node),
        "shares": _shares(node.shares),
        "pods": None if node.holders is None else [_holder(one) for one in node.holders],
        "metrics": None if node.metrics is None else _metrics(node.metrics),
    }


def _vm_node(node: VmNode) -> dict[str, Any]:
    return {"name": node.name, "config": node.config or None, "state": node.state or None}


def _shares(shares: Iterable[ShareUsage]) -> dict[str, Any]:
    return {one.resource: {"wanted": one.wanted, "offered": one.offered, "used": one.used, "free": one.free} for one in shares}


def _holder(one: Holder) -> dict[str, Any]:
    return {
        "namespace": one.namespace,
        "name": one.pod,
        "shares": dict(one.shares),
        "memoryUsedBytes": one.used,
        "memoryCapBytes": one.cap,
    }


def _metrics(one: RuntimeMetrics) -> dict[str, Any]:
    return {
        "kills": one.kills,
        "evictions": one.evictions,
        "warnings": one.warnings,
        "killsPaused": one.is_paused,
        "containers": [
            {
                "namespace": use.namespace,
                "pod": use.pod,
                "container": use.container,
                "gpu": use.gpu,
                "usedBytes": use.used,
                "capBytes": use.cap,
                "overCap": use.is_over,
            }
            for use in one.usages
        ],
    }
