"""Which shapes fit side by side on a row of memory slices, and where they are placed.

Owns the geometry itself: a grid of slices and shapes, where a shape is a list of its possible places. Knows no profiles,
engines or counts per card: those are limits, which `layouts` checks.

Instances are intervals of one row, so no backtracking is needed: what fits into the slices from `a` on is what fits from
`a + 1` on, and everything that begins with one shape at `a` and continues after it.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

Shape = tuple[tuple[int, int], ...]
"""Where one kind of instance may be placed: (start, size) pairs in slices."""

Arrangement = tuple[tuple[int, int, int], ...]
"""Instances on the grid: (shape index, start, size), sorted."""

MAX_MULTISETS = 20_000
"""How many multisets of shapes a grid may have, those of its parts included. Known cards have up to 191; a row of 64 slices
with shapes of every size has billions."""

MAX_PLACEMENTS = 10_000
"""How many ways to place one multiset are compared at most. No known card has more than 50; a user's card with a
far longer row must not stop the compiler, and gets the best of those with the lowest starts."""


class TooManyError(Exception):
    """The grid has more than MAX_MULTISETS multisets of shapes."""


class Grid:
    """A row of `units` slices and the shapes that may be placed on it.

    A multiset (how many of each shape) is one integer with a field per shape; `steps[i]` adds one of shape i. A multiset of
    more than `units` + 1 instances cannot be represented, and the caller must not pass one. `bags` are the multisets that fit.
    """

    def __init__(self, units: int, shapes: tuple[Shape, ...]) -> None:
        self.units = units
        # One more than fits must not overflow into the next field, so that it is found not to fit.
        width = (units + 1).bit_length()
        self._field = (1 << width) - 1
        self._shifts = tuple(range(0, width * len(shapes), width))
        self.steps = tuple(1 << shift for shift in self._shifts)
        self._at: list[list[tuple[int, int]]] = [[] for _ in range(units)]
        for index, shape in enumerate(shapes):
            for start, size in shape:
                self._at[start].append((index, size))
        self._bags: dict[tuple[int, int], frozenset[int]] = {}
        self._room = MAX_MULTISETS
        self._arrangements: dict[int, tuple[Arrangement, ...]] = {}
        self._choices: dict[tuple[tuple[int, int], ...], int] = {}
        self.multisets = self._multisets_within(0, units)

    def arrangements(self, multiset: int) -> tuple[Arrangement, ...]:
        """Return every way to place the multiset, best first; none if it does not fit.

        The best leaves the most choice: the number of different multisets that could still be added without moving anything.
        Among equals, the lowest starts are better, those of the first shapes first.
        """
        if multiset not in self._arrangements:
            found = islice(self._placed(multiset, 0), MAX_PLACEMENTS) if multiset in self.multisets else ()
            ranked = sorted((-self._choice_beside(arrangement), arrangement) for arrangement in found)
            self._arrangements[multiset] = tuple(arrangement for _, arrangement in ranked)
        return self._arrangements[multiset]

    def _multisets_within(self, begin: int, end: int) -> frozenset[int]:
        """Return the multisets that fit into the slices from `begin` up to `end`, the empty one included."""
        if begin == end:
            return frozenset((0,))
        known = self._bags.get((begin, end))
        if known is None:
            found = set(self._multisets_within(begin + 1, end))
            for shape, size in self._at[begin]:
                if begin + size <= end:
                    step = self.steps[shape]
                    found.update(multiset + step for multiset in self._multisets_within(begin + size, end))
                    self._charge(len(found))
            known = self._bags[begin, end] = frozenset(found)
            self._room -= len(known)
        return known

    def _charge(self, found: int) -> None:
        if found > self._room:
            raise TooManyError

    def _placed(self, multiset: int, begin: int) -> Iterator[Arrangement]:
        """Yield every way to place the multiset from `begin` on, low starts first; it must fit, so that no branch fails."""
        if not multiset:
            yield ()
            return
        for shape, size in self._at[begin]:
            rest = multiset - self.steps[shape]
            if multiset >> self._shifts[shape] & self._field and rest in self._multisets_within(begin + size, self.units):
                for more in self._placed(rest, begin + size):
                    yield tuple(sorted(((shape, begin, size), *more)))
        if multiset in self._multisets_within(begin + 1, self.units):
            yield from self._placed(multiset, begin + 1)

    def _choice_beside(self, arrangement: Arrangement) -> int:
        """Return how many different multisets fit into the slices that the arrangement leaves free."""
        gaps = []
        begin = 0
        for start, size in sorted((start, size) for _, start, size in arrangement):
            if begin < start:
                gaps.append((begin, start))
            begin = start + size
        if begin < self.units:
            gaps.append((begin, self.units))
        key = tuple(gaps)
        if key not in self._choices:
            multisets = {0}
            for gap in gaps:
                within = self._multisets_within(*gap)
                multisets = {multiset + more for multiset in multisets for more in within}
            self._choices[key] = len(multisets)
        return self._choices[key]


@lru_cache(maxsize=256)
def grid(units: int, shapes: tuple[Shape, ...]) -> Grid:
    """Return the grid of these shapes, built once: dozens of cards share the same few. Every place must be on the grid."""
    return Grid(units, shapes)
