"""A few random pairs of changed intents: `plan` says "no changes" only of equal bundles. tests/long has more of them."""

from random import Random

import pytest

from gpushare.report.effect_words import verdict
from tests.compiler.compare.comparisons import comparison
from tests.compiler.compare.test_invariant import CHANGES, bare, changed, compiled


@pytest.mark.parametrize("seed", range(6))
def test_comparison_is_empty_only_if_the_bundles_are_equal(seed: int) -> None:
    rng = Random(seed)
    old, new = (compiled(changed(*rng.choice(CHANGES))) for _ in range(2))
    told = comparison(old, new)
    assert told.is_empty == (bare(old) == bare(new)) == (not verdict(told))
