"""How much memory containers used of a pool, by namespace, and over time to draw; and what the history cannot tell.

A container counts by the most that it used; on each of its devices, which have caps of their own. Its use at the start of a
window is that of its last sample before, if that is not further away than a gap.

Intervals are exact ones of 95 %: of quantiles by order statistics, and of rates by Poisson's distribution (Garwood). Each
misses the true value on either side with a probability of at most 2.5 %, whatever the distribution. All assume that the
observations are independent.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from gpushare.core.wording import join_first, pluralize
from gpushare.study.advice.advised import Distribution, Estimate
from gpushare.study.advice.history import ContainerUse, History
from gpushare_node.contract.struct import Struct

_NEAR_CAP_PERCENT = 95
_DAY, _WEEK = 86400, 7 * 86400
_MOST_GAPS = 0.02


class Coverage(Struct):
    """What is known of a pool in a part of the history, in seconds and containers.

    `measured` is the time of all containers in which their use is known, `gaps` that between samples of one container in which
    it is not. `missing` is the part of the window (0 to 1) in which the source has no sample of the pool; None: not known.
    `near_cap` containers used at least 95 % of their cap.
    """

    seconds: int
    containers: int
    namespaces: int
    measured: int
    gaps: int
    missing: float | None
    near_cap: int

    @property
    def gap_part(self) -> float:
        """The part of the containers' time, from 0 to 1, in which their use is not known."""
        return self.gaps / (self.measured + self.gaps) if self.gaps else 0.0


def of(history: History, pool: str, window: tuple[int, int]) -> tuple[Distribution, ...]:
    """Return the distribution of each namespace in the window, by name; its end is not included."""
    maxima: dict[str, list[tuple[int, ContainerUse]]] = {}
    for use in uses(history, pool):
        most = peak(use, window, history.gap_seconds)
        if most is not None:
            maxima.setdefault(use.namespace, []).append((most, use))
    return tuple(_of_namespace(name, maxima[name]) for name in sorted(maxima))


def uses(history: History, pool: str) -> Iterator[ContainerUse]:
    """Yield the containers of a pool."""
    return (use for use in history.containers if use.pool == pool)


def peak(use: ContainerUse, window: tuple[int, int], gap_seconds: int) -> int | None:
    """Return the most that a container used in the window, in bytes; None if it was not measured in it."""
    first, last = _range(use, window)
    if first and use.points[first - 1][0] + gap_seconds > window[0]:
        first -= 1
    return max((used for _, used in use.points[first:last]), default=None)


def coverage(history: History, pool: str, window: tuple[int, int]) -> Coverage:
    """Return what is known of a pool in the window."""
    measured = gaps = near = 0
    namespaces, number = set(), 0
    for use in uses(history, pool):
        most = peak(use, window, history.gap_seconds)
        if most is None:
            continue
        number += 1
        namespaces.add(use.namespace)
        near += is_near_cap(use, most)
        known, unknown = _known(use, window, history)
        measured += known
        gaps += unknown
    return Coverage(
        seconds=window[1] - window[0],
        containers=number,
        namespaces=len(namespaces),
        measured=measured,
        gaps=gaps,
        missing=history.missing.get(pool),
        near_cap=near,
    )


def limits(found: Coverage, distributions: Iterable[Distribution]) -> Iterator[str]:
    """Yield in words what a history with this coverage, and these distributions of it, cannot tell."""
    if not found.containers:
        return
    if found.seconds < _WEEK:
        yield f"learned from {_length(found.seconds)}: use that recurs by the week is not in it"
    listed = list(distributions)
    for name in ("p50", "p95", "p99"):
        few = [one.namespace for one in listed if math.isinf(getattr(one, name).high)]
        if few:
            yield f"{name} has no upper bound in {pluralize(len(few), 'namespace')} with few containers: {join_first(few)}"
    if found.gap_part > _MOST_GAPS:
        yield f"{found.gap_part:.0%} of the containers' time is not measured: use in it may have been higher"
    if found.missing:
        yield f"in {found.missing:.1%} of the time no sample of the pool exists"
    if found.near_cap:
        near = pluralize(found.near_cap, "container")
        yield f"{near} used at least {_NEAR_CAP_PERCENT} % of the cap: what they would use without it is not known"
    yield "the intervals hold for containers that do not depend on each other; replicas of one workload do"


def is_near_cap(use: ContainerUse, most: int) -> bool:
    """Whether the most that a container used is so near its cap that it is a lower bound of what it would use."""
    return use.cap_bytes is not None and 100 * most >= _NEAR_CAP_PERCENT * use.cap_bytes


def _of_namespace(name: str, maxima: Iterable[tuple[int, ContainerUse]]) -> Distribution:
    listed = list(maxima)
    ordered = sorted(most for most, _ in listed)
    return Distribution(
        namespace=name,
        containers=len(ordered),
        p50=quantile(ordered, 0.5),
        p95=quantile(ordered, 0.95),
        p99=quantile(ordered, 0.99),
        most=ordered[-1],
        near_cap=sum(is_near_cap(use, most) for most, use in listed),
    )


def _range(use: ContainerUse, window: tuple[int, int]) -> tuple[int, int]:
    """Return the indexes of the points from the window's start up to its end."""
    return bisect_left(use.points, (window[0],)), bisect_left(use.points, (window[1],))


def _known(use: ContainerUse, window: tuple[int, int], history: History) -> tuple[int, int]:
    """Return for how many seconds of the window the use is known, and for how many between two samples it is not."""
    first, last = _range(use, window)
    times = [at for at, _ in use.points[max(first - 1, 0) : last + 1]]
    if not times:
        return 0, 0
    known = unknown = 0
    for at, following in zip(times, [*times[1:], times[-1] + history.step_seconds], strict=True):
        seconds = max(min(following, window[1]) - max(at, window[0]), 0)
        if following - at > history.gap_seconds:
            unknown += seconds
        else:
            known += seconds
    return known, unknown


def _length(seconds: int) -> str:
    return pluralize(seconds // _DAY, "day") if seconds >= _DAY else pluralize(max(seconds // 3600, 1), "hour")


_TAIL = 0.025
_TINY = 1e-300
_EPSILON = 1e-15
_TERMS = 100_000


def quantile(ordered: Sequence[float], part: float) -> Estimate:
    """Return the smallest value that at least `part` (0 to 1) of the values do not exceed. `ordered` ascends, and is not empty.

    `low` is 0 and `high` infinite where there are too few values to bound the quantile on that side: memory is not negative.
    """
    low, high = quantile_ranks(len(ordered), part)
    return Estimate(
        value=ordered[max(math.ceil(len(ordered) * part - _EPSILON), 1) - 1],
        low=ordered[low - 1] if low else 0.0,
        high=ordered[high - 1] if high else math.inf,
    )


def quantile_ranks(number: int, part: float) -> tuple[int | None, int | None]:
    """Return the ranks, from 1, of the ordered values between which the quantile lies; None: so few values do not bound it."""
    # The value of rank r is above the quantile if fewer than r values are at most the quantile: a binomial number.
    low = _first(number + 1, lambda rank: _at_most(rank - 1, number, part) > _TAIL) - 1
    high = _first(number + 1, lambda rank: 1 - _at_most(rank - 1, number, part) <= _TAIL)
    return low or None, high if high <= number else None


def rate(events: int, exposure: float) -> Estimate:
    """Return the events in each unit of the exposure, such as a week of one container."""
    if exposure <= 0:
        return Estimate(value=0.0, low=0.0, high=math.inf)
    most = 2.0 * events + 20.0
    low = _solved(lambda at: _gamma(at, events), _TAIL, most) if events else 0.0
    high = _solved(lambda at: _gamma(at, events + 1), 1 - _TAIL, most)
    return Estimate(value=events / exposure, low=low / exposure, high=high / exposure)


def _at_most(found: int, number: int, part: float) -> float:
    """Return the probability that at most `found` of `number` independent cases occur, each with the probability `part`."""
    return 0.0 if found < 0 else 1.0 if found >= number else 1 - _beta(part, found + 1, number - found)


def _first(end: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from 1 for which it holds, `end` if there is none; it holds for all that follow."""
    low, high = 1, end
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _solved(distribution: Callable[[float], float], probability: float, most: float) -> float:
    """Return where a distribution function reaches the probability, by halving."""
    low, high, middle = 0.0, most, most / 2
    while low < middle < high:
        low, high = (middle, high) if distribution(middle) < probability else (low, middle)
        middle = (low + high) / 2
    return middle


def _gamma(at: float, shape: float) -> float:
    """Return the regularised lower incomplete gamma function, by its series (DLMF 8.11.4)."""
    if at <= 0:
        return 0.0
    term = total = 1 / shape
    for step in range(1, _TERMS):
        term *= at / (shape + step)
        total += term
        if term < total * _EPSILON:
            break
    return min(1.0, total * math.exp(shape * math.log(at) - at - math.lgamma(shape)))


def _beta(at: float, first: float, second: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if at <= 0 or at >= 1:
        return 0.0 if at <= 0 else 1.0
    if at > (first + 1) / (first + second + 2):  # the fraction converges below its mean
        return 1 - _beta(1 - at, second, first)
    log = math.lgamma(first + second) - math.lgamma(first) - math.lgamma(second)
    front = math.exp(log + first * math.log(at) + second * math.log1p(-at)) / first
    return front / _fraction(at, first, second)


def _fraction(at: float, first: float, second: float) -> float:
    """Return the continued fraction by Lentz's method."""
    value = upper = 1.0
    lower = 0.0
    for step in range(1, _TERMS):
        half = step // 2
        if step % 2:
            factor = -(first + half) * (first + second + half) * at / ((first + 2 * half) * (first + 2 * half + 1))
        else:
            factor = half * (second - half) * at / ((first + 2 * half - 1) * (first + 2 * half))
        lower = 1 / (1 + factor * lower or _TINY)
        upper = 1 + factor / upper or _TINY
        change = upper * lower
        value *= change
        if abs(change - 1) < _EPSILON:
            break
    return value


class CurvePoint(Struct):
    """What the containers of a pool used from `time` until the next point, each by the most that it used, in bytes."""

    time: int
    p50: int
    p95: int
    most: int


def curve(history: History, pool: str, intervals: int) -> tuple[CurvePoint | None, ...]:
    """Return a point for each interval, None where no container was measured; no more intervals than the history has steps."""
    span = history.end - history.start
    number = max(min(intervals, span // history.step_seconds), 1)
    used: list[list[int]] = [[] for _ in range(number)]
    for use in uses(history, pool):
        inside = ((at, size) for at, size in use.points if history.start <= at < history.end)
        for index, points in groupby(inside, key=lambda point: (point[0] - history.start) * number // span):
            used[index].append(max(size for _, size in points))
    return tuple(_curve_points(used, history.start, span))


def _curve_points(used: list[list[int]], start: int, span: int) -> Iterator[CurvePoint | None]:
    for index, sizes in enumerate(used):
        if not sizes:
            yield None
            continue
        sizes.sort()
        p50, p95 = (sizes[math.ceil(len(sizes) * percent / 100) - 1] for percent in (50, 95))
        yield CurvePoint(time=start + span * index // len(used), p50=p50, p95=p95, most=sizes[-1])
