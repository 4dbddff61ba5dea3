"""The legal layouts of one card: CardSolver turns a geometry into limits that a layout is checked against.

A layout is legal if its instances can be placed on the grid and no limit is exceeded. Every subset of a legal layout is legal
too: all searches here depend on it. Owns this rule; it places nothing and explains nothing.

A goal such as `most-instances` selects the best of the card's legal layouts by a fixed order, so the result is exact and
deterministic. Only profiles without attributes are considered. Sizes in bytes come from the caller: what is usable depends on
the pool's reserve.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from itertools import islice
from operator import add, le, mul
from typing import assert_never

from gpushare.facts.catalog.cards import Geometry, MigProfile
from gpushare.facts.mig.grid import Shape, TooManyError, grid
from gpushare.intent.types import Balanced, Goal, Instances, Layout, MemoryEach, MostInstances
from gpushare_node.contract.struct import Struct, replace

Counts = tuple[int, ...]
"""How many of each profile, in the solver's own order."""

ENGINE_NOUNS = {"decoders": "decoder", "encoders": "encoder", "jpeg": "JPEG engine", "ofa": "optical flow engine"}
"""Engines that instances compete for, by their names in `Engines`. Copy engines are shared: no card has a total."""

_SOLVERS: dict[int, "CardSolver"] = {}
_MAX_BOARDS = 256

MAX_LAYOUTS = 2_000
"""How many legal layouts a card may have, so that a search can go through all of them. Known cards have 128."""


class Limit(Struct):
    """No more than `total` of something on one card. `weights` is what an instance of each profile takes, in solver order.

    `counts_instances`: the limit counts instances, and `noun` follows `total`; otherwise `noun` is the singular of something
    that instances take.
    """

    noun: str
    total: int
    weights: tuple[int, ...]
    counts_instances: bool = False

    def taken_by(self, counts: Counts) -> int:
        """Return how much a layout takes."""
        return sum(map(mul, self.weights, counts))


class CardSolver:
    """The solver of one geometry. `profiles` are in canonical order: more compute, then more memory, then by name."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.profiles = tuple(sorted(geometry.profiles, key=_larger_first))
        self.shapes = tuple(_shape(profile, geometry.units) for profile in self.profiles)
        self.sizes = tuple(max((size for _, size in shape), default=0) for shape in self.shapes)
        distinct = tuple(dict.fromkeys(self.shapes))
        self.shape_of = tuple(distinct.index(shape) for shape in self.shapes)
        self.grid = grid(geometry.units, distinct)
        self.limits = tuple(_limits(geometry, self.profiles, self.shapes))
        self._index = {profile.name: index for index, profile in enumerate(self.profiles)}
        self._steps = tuple(self.grid.steps[shape] for shape in self.shape_of)
        self._totals = tuple(limit.total for limit in self.limits)
        self._takes = tuple(zip(*(limit.weights for limit in self.limits), strict=True))
        """Of each profile what an instance takes, by limit."""

    def is_legal(self, layout: Iterable[tuple[str, int]]) -> bool:
        """Whether the layout's instances fit on one card together. Unknown profiles do not."""
        wanted = list(layout)
        if any(name not in self._index for name, _ in wanted) or sum(count for _, count in wanted) > self.geometry.units:
            return False
        counts = self.counts(wanted)
        return self.multiset(counts) in self.grid.multisets and self._holds(limit.taken_by(counts) for limit in self.limits)

    def counts(self, layout: Iterable[tuple[str, int]]) -> Counts:
        """Return the layout as counts, without profiles that the card does not have."""
        found = [0] * len(self.profiles)
        for name, count in layout:
            if name in self._index:
                found[self._index[name]] += count
        return tuple(found)

    def multiset(self, counts: Counts) -> int:
        """Return the shapes of a legal layout as the grid's integer."""
        return sum(count * step for count, step in zip(counts, self._steps, strict=True))

    def layout(self, counts: Counts) -> Layout:
        """Return the counts as a layout in canonical order."""
        return tuple((profile.name, count) for profile, count in zip(self.profiles, counts, strict=True) if count)

    @cached_property
    def legal(self) -> tuple[Counts, ...]:
        """Every legal layout except the empty one, those with more of a larger profile first."""
        return tuple(sorted((counts for counts, _ in self.walk() if any(counts)), reverse=True))

    @cached_property
    def maximal(self) -> tuple[Counts, ...]:
        """Every legal layout to which nothing can be added, those with more of a larger profile first."""
        return tuple(sorted((counts for counts, is_full in self.walk() if is_full and any(counts)), reverse=True))

    @cached_property
    def plain(self) -> "CardSolver":
        """The same card without the profiles whose names carry attributes."""
        kept = tuple(profile for profile in self.geometry.profiles if not profile.has_attributes)
        return self if len(kept) == len(self.profiles) else CardSolver(replace(self.geometry, profiles=kept))

    def _holds(self, taken: Iterable[int]) -> bool:
        return all(map(le, taken, self._totals))

    def walk(self) -> Iterator[tuple[Counts, bool]]:
        """Yield every legal layout once, each with whether nothing can be added to it."""
        multisets = self.grid.multisets
        additions = tuple(enumerate(zip(self._steps, self._takes, strict=True)))
        pending = [((0,) * len(self.profiles), 0, 0, (0,) * len(self.limits))]
        while pending:
            counts, last, multiset, taken = pending.pop()
            is_full = True
            for index, (step, takes) in additions:
                more = tuple(map(add, taken, takes))
                if multiset + step in multisets and self._holds(more):
                    is_full = False
                    if index >= last:
                        grown = (*counts[:index], counts[index] + 1, *counts[index + 1 :])
                        pending.append((grown, index, multiset + step, more))
            yield counts, is_full


def is_manageable(geometry: Geometry) -> bool:
    """Whether the card has at most MAX_LAYOUTS layouts. Callers must not use the solver of a card that has more."""
    try:
        return next(islice(solver_for(geometry).walk(), MAX_LAYOUTS + 1, None), None) is None  # the empty layout counts
    except TooManyError:
        return False


def solver_for(geometry: Geometry) -> CardSolver:
    """Return the geometry's solver, built once per object: by id, because hashing a geometry costs more than most searches."""
    known = _SOLVERS.get(id(geometry))
    if known is None:
        if len(_SOLVERS) >= _MAX_BOARDS:
            _SOLVERS.clear()
        # The solver keeps the geometry alive, so its id is not reused while the entry exists.
        known = _SOLVERS[id(geometry)] = CardSolver(geometry)
    return known


def _larger_first(profile: MigProfile) -> tuple[int, int, str]:
    return -profile.compute_slices, -max((place.size for place in profile.placements), default=0), profile.name


def _shape(profile: MigProfile, units: int) -> Shape:
    """Return the profile's places on the grid, sorted, so that profiles of the same shape are equal."""
    places = {(place.start, place.size) for place in profile.placements}
    return tuple(sorted((start, size) for start, size in places if start >= 0 < size and start + size <= units))


def _limits(geometry: Geometry, profiles: tuple[MigProfile, ...], shapes: tuple[Shape, ...]) -> Iterator[Limit]:
    """Yield the card's limits, the simplest first: `why_not` looks for a reason in this order."""
    for index, profile in enumerate(profiles):
        own = tuple(int(other == index) for other in range(len(profiles)))
        yield Limit(noun=f"of {profile.name}", total=profile.max_count, weights=own, counts_instances=True)
    smallest = tuple(min((size for _, size in shape), default=0) for shape in shapes)
    yield Limit(noun="memory slice", total=geometry.units, weights=smallest)
    is_gfx = tuple(int("+gfx" in profile.name) for profile in profiles)
    is_compute = tuple(1 - gfx for gfx in is_gfx)
    everything = (1,) * len(profiles)
    for kind, total, weights in (
        (" without +gfx", geometry.max_compute_instances, is_compute),
        (" with +gfx", geometry.max_gfx_instances, is_gfx),
        ("", geometry.max_instances if geometry.max_instances > 0 else None, everything),
    ):
        if total is not None:
            noun = f"{'instance' if total == 1 else 'instances'}{kind}"
            yield Limit(noun=noun, total=total, weights=weights, counts_instances=True)
    for field, noun in ENGINE_NOUNS.items():
        total = getattr(geometry.engine_totals, field)
        if total is not None:
            # A number that is not known cannot exceed a limit: only known numbers are summed.
            yield Limit(noun=noun, total=total, weights=tuple(getattr(profile.engines, field) or 0 for profile in profiles))


UsableBytes = Callable[[MigProfile], int | None]

NameKey = tuple[str | int, ...]

_NUMBERS = r"([0-9]+)"

_BALANCED = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""Compute slices of the whole card → how many instances of each number of compute slices."""


def resolve_goal(geometry: Geometry, goal: Goal, usable_bytes: UsableBytes) -> Layout | None:
    """Return the layout that the goal requests, in canonical order; None if no layout of the card reaches it.

    `usable_bytes` returns the usable bytes of one instance, None if its memory is not known; only `memory` goals call it.
    Equally good layouts are sorted by name, with numbers in names read as numbers: `1g.5gb` comes before `1g.10gb`.
    """
    own = solver_for(geometry).plain
    match goal:
        case MostInstances():
            best = _most_without(own, frozenset())
        case Balanced():
            best = _balanced(own)
        case Instances():
            best = _exactly(own, goal.count)
        case MemoryEach():
            small = frozenset(index for index, p in enumerate(own.profiles) if (usable_bytes(p) or 0) < goal.size_bytes)
            best = _most_without(own, small)
        case _:
            assert_never(goal)
    return None if best is None else own.layout(best)


def instance_counts(geometry: Geometry) -> tuple[int, ...]:
    """Return the numbers of instances that layouts without attributes can have, ascending."""
    return tuple(sorted({sum(counts) for counts in solver_for(geometry).plain.legal}))


def _most_without(own: CardSolver, left_out: frozenset[int]) -> Counts | None:
    """Return the layout with the most instances, without the profiles at these indexes."""
    layouts = (counts for counts in own.legal if not any(counts[index] for index in left_out))
    return min(layouts, key=lambda counts: (-sum(counts), _in_name_order(own, counts)), default=None)


def _balanced(own: CardSolver) -> Counts | None:
    """Return the fixed mix for cards of seven or four slices; each size is the profile of which most fit on a card."""
    whole = max((profile.compute_slices for profile in own.profiles), default=0)
    chosen = {}
    for slices, count in _BALANCED.get(whole, {}).items():
        of_size = [profile for profile in own.profiles if profile.compute_slices == slices]
        if not of_size:
            return None
        chosen[min(of_size, key=lambda profile: (-profile.max_count, _name_key(profile.name))).name] = count
    return own.counts(chosen.items()) if chosen and own.is_legal(chosen.items()) else None


def _exactly(own: CardSolver, number: int) -> Counts | None:
    """Return the layout of `number` instances or the next possible number: the largest smallest instance, then most memory.

    Sizes are compared by compute slices, then by memory slices, which are always known; totals in catalogued memory, or in
    memory slices if that is not known of some profile. The reserve is not used: it must not change the layout.
    """
    possible = min((sum(counts) for counts in own.legal if sum(counts) >= number), default=None)
    known = [profile.memory_mib for profile in own.profiles if profile.memory_mib is not None]
    memory = known if len(known) == len(own.profiles) else own.sizes

    def key(counts: Counts) -> tuple[int, int, int, list[NameKey]]:
        present = [index for index, count in enumerate(counts) if count]
        compute, slices = min((own.profiles[index].compute_slices, own.sizes[index]) for index in present)
        total = sum(counts[index] * memory[index] for index in present)
        return -compute, -slices, -total, _in_name_order(own, counts)

    return min((counts for counts in own.legal if sum(counts) == possible), key=key, default=None)


def _in_name_order(own: CardSolver, counts: Counts) -> list[NameKey]:
    """Return the names of all instances, sorted: the sort key of layouts with the same number of instances."""
    return sorted(_name_key(profile.name) for profile, count in zip(own.profiles, counts, strict=True) for _ in range(count))


@cache
def _name_key(name: str) -> NameKey:
    parts = re.split(_NUMBERS, name)
    return tuple(int(part) if number % 2 else part for number, part in enumerate(parts))
