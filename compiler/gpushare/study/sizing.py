"""How a card must be shared so that a number of users fits: every mode, what it gives, how many nodes it needs, the best.

Shares and caps are those of `offering`, computed from the very pool that the option's intent describes: a compile of that
intent gives the same. What a mode isolates is NVIDIA's documentation of MIG, of MPS on Volta and later, and of time-slicing.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpushare import vendors
from gpushare.bundle.lock import EMPTY
from gpushare.core.units import MIB
from gpushare.core.wording import mib, pluralize
from gpushare.facts.catalog.cards import Catalog
from gpushare.intent import writer
from gpushare.intent.types import Intent, NodeSelector, NvidiaStack, Pool, Sharing
from gpushare.offering import modes, shares
from gpushare.offering.modes import VARIANTS
from gpushare.offering.modes.traits import Demand, FaultIsolation, MemoryIsolation, Shares, Variant, nodes_for, per_node
from gpushare.offering.shares import ShareKind
from gpushare.resolved.plan import resolve
from gpushare.study.simulation import supply
from gpushare.study.simulation.engine import simulate
from gpushare.study.simulation.supply import Supply
from gpushare.study.workload.requests import Workload
from gpushare_node.contract.struct import Struct, replace


class UserShare(Struct):
    """Shares of one kind of device. `cap_mib` is None if the device is not shared; `provides_bytes` is what a user may use."""

    kind: ShareKind
    cap_mib: int | None
    provides_bytes: int


class Option(Struct):
    """One way to share. `pool` is what its intent says.

    `nodes_needed` is for all users; `users` is how many fit on the given nodes, or on those needed; None if they need
    different sizes. `wasted_mib` is the memory of the nodes needed (`total_mib`) that no user asked for, None if the card's
    memory is not known. `suffices` is None if the number of nodes or users is open. `cost_per_hour` is that of the nodes
    needed, None without a price.
    """

    variant: Variant
    pool: Pool
    grants: tuple[UserShare, ...]
    nodes_needed: int
    users: int | None
    suffices: bool | None
    total_mib: int | None
    wasted_mib: int | None
    cost_per_hour: float | None
    unconfirmed: tuple[str, ...]
    notes: tuple[str, ...]


class UnfitVariant(Struct):
    """A way to share that cannot serve the demand on any number of nodes, and why."""

    variant: Variant
    reason: str


class Sizing(Struct):
    """The answer: `options` the best first within each variant, what cannot serve, the best one and why it is."""

    demand: Demand
    options: tuple[Option, ...]
    unfit: tuple[UnfitVariant, ...]
    best: Option | None
    reason: str


def size(demand: Demand, preferred: str | None = None, workload: Workload | None = None) -> Sizing:
    """Return every option of the demand and the best one: of all, or of the variant that the user prefers.

    `workload`: the users are its pods, who come and go; `demand` has the most of each size at once.
    """
    found = list(_divisions(demand, preferred))
    made = (_option(demand, *one, workload) for one in found if not isinstance(one, UnfitVariant))
    options = sorted(made, key=partial(_preference, demand))
    unfit = tuple(one for one in found if isinstance(one, UnfitVariant))
    best = next((one for one in options if preferred in (None, one.variant.word)), None)
    in_order = tuple(sorted(options, key=lambda one: VARIANTS.index(one.variant)))
    return Sizing(demand=demand, options=in_order, unfit=unfit, best=best, reason=_reason(demand, best, unfit, preferred))


def intent(demand: Demand, option: Option) -> dict[str, Any]:
    """Return the intent of an option: one pool; its label and the cluster's name are examples for the user to replace."""
    card, own = demand.card, demand.described
    made = writer.write(Intent(name="my-cluster", pools=(option.pool,), cards={card.id: own} if own else {}))
    stack = next(iter(vendors.of(card).charts))
    platform = {} if stack == NvidiaStack.GPU_OPERATOR else {"platform": {"stack": stack}}
    return {**made, "spec": {**platform, **made["spec"]}}


def _divisions(demand: Demand, preferred: str | None) -> Iterator[tuple[Variant, Sharing] | UnfitVariant]:
    """Yield what can serve the demand, and for each variant of the card's vendor, or the preferred one, that cannot why."""
    for variant in VARIANTS:
        if demand.card.vendor not in variant.vendors and variant.word != preferred:
            continue
        if demand.in_hardware and variant.memory is not MemoryIsolation.HARDWARE:
            yield UnfitVariant(variant=variant, reason="users of one device share its memory: only caps separate them")
            continue
        found = variant.ways(demand)
        if isinstance(found, str):
            yield UnfitVariant(variant=variant, reason=found)
        else:
            yield from ((variant, sharing) for sharing in found)


def _option(demand: Demand, variant: Variant, sharing: Sharing, workload: Workload | None) -> Option:
    pool = _pool(demand, sharing)
    grants = tuple(_grants(demand, pool))
    offered = tuple((grant.provides_bytes, grant.kind.per_node) for grant in grants)
    needed, users = _nodes_and_users(demand, offered)
    asked = sum((users or 0 if need.users is None else need.users) * need.memory_bytes for need in demand.needs)
    if workload is not None:
        needed, asked = _simulated(demand, pool, workload)
        users = None if users is None else (needed if demand.nodes is None else demand.nodes) * _per_node(demand, offered)
    nodes = needed if demand.nodes is None else demand.nodes
    total, wasted = _memory(demand, needed, asked)
    is_open = demand.nodes is None or demand.needs[0].users is None
    return Option(
        variant=variant,
        pool=_pool(demand, sharing, nodes),
        grants=grants,
        nodes_needed=needed,
        users=users,
        suffices=None if is_open else needed <= nodes,
        total_mib=total,
        wasted_mib=wasted,
        cost_per_hour=demand.price.per_hour * needed * demand.gpus_per_node if demand.price else None,
        unconfirmed=_unconfirmed(demand, pool, grants),
        notes=tuple(modes.of(pool).notes(demand.card)),
    )


def _pool(demand: Demand, sharing: Sharing, nodes: int = 0) -> Pool:
    label = (("node.example.org/gpu", demand.card.id),)
    selector = NodeSelector(match_labels=label, expected=nodes)
    name = modes.named(sharing.mode).pool_name
    return Pool(name=name, card=demand.card.id, nodes=selector, gpus_per_node=demand.gpus_per_node, sharing=sharing)


def _grants(demand: Demand, pool: Pool) -> Iterator[UserShare]:
    layouts = modes.of(pool).layouts(demand.card)
    for kind in shares.kinds(pool, demand.card, layouts) if layouts else ():
        asked = (pool, demand.card, kind.profile, kind.replicas)
        yield UserShare(kind=kind, cap_mib=shares.cap_mib(*asked), provides_bytes=shares.provided_bytes(*asked) or 0)


def _nodes_and_users(demand: Demand, offered: Shares) -> tuple[int, int | None]:
    """Return how many nodes are needed, and how many users fit on the given nodes, or on those if none are given.

    The second is None for users of several sizes: which of them fit depends on who comes first.
    """
    first = demand.needs[0]
    needed = (demand.nodes or 0) if first.users is None else nodes_for(offered, demand.needs) or 0
    nodes = needed if demand.nodes is None else demand.nodes
    return needed, nodes * _per_node(demand, offered) if len(demand.needs) == 1 else None


def _per_node(demand: Demand, offered: Shares) -> int:
    return per_node(offered, demand.needs[0].memory_bytes)


def _simulated(demand: Demand, pool: Pool, workload: Workload) -> tuple[int, int]:
    """Return how many nodes the pods of a workload need as they come and go, and what those of the peak ask for in bytes."""
    intent = Intent(name="size", pools=(pool,))
    plan = resolve(intent, Catalog(own={demand.card.id: demand.card}), EMPTY)
    offered = replace(supply.of(plan, {}).pools[0], nodes=None)
    (outcome,) = simulate(Supply(pools=(offered,), quotas={}), workload).pools
    return outcome.nodes, outcome.peak.asked_mib * MIB


def _memory(demand: Demand, nodes: int, asked: int) -> tuple[int, int] | tuple[None, None]:
    """Return the memory of the nodes, and how much of it no user asked for, in MiB; None if the card's is not known."""
    if demand.card.memory_mib is None:
        return None, None
    total = nodes * demand.gpus_per_node * demand.card.memory_mib
    return total, max(total - -(-asked // MIB), 0)


def _unconfirmed(demand: Demand, pool: Pool, grants: tuple[UserShare, ...]) -> tuple[str, ...]:
    """Return the facts of the catalogue that the option relies on and no source confirms."""
    relied = {"memoryMiB": "memory", **dict(modes.of(pool).card_facts)}
    found = [words for fact, words in relied.items() if fact in demand.card.unconfirmed and not grants[0].kind.profile]
    return (*found, *(text for grant in grants for text in _of_profile(demand, grant.kind)))


def _of_profile(demand: Demand, kind: ShareKind) -> Iterator[str]:
    of_all = demand.card.mig.unconfirmed if demand.card.mig else ()
    if kind.profile:
        doubts = {*kind.profile.unconfirmed, *(fact.removeprefix("profiles.") for fact in of_all)}
        relied = {"memoryMiB": "memory", "placements": "placements", "profileId": "profile id", "maxCount": "count"}
        yield from (f"{text} of {kind.profile.name}" for fact, text in relied.items() if fact in doubts)


def rank(demand: Demand, one: Option, *, by_cost: bool = False) -> tuple[float, ...]:
    """Return what makes an option better, as a sort key: that it suffices, then the least cost, then the most isolation.

    The cost is the number of nodes or, if users are open, that of users; with `by_cost` it is money, that of one user if users
    are open.
    """
    isolation = (list(MemoryIsolation).index(one.variant.memory), list(FaultIsolation).index(one.variant.faults))
    is_open = demand.needs[0].users is None
    cost: float = -(one.users or 0) if is_open else one.nodes_needed
    if by_cost and one.cost_per_hour is not None:
        cost = one.cost_per_hour / (one.users or 1) if is_open else one.cost_per_hour
    decided = (*isolation, cost) if one.suffices else (cost, *isolation)
    return (one.suffices is False, *decided, one.wasted_mib or 0)


def _preference(demand: Demand, one: Option) -> tuple[float, ...]:
    """Return the sort key of a card's options: their rank, and between equals what is simpler for users of one size."""
    kinds, compute = len(one.grants), -_compute(one)
    parts = (kinds, compute) if len(demand.needs) == 1 else (compute, kinds)
    return (*rank(demand, one), *parts, _is_one_instance(one), VARIANTS.index(one.variant))


def _compute(one: Option) -> int:
    """Return the compute slices of a node's instances: of layouts with as many shares, the one that uses more of the GPU."""
    if _is_one_instance(one):
        return 0
    return sum(grant.kind.profile.compute_slices * grant.kind.devices for grant in one.grants if grant.kind.profile)


def _is_one_instance(one: Option) -> bool:
    """Whether MIG leaves a GPU in one piece: its users then share it as they do with time-slicing, or one has it alone."""
    instances = [grant.kind.devices for grant in one.grants if grant.kind.profile]
    return sum(instances) == one.pool.gpus_per_node


def _reason(demand: Demand, best: Option | None, unfit: tuple[UnfitVariant, ...], preferred: str | None) -> str:
    if best is None:
        return next((f"{one.variant.word}: {one.reason}" for one in unfit if preferred in (None, one.variant.word)), "")
    what = f"of {preferred}, " if preferred else ""
    isolated = "no memory is shared" if best.variant.memory is MemoryIsolation.HARDWARE else "memory is separated by caps"
    if best.suffices is False:
        given = "1 is" if demand.nodes == 1 else f"{demand.nodes} are"
        return f"{what}{pluralize(best.nodes_needed, 'node')} needed, the fewest; {given} not enough"
    if best.suffices:
        return f"{what}fits, with the strongest isolation: {isolated}"
    if demand.nodes is None:
        return f"{what}the fewest nodes, {best.nodes_needed}; {isolated}"
    of = mib(demand.needs[0].memory_mib)
    return f"{what}the most users of {of}, {best.users}; {isolated}"


class CardComparison(Struct):
    """The sizings of several cards for one demand, the best card first; `best` is None if the users fit on none.

    `is_by_cost`: the price of every card that serves is known, so that they are compared by cost, not by their number of nodes.
    """

    sizings: tuple[Sizing, ...]
    best: Sizing | None
    is_by_cost: bool = False


def compare(sizings: tuple[Sizing, ...]) -> CardComparison:
    """Order the cards as the ways to share one card are ordered: what suffices, cost, isolation, and then memory left over."""
    serving = [one for one in sizings if one.best is not None]
    by_cost = bool(serving) and all(one.demand.price is not None for one in serving)
    ordered = sorted(
        sizings, key=lambda one: (one.best is None, rank(one.demand, one.best, by_cost=by_cost) if one.best else ())
    )
    return CardComparison(
        sizings=tuple(ordered), best=next((one for one in ordered if one.best is not None), None), is_by_cost=by_cost
    )
