"""`chart/files/policies/<pool>.yaml`: the NodePolicy of each pool, from which the node runtime knows its pool.

Equal GPUs are one entry. The schema is `schemas/node-policy.v1.json`, which the node runtime also uses.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpushare import modes
from gpushare.backends import config_manager
from gpushare.backends.dra import DRIVER
from gpushare.catalog.cards import PartitionMode
from gpushare.core import emit
from gpushare.intent.types import Backend, Platform
from gpushare.nodes import taints
from gpushare.resolved import rollout_entry
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare.sharing import caps


def policies(plan: Plan) -> dict[str, str]:
    """Return the policy of every pool as text, by pool."""
    return {pool.name: emit.yaml_text(document(plan, pool)) for pool in plan.pools}


def document(plan: Plan, pool: PoolPlan) -> dict[str, Any]:
    """Return the policy of one pool."""
    card, platform, wanted = pool.card, plan.intent.platform, pool.pool
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "NodePolicy",
        "metadata": {"name": pool.name, "cluster": plan.intent.name},
        "spec": {
            "card": {
                "id": card.id,
                "name": card.name,
                "pciDeviceIds": list(card.pci_device_ids),
                "memoryMiB": card.memory_mib or None,
            },
            "gpusPerNode": wanted.gpus_per_node,
            "mode": pool.mode.value,
            **_PROGRAMS[pool.card.vendor](platform, pool),
            **_dra(plan, pool),
            "gpus": list(_gpus(pool)),
            "resources": _resources(pool),
            "shares": list(_shares(pool)),
            "enforcement": {
                "action": wanted.enforcement.action.value,
                "graceSeconds": wanted.enforcement.grace_seconds,
                "mechanism": wanted.enforcement.mechanism.value if pool.vendor.has_shares else "none",
                "noticeSeconds": wanted.enforcement.notice_seconds,
            },
            "rollout": rollout_entry.entry(wanted.rollout),
            "namespaces": sorted(wanted.namespaces),
        }
        | _taint(pool)
        | ({"adoption": plan.intent.adoption.value} if plan.intent.observes else {}),
    }


def _taint(pool: PoolPlan) -> dict[str, str]:
    """Return the key of the taint during a change, if it is not the default one."""
    key = taints.of(pool.pool.autoscaler).repartitioning
    return {} if key == taints.of(None).repartitioning else {"repartitioningTaint": key}


def _resources(pool: PoolPlan) -> dict[str, int]:
    """Return what a node offers: the shares that allocatable shows, or the devices of each DeviceClass."""
    if pool.pool.backend is Backend.DRA:
        return dict(sorted(Counter(device.resource for device in pool.devices).items()))
    return {resource.name: resource.per_node for resource in pool.resources}


def _dra(plan: Plan, pool: PoolPlan) -> dict[str, Any]:
    """Return the back end, if it is not the device plugin."""
    if pool.pool.backend is not Backend.DRA:
        return {}
    by = plan.division.by
    return {
        "backend": "dra",
        "dra": {"driver": DRIVER, "shares": by.value if by else None, "onDemand": modes.of(pool.pool).is_on_demand},
    }


def _of_nvidia(platform: Platform, pool: PoolPlan) -> dict[str, Any]:
    return {
        "stack": platform.stack.value,
        "partitioner": platform.partitioner.value,
        "profile": pool.profile.key if pool.pool.backend is Backend.DEVICE_PLUGIN else None,
        "migConfig": pool.mig_config.name if pool.mig_config else None,
    }


def _of_amd(platform: Platform, pool: PoolPlan) -> dict[str, Any]:
    config = pool.manager_config
    return {
        "vendor": pool.card.vendor,
        "stack": platform.of_amd.stack.value,
        "partitioner": "config-manager" if config else "none",
        "profile": None,
        "migConfig": None,
        "managerConfig": config.name if config else None,
    }


_PROGRAMS: Mapping[str, Callable[[Platform, PoolPlan], dict[str, Any]]] = {"nvidia": _of_nvidia, "amd": _of_amd}
"""Who offers and who divides the GPUs, and what they are told, by vendor."""


def _gpus(pool: PoolPlan) -> Iterator[dict[str, Any]]:
    groups: dict[tuple[bool, tuple[tuple[str, int | None, int, int], ...], PartitionMode | None], list[int]] = {}
    for gpu in pool.gpus:
        is_on = gpu.mig_enabled and (bool(gpu.instances) or not pool.card.switches_mig)
        placed = sorted(gpu.instances, key=lambda instance: instance.start)
        instances = tuple((one.profile.name, one.profile.profile_id, one.start, one.size) for one in placed)
        groups.setdefault((is_on, instances, gpu.partition or config_manager.whole(pool.card)), []).append(gpu.index)
    fields = ("profile", "profileId", "start", "size")
    for (mig, instances, partition), indexes in groups.items():
        entry = {"indexes": indexes, "mig": mig, "instances": [dict(zip(fields, one, strict=True)) for one in instances]}
        yield entry | ({"partition": _partition(partition)} if partition else {})


def _partition(mode: PartitionMode) -> dict[str, Any]:
    return {"compute": mode.compute, "memory": mode.memory, "devices": mode.partitions, "memoryMiB": mode.memory_mib}


def _shares(pool: PoolPlan) -> Iterator[dict[str, Any]]:
    """Yield one entry for each profile, in the order of the devices."""
    for device in pool.samples:
        cap = device.cap_mib
        yield {
            "resource": device.resource,
            "profile": device.profile,
            "replicas": device.replicas,
            "memoryMiB": device.memory_mib,
            "capMiB": cap,
            "toleranceMiB": 0 if cap is None else caps.tolerance_mib(pool.pool, cap),
        }
