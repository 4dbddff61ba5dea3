"""The Offer: what the cluster offers its users, as `show --format json` prints it."""

from typing import Any

from gpushare import backends
from gpushare.resolved import offer_entry, vm_pool
from gpushare.resolved.plan import Plan


def offer(plan: Plan) -> dict[str, Any]:
    """Return the Offer document."""
    quotas = {quota.namespace: {backends.quota_resource(key): number for key, number in quota.hard} for quota in plan.quotas}
    machines = vm_pool.entries(plan.vm_pools)
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Offer",
        "pools": offer_entry.entries(plan.pools),
        **({"vmPools": machines} if machines else {}),
        "quotas": quotas,
    }
