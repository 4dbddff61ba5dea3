"""From a demand to the options that serve it, and the best of them.

Shares and caps are those of `sharing`, computed from the very pool that the option's intent describes: a compile of that intent
gives the same. What a mode isolates is NVIDIA's documentation of MIG, of MPS on Volta and later, and of time-slicing.
"""

from collections.abc import Iterator
from functools import partial

from gpushare.core.units import MIB
from gpushare.core.wording import counted, mib
from gpushare.intent.types import Mig, Mode, NodeSelector, Pool, Sharing
from gpushare.sharing import caps, shares
from gpushare.sharing.shares import DeviceClass
from gpushare.sizing import fit
from gpushare.sizing.demand import Demand, FaultIsolation, Grant, MemoryIsolation, Option, Sizing, Unfit, Variant, layout_of
from gpushare.sizing.divisions import IN_HARDWARE, MAX_REPLICAS, divisions

_POOLS = {
    Variant.EXCLUSIVE: "whole",
    Variant.MIG: "partitions",
    Variant.MIG_REPLICAS: "partitions",
    Variant.TIME_SLICING: "shared",
    Variant.MPS: "serving",
}
_FAULTS = {
    Variant.EXCLUSIVE: FaultIsolation.HARDWARE,
    Variant.MIG: FaultIsolation.HARDWARE,
    Variant.MIG_REPLICAS: FaultIsolation.PROCESS,
    Variant.TIME_SLICING: FaultIsolation.PROCESS,
    Variant.MPS: FaultIsolation.NONE,
}


def size(demand: Demand, variant: Variant | None = None) -> Sizing:
    """Return every option of the demand and the best one: of all, or of the `variant` that the user prefers."""
    found = list(divisions(demand))
    options = sorted((_option(demand, *one) for one in found if not isinstance(one, Unfit)), key=partial(_preference, demand))
    unfit = tuple(one for one in found if isinstance(one, Unfit))
    best = next((one for one in options if variant in (None, one.variant)), None)
    order = list(Variant)
    in_order = tuple(sorted(options, key=lambda one: order.index(one.variant)))
    return Sizing(demand=demand, options=in_order, unfit=unfit, best=best, reason=_reason(demand, best, unfit, variant))


def _option(demand: Demand, variant: Variant, sharing: Sharing) -> Option:
    pool = _pool(demand, variant, sharing)
    grants = tuple(_grants(demand, pool))
    offered = tuple((grant.provides_bytes, grant.kind.per_node) for grant in grants)
    needed, users = _nodes_and_users(demand, offered)
    nodes = needed if demand.nodes is None else demand.nodes
    total, wasted = _memory(demand, needed, users)
    is_open = demand.nodes is None or demand.needs[0].users is None
    return Option(
        variant=variant,
        pool=_pool(demand, variant, sharing, nodes),
        grants=grants,
        nodes_needed=needed,
        users=users,
        suffices=None if is_open else needed <= nodes,
        memory_isolation=MemoryIsolation.HARDWARE if variant in IN_HARDWARE else MemoryIsolation.CAP,
        fault_isolation=_FAULTS[variant],
        total_mib=total,
        wasted_mib=wasted,
        unconfirmed=_unconfirmed(demand, pool, grants),
        notes=tuple(_notes(demand, pool)),
    )


def _pool(demand: Demand, variant: Variant, sharing: Sharing, nodes: int = 0) -> Pool:
    label = (("node.example.org/gpu", demand.card.id),)
    selector = NodeSelector(match_labels=label, expected=nodes)
    return Pool(
        name=_POOLS[variant], card=demand.card.id, nodes=selector, gpus_per_node=demand.gpus_per_node, sharing=sharing
    )


def _grants(demand: Demand, pool: Pool) -> Iterator[Grant]:
    layouts = shares.layouts(pool, demand.card)
    for kind in shares.kinds(pool, demand.card, layouts) if layouts else ():
        cap = caps.cap_mib(pool, demand.card, kind.profile, kind.replicas)
        provides = caps.usable_bytes(kind.memory_mib, None) if cap is None else cap * MIB
        yield Grant(kind=kind, cap_mib=cap, provides_bytes=provides or 0)


def _nodes_and_users(demand: Demand, offered: fit.Shares) -> tuple[int, int | None]:
    """Return how many nodes are needed, and how many users fit on the given nodes, or on those if none are given.

    The second is None for users of several sizes: which of them fit depends on who comes first.
    """
    first = demand.needs[0]
    needed = (demand.nodes or 0) if first.users is None else fit.nodes_for(offered, demand.needs) or 0
    nodes = needed if demand.nodes is None else demand.nodes
    return needed, nodes * fit.per_node(offered, first.memory_bytes) if len(demand.needs) == 1 else None


def _memory(demand: Demand, nodes: int, users: int | None) -> tuple[int, int] | tuple[None, None]:
    """Return the memory of the nodes, and how much of it no user asked for, in MiB; None if the card's is not known."""
    if demand.card.memory_mib is None:
        return None, None
    total = nodes * demand.gpus_per_node * demand.card.memory_mib
    asked = sum((users or 0 if need.users is None else need.users) * need.memory_bytes for need in demand.needs)
    return total, max(total - -(-asked // MIB), 0)


def _unconfirmed(demand: Demand, pool: Pool, grants: tuple[Grant, ...]) -> tuple[str, ...]:
    """Return the facts of the catalogue that the option relies on and no source confirms."""
    relied = {"memoryMiB": "memory"}
    if pool.mode is Mode.MPS:
        relied |= {"mps": "MPS", "computeCapability": "compute capability"}
    found = [words for fact, words in relied.items() if fact in demand.card.unconfirmed and not grants[0].kind.profile]
    return (*found, *(text for grant in grants for text in _of_profile(demand, grant.kind)))


def _of_profile(demand: Demand, kind: DeviceClass) -> Iterator[str]:
    of_all = demand.card.mig.unconfirmed if demand.card.mig else ()
    if kind.profile:
        doubts = {*kind.profile.unconfirmed, *(fact.removeprefix("profiles.") for fact in of_all)}
        relied = {"memoryMiB": "memory", "placements": "placements", "profileId": "profile id", "maxCount": "count"}
        yield from (f"{text} of {kind.profile.name}" for fact, text in relied.items() if fact in doubts)


def _notes(demand: Demand, pool: Pool) -> Iterator[str]:
    """Yield the limits that the option meets, in words."""
    card, sharing = demand.card, pool.sharing
    if isinstance(sharing, Mig):
        names = {name for name, _ in layout_of(sharing)}
        needed = [one for one in card.mig.layout_drivers if names >= set(one.profiles)] if card.mig else []
        yield from (f"{' with '.join(one.profiles)} needs driver {one.min_driver} or newer" for one in needed)
        return
    replicas = shares.replicas_of(sharing, None)
    if pool.mode is Mode.MPS and replicas == card.mps_max_replicas:
        yield f"the device plugin admits {replicas} MPS clients on this card"
    if pool.mode is Mode.TIME_SLICING and replicas == MAX_REPLICAS:
        yield f"an intent has at most {MAX_REPLICAS} replicas"


def _preference(demand: Demand, one: Option) -> tuple[int, ...]:
    """Return the sort key of options, the best first: what suffices, at the least cost, and then as isolated as possible."""
    isolation = (list(MemoryIsolation).index(one.memory_isolation), list(FaultIsolation).index(one.fault_isolation))
    cost = one.nodes_needed if demand.needs[0].users is not None else -(one.users or 0)
    decided = (*isolation, cost) if one.suffices else (cost, *isolation)
    rest = (one.wasted_mib or 0, -_compute(one), len(one.grants), list(Variant).index(one.variant))
    return (one.suffices is False, *decided, *rest)


def _compute(one: Option) -> int:
    """Return the compute slices of a node's instances: of layouts with as many shares, the one that uses more of the GPU."""
    return sum(grant.kind.profile.compute_slices * grant.kind.devices for grant in one.grants if grant.kind.profile)


def _reason(demand: Demand, best: Option | None, unfit: tuple[Unfit, ...], variant: Variant | None) -> str:
    if best is None:
        return next((f"{one.variant.value}: {one.reason}" for one in unfit if variant in (None, one.variant)), "")
    what = f"of {variant.value}, " if variant else ""
    isolated = "no memory is shared" if best.memory_isolation is MemoryIsolation.HARDWARE else "memory is kept apart by caps"
    if best.suffices is False:
        return f"{what}{counted(best.nodes_needed, 'node')} needed, the fewest; {demand.nodes} do not suffice"
    if best.suffices:
        return f"{what}it suffices with the strongest isolation: {isolated}"
    if demand.nodes is None:
        return f"{what}the fewest nodes, {best.nodes_needed}; {isolated}"
    of = mib(demand.needs[0].memory_mib)
    return f"{what}the most users of {of}, {best.users}; {isolated}"
