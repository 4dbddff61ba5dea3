"""Curves over time for a page: step functions as SVG paths of bounded length that keep every peak. Draws, decides nothing."""

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from gpushare_node.contract.struct import Struct

WIDTH, HEIGHT = 480, 100
"""The size of a curve's box, in its own units. All changes within one unit of the width are one vertical line."""

_MARGIN = 3
"""Above the largest value, so that its line is seen whole."""

Steps = Sequence[tuple[int, float]]
"""(second, value) pairs by time; a value holds until the next. Before the first it is 0."""


class Scale(Struct):
    """What the box shows: seconds from 0 to `end`, values from 0 to `most`, which is just below the top. Both are above 0."""

    end: int
    most: float

    def x(self, second: int) -> int:
        """Return the place of a moment."""
        return min(max(second, 0), self.end) * WIDTH // self.end

    def y(self, value: float) -> int:
        """Return the height of a value, 0 at the top; one that is not 0 is never drawn as 0."""
        height = round(min(value, self.most) * (HEIGHT - _MARGIN) / self.most)
        return HEIGHT - (max(height, 1) if value > 0 else height)


def line(steps: Steps, scale: Scale) -> str:
    """Return the path of a step function from the left edge of the box to the right."""
    at = HEIGHT
    path = [f"M0 {at}"]
    for x, group in groupby(steps, key=lambda step: scale.x(step[0])):
        heights = [scale.y(value) for _, value in group]
        top, bottom = min(at, *heights), max(at, *heights)
        turns = _turns(at, top, bottom, heights[-1])
        if turns:
            path += [f"H{x}", *(f"V{height}" for height in turns)]
        at = heights[-1]
    return "".join((*path, f"H{WIDTH}"))


def area(drawn: str) -> str:
    """Return the path of what is below a line."""
    return f"{drawn}V{HEIGHT}H0Z"


def known_area(steps: Sequence[tuple[int, float | None]], scale: Scale) -> str:
    """Return the path of what is below a step function, without the times at which its value is None: not known."""
    path = []
    for is_known, run in groupby([*pairwise(steps), (steps[-1], (scale.end, None))], key=lambda pair: pair[0][1] is not None):
        listed = list(run)
        if is_known:
            path += [f"M{scale.x(listed[0][0][0])} {HEIGHT}"]
            path += [f"V{scale.y(value or 0)}H{scale.x(end)}" for (_, value), (end, _) in listed]
            path += [f"V{HEIGHT}Z"]
    return "".join(path)


def level(value: float, scale: Scale) -> str:
    """Return the path of a value that never changes."""
    return f"M0 {scale.y(value)}H{WIDTH}"


def _turns(at: int, top: int, bottom: int, last: int) -> list[int]:
    """Return where a vertical line from `at` to `last` turns, to reach `top` and `bottom`; none if it has no length."""
    turns = [height for height in (top, bottom) if height not in (at, last)]
    return [*turns, last] if turns or last != at else []


def ticks(end: int) -> Iterable[int]:
    """Return 0 and four moments after it, equally far apart."""
    return [end * part // 4 for part in range(5)]
