"""Distributions of use by namespace, and what a history cannot tell."""

import math

import pytest

from gpushare.study.advice import distribution
from gpushare.study.advice.history import ContainerUse, History
from tests.support import usage_series
from tests.support.usage_series import DAY, MIB, START, Shape

GIB = 1 << 30


def use(
    pod: str, *points: tuple[int, int], namespace: str = "a", pool: str = "notebooks", cap: int | None = None
) -> ContainerUse:
    return ContainerUse(namespace=namespace, pod=pod, container="c", pool=pool, device="GPU-1", points=points, cap_bytes=cap)


def history(*containers: ContainerUse, missing: float | None = None) -> History:
    lost = {} if missing is None else {"notebooks": missing}
    return History(source="test", start=0, end=1000, step_seconds=10, containers=containers, missing=lost)


def test_maxima_of_the_window_by_namespace_and_pool() -> None:
    found = distribution.of(
        history(
            use("p", (0, 9), (100, 2), (200, 3), (300, 8)),  # 9 and 8 are outside
            use("q", (100, 5), (110, 4)),
            use("r", (110, 1), namespace="b"),
            use("s", (110, 7), pool="other"),
            use("t", (400, 7)),
        ),
        "notebooks",
        (100, 300),
    )
    assert [(one.namespace, one.containers, one.p50.value, one.p99.value, one.most) for one in found] == [
        ("a", 2, 3, 5, 5),
        ("b", 1, 1, 1, 1),
    ]


def test_use_at_the_start_is_that_of_the_last_sample_unless_a_gap_is_between() -> None:
    window = (100, 200)
    assert distribution.peak(use("p", (95, 9), (105, 2)), window, 30) == 9
    assert distribution.peak(use("p", (60, 9), (105, 2)), window, 30) == 2
    assert distribution.peak(use("p", (60, 9)), window, 30) is None
    assert distribution.peak(use("p", (200, 9)), window, 30) is None


def test_intervals_of_few_containers_are_not_bounded_and_those_of_many_are() -> None:
    few = distribution.of(usage_series.history([("a", 5, Shape())], days=0.1), "notebooks", (START, START + DAY))[0]
    assert (few.p50.low, few.p50.high, few.p99.high) == (0, math.inf, math.inf)
    many = usage_series.history([("a", 80, Shape(bursts=0))], days=0.01)
    found = distribution.of(many, "notebooks", (START, START + DAY))[0]
    assert 1600 * MIB < found.p50.low < found.p50.value < found.p50.high < found.p95.value < found.p95.high < 2400 * MIB
    assert found.p99.high == math.inf


@pytest.mark.parametrize(("most", "cap", "near"), [(95, 100, 1), (94, 100, 0), (120, 100, 1), (95, None, 0)])
def test_use_near_the_cap_is_counted(most: int, cap: int | None, near: int) -> None:
    found = history(use("p", (0, 1), (10, most), cap=cap))
    assert distribution.of(found, "notebooks", (0, 100))[0].near_cap == near
    assert distribution.coverage(found, "notebooks", (0, 100)).near_cap == near


def test_coverage_tells_gaps_from_time_that_is_measured() -> None:
    found = distribution.coverage(
        history(use("p", (0, 1), (10, 1), (90, 1), (100, 1)), use("q", (50, 1))), "notebooks", (0, 95)
    )
    assert (found.containers, found.namespaces, found.measured, found.gaps) == (2, 1, 10 + 5 + 10, 80)
    assert found.gap_part == pytest.approx(80 / 105)
    nothing = distribution.coverage(history(), "notebooks", (0, 95))
    assert (nothing.containers, nothing.measured, nothing.gap_part, nothing.missing) == (0, 0, 0, None)


def test_gaps_of_a_generated_history_are_found() -> None:
    found = usage_series.history([("a", 2, Shape())], days=1, gaps=[(3600, 7200)])
    covered = distribution.coverage(found, "notebooks", (found.start, found.end))
    assert (covered.measured, covered.gaps) == (2 * (DAY - 3660), 2 * 3660)


def test_what_the_history_cannot_tell_is_said() -> None:
    window = (0, 7200)
    found = history(*(use(f"p{at}", (0, 1), (10, 99), (200, 1), cap=100) for at in range(9)), missing=0.25)
    said = list(
        distribution.limits(distribution.coverage(found, "notebooks", window), distribution.of(found, "notebooks", window))
    )
    assert said == [
        "learned from 2 hours: use that recurs by the week is not in it",
        "p95 has no upper bound in 1 namespace with few containers: a",
        "p99 has no upper bound in 1 namespace with few containers: a",
        "90% of the containers' time is not measured: use in it may have been higher",
        "in 25.0% of the time no sample of the pool exists",
        "9 containers used at least 95 % of the cap: what they would use without it is not known",
        "the intervals hold for containers that do not depend on each other; replicas of one workload do",
    ]
    nothing = distribution.coverage(history(), "notebooks", window)
    assert list(distribution.limits(nothing, ())) == []
