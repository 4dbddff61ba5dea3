"""Two simulated days of a tenant that is over its cap for a quarter of the time."""

from random import Random

import pytest

from tests.node.guard.test_debt import Program, wave


@pytest.mark.failure_case(86)
@pytest.mark.parametrize("over", [0.05, 0.7, 2.0, 12.9])
def test_container_over_its_cap_a_quarter_of_two_days_is_not_killed(over: float) -> None:
    assert Program(curve=wave(over, 3 * over), rng=Random(7)).ended_after(2 * 24 * 3600 / 10) is None
