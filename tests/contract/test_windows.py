"""The compiler and the node runtime each compute when windows open, and how long a change takes: with the same result."""

import random
from zoneinfo import available_timezones

import pytest

from gpushare.intent import windows as ours
from gpushare.vendors import VENDORS
from gpushare_node import vendors
from gpushare_node.contract.policy import DAYS, Vendor, Window
from gpushare_node.core import windows as theirs


def test_both_find_the_same_openings() -> None:
    chance, zones = random.Random(1), sorted(available_timezones())
    assert ours.DAYS == DAYS
    for _ in range(300):
        drawn = [
            (sorted(chance.sample(range(7), chance.randint(1, 7))), chance.randrange(24 * 60), chance.randrange(1, 604801))
            for _ in range(chance.randint(1, 3))
        ]
        zone, now = chance.choice(zones), chance.uniform(1.2e9, 2.2e9)
        mine = [
            ours.Window(
                days=tuple(DAYS[day] for day in days),
                start=f"{start // 60:02}:{start % 60:02}",
                duration_seconds=duration,
                timezone=zone,
            )
            for days, start, duration in drawn
        ]
        node = [
            Window(days=tuple(days), start_minutes=start, duration_seconds=duration, timezone=zone)
            for days, start, duration in drawn
        ]
        here, there = ours.locate(mine, now), theirs.locate(node, now)
        assert (here.left_seconds, here.opens_at, here.opening) == (there.left_seconds, there.opens_at, there.opening)


@pytest.mark.parametrize("vendor", Vendor)
def test_both_know_the_same_bound_for_a_change(vendor: Vendor) -> None:
    known = vendors.of(vendor)
    assert VENDORS[vendor.value].change_seconds == known.leave_seconds + known.change_seconds
