"""Goals: which layout a goal such as `most-instances` is resolved to on a card.

Every goal selects the best of the card's legal layouts by a fixed order, so the result is exact and deterministic. Only
profiles without attributes are considered. Sizes in bytes come from the caller: what is usable depends on the pool's reserve.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import assert_never

from gpushare.catalog.cards import Geometry, MigProfile
from gpushare.intent.types import Balanced, Goal, Instances, Layout, MemoryEach, MostInstances
from gpushare.mig.layouts import CardSolver, Counts, solver_for

UsableBytes = Callable[[MigProfile], int | None]

NameKey = tuple[str | int, ...]

_NUMBERS = re.compile(r"([0-9]+)")

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
    parts = _NUMBERS.split(name)
    return tuple(int(part) if number % 2 else part for number, part in enumerate(parts))
