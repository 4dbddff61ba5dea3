"""The Offer: what the cluster offers its users, as `show --format json` prints it."""

from collections.abc import Mapping
from typing import Any

from gpushare import backends
from gpushare.core.prices import Price
from gpushare.resolved import costs, offer_entry, vm_pool
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare_node.contract.struct import NOTHING


def offer(plan: Plan, prices: Mapping[str, Price] = NOTHING) -> dict[str, Any]:
    """Return the Offer document. `prices` are by pool."""
    quotas = {quota.namespace: {backends.quota_resource(key): number for key, number in quota.hard} for quota in plan.quotas}
    found = costs.of_plan(plan, prices)
    money = {pool.name: _money(pool, prices.get(pool.name), found) for pool in plan.pools}
    entries = offer_entry.entries(plan)
    machines = vm_pool.entries(plan.vm_pools)
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Offer",
        "currency": found.currency or None,
        "pools": {name: entry | money[name] for name, entry in entries.items()},
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
