"""Chooses places for the desired instances so that as many existing ones as possible can stay. Pure geometry, exact.

Knows slices and profile ids; does not know GPUs, policies or operations.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpushare_node.contract.struct import Struct

Place = tuple[int, int, int]
"""An instance on the row of memory slices: (start, size, profile id)."""

_Key = tuple[int, tuple[int, ...]]
"""The first slice that is still free, and how many instances of each profile still have no place."""

_Worth = tuple[int, int, int]
"""The cost of a choice; lower is better: minus instances kept, minus busy ones kept, minus preferred places."""


class PlacementProblem(Struct):
    """A GPU before the choice. `standing` are the existing instances that may stay, each with whether it is in use.

    `places` must contain every place where an instance of a desired profile may be, those of `standing` included. `preferred`
    are places that win ties.
    """

    places: frozenset[Place]
    standing: Mapping[Place, bool]
    preferred: frozenset[Place]


def place_instances(problem: PlacementProblem, desired: Iterable[int]) -> tuple[Place, ...] | None:
    """Return places for all desired profile ids, sorted; None if they do not fit together.

    Of all ways to place them this is the one that keeps the most existing instances; of those, the most that are in use; of
    those, the most preferred places; of those, the first in sorted order. The choice is therefore the same when only part
    of it was carried out: removing an instance that was not chosen, or adding one that was, changes no comparison.

    Instances are intervals on one row, so the search takes or skips places in the order of their starts, and of all partial
    choices with the same free slices and the same missing profiles it keeps only the best.
    """
    counts = Counter(desired)
    profiles = sorted(counts)
    places = sorted(place for place in problem.places if place[2] in counts)
    least = [min((size for _, size, profile in places if profile == own), default=0) for own in profiles]
    end = max((start + size for start, size, _ in places), default=0)
    ways: dict[_Key, tuple[_Worth, tuple[Place, ...]]] = {(0, tuple(counts[own] for own in profiles)): ((0, 0, 0), ())}
    for place in places:
        start, size, profile = place
        column = profiles.index(profile)
        for (free, left), (worth, chosen) in list(ways.items()):
            if sum(count * each for count, each in zip(left, least, strict=True)) > end - max(free, start):
                # What is missing does not fit behind this place either; a complete choice misses nothing and is kept.
                del ways[free, left]
                continue
            if free > start or not left[column]:
                continue
            key = (start + size, (*left[:column], left[column] - 1, *left[column + 1 :]))
            way = (_with(worth, place, problem), (*chosen, place))
            if key not in ways or way < ways[key]:
                ways[key] = way
    complete = [way for (_, left), way in ways.items() if not any(left)]
    return min(complete)[1] if complete else None


def _with(worth: _Worth, place: Place, problem: PlacementProblem) -> _Worth:
    kept, busy, preferred = worth
    standing = problem.standing
    return kept - (place in standing), busy - standing.get(place, False), preferred - (place in problem.preferred)
