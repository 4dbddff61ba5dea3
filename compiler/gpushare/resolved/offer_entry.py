"""What one pool offers, as plain data: the pool's entry in the Offer, which `nodes/pools.yaml` extends.

Field names are a public contract.
"""

from typing import Any

from gpushare.resolved.plan import DevicePlan, PoolPlan


def entries(pools: tuple[PoolPlan, ...]) -> dict[str, dict[str, Any]]:
    """Return the entry of every pool, by pool name: resources of all nodes, devices of one node."""
    return {pool.name: _entry(pool) for pool in pools}


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
