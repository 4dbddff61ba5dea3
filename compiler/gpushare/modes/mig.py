"""Mode `mig`: hardware partitions of a GPU, which time-slicing may divide further."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from gpushare import mig
from gpushare.catalog.cards import Card, Geometry, MigProfile
from gpushare.catalog.device_memory import usable_bytes
from gpushare.intent.types import Goal, Layout, LayoutGroup, Mechanism, Mig, OnDemand
from gpushare.intent.words import Mode
from gpushare.modes.demand import FaultIsolation, MemoryIsolation, Variant
from gpushare.modes.mig_divisions import partitioned, replicated
from gpushare.modes.traits import ModeTraits


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
