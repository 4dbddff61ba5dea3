"""In which ways a pool's GPUs can be divided that a workload can tell apart.

Of replicas, only the most with which a share still serves a size that some pod asks for: fewer of them serve the same pods with
fewer shares. Of MIG, the layouts to which nothing can be added. All GPUs of a node are divided alike.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from gpushare import mig, modes
from gpushare.catalog.cards import Card, Geometry, MigProfile
from gpushare.catalog.device_memory import usable_bytes
from gpushare.core.units import MIB
from gpushare.intent.types import Exclusive, Layout, Memory, Mig, Mps, Partition, Pool, Replicated, Sharing, TimeSlicing
from gpushare.intent.words import Mode
from gpushare.modes import partition
from gpushare.modes.demand import MemoryIsolation, Variant
from gpushare.sharing import caps
from gpushare_node.contract.struct import Struct, replace

MAX_COMBINATIONS = 64
"""How many combinations of replicas of one layout's profiles are tried; of more, only the same number for every profile."""

MAX_SIZES = 24
"""For how many sizes the replicas are chosen; of more, for so many of them, evenly chosen."""

Part = Callable[[Pool], int]
"""Which part of its GPU a share of a pool is that has one kind of share, in thousandths."""


class Sizes(Struct):
    """The different sizes that pods ask for: in bytes, and in thousandths of a GPU."""

    memory_bytes: tuple[int, ...]
    milli: tuple[int, ...]


class Division(Struct):
    """One way to divide: the pool of an intent with this sharing, and the variant that it is."""

    variant: Variant
    pool: Pool


class Divisions(Struct):
    """All of them. `is_complete`: no combination of replicas was left out."""

    found: tuple[Division, ...]
    is_complete: bool


def divisions(pool: Pool, card: Card, sizes: Sizes, part: Part, *, in_hardware: bool = False) -> Divisions:
    """Return the ways to divide the pool's GPUs, each with even caps; `in_hardware`: those that isolate memory in hardware."""
    search = _Search(pool, card, sizes, part)
    made = [search.changed(sharing) for sharing in search.sharings()]
    found = [Division(variant=modes.of(one).variant, pool=one) for one in made]
    if in_hardware:
        found = [one for one in found if one.variant.memory is MemoryIsolation.HARDWARE]
    return Divisions(found=tuple(found), is_complete=search.is_complete)


class _Search:
    def __init__(self, pool: Pool, card: Card, sizes: Sizes, part: Part) -> None:
        self._pool, self._card, self._part = pool, card, part
        self._sizes = Sizes(memory_bytes=_some(sizes.memory_bytes), milli=_some(sizes.milli))
        own = pool.sharing
        self._kept: Mapping[str, Any] = (
            {"rename": own.rename, "placement": own.placement} if isinstance(own, Replicated) else {}
        )
        self.is_complete = self._sizes == sizes

    def changed(self, sharing: Sharing) -> Pool:
        """Return the pool with this sharing. A cap that the user wrote belongs to the shares that it had: it becomes `even`."""
        return replace(self._pool, sharing=sharing, memory=Memory(reserve=self._pool.memory.reserve))

    def sharings(self) -> Iterator[Sharing]:
        yield Exclusive()
        for mode, build in ((Mode.TIME_SLICING, TimeSlicing), (Mode.MPS, Mps)):
            traits = modes.named(mode.value)
            if self._card.vendor in traits.vendors and traits.missing(self._card) is None:
                keep = modes.of(self._pool).with_settings
                like = self.changed(keep(build(replicas=2)))
                for number in self._replicas(like, None, traits.most_replicas(self._card), 1000):
                    yield keep(build(replicas=number))
        for one in partition.offered(self._card):
            yield Partition(compute=one.compute, memory=one.memory)
        if self._card.mig is not None and mig.is_manageable(self._card.mig):
            yield from self._partitioned(self._card.mig)

    def _partitioned(self, geometry: Geometry) -> Iterator[Sharing]:
        like = self.changed(Mig(wanted=(), **self._kept))
        most = modes.of(like).most_replicas(self._card)
        maximal = mig.maximal_layouts(geometry, attributes=False)
        choices: dict[str, tuple[int, ...]] = {}
        for name in sorted({name for layout in maximal for name, _ in layout}):
            profile = self._card.profiles[name]
            whole = self._part(self.changed(Mig(wanted=((name, 1),)))) if self._sizes.milli else 0
            usable = usable_bytes(profile.memory_mib, self._pool.memory.reserve) or 0
            serves = any(size <= usable for size in self._sizes.memory_bytes) or any(
                size <= whole for size in self._sizes.milli
            )
            choices[name] = (*([1] if serves else []), *self._replicas(like, profile, most, whole))
        for layout in filter(None, dict.fromkeys(tuple(entry for entry in layout if choices[entry[0]]) for layout in maximal)):
            for chosen in self._chosen(layout, choices):
                replicas = _written(layout, chosen)
                yield Mig(wanted=layout, **self._kept) if replicas == 1 else Mig(wanted=layout, replicas=replicas, **self._kept)

    def _chosen(self, layout: Layout, choices: dict[str, tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        of_layout = [choices[name] for name, _ in layout]
        number = 1
        for each in of_layout:
            number *= len(each)
        if number <= MAX_COMBINATIONS:
            yield from product(*of_layout)
        else:
            self.is_complete = False
            for alike in sorted(set().union(*of_layout)):
                yield (alike,) * len(layout)

    def _replicas(self, like: Pool, profile: MigProfile | None, most: int, whole: int) -> list[int]:
        """Return the replicas above one that are the most with which a share serves one of the sizes, ascending.

        `whole` is the part of the GPU that the device is, in thousandths. Without known memory there is no even cap.
        """
        if caps.even_mib(like, self._card, profile, 2) is None:
            return []
        of_memory = (
            bisect_left(
                range(1, most + 1), True, key=lambda times: (caps.even_mib(like, self._card, profile, times) or 0) * MIB < size
            )
            for size in self._sizes.memory_bytes
        )
        of_parts = (min(whole // size, most) for size in self._sizes.milli)
        return sorted({number for number in (*of_memory, *of_parts) if number > 1})


def _some(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return at most MAX_SIZES of the ascending sizes, the largest among them."""
    number = len(sizes)
    return sizes if number <= MAX_SIZES else tuple(sizes[(place + 1) * number // MAX_SIZES - 1] for place in range(MAX_SIZES))


def _written(layout: Layout, chosen: tuple[int, ...]) -> int | tuple[tuple[str, int], ...]:
    if len(set(chosen)) == 1:
        return chosen[0]
    return tuple((name, times) for (name, _), times in zip(layout, chosen, strict=True) if times > 1)
