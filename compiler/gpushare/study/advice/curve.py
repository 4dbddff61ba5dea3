"""Use of a pool over time, to draw: of its containers the median, p95 and the most, in each of so many equal intervals."""

import math
from collections.abc import Iterator
from itertools import groupby

from gpushare.study.advice import distribution
from gpushare.study.advice.history import History
from gpushare_node.contract.struct import Struct


class CurvePoint(Struct):
    """What the containers of a pool used from `time` until the next point, each by the most that it used, in bytes."""

    time: int
    p50: int
    p95: int
    most: int


def of(history: History, pool: str, intervals: int) -> tuple[CurvePoint | None, ...]:
    """Return a point for each interval, None where no container was measured; no more intervals than the history has steps."""
    span = history.end - history.start
    number = max(min(intervals, span // history.step_seconds), 1)
    used: list[list[int]] = [[] for _ in range(number)]
    for use in distribution.uses(history, pool):
        inside = ((at, size) for at, size in use.points if history.start <= at < history.end)
        for index, points in groupby(inside, key=lambda point: (point[0] - history.start) * number // span):
            used[index].append(max(size for _, size in points))
    return tuple(_points(used, history.start, span))


def _points(used: list[list[int]], start: int, span: int) -> Iterator[CurvePoint | None]:
    for index, sizes in enumerate(used):
        if not sizes:
            yield None
            continue
        sizes.sort()
        p50, p95 = (sizes[math.ceil(len(sizes) * percent / 100) - 1] for percent in (50, 95))
        yield CurvePoint(time=start + span * index // len(used), p50=p50, p95=p95, most=sizes[-1])
