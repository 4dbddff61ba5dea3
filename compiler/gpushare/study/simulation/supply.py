"""What a plan offers to pods: Supply and its parts, and how they follow from a Plan."""

from collections.abc import Mapping

from gpushare.bundle.admission import MUTATING_KUBERNETES
from gpushare.core.prices import Price
from gpushare.facts.catalog.cards import Card, MigProfile, PartitionMode
from gpushare.intent.types import Pool, SharePlacement
from gpushare.offering import backends, shares
from gpushare.resolved.plan import DevicePlan, Plan, PoolPlan
from gpushare_node.contract.struct import Struct
from gpushare_node.contract.tenancy import AdmissionMode


class DeviceSupply(Struct):
    """One device of a node: a GPU or a MIG instance. `slots` are its shares, each of which one container may hold.

    `provides_bytes` is what a container with one share may use (None: not known), `milli` which part of its GPU that is, in
    thousandths rounded down. `is_whole`: the device is a GPU that is neither partitioned nor shared.
    """

    gpu: int
    resource: str
    slots: int
    provides_bytes: int | None
    milli: int
    is_whole: bool


class PoolSupply(Struct):
    """One pool. `nodes` None: as many as the workload needs. `devices` are those of one node, in kubelet's order.

    `namespaces` empty: all may use it. `placement` is how the device plugin chooses among the GPUs of a node; for DRA the
    scheduler does it, which takes them in order.
    """

    name: str
    card: str
    nodes: int | None
    gpus_per_node: int
    gpu_mib: int | None
    devices: tuple[DeviceSupply, ...]
    placement: SharePlacement
    namespaces: frozenset[str]
    is_default: bool
    price: Price | None


class Supply(Struct):
    """All pools, by name. `quotas` is (namespace, resource) → the most of it that its pods may request at once.

    `ambiguous` are resources of which a pod must name the pool. `denies`: admission rejects pods that may not use a pool or do
    not name one; `assigns`: it adds the pool where it can. `machines` are pools for virtual machines, which serve no pods;
    `observes`: the plan is not enforced yet.
    """

    pools: tuple[PoolSupply, ...]
    quotas: Mapping[tuple[str, str], int]
    ambiguous: frozenset[str] = frozenset()
    denies: bool = True
    assigns: bool = False
    machines: tuple[str, ...] = ()
    observes: bool = False


def of(plan: Plan, prices: Mapping[str, Price]) -> Supply:
    """Return what the plan offers when it is enforced; `prices` by pool name."""
    admission = plan.intent.admission.mode
    return Supply(
        pools=tuple(_pool(pool, prices.get(pool.name)) for pool in plan.pools),
        quotas={(one.namespace, backends.quota_resource(key)): number for one in plan.quotas for key, number in one.hard},
        ambiguous=plan.ambiguous,
        denies=admission is AdmissionMode.DENY,
        machines=tuple(pool.name for pool in plan.vm_pools),
        observes=plan.intent.observes,
        assigns=admission is not AdmissionMode.NONE and (plan.intent.kubernetes or (0, 0)) >= MUTATING_KUBERNETES,
    )


def _pool(plan: PoolPlan, price: Price | None) -> PoolSupply:
    pool, card = plan.pool, plan.card
    alike = {one.profile: _device(pool, card, one) for one in plan.samples}

    def device(one: DevicePlan) -> DeviceSupply:
        provides_bytes, milli = alike[one.profile]
        return DeviceSupply(
            gpu=one.gpu,
            resource=one.resource,
            slots=one.replicas,
            provides_bytes=provides_bytes,
            milli=milli,
            is_whole=one.profile is None and one.replicas == 1,
        )

    return PoolSupply(
        name=plan.name,
        card=card.id,
        nodes=plan.nodes,
        gpus_per_node=pool.gpus_per_node,
        gpu_mib=card.memory_mib or None,
        devices=tuple(map(device, plan.devices)),
        placement=SharePlacement.PACK if pool.backend.has_claims else pool.sharing.placement,
        namespaces=frozenset(pool.namespaces),
        is_default=pool.is_default,
        price=price,
    )


def _device(pool: Pool, card: Card, sample: DevicePlan) -> tuple[int | None, int]:
    """Return what a container with one share may use, and which part of its GPU that is.

    A part is the smaller of its parts of memory slices and of compute slices. An `even` cap is as large a part as a replica,
    although the reserve is taken off it.
    """
    profile = card.device_profiles[sample.profile] if sample.profile else None
    provides = shares.provided_bytes(pool, card, profile, sample.replicas)
    memory = compute = (1, sample.replicas)
    if isinstance(profile, PartitionMode):
        memory = compute = (1, profile.partitions)
    elif isinstance(profile, MigProfile) and card.mig:
        memory = (sample.size, card.mig.units * sample.replicas)
        compute = (profile.compute_slices, max(one.compute_slices for one in card.mig.profiles) * sample.replicas)
    even = shares.even_mib(pool, card, profile, sample.replicas) if sample.cap_mib else None
    if even and sample.cap_mib and sample.cap_mib < even:
        memory = (memory[0] * sample.cap_mib, memory[1] * even)
    return provides, min(1000 * part // whole for part, whole in (memory, compute))
