"""Mode `mig`: hardware partitions of a GPU, which time-slicing may divide further."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, product

from gpushare.core.units import MIB
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, Geometry, MigProfile, usable_bytes
from gpushare.intent.types import Goal, Layout, LayoutGroup, Mig, Mode, OnDemand, Sharing
from gpushare.offering.modes.traits import (
    Demand,
    FaultIsolation,
    MemoryIsolation,
    ModeTraits,
    Need,
    Shares,
    Variant,
    most_caps,
    nodes_for,
    per_node,
    too_small,
)
from gpushare_node.contract.policy import Mechanism

_Chosen = tuple[Layout, tuple[int, ...]]
"""A layout, and the replicas of each of its profiles."""


def partitioned(demand: Demand) -> list[Sharing] | str:
    """Return the layouts of instances for one user each that can serve the demand, or why none can."""
    if demand.card.mig is None:
        return _no_mig(demand.card)
    found = [(layout, (1,) * len(layout)) for layout in _layouts(demand.card.mig, demand)]
    serving = [entry for entry in found if nodes_for(_shares(demand, *entry), demand.needs) is not None]
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
        return -per_node(shares, demand.needs[0].memory_bytes) or None
    return nodes_for(shares, demand.needs)


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


def _shares(demand: Demand, layout: Layout, replicas: tuple[int, ...]) -> Shares:
    def share(name: str, count: int, times: int) -> tuple[int, int]:
        usable = _usable(demand.card.profiles[name]) or 0
        return usable if times == 1 else usable // (times * MIB) * MIB, count * times * demand.gpus_per_node

    return tuple(share(*entry, times) for entry, times in zip(layout, replicas, strict=True))


def _usable(profile: MigProfile) -> int | None:
    return usable_bytes(profile.memory_mib, None)


class MigTraits(ModeTraits[Mig]):
    """The traits of MIG."""

    mode = Mode.MIG
    description = "Hardware partitions: compute and memory are isolated from the other partitions."
    pool_name = "partitions"
    starter_card = "a100-sxm4-40gb"
    settings = (*ModeTraits.settings, "strategy")
    is_partitioned = True
    mechanisms = frozenset({Mechanism.AUTO, Mechanism.WATCHER})
    variants = (
        Variant(word="mig", divide=partitioned, memory=MemoryIsolation.HARDWARE, faults=FaultIsolation.HARDWARE),
        Variant(word="mig-replicas", divide=replicated, memory=MemoryIsolation.CAP, faults=FaultIsolation.PROCESS),
    )

    @classmethod
    def missing(cls, card: Card) -> tuple[str, str] | None:
        """Return that the catalogue knows no MIG of the card."""
        return None if card.mig else ("MIG that the catalogue knows", "time-slicing or mps, or another card")

    @property
    def variant(self) -> Variant:
        """The instances as they are, or with replicas."""
        return self.variants[bool(self.sharing.replicas)]

    @property
    def mig_strategy(self) -> str:
        """The strategy by which the plugin names the instances."""
        return self.sharing.strategy.value

    @property
    def goal(self) -> Goal | None:
        """The goal of a pool that has one in place of layouts."""
        return None if isinstance(self.sharing.wanted, (tuple, OnDemand)) else self.sharing.wanted

    @property
    def is_on_demand(self) -> bool:
        """Whether the pool has neither layouts nor a goal."""
        return isinstance(self.sharing.wanted, OnDemand)

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles that the pool names where instances are made for claims."""
        return self.sharing.wanted.profiles if isinstance(self.sharing.wanted, OnDemand) else ()

    @property
    def written(self) -> tuple[tuple[LayoutGroup, ...], Layout]:
        """The layouts of a pool that has no goal."""
        entries = self.sharing.wanted if isinstance(self.sharing.wanted, tuple) else ()
        groups = tuple(entry for entry in entries if isinstance(entry, LayoutGroup))
        return groups, tuple(entry for entry in entries if not isinstance(entry, LayoutGroup))

    def layouts(self, card: Card, pinned: Layout | None = None) -> tuple[Layout, ...] | None:
        """Return the layouts that the pool names, or to which its goal is resolved."""
        per_gpu = self._per_gpu(card.mig, pinned) if card.mig else None
        if card.mig is None or per_gpu is None:
            return None
        if any(name not in card.profiles for name, _ in chain.from_iterable(set(per_gpu))):
            return None
        ordered = {layout: mig.canonical(card.mig, layout) for layout in set(per_gpu)}
        return tuple(ordered[layout] for layout in per_gpu)

    def _per_gpu(self, geometry: Geometry, pinned: Layout | None) -> tuple[Layout, ...] | None:
        gpus, wanted = self.pool.gpus_per_node, self.sharing.wanted
        if isinstance(wanted, OnDemand):
            places = mig.places(geometry, wanted.profiles)
            counts = Counter(dict.fromkeys(wanted.profiles, 0)) + Counter(place.profile.name for place in places)
            return (tuple(counts.items()),) * gpus if counts.keys() >= set(wanted.profiles) and counts else None
        if self.goal is not None:
            layout = pinned or mig.resolve_goal(geometry, self.goal, self._usable_bytes)
            return (layout,) * gpus if layout else None
        groups, alike = self.written
        if not groups:
            return (alike,) * gpus
        by_index = {index: group.layout for group in groups for index in group.gpus}
        if Counter(index for group in groups for index in group.gpus) != Counter(range(gpus)):
            return None
        return tuple(by_index[index] for index in range(gpus))

    def _usable_bytes(self, profile: MigProfile) -> int | None:
        return usable_bytes(profile.memory_mib, self.pool.memory.reserve)

    def notes(self, card: Card) -> Iterator[str]:
        """Yield the drivers that the one layout of all GPUs needs."""
        names = {name for name, _ in self.written[1]}
        needed = [one for one in card.mig.layout_drivers if names >= set(one.profiles)] if card.mig else []
        yield from (f"{' with '.join(one.profiles)} needs driver {one.min_driver} or newer" for one in needed)
