"""`nodes/pools.yaml`: every pool in machine-readable form. `gpushare plan` compares two of these.

Devices have the fields of the Offer; labels are listed with every value that a healthy node of the pool may carry.
"""

from typing import Any

from gpushare import backends, modes
from gpushare.core import prices
from gpushare.core.units import MIB
from gpushare.intent.types import Backend, Pool, Stack
from gpushare.nodes.own_labels import POOL_LABEL
from gpushare.resolved import offer_entry, rollout_entry, vm_pool
from gpushare.resolved.plan import Plan, PoolPlan, VmPool
from gpushare.sharing import caps


def pools_document(plan: Plan) -> dict[str, Any]:
    """Return the whole document."""
    offers = offer_entry.entries(plan)
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Pools",
        "cluster": plan.intent.name,
        **({"adoption": plan.intent.adoption.value} if plan.intent.observes else {}),
        "operatorMigStrategy": _operator_strategy(plan),
        "pools": {pool.name: offers[pool.name] | _pool(pool) for pool in plan.pools},
        **({"prices": {name: prices.show(price) for name, price in plan.intent.prices.items()}} if plan.intent.prices else {}),
        **_vm_pools(plan),
        "quotas": {} if plan.intent.observes else {quota.namespace: dict(quota.hard) for quota in plan.quotas},
    }


def _operator_strategy(plan: Plan) -> str | None:
    """Return gpu-operator's mig.strategy, "" if every profile states its own; None without the operator's values."""
    with_operator = plan.intent.platform.stack is Stack.GPU_OPERATOR and not plan.intent.observes
    return (plan.operator_mig_strategy or "") if with_operator else None


def _vm_pools(plan: Plan) -> dict[str, Any]:
    offers = vm_pool.entries(plan.vm_pools)
    return {"vmPools": {pool.name: offers[pool.name] | _vm_pool(pool) for pool in plan.vm_pools}} if offers else {}


def _vm_pool(pool: VmPool) -> dict[str, Any]:
    tolerations = [dict(toleration) for toleration in pool.pool.tolerations]
    return {
        "kernel": None if (kernel := modes.of(pool.pool).kernel) is None else f"{kernel[0]}.{kernel[1]}",
        "priority": pool.pool.priority,
        "selector": _selector(pool),
        "terms": [dict(term) for term in pool.terms],
        "labels": pool.labels,
        "tolerations": tolerations,
    }


def _pool(pool: PoolPlan) -> dict[str, Any]:
    """Return what the Offer does not contain."""
    wanted = pool.pool
    return {
        "priority": wanted.priority,
        "selector": _selector(pool),
        "migConfig": pool.mig_config.name if pool.mig_config else None,
        "labels": _labels(pool),
        "enforcement": {
            "action": wanted.enforcement.action.value,
            "graceSeconds": wanted.enforcement.grace_seconds,
            "mechanism": wanted.enforcement.mechanism.value,
            "toleranceMiB": _tolerances(pool),
            "noticeSeconds": wanted.enforcement.notice_seconds,
        },
        "rollout": rollout_entry.entry(wanted.rollout),
        "tolerations": [dict(toleration) for toleration in wanted.tolerations],
        "namespaces": sorted(wanted.namespaces),
        **({"autoscaler": wanted.autoscaler.value} if wanted.autoscaler else {}),
        **_of_claims(wanted),
    }


def _of_claims(pool: Pool) -> dict[str, Any]:
    """Return the settings of a pool of DRA. Sizes are in MiB, as in claims."""
    if pool.backend is not Backend.DRA:
        return {}
    interval = modes.of(pool).interval
    return {
        "requests": pool.requests.value,
        "sizes": {name: size // MIB for name, size in pool.sizes},
        **({"interval": interval.value} if interval else {}),
    }


def _selector(pool: PoolPlan | VmPool) -> dict[str, Any]:
    nodes = pool.pool.nodes
    expressions = [
        {"key": one.key, "operator": one.operator.value} | ({"values": list(one.values)} if one.values else {})
        for one in nodes.match_expressions
    ]
    return {"matchLabels": dict(nodes.match_labels), "matchExpressions": expressions, "names": list(nodes.names)}


def _labels(pool: PoolPlan) -> dict[str, list[str]]:
    key = pool.profile.key
    labels = {POOL_LABEL: [pool.name], **backends.of(pool.pool, pool.card).labels(key)}
    layout = pool.mig_config or pool.manager_config
    return labels | ({pool.vendor.layout_label: [layout.name]} if layout else {})


def _tolerances(pool: PoolPlan) -> list[int]:
    """Return the distinct tolerances of the pool's caps, in order."""
    return sorted({caps.tolerance_mib(pool.pool, device.cap_mib) for device in pool.samples if device.cap_mib is not None})
