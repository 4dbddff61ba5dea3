"""Which MIG layouts, and which replicas of their instances, can serve a demand."""

from itertools import product

from gpushare import mig
from gpushare.catalog.cards import Card, Geometry, MigProfile
from gpushare.catalog.device_memory import usable_bytes
from gpushare.core.units import MIB
from gpushare.intent.types import Layout, Mig, Sharing
from gpushare.modes import fit
from gpushare.modes.demand import Demand, Need, most_caps, too_small

_Chosen = tuple[Layout, tuple[int, ...]]
"""A layout, and the replicas of each of its profiles."""


def partitioned(demand: Demand) -> list[Sharing] | str:
    """Return the layouts of instances for one user each that can serve the demand, or why none can."""
    if demand.card.mig is None:
        return _no_mig(demand.card)
    found = [(layout, (1,) * len(layout)) for layout in _layouts(demand.card.mig, demand)]
    serving = [entry for entry in found if fit.nodes_for(_shares(demand, *entry), demand.needs) is not None]
    layouts: list[Sharing] = [Mig(wanted=layout) for layout, _ in serving]
    return layouts or _no_instance(demand.card.mig, demand.needs[0])


def _no_mig(card: Card) -> str:
    if card.mig_supported is None:
        return "no source confirms that the card has MIG"
    return "the card's MIG profiles are not known" if card.mig_supported else "the card has no MIG"


def _no_instance(geometry: Geometry, need: Need) -> str:
    known = [usable for profile in geometry.profiles if (usable := _usable(profile))]
    if not known:
        return "the memory of no profile is known"
    return too_small("the largest instance of known memory", max(known) // MIB, need)


def replicated(demand: Demand) -> list[Sharing] | str:
    """Return for each layout the replicas with which it serves the demand on the fewest nodes, with the fewest shares."""
    if demand.card.mig is None:
        return _no_mig(demand.card)
    found: list[_Chosen] = []
    for layout in _layouts(demand.card.mig, demand):
        choices = [_choices(demand.card.profiles[name], demand) for name, _ in layout]
        rated = [
            (rate, sum(chosen), chosen)
            for chosen in product(*choices)
            if max(chosen) > 1 and (rate := _rate(demand, layout, chosen)) is not None
        ]
        if rated:
            found.append((layout, min(rated)[2]))
    sharings: list[Sharing] = [_with_replicas(*entry) for entry in found]
    return sharings or "no instance has room for two users"


def _rate(demand: Demand, layout: Layout, replicas: tuple[int, ...]) -> int | None:
    """Return a number that is smaller if fewer nodes are needed, or more users fit; None if the users do not fit at all."""
    shares = _shares(demand, layout, replicas)
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
    return sorted({1, *(max(most_caps(usable, need), 1) for need in demand.needs)})


def _layouts(geometry: Geometry, demand: Demand) -> tuple[Layout, ...]:
    """Return the distinct maximal layouts of plain profiles, without the profiles that are too small for every user.

    For users of one size, those of one profile, with as many of its instances as fit: all users ask for the same.
    """
    least = demand.needs[-1].memory_bytes
    large = {profile.name for profile in geometry.profiles if (_usable(profile) or 0) >= least}
    maximal = mig.maximal_layouts(geometry, attributes=False)
    kept = [tuple(entry for entry in layout if entry[0] in large) for layout in maximal]
    most: dict[str, int] = {}
    for name, count in (entry for layout in kept for entry in layout):
        most[name] = max(most.get(name, 0), count)
    if len(demand.needs) > 1:
        return tuple(dict.fromkeys(layout for layout in kept if layout))
    return tuple(((name, count),) for name, count in most.items())


def _shares(demand: Demand, layout: Layout, replicas: tuple[int, ...]) -> fit.Shares:
    def share(name: str, count: int, times: int) -> tuple[int, int]:
        usable = _usable(demand.card.profiles[name]) or 0
        return usable if times == 1 else usable // (times * MIB) * MIB, count * times * demand.gpus_per_node

    return tuple(share(*entry, times) for entry, times in zip(layout, replicas, strict=True))


def _usable(profile: MigProfile) -> int | None:
    return usable_bytes(profile.memory_mib, None)
