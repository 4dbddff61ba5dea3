"""`plan` over many random pairs of bundles, whole and broken: it never crashes, and says "no changes" only of equal bundles."""

from pathlib import Path
from random import Random

import pytest

from tests.compiler.bundle.test_broken_bundles import Call, call, ends_well
from tests.compiler.compare.test_invariant import CHANGES, bare, changed, comparison, compiled

__all__ = ["call"]


@pytest.mark.parametrize("seed", range(1000, 1500))
def test_no_fault_in_a_bundle_is_a_crash(seed: int, call: Call, tmp_path: Path) -> None:
    ends_well(seed, call, tmp_path)


@pytest.mark.parametrize("seed", range(500))
def test_a_random_pair_is_the_same_only_if_its_bundles_are(seed: int) -> None:
    rng = Random(seed)
    old, new = (compiled(changed(*rng.choice(CHANGES))) for _ in range(2))
    told = comparison(old, new)
    assert told.is_empty == (bare(old) == bare(new))
