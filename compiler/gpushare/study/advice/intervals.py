"""Exact intervals of 95 %: of quantiles by order statistics, and of rates by Poisson's distribution (Garwood).

Each misses the true value on either side with a probability of at most 2.5 %, whatever the distribution. All assume that the
observations are independent.
"""

import math
from collections.abc import Callable, Sequence

from gpushare.study.advice.advised import Estimate

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
