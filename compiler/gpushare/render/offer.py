"""The Offer: what the cluster offers its users, as `show --format json` prints it."""

from collections.abc import Mapping
from typing import Any

from gpushare.core.prices import Price
from gpushare.offering import backends, claims, modes
from gpushare.resolved import costs, pools
from gpushare.resolved.plan import DevicePlan, Plan, PoolPlan
from gpushare_node.contract.names import IMPLICIT
from gpushare_node.contract.struct import NOTHING


def offer(plan: Plan, prices: Mapping[str, Price] = NOTHING) -> dict[str, Any]:
    """Return the Offer document. `prices` are by pool."""
    quotas = {quota.namespace: {backends.quota_resource(key): number for key, number in quota.hard} for quota in plan.quotas}
    found = costs.of_plan(plan, prices)
    money = {pool.name: _money(pool, prices.get(pool.name), found) for pool in plan.pools}
    machines = pools.vm_entries(plan.vm_pools)
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Offer",
        "currency": found.currency or None,
        "pools": {pool.name: _entry(pool) | _dra(plan, pool) | money[pool.name] for pool in plan.pools},
        **({"vmPools": machines} if machines else {}),
        "quotas": quotas,
    }


def _money(pool: PoolPlan, price: Price | None, found: costs.Costs) -> dict[str, Any]:
    parts = costs.parts_of_resources(pool)
    return {
        "pricePerGpuHour": price.per_hour if price else None,
        "costPerHour": found.of(pool.name),
        "costPerShareHour": {
            name: price.per_hour * part if price and part is not None else None for name, part in parts.items()
        },
    }


def _dra(plan: Plan, pool: PoolPlan) -> dict[str, Any]:
    """Return what pods ask of a pool of DRA: its templates of claims, and the names in `limits`, each with its class."""
    if not pool.pool.backend.has_claims:
        return {}
    classes = dict.fromkeys(device.resource for device in pool.samples)
    backend = backends.of(pool.pool, pool.card)
    return {
        "backend": pool.pool.backend.value,
        **({"onDemand": True} if modes.of(pool.pool).is_on_demand else {}),
        "claims": {
            shape.template: shape.device_class for shape in claims.shapes(pool.pool, pool.card, pool.kinds, plan.division)
        },
        "limits": {name: one for one in classes for name in backend.limits(one) if not name.startswith(IMPLICIT)},
    }


def _entry(pool: PoolPlan) -> dict[str, Any]:
    return {
        "card": pool.card.id,
        "mode": pool.mode.value,
        "nodes": pool.nodes,
        "gpusPerNode": pool.pool.gpus_per_node,
        "profile": pool.profile.key,
        "resources": {one.name: {"perNode": one.per_node, "total": one.total} for one in pool.resources},
        "devices": [_device(device) for device in pool.devices],
    }


def _device(device: DevicePlan) -> dict[str, Any]:
    return {
        "gpu": device.gpu,
        "resource": device.resource,
        "profile": device.profile,
        "start": device.start,
        "size": device.size,
        "memoryMiB": device.memory_mib,
        "replicas": device.replicas,
        "capMiB": device.cap_mib,
    }
