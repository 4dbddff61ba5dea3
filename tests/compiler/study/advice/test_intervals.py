"""The intervals agree with published tables, and cover the truth at least as often as they say."""

import math
import random

import pytest

from gpushare.study.advice import distribution
from gpushare.study.advice.advised import Estimate


@pytest.mark.parametrize(  # Garwood 1936; Ulm 1990, table 1
    ("events", "low", "high"),
    [
        (0, 0.0, 3.6889),
        (1, 0.0253, 5.5716),
        (2, 0.2422, 7.2247),
        (3, 0.6187, 8.7673),
        (5, 1.6235, 11.6683),
        (10, 4.7954, 18.3904),
        (20, 12.2165, 30.8884),
        (100, 81.3640, 121.6268),
    ],
)
def test_rate_is_garwoods(events: int, low: float, high: float) -> None:
    found = distribution.rate(events, 1)
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)
    assert distribution.rate(events, 4).high == pytest.approx(high / 4, abs=6e-5)


def test_rate_without_exposure_is_not_bounded() -> None:
    assert distribution.rate(0, 0).high == math.inf


@pytest.mark.parametrize(  # Dixon and Massey, table A-25: confidence intervals of the median
    ("number", "ranks"),
    [(5, (None, None)), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (10, (2, 9)), (20, (6, 15)), (50, (18, 33)), (100, (40, 61))],
)
def test_ranks_of_the_median_are_those_of_the_sign_test(number: int, ranks: tuple[int | None, int | None]) -> None:
    assert distribution.quantile_ranks(number, 0.5) == ranks


@pytest.mark.parametrize(("part", "number"), [(0.5, 6), (0.95, 72), (0.99, 368)])
def test_quantile_is_bounded_from_above_from_as_many_values_on_as_one_of_them_is_larger(part: float, number: int) -> None:
    assert part**number <= 0.025 < part ** (number - 1)
    assert distribution.quantile_ranks(number, part)[1] == number
    assert distribution.quantile_ranks(number - 1, part)[1] is None
    assert distribution.quantile(range(number - 1), part).high == math.inf


def test_ranks_agree_with_the_sums_of_the_binomial_distribution() -> None:
    for number in (1, 2, 3, 7, 30, 73, 150):
        for part in (0.5, 0.95, 0.99):
            mass = [math.comb(number, at) * part**at * (1 - part) ** (number - at) for at in range(number + 1)]
            low, high = distribution.quantile_ranks(number, part)
            below = [rank for rank in range(1, number + 1) if sum(mass[:rank]) <= 0.025]
            above = [rank for rank in range(1, number + 1) if sum(mass[rank:]) <= 0.025]
            assert (low, high) == (max(below, default=None), min(above, default=None)), (number, part)


@pytest.mark.parametrize("number", [8, 100])
def test_intervals_of_quantiles_cover_the_truth_of_synthetic_draws(number: int) -> None:
    source = random.Random(number)
    covered, trials = dict.fromkeys(_NORMAL, 0), 300
    for _ in range(trials):
        ordered = sorted(source.lognormvariate(7, 1) for _ in range(number))
        for part, deviations in _NORMAL.items():
            found = distribution.quantile(ordered, part)
            covered[part] += found.low <= math.exp(7 + deviations) <= found.high
            assert found.low <= found.value <= found.high
    # So few where 95 % are covered: in fewer than one of 10,000 runs.
    enough = 0.95 * trials - 3.7 * math.sqrt(0.95 * 0.05 * trials)
    assert {part: hits for part, hits in covered.items() if hits < enough} == {}


@pytest.mark.parametrize("number", [1, 5, 6, 30, 72, 400])
@pytest.mark.parametrize("part", [0.5, 0.95, 0.99])
def test_ranks_cover_the_quantile_of_every_distribution(number: int, part: float) -> None:
    low, high = distribution.quantile_ranks(number, part)
    between = range(low or 0, high or number + 1)
    assert sum(math.comb(number, at) * part**at * (1 - part) ** (number - at) for at in between) >= 0.95


@pytest.mark.parametrize("mean", [0.02, 0.2, 1.0, 4.0, 25.0])
def test_intervals_of_rates_cover_every_truth(mean: float) -> None:
    estimates = [distribution.rate(events, 1) for events in range(80)]
    covered = [
        math.exp(-mean + at * math.log(mean) - math.lgamma(at + 1)) for at, one in enumerate(estimates) if _has(one, mean)
    ]
    assert sum(covered) >= 0.95


_NORMAL = {0.5: 0.0, 0.95: 1.6448536, 0.99: 2.3263479}
"""Quantiles of the normal distribution."""


def _has(estimate: Estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high
