"""How MIG can divide a card: placements, layouts, nearest layouts and goals. Pure and exact geometry, without card names.

The solver's interface, the only module of it that others import: `grid` knows slices, `layouts` the rule for legal layouts, and
goals, `explain` explains illegal ones, `on_demand` knows instances that come and go. This module places layouts.
"""

from collections.abc import Mapping

from gpushare.facts.catalog.cards import Geometry
from gpushare.facts.mig.explain import nearest, why_not
from gpushare.facts.mig.grid import Arrangement
from gpushare.facts.mig.layouts import MAX_LAYOUTS, CardSolver, Counts, instance_counts, is_manageable, resolve_goal, solver_for
from gpushare.facts.mig.on_demand import Instance, at_once, places, unplaced
from gpushare.intent.types import Layout

__all__ = [
    "MAX_LAYOUTS",
    "Instance",
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


def place(geometry: Geometry, layout: Layout, keep: tuple[tuple[str, int], ...] = ()) -> tuple[Instance, ...] | None:
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


def _assign(own: CardSolver, counts: Counts, arrangement: Arrangement, kept: Mapping[int, str]) -> tuple[Instance, ...]:
    """Assign the arrangement's places to profiles: kept instances stay, then the first profile gets the lowest starts."""
    free = list(arrangement)
    instances: list[Instance] = []
    for is_kept in (True, False):
        for profile, count, shape in zip(own.profiles, counts, own.shape_of, strict=True):
            missing = count - sum(instance.profile is profile for instance in instances)
            places = [place for place in free if place[0] == shape and (not is_kept or kept.get(place[1]) == profile.name)]
            for taken in places[:missing]:
                free.remove(taken)
                instances.append(Instance(profile=profile, start=taken[1], size=taken[2]))
    return tuple(sorted(instances, key=lambda instance: instance.start))
