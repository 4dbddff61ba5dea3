"""How MIG can divide a card: placements, layouts, nearest layouts and goals. Pure and exact geometry, without card names.

The solver's interface, the only module of it that others import: `grid` knows slices, `layouts` the rule for legal layouts,
what is wrong with others, and goals. This module places layouts, and the instances that are made for each claim.

For those the scheduler takes the first free device in the order in which the driver lists them: GPU by GPU, and the places of a
profile by their start, compared as text. It leaves no room for others, so what fits depends on the order of the claims.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpushare.facts.catalog.cards import Geometry, MigProfile
from gpushare.facts.mig.grid import Arrangement
from gpushare.facts.mig.layouts import (
    MAX_LAYOUTS,
    CardSolver,
    Counts,
    instance_counts,
    is_manageable,
    nearest,
    resolve_goal,
    solver_for,
    why_not,
)
from gpushare.intent.types import Layout
from gpushare_node.contract.struct import Struct, replace

__all__ = [
    "MAX_LAYOUTS",
    "PlacedInstance",
    "at_once",
    "canonical",
    "fits",
    "instance_counts",
    "is_manageable",
    "maximal_layouts",
    "nearest",
    "place",
    "places",
    "resolve_goal",
    "unplaced",
    "why_not",
]


class PlacedInstance(Struct):
    """One MIG instance of one GPU at its placement, in the card's placement units."""

    profile: MigProfile
    start: int
    size: int


_Gpu = tuple[PlacedInstance, ...]


def fits(geometry: Geometry, layout: Layout) -> bool:
    """Whether the layout is legal: placements exist, and counts, engines and the card's own constraints allow it."""
    return solver_for(geometry).is_legal(layout)


def canonical(geometry: Geometry, layout: Layout) -> Layout:
    """Return the layout in the solver's order, larger profiles first: equal layouts become equal values."""
    own = solver_for(geometry)
    return own.layout(own.counts(layout))


def maximal_layouts(geometry: Geometry, *, attributes: bool = True) -> tuple[Layout, ...]:
    """Return every layout to which no instance can be added, those with more of a larger profile first.

    Each layout is in canonical order. Without `attributes`, only profiles whose names have none are considered, also as
    additions.
    """
    whole = solver_for(geometry)
    asked = whole if attributes else whole.plain
    return tuple(asked.layout(counts) for counts in asked.maximal)


def place(geometry: Geometry, layout: Layout, keep: tuple[tuple[str, int], ...] = ()) -> tuple[PlacedInstance, ...] | None:
    """Return placements for all instances of the layout, sorted by start; None if it is not legal.

    `keep` are the instances that a GPU has, as (profile name, start). Of all ways to place the layout, the result keeps the
    most of them; among equals, it leaves the most choice for additions (different sets of instances that fit into the free
    slices); among equals, it has the lowest starts, larger profiles first.
    """
    own = solver_for(geometry)
    if not own.is_legal(layout):
        return None
    counts = own.counts(layout)
    # No GPU has two instances with the same start; if the caller passes two, the first one counts.
    kept = {start: name for name, start in reversed(keep)}
    arrangements = own.grid.arrangements(own.multiset(counts))
    # max() returns the first of the best, and arrangements are sorted best first.
    best = max(arrangements, key=lambda arrangement: _kept(own, counts, arrangement, kept)) if kept else arrangements[0]
    return _assign(own, counts, best, kept)


def _kept(own: CardSolver, counts: Counts, arrangement: Arrangement, kept: Mapping[int, str]) -> int:
    """Return how many instances this arrangement keeps: its places of one shape can be assigned to profiles in any order."""
    return sum(
        min(count, sum(shape == at and kept.get(start) == profile.name for at, start, _ in arrangement))
        for profile, count, shape in zip(own.profiles, counts, own.shape_of, strict=True)
        if count
    )


def _assign(own: CardSolver, counts: Counts, arrangement: Arrangement, kept: Mapping[int, str]) -> tuple[PlacedInstance, ...]:
    """Assign the arrangement's places to profiles: kept instances stay, then the first profile gets the lowest starts."""
    free = list(arrangement)
    instances: list[PlacedInstance] = []
    for is_kept in (True, False):
        for profile, count, shape in zip(own.profiles, counts, own.shape_of, strict=True):
            missing = count - sum(instance.profile is profile for instance in instances)
            fitting = [one for one in free if one[0] == shape and (not is_kept or kept.get(one[1]) == profile.name)]
            for taken in fitting[:missing]:
                free.remove(taken)
                instances.append(PlacedInstance(profile=profile, start=taken[1], size=taken[2]))
    return tuple(sorted(instances, key=lambda instance: instance.start))


def places(geometry: Geometry, names: Sequence[str] = ()) -> tuple[PlacedInstance, ...]:
    """Return every place of these profiles on a GPU, profiles in canonical order; without names, of all without attributes."""
    chosen = [one for one in solver_for(geometry).profiles if (one.name in names if names else not one.has_attributes)]
    return tuple(
        PlacedInstance(profile=profile, start=start, size=size)
        for profile in chosen
        for start, size in sorted({(one.start, one.size) for one in profile.placements})
    )


def at_once(geometry: Geometry, names: Sequence[str]) -> tuple[Layout, ...]:
    """Return the sets of instances of these profiles to which none can be added on one GPU, those of larger profiles first."""
    own = CardSolver(replace(geometry, profiles=tuple(one for one in geometry.profiles if one.name in names)))
    return tuple(own.layout(counts) for counts in own.maximal)


def unplaced(geometry: Geometry, claims: Layout, gpus: int) -> int:
    """Return how many of the claims find no place on so many empty GPUs, if those of each profile come before the next."""
    own, left_out = solver_for(geometry), 0
    runs: list[tuple[_Gpu, int]] = [((), gpus)]
    for name, number in claims:
        wanted = number
        filled: list[tuple[_Gpu, int]] = []
        for gpu, count in runs:
            steps = list(_fill(own, gpu, places(geometry, (name,)), wanted))
            whole = min(count, wanted // (len(steps) - 1)) if len(steps) > 1 else 0
            rest = min(wanted - whole * (len(steps) - 1), len(steps) - 1) if whole < count else 0
            filled += [(steps[-1], whole), (steps[rest], int(whole < count)), (gpu, count - whole - 1)]
            wanted -= whole * (len(steps) - 1) + rest
        runs = [(gpu, count) for gpu, count in filled if count > 0]
        left_out += wanted
    return left_out


def _fill(own: CardSolver, gpu: _Gpu, free: tuple[PlacedInstance, ...], most: int) -> Iterator[_Gpu]:
    """Yield the GPU as it is, then with one more instance each time, up to `most` of them."""
    yield gpu
    for added in sorted(free, key=lambda one: str(one.start)):
        more = (*gpu, added)
        apart = all(one.start + one.size <= added.start or added.start + added.size <= one.start for one in gpu)
        if most > 0 and apart and own.is_legal(Counter(one.profile.name for one in more).items()):
            gpu, most = more, most - 1
            yield gpu
