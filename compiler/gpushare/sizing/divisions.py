"""Which ways to share a card are compared for a demand: one for each mode, and one for each MIG layout that can serve it."""

from collections.abc import Iterator
from itertools import product

from gpushare import mig
from gpushare.catalog.cards import Card, Geometry, MigProfile
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import mib
from gpushare.intent.types import Exclusive, Layout, Mig, Mps, Sharing, TimeSlicing
from gpushare.sharing import caps
from gpushare.sharing.shares import profiles_by_name
from gpushare.sizing import fit
from gpushare.sizing.demand import Demand, Need, Unfit, Variant

MAX_REPLICAS = 1024
"""How many replicas an intent may ask for (schemas/intent.v1.json)."""

IN_HARDWARE = frozenset({Variant.EXCLUSIVE, Variant.MIG})
"""The variants in which every user has memory of their own."""

Division = tuple[Variant, Sharing]


def divisions(demand: Demand) -> Iterator[Division | Unfit]:
    """Yield what can serve the demand, and for each variant that cannot why."""
    searches = (
        (Variant.EXCLUSIVE, _exclusive),
        (Variant.MIG, _partitioned),
        (Variant.MIG_REPLICAS, _replicated),
        (Variant.TIME_SLICING, _time_slicing),
        (Variant.MPS, _mps),
    )
    for variant, search in searches:
        if demand.in_hardware and variant not in IN_HARDWARE:
            yield Unfit(variant=variant, reason="users of one device share its memory: only caps keep them apart")
            continue
        found = search(demand)
        if isinstance(found, str):
            yield Unfit(variant=variant, reason=found)
        else:
            yield from ((variant, sharing) for sharing in found)


def _exclusive(demand: Demand) -> list[Sharing] | str:
    usable, need = caps.usable_bytes(demand.card.memory_mib, None), demand.needs[0]
    if usable is None:
        return "the memory of the card is not known"
    return [Exclusive()] if usable >= need.memory_bytes else _too_small("a GPU", usable // MIB, need)


def _time_slicing(demand: Demand) -> list[Sharing] | str:
    usable = caps.usable_bytes(demand.card.memory_mib, None)
    if usable is None:
        return "the memory of the card is not known"
    replicas = _replicas(usable // MIB, demand.needs[0])
    return [TimeSlicing(replicas=replicas)] if replicas > 1 else _too_small("half a GPU", usable // MIB // 2, demand.needs[0])


def _mps(demand: Demand) -> list[Sharing] | str:
    card = demand.card
    if not card.mps_supported:
        return "the device plugin does not run MPS on this card"
    if not caps.has_mps_shares(card):
        return "MPS needs Volta or newer to give clients shares of their own"
    if card.memory_mib is None:
        return "the memory of the card is not known"
    replicas = min(_replicas(card.memory_mib, demand.needs[0]), card.mps_max_replicas)
    return [Mps(replicas=replicas)] if replicas > 1 else _too_small("half a GPU", card.memory_mib // 2, demand.needs[0])


def _too_small(what: str, usable_mib: int, need: Need) -> str:
    return f"{what} has {mib(max(usable_mib, 0))} for a user, less than {show_bytes(need.memory_bytes)}"


def _replicas(memory_mib: int, need: Need) -> int:
    """Return into how many equal caps of whole MiB the memory can be divided, if each is at least the need."""
    return min(max(memory_mib, 0) // need.memory_mib, MAX_REPLICAS)


def _partitioned(demand: Demand) -> list[Sharing] | str:
    if demand.card.mig is None:
        return _no_mig(demand.card)
    layouts = _layouts(demand.card.mig, demand)
    found: list[Sharing] = [
        Mig(wanted=layout)
        for layout in layouts
        if fit.nodes_for(_shares(demand, layout, {}), demand.needs) is not None
    ]
    return found or _no_instance(demand.card.mig, demand.needs[0])


def _no_mig(card: Card) -> str:
    if card.mig_supported is None:
        return "no source confirms that the card has MIG"
    return "the card's MIG profiles are not known" if card.mig_supported else "the card has no MIG"


def _no_instance(geometry: Geometry, need: Need) -> str:
    known = [usable for profile in geometry.profiles if (usable := _usable(profile))]
    if not known:
        return "the memory of no profile is known"
    return _too_small("the largest instance of known memory", max(known) // MIB, need)


def _replicated(demand: Demand) -> list[Sharing] | str:
    """Return for each layout the replicas with which it serves the demand on the fewest nodes, with the fewest shares."""
    if demand.card.mig is None:
        return _no_mig(demand.card)
    known = profiles_by_name(demand.card)
    found: list[Sharing] = []
    for layout in _layouts(demand.card.mig, demand):
        choices = [_choices(known[name], demand) for name, _ in layout]
        rated = [
            (rate, sum(chosen), chosen)
            for chosen in product(*choices)
            if max(chosen) > 1 and (rate := _rate(demand, layout, chosen)) is not None
        ]
        if rated:
            found.append(_with_replicas(layout, min(rated)[2]))
    return found or "no instance has room for two users"


def _rate(demand: Demand, layout: Layout, replicas: tuple[int, ...]) -> int | None:
    """Return a number that is smaller if fewer nodes are needed, or more users fit; None if the users do not fit at all."""
    shares = _shares(demand, layout, dict(zip((name for name, _ in layout), replicas, strict=True)))
    if demand.needs[0].users is None:
        return -fit.per_node(shares, demand.needs[0].memory_bytes) or None
    return fit.nodes_for(shares, demand.needs)


def _with_replicas(layout: Layout, chosen: tuple[int, ...]) -> Mig:
    if len(set(chosen)) == 1:
        return Mig(wanted=layout, replicas=chosen[0])
    pairs = zip((name for name, _ in layout), chosen, strict=True)
    return Mig(wanted=layout, replicas=tuple((name, number) for name, number in pairs if number > 1))


def _choices(profile: MigProfile, demand: Demand) -> list[int]:
    usable = (_usable(profile) or 0) // MIB
    return sorted({1, *(max(_replicas(usable, need), 1) for need in demand.needs)})


def _layouts(geometry: Geometry, demand: Demand) -> tuple[Layout, ...]:
    """Return the distinct maximal layouts of plain profiles, without the profiles that are too small for every user."""
    least = demand.needs[-1].memory_bytes
    large = {profile.name for profile in geometry.profiles if (_usable(profile) or 0) >= least}
    kept = (tuple(entry for entry in layout if entry[0] in large) for layout in mig.maximal_layouts(geometry, attributes=False))
    return tuple(dict.fromkeys(layout for layout in kept if layout))


def _shares(demand: Demand, layout: Layout, replicas: dict[str, int]) -> fit.Shares:
    known = profiles_by_name(demand.card)

    def share(name: str, count: int) -> tuple[int, int]:
        usable, times = _usable(known[name]) or 0, replicas.get(name, 1)
        return usable if times == 1 else usable // (times * MIB) * MIB, count * times * demand.gpus_per_node

    return tuple(share(name, count) for name, count in layout)


def _usable(profile: MigProfile) -> int | None:
    return caps.usable_bytes(profile.memory_mib, None)
