"""Goals: which layout a wish such as `most-instances` becomes on a card.

Every goal picks the best of the card's legal layouts by a stated order, so the answer is exact and always the same. Only
profiles without attributes take part. Sizes in bytes come from the caller: what is usable depends on the pool's reserve.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import assert_never

from gpushare.catalog.cards import Geometry, MigProfile
from gpushare.core.patterns import pattern
from gpushare.intent.types import Balanced, Goal, Instances, Layout, MemoryEach, MostInstances
from gpushare.mig.layouts import CardSolver, Counts, board

UsableBytes = Callable[[MigProfile], int | None]

NameKey = tuple[str | int, ...]

_NUMBERS = pattern(r"([0-9]+)")

_BALANCED = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""Compute slices of the whole card → how many instances of each number of compute slices."""


def resolve_goal(geometry: Geometry, goal: Goal, usable_bytes: UsableBytes) -> Layout | None:
    """The layout that the goal asks for, in canonical order; None if no layout of the card reaches it.

    `usable_bytes` tells what is usable of one instance, None where its memory is not known; only `memory` goals ask. Layouts
    that are equally good go by name, the numbers in names read as numbers: `1g.5gb` comes before `1g.10gb`.
    """
    own = board(geometry).plain
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
    """The numbers of instances that layouts without attributes can have, ascending."""
    return tuple(sorted({sum(counts) for counts in board(geometry).plain.legal}))


@lru_cache(maxsize=1024)
def _most_without(own: CardSolver, left_out: frozenset[int]) -> Counts | None:
    """The layout with the most instances, without the profiles of these numbers. Pools by the thousand ask the same."""
    layouts = (counts for counts in own.legal if not any(counts[index] for index in left_out))
    return min(layouts, key=lambda counts: (-sum(counts), _in_name_order(own, counts)), default=None)


def _balanced(own: CardSolver) -> Counts | None:
    """The fixed mix for cards of seven or four slices, each size by the profile of which a card holds the most."""
    whole = max((profile.compute_slices for profile in own.profiles), default=0)
    chosen = {}
    for slices, count in _BALANCED.get(whole, {}).items():
        of_size = [profile for profile in own.profiles if profile.compute_slices == slices]
        if not of_size:
            return None
        chosen[min(of_size, key=lambda profile: (-profile.max_count, _name_key(profile.name))).name] = count
    return own.counts(chosen.items()) if chosen and own.is_legal(chosen.items()) else None


@lru_cache(maxsize=1024)
def _exactly(own: CardSolver, number: int) -> Counts | None:
    """`number` instances or the next possible number: the smallest of them as large as can be, then the most memory.

    Sizes are compared by compute slices, then memory slices, which are always known; the total in catalogued memory, or in
    memory slices where that is not known of some profile. The reserve plays no part: it must not change the layout.
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
    """The names of all instances, sorted: layouts with the same number of instances compare by it."""
    return sorted(_name_key(profile.name) for profile, count in zip(own.profiles, counts, strict=True) for _ in range(count))


@cache
def _name_key(name: str) -> NameKey:
    parts = _NUMBERS.split(name)
    return tuple(int(part) if number % 2 else part for number, part in enumerate(parts))
