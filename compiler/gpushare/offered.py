"""What one pool offers, as plain data: the entry of a pool in the Offer, of which `nodes/pools.yaml` says more.

Field names are a public contract.
"""

from typing import Any

from gpushare.plan import DevicePlan, PoolPlan


def entry(pool: PoolPlan) -> dict[str, Any]:
    """The pool's entry: resources of all nodes, devices of one."""
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
