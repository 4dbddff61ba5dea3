"""Where wanted instances come to stand so that the most of what stands can stay. Pure geometry, exact.

Knows slices and profile ids; knows no GPUs, no policy and no operations.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpushare_node.core.structs import Struct

Place = tuple[int, int, int]
"""An instance on the row of memory slices: (start, size, profile id)."""

_Key = tuple[int, tuple[int, ...]]
"""The first slice that is still free, and how many of each profile still have no place."""

_Worth = tuple[int, int, int]
"""How good a choice is, less being better: minus instances kept, minus busy ones kept, minus preferred places."""


class PlacementProblem(Struct):
    """A GPU before the choice. `standing` are the instances that may stay, each with whether it is in use.

    `places` must hold every place where a wanted profile may stand, those of `standing` included. `preferred` are places
    that win where nothing else is at stake.
    """

    places: frozenset[Place]
    standing: Mapping[Place, bool]
    preferred: frozenset[Place]


def choose(board: PlacementProblem, wanted: Iterable[int]) -> tuple[Place, ...] | None:
    """Places for all wanted profile ids, sorted; None if they cannot stand together.

    Of all ways to place them this is the one that keeps the most of what stands; of those, the most that is in use; of
    those, the most preferred places; of those, the first in sorted order. So what was chosen stays the choice when only a
    part of it could be carried out: taking away what was not chosen, or adding what was, changes no comparison.

    Instances are stretches of one row, so places are taken or left in the order of their starts, and of all ways that lead to
    the same free slices and the same missing profiles only the best is followed.
    """
    counts = Counter(wanted)
    profiles = sorted(counts)
    places = sorted(place for place in board.places if place[2] in counts)
    least = [min((size for _, size, profile in places if profile == own), default=0) for own in profiles]
    end = max((start + size for start, size, _ in places), default=0)
    ways: dict[_Key, tuple[_Worth, tuple[Place, ...]]] = {(0, tuple(counts[own] for own in profiles)): ((0, 0, 0), ())}
    for place in places:
        start, size, profile = place
        column = profiles.index(profile)
        for (free, left), (worth, chosen) in list(ways.items()):
            if sum(count * each for count, each in zip(left, least, strict=True)) > end - max(free, start):
                # What is missing does not fit behind this place either; a complete way has nothing missing and stays.
                del ways[free, left]
                continue
            if free > start or not left[column]:
                continue
            key = (start + size, (*left[:column], left[column] - 1, *left[column + 1 :]))
            way = (_with(worth, place, board), (*chosen, place))
            if key not in ways or way < ways[key]:
                ways[key] = way
    complete = [way for (_, left), way in ways.items() if not any(left)]
    return min(complete)[1] if complete else None


def _with(worth: _Worth, place: Place, board: PlacementProblem) -> _Worth:
    kept, busy, preferred = worth
    return kept - (place in board.standing), busy - board.standing.get(place, False), preferred - (place in board.preferred)
