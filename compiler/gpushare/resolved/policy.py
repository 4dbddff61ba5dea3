"""`chart/files/policies/<pool>.yaml`: the NodePolicy of each pool, from which the node runtime knows its pool."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpushare.facts.catalog.cards import PartitionMode
from gpushare.facts.nodes import taints
from gpushare.intent.types import Enforcement, Platform
from gpushare.offering import modes, shares
from gpushare.offering.partitioners import config_manager
from gpushare.resolved.node_plan import GpuLayout
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare_node.contract import policy
from gpushare_node.contract.policy import Policy


def policies(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the document of every pool's policy, by pool."""
    return {pool.name: policy.document(of_pool(plan, pool)) for pool in plan.pools}


def of_pool(plan: Plan, pool: PoolPlan) -> Policy:
    """Return the policy of one pool."""
    card, wanted = pool.card, pool.pool
    return Policy(
        pool=pool.name,
        cluster=plan.intent.name,
        card=policy.ExpectedCard(
            id=card.id, name=card.name, pci_device_ids=tuple(card.pci_device_ids), memory_mib=card.memory_mib or None
        ),
        mode=policy.Mode(pool.mode.value),
        vendor=policy.Vendor(card.vendor),
        stack=policy.Stack(plan.intent.platform.stack_of(card.vendor)),
        partitioner=_partitioner(plan.intent.platform, pool),
        profile=pool.profile.key if pool.has_profile else "",
        mig_config=pool.mig_config.name if pool.mig_config else None,
        manager_config=pool.manager_config.name if pool.manager_config else None,
        backend=wanted.backend,
        dra=_dra(plan, pool),
        gpus=tuple(_gpu(pool, gpu) for gpu in pool.gpus),
        resources=_resources(pool),
        shares=tuple(_shares(pool)),
        enforcement=_enforcement(wanted.enforcement, has_caps=pool.vendor.has_shares),
        rollout=wanted.rollout,
        namespaces=tuple(sorted(wanted.namespaces)),
        repartitioning_taint=policy.RepartitioningTaint(taints.of(wanted.autoscaler).repartitioning),
        adoption=plan.intent.adoption,
    )


def _resources(pool: PoolPlan) -> tuple[tuple[str, int], ...]:
    """Return what a node offers: the shares that allocatable shows, or the devices of each DeviceClass."""
    if pool.pool.backend.has_claims:
        return tuple(sorted(Counter(device.resource for device in pool.devices).items()))
    return tuple((resource.name, resource.per_node) for resource in pool.resources)


def _dra(plan: Plan, pool: PoolPlan) -> policy.PoolDra | None:
    if not pool.pool.backend.has_claims:
        return None
    return policy.PoolDra(driver=pool.vendor.dra_driver, shares=plan.division.by, on_demand=modes.of(pool.pool).is_on_demand)


def _partitioner(platform: Platform, pool: PoolPlan) -> policy.Partitioner:
    """Return what divides the GPUs: of a vendor whose GPUs the runtime does not divide only the vendor's own manager does."""
    if pool.manager_config:
        return policy.Partitioner.CONFIG_MANAGER
    return platform.partitioner if pool.vendor.is_made_whole else policy.Partitioner.NONE


def _gpu(pool: PoolPlan, gpu: GpuLayout) -> policy.DesiredGpu:
    by = policy.ModeSwitch.DRIVER if pool.card.switches_mig else policy.ModeSwitch.RUNTIME
    placed = sorted(gpu.instances, key=lambda instance: instance.start)
    mode = gpu.partition or config_manager.whole(pool.card)
    return policy.DesiredGpu(
        index=gpu.index,
        instances=tuple(
            policy.DesiredInstance(profile=one.profile.name, profile_id=one.profile.profile_id, start=one.start, size=one.size)
            for one in placed
        ),
        partition=_partition(mode) if mode else None,
        on_demand=by if gpu.mig_enabled and not placed else None,
    )


def _partition(mode: PartitionMode) -> policy.DesiredPartition:
    return policy.DesiredPartition(
        compute=mode.compute, memory=mode.memory, devices=mode.partitions, memory_mib=mode.memory_mib
    )


def _shares(pool: PoolPlan) -> Iterator[policy.Share]:
    """Yield one share for each profile, in the order of the devices."""
    for device in pool.samples:
        cap = device.cap_mib
        yield policy.Share(
            resource=device.resource,
            profile=device.profile,
            replicas=device.replicas,
            memory_mib=device.memory_mib,
            cap_mib=cap,
            tolerance_mib=0 if cap is None else shares.tolerance_mib(pool.pool, cap),
        )


def _enforcement(wanted: Enforcement, *, has_caps: bool) -> policy.Enforcement:
    return policy.Enforcement(
        action=wanted.action,
        grace_seconds=wanted.grace_seconds,
        mechanism=wanted.mechanism if has_caps else policy.Mechanism.NONE,
        notice_seconds=wanted.notice_seconds,
    )
