"""The MIG rule a second time, as plainly as it can be written, to hold the solver against: it shares no code with it.

Every set of instances that can stand on a card is built one instance at a time, from a flat list of all single placements.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from gpushare.facts.catalog.cards import Geometry, MigProfile

Placed = frozenset[tuple[str, int, int]]
"""Instances on a card: (profile name, start, size)."""

Multiset = frozenset[tuple[str, int]]
"""A layout without order: (profile name, count)."""

Single = tuple[MigProfile, int, int]
"""One placed instance: (profile, start, size)."""

ENGINES = ("decoders", "encoders", "jpeg", "ofa")


def placed_sets(geometry: Geometry, is_wanted: Callable[[MigProfile], bool] = lambda profile: True) -> set[Placed]:
    """Every legal set of placed instances of the wanted profiles, the empty one included."""
    single = [
        (profile, place.start, place.size)
        for profile in geometry.profiles
        if is_wanted(profile)
        for place in profile.placements
    ]
    return {frozenset((p.name, start, size) for p, start, size in chosen) for chosen in _grow(geometry, single, (), 0)}


def _grow(geometry: Geometry, single: list[Single], chosen: tuple[Single, ...], first: int) -> Iterator[tuple[Single, ...]]:
    yield chosen
    for number in range(first, len(single)):
        more = (*chosen, single[number])
        if is_allowed(geometry, more):
            yield from _grow(geometry, single, more, number + 1)


def is_allowed(geometry: Geometry, chosen: tuple[Single, ...]) -> bool:
    """Whether these (profile, start, size) may exist together."""
    slices = [unit for _, start, size in chosen for unit in range(start, start + size)]
    if len(slices) != len(set(slices)) or any(not 0 <= unit < geometry.units for unit in slices):
        return False
    return within_limits(geometry, [profile for profile, _, _ in chosen])


def within_limits(geometry: Geometry, instances: list[MigProfile]) -> bool:
    """Everything about a set of instances that has nothing to do with where they stand."""
    by_name = Counter(profile.name for profile in instances)
    gfx = sum("+gfx" in profile.name for profile in instances)
    compute = len(instances) - gfx
    for profile in instances:
        if by_name[profile.name] > profile.max_count:
            return False
    if geometry.max_instances > 0 and len(instances) > geometry.max_instances:
        return False
    if geometry.max_compute_instances is not None and compute > geometry.max_compute_instances:
        return False
    if geometry.max_gfx_instances is not None and gfx > geometry.max_gfx_instances:
        return False
    for engine in ENGINES:
        total = getattr(geometry.engine_totals, engine)
        known = [getattr(p.engines, engine) for p in instances if getattr(p.engines, engine) is not None]
        if total is not None and sum(known) > total:
            return False
    return True


def multiset(placed: Placed) -> Multiset:
    """Which profiles a placed set has, and how often."""
    return frozenset(Counter(name for name, _, _ in placed).items())


def maximal(sets: set[Placed]) -> list[Placed]:
    """Those placed sets to which no instance can be added without moving one."""
    grown = {bigger - {instance} for bigger in sets for instance in bigger}
    return [placed for placed in sets if placed not in grown]


def uncontained(layouts: set[Multiset]) -> set[Multiset]:
    """Those layouts that are not a part of another one."""
    as_dicts = [(layout, dict(layout)) for layout in layouts]
    return {
        layout
        for layout, counts in as_dicts
        if not any(other != layout and all(more.get(n, 0) >= c for n, c in counts.items()) for other, more in as_dicts)
    }
