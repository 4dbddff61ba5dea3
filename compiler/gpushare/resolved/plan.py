"""What every pool resolves to: the Plan, in which nothing is left to decide.

Owns the Plan types and their computation from an Intent that passed the rules; `resolve` is total for those. Placements,
resource names, counts, caps and profile keys are final here, and the renderers only write them down.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare import vendors
from gpushare.bundle.artifact import content_hash, digest
from gpushare.bundle.lock import GoalPin, Lock
from gpushare.core import emit
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, Catalog, VgpuType
from gpushare.facts.nodes import selectors
from gpushare.intent.types import Intent, Layout, Mode, Pool, Quota
from gpushare.offering import backends, claims, modes, shares
from gpushare.offering.backends import vgpu
from gpushare.offering.backends.vgpu import VgpuConfig
from gpushare.offering.claims import Division
from gpushare.offering.partitioners.config_manager import ManagerConfig
from gpushare.offering.partitioners.mig_parted import MigConfig
from gpushare.offering.shares import Offer, ShareKind
from gpushare.resolved import node_plan
from gpushare.resolved.node_plan import DevicePlan, GpuLayout, NodeShape, SharingProfile
from gpushare.vendors import OTHERS
from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract.names import IMPLICIT
from gpushare_node.contract.policy import DraShares, Partitioner
from gpushare_node.contract.struct import NOTHING, Struct


class ResolvedPool(Struct):
    """One pool of the intent and its card. `terms` are Kubernetes nodeSelectorTerms of the nodes that it owns."""

    pool: Pool
    card: Card
    terms: tuple[Mapping[str, Any], ...]

    @property
    def vendor(self) -> GpuVendor:
        """Whose GPUs the pool has."""
        return vendors.of(self.card)

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.pool.name

    @property
    def mode(self) -> Mode:
        """The pool's mode."""
        return self.pool.mode

    @property
    def nodes(self) -> int | None:
        """How many nodes capacity is reported for; None if unknown."""
        return self.pool.nodes.count


class VmPool(ResolvedPool):
    """One pool for virtual machines, resolved."""

    kind: VgpuType
    config: VgpuConfig

    @property
    def resource(self) -> str:
        """The resource that a virtual machine requests."""
        return vgpu.resource(self.vendor, self.kind)

    @property
    def per_node(self) -> int:
        """How many vGPUs a node has."""
        return self.kind.max_count * self.pool.gpus_per_node

    @property
    def total(self) -> int | None:
        """How many vGPUs all nodes have; None if the number of nodes is unknown."""
        return None if self.nodes is None else self.per_node * self.nodes

    @property
    def labels(self) -> dict[str, str]:
        """The labels that a person sets on the pool's nodes."""
        return vgpu.labels(self.vendor, self.config.name)


def resolve_machines(pool: Pool, card: Card, terms: tuple[Mapping[str, Any], ...]) -> VmPool:
    """Return the resolved pool. A ValueError is a bug: the rules accepted a type that the card lacks."""
    kind = modes.of(pool).vgpu_type(card)
    if kind is None:
        raise ValueError(f"pool {pool.name}: no vGPU type")
    return VmPool(pool=pool, card=card, kind=kind, config=vgpu.config(card, kind), terms=terms)


__all__ = [
    "DevicePlan",
    "GpuLayout",
    "MigConfig",
    "Plan",
    "PoolPlan",
    "QuotaPlan",
    "ResourcePlan",
    "SharingProfile",
    "VmPool",
    "goal_inputs_digest",
    "resolve",
]


class ResourcePlan(Struct):
    """One extended resource of a node of the pool: how many of it the node's `allocatable` will show."""

    name: str
    per_node: int
    total: int | None


class PoolPlan(ResolvedPool):
    """One pool, resolved.

    `gpus` and `devices` describe one node, `samples` are one device of each profile, `kinds` the ways to offer them.
    `layout_of_goal` is what a goal was resolved to, None if the user wrote the layout; the lock file pins it under
    `goal_inputs_digest`. The tolerance of each cap is `caps.tolerance_mib` of it.
    """

    gpus: tuple[GpuLayout, ...]
    devices: tuple[DevicePlan, ...]
    samples: tuple[DevicePlan, ...]
    resources: tuple[ResourcePlan, ...]
    profile: SharingProfile
    mig_config: MigConfig | None
    manager_config: ManagerConfig | None
    layout_of_goal: Layout | None
    goal_inputs_digest: str = ""
    kinds: tuple[ShareKind, ...] = ()

    @property
    def has_profile(self) -> bool:
        """Whether the pool's nodes follow a config of NVIDIA's device plugin."""
        return self.vendor.plugin_label != "" and not self.pool.backend.has_claims


class QuotaPlan(Struct):
    """The ResourceQuota of one namespace: (key of the resource, number) pairs, sorted."""

    namespace: str
    hard: tuple[tuple[str, int], ...]


class Plan(Struct):
    """The whole cluster, resolved. `pools`, for containers, and `vm_pools`, for virtual machines, are sorted by name.

    `document` is the intent in its canonical form. `operator_mig_strategy` is the one strategy for gpu-operator, None if each
    config has to set its own. It suits every profile that a node may still have, because the operator changes it on all nodes
    at once. `division`: how NVIDIA's DRA driver divides devices among claims; `sets_intervals`: whether it sets how long turns
    are.
    """

    intent: Intent
    document: Mapping[str, Any]
    pools: tuple[PoolPlan, ...]
    quotas: tuple[QuotaPlan, ...]
    operator_mig_strategy: str | None
    vm_pools: tuple[VmPool, ...] = ()
    division: Division = Division(by=None)
    sets_intervals: bool = False

    @property
    def digest(self) -> str:
        """The intent's identity, whatever the order of its fields and the layout of its text."""
        return digest(emit.canonical_json(dict(self.document)))

    @property
    def has_nvidia(self) -> bool:
        """Whether any pool has cards of NVIDIA's."""
        return any(pool.card.vendor == "nvidia" for pool in self.every_pool)

    def pools_of(self, vendor: str) -> tuple[PoolPlan, ...]:
        """Return the pools with cards of a vendor."""
        return tuple(pool for pool in self.pools if pool.card.vendor == vendor)

    @property
    def other_vendors(self) -> tuple[str, ...]:
        """The vendors other than NVIDIA whose cards pools have."""
        return tuple(vendor for vendor in OTHERS if self.pools_of(vendor))

    @property
    def dra_pools(self) -> tuple[PoolPlan, ...]:
        """The pools that NVIDIA's DRA driver serves."""
        return tuple(pool for pool in self.pools if pool.pool.backend.has_claims)

    @property
    def makes_instances(self) -> bool:
        """Whether that driver makes MIG instances for claims: if so, on all its nodes."""
        return any(modes.of(pool.pool).is_on_demand for pool in self.dra_pools)

    @property
    def every_pool(self) -> tuple[ResolvedPool, ...]:
        """The pools of both lists."""
        return *self.pools, *self.vm_pools

    @property
    def ambiguous(self) -> frozenset[str]:
        """The resources that mean different things in different pools: a pod that requests one must name the pool."""
        by_plugins = (_offer(pool) for pool in self.pools if not pool.pool.backend.has_claims)
        return shares.ambiguous(by_plugins, map(_offer, self.dra_pools)) | frozenset(self._of_classes())

    def _of_classes(self) -> Iterator[str]:
        """Yield the names of classes in `limits` that nodes of other pools may serve: a class knows cards, and no pools."""
        served = Counter((pool.card.id, one.profile) for pool in self.dra_pools for one in pool.samples)
        for pool in self.dra_pools:
            for one in pool.samples:
                is_alone = served[pool.card.id, one.profile] == 1
                yield from (name for name in _limits(pool, one) if name.startswith(IMPLICIT) or not is_alone)


def resolve(intent: Intent, catalog: Catalog, lock: Lock, document: Mapping[str, Any] = NOTHING) -> Plan:
    """Return the Plan of an intent that passed the rules. `document` is the intent as written; `lock` has pinned goals."""
    assignment = selectors.NodeAssignment(intent.pools)
    every = sorted(intent.pools, key=lambda pool: pool.name)
    pools = [pool for pool in every if not modes.of(pool).serves_vms]
    machines = [pool for pool in every if modes.of(pool).serves_vms]
    resolved: dict[str, tuple[Pool, Card, NodeShape]] = {}
    for pool in pools:
        card = _pool_card(pool, catalog)
        pinned = _pinned(card, lock.goals.get(pool.name), goal_inputs_digest(intent, pool))
        resolved[pool.name] = (pool, card, node_plan.resolve(pool, card, pinned))
    return Plan(
        intent=intent,
        document=document,
        pools=tuple(_pool_plan(intent, assignment, *parts) for parts in resolved.values()),
        quotas=_quotas(intent, resolved),
        operator_mig_strategy=backends.operator_mig_strategy(pools, lock.profiles.every().values()),
        vm_pools=tuple(resolve_machines(pool, _pool_card(pool, catalog), assignment.terms(pool)) for pool in machines),
        division=_division(intent, lock),
        sets_intervals=_sets_intervals(resolved, lock),
    )


def _division(intent: Intent, lock: Lock) -> Division:
    """Return how the driver divides devices. Once by memory, always: nodes that wait for their turn have shares in use.

    Whole GPUs are the same with it. By a count they are not, and limits that ask for one would get a share.
    """
    divided = claims.division(intent)
    is_fixed = intent.has_dra and not any(modes.of(pool).is_on_demand for pool in intent.pools)
    is_by_memory = divided.by is None and is_fixed and lock.dra.get("byMemory", False)
    return Division(by=DraShares.MEMORY) if is_by_memory else divided


def _sets_intervals(resolved: Mapping[str, tuple[Pool, Card, NodeShape]], lock: Lock) -> bool:
    """Return whether the driver sets intervals. Once, always: else it resets no GPU whose claims with one end later."""
    served = [(pool, card) for pool, card, _ in resolved.values() if pool.backend.has_claims]
    is_safe = all(card.has_intervals for _, card in served)
    return any(modes.of(pool).interval for pool, _ in served) or (is_safe and lock.dra.get("intervals", False))


def _offer(pool: PoolPlan) -> Offer:
    """Return what a pool's resources mean; that of a class is its own."""
    return frozenset(
        (name, (pool.card.id, one.profile, one.replicas > 1, one.cap_mib))
        for one in pool.samples
        for name in _limits(pool, one)
        if not name.startswith(IMPLICIT)
    )


def _limits(pool: PoolPlan, device: DevicePlan) -> tuple[str, ...]:
    return backends.of(pool.pool, pool.card).limits(device.resource)


def goal_inputs_digest(intent: Intent, pool: Pool) -> str:
    """Return a digest of what a goal's layout depends on in the intent; empty for pools without a goal.

    The catalogue is left out on purpose: a newer gpushare with better data on a card must not repartition nodes. A card that
    the intent itself defines is part of the digest.
    """
    mode, reserve = modes.of(pool), pool.memory.reserve
    goal = mode.goal
    if goal is None:
        return ""
    question = [
        [pool.card, intent.cards.get(pool.card)],
        [type(goal).__name__, vars(goal)],
        mode.mig_strategy,
        vars(reserve) if reserve else None,
    ]
    return content_hash(question)


def pinned_layouts(intent: Intent, catalog: Catalog, lock: Lock) -> dict[str, Layout]:
    """Return the layouts that the lock pins for goals of this intent, by pool: `resolve` uses these."""
    if not lock.goals:
        return {}
    pools = ((pool, catalog.get(pool.card)) for pool in intent.pools if pool.name in lock.goals)
    found = ((one.name, card and _pinned(card, lock.goals[one.name], goal_inputs_digest(intent, one))) for one, card in pools)
    return {name: layout for name, layout in found if layout}


def _pool_card(pool: Pool, catalog: Catalog) -> Card:
    card = catalog.get(pool.card)
    if card is None:
        raise KeyError(pool.card)
    return card


def _pinned(card: Card, pin: GoalPin | None, question: str) -> Layout | None:
    """Return the layout that the lock pins for a goal, if the digest is the same and the card still allows the layout."""
    if not question or pin is None or pin.question != question or card.mig is None:
        return None
    return pin.layout if all(name in card.profiles for name, _ in pin.layout) and mig.fits(card.mig, pin.layout) else None


def _pool_plan(intent: Intent, assignment: selectors.NodeAssignment, pool: Pool, card: Card, shape: NodeShape) -> PoolPlan:
    question = goal_inputs_digest(intent, pool)
    by_mig_manager = intent.platform.partitioner is Partitioner.MIG_MANAGER
    is_managed = card.vendor in OTHERS and intent.platform.of_vendor(card.vendor).has_operator
    return PoolPlan(
        pool=pool,
        card=card,
        gpus=shape.gpus,
        devices=shape.devices,
        samples=shape.samples,
        resources=_resources(shape.kinds, pool.nodes.count),
        profile=shape.profile,
        mig_config=shape.mig_config if by_mig_manager else None,
        manager_config=shape.manager_config if is_managed else None,
        layout_of_goal=shape.layouts[0] if question else None,
        terms=assignment.terms(pool),
        goal_inputs_digest=question,
        kinds=shape.kinds,
    )


def _resources(kinds: tuple[ShareKind, ...], nodes: int | None) -> tuple[ResourcePlan, ...]:
    per_node = Counter[str]()
    for kind in kinds:
        per_node[kind.resource] += kind.per_node
    return tuple(
        ResourcePlan(name=name, per_node=number, total=None if nodes is None else number * nodes)
        for name, number in sorted(per_node.items())
    )


def _quotas(intent: Intent, resolved: Mapping[str, tuple[Pool, Card, NodeShape]]) -> tuple[QuotaPlan, ...]:
    """Return the ResourceQuotas by namespace; pools that share a resource name share one budget."""
    hard: dict[str, Counter[str]] = {}
    for quota in intent.quotas:
        budget = hard.setdefault(quota.namespace, Counter())
        for resource, number in _granted(quota, *resolved[quota.pool]):
            budget[backends.of(*resolved[quota.pool][:2]).quota_key(resource)] += number
    return tuple(QuotaPlan(namespace=name, hard=tuple(sorted(budget.items()))) for name, budget in sorted(hard.items()))


def _granted(quota: Quota, pool: Pool, card: Card, shape: NodeShape) -> Iterator[tuple[str, int]]:
    """Yield (resource, number) of one quota. A quota without names is on a pool with one resource: a rule ensures it."""
    for name, number in quota.per_resource:
        kind = shares.find(shape.kinds, name)
        if kind:
            yield kind.resource, number
    only = shape.kinds[0]
    limits = [] if quota.shares is None else [quota.shares]
    if quota.memory_bytes is not None:
        cap = shares.cap_mib(pool, card, only.profile, only.replicas)
        limits.append(shares.shares_for(quota.memory_bytes, cap) if cap else 0)
    if limits:
        yield only.resource, min(limits)
