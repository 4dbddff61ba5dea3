"""Every extreme of every field, each in an intent of its own."""

from collections import Counter

from tests.contract.test_accepted_installs import CHOICES, compiled, is_accepted, refusals


def test_each_extreme_value_is_refused_by_check_or_installs() -> None:
    told: Counter[bool] = Counter()
    for place, value in CHOICES:
        compilation = compiled([(place, value)])
        told[is_accepted(compilation)] += 1
        if is_accepted(compilation):
            assert refusals(compilation) == [], (place, value)
    assert told[True] > 100
    assert told[False] > 100
