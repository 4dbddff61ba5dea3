"""What one pool offers, as plain data: the pool's entry in the Offer, which `nodes/pools.yaml` extends.

Field names are a public contract.
"""

from typing import Any

from gpushare import backends, modes
from gpushare.backends.dra import IMPLICIT
from gpushare.intent.types import Backend
from gpushare.resolved.plan import DevicePlan, Plan, PoolPlan
from gpushare.sharing import claims


def entries(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the entry of every pool, by pool name: resources of all nodes, devices of one node."""
    return {pool.name: _entry(pool) | _dra(plan, pool) for pool in plan.pools}


def _dra(plan: Plan, pool: PoolPlan) -> dict[str, Any]:
    """Return what pods ask of a pool of DRA: its templates of claims, and the names in `limits`, each with its class."""
    if pool.pool.backend is not Backend.DRA:
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
