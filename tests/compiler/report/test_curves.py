"""Curves of a page: paths that keep every peak and every level, however many steps there are."""

import random
import re

import pytest

from gpushare.report import curves
from gpushare.report.curves import HEIGHT, WIDTH, Scale


def corners(path: str) -> list[tuple[int, int]]:
    """The points of a path of horizontal and vertical lines."""
    x = y = 0
    found = []
    for kind, first, second in re.findall(r"([MHV])([0-9]+)(?: ([0-9]+))?", path):
        x = int(first) if kind in "MH" else x
        y = int(second) if kind == "M" else int(first) if kind == "V" else y
        found.append((x, y))
    return found


def heights(path: str) -> dict[int, tuple[int, int]]:
    """The highest and lowest point of a path at each place of a corner."""
    found: dict[int, tuple[int, int]] = {}
    for x, y in corners(path):
        top, bottom = found.get(x, (y, y))
        found[x] = (min(top, y), max(bottom, y))
    return found


def test_a_few_steps_are_drawn_one_by_one() -> None:
    scale = Scale(end=480, most=97)
    assert curves.line([(0, 10), (100, 97), (240, 0)], scale) == f"M0 100H0V90H100V3H240V100H{WIDTH}"
    assert curves.area(curves.line([(240, 97)], scale)) == f"M0 100H240V3H{WIDTH}V{HEIGHT}H0Z"
    assert curves.level(97, scale) == f"M0 3H{WIDTH}"


def test_what_is_not_nothing_is_seen() -> None:
    scale = Scale(end=10, most=1_000_000)
    assert scale.y(1) == HEIGHT - 1
    assert scale.y(0) == HEIGHT


def test_before_the_first_step_there_is_nothing() -> None:
    assert curves.line([(5, 1)], Scale(end=10, most=1)).startswith(f"M0 {HEIGHT}H{WIDTH // 2}V")


@pytest.mark.parametrize("seed", range(10))
def test_every_place_reaches_from_its_least_to_its_most(seed: int) -> None:
    drawn = random.Random(seed)
    end, most = drawn.choice([7, 480, 10_000, 604_800]), drawn.choice([3, 240, 80_000])
    times = sorted(drawn.sample(range(end + 1), min(end, drawn.choice([1, 5, 3000]))))
    steps = [(time, drawn.randint(0, most)) for time in times]
    scale = Scale(end=end, most=most)
    path = curves.line(steps, scale)
    expected: dict[int, tuple[int, int]] = {}
    before = HEIGHT
    for time, value in steps:
        x, y = scale.x(time), scale.y(value)
        top, bottom = expected.get(x, (before, before))
        expected[x] = (min(top, y), max(bottom, y))
        before = y
    shown = heights(path)
    assert {x: span for x, span in expected.items() if span[0] != span[1]} == {
        x: span for x, span in shown.items() if span[0] != span[1]
    }
    assert corners(path)[-1] == (WIDTH, before)


def test_the_length_is_bounded_and_the_only_peak_is_kept() -> None:
    steps: list[tuple[int, float]] = [(second, second % 7) for second in range(50_000)]
    steps[23_456] = (23_456, 1000)
    scale = Scale(end=50_000, most=1000)
    path = curves.line(steps, scale)
    assert len(path) < 15_000
    assert min(y for _, y in corners(path)) == scale.y(1000)
    assert [x for x, y in corners(path) if y == scale.y(1000)] == [scale.x(23_456)]
