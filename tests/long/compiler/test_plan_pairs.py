"""`plan` over many random pairs of bundles, whole and broken: it never crashes, and says "no changes" only of equal bundles."""

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpushare.pipeline import Compilation
from tests.compiler.bundle.test_broken_bundles import Call, call, ends_well
from tests.compiler.compare.comparisons import comparison
from tests.compiler.compare.test_invariant import CHANGES, bare, changed, compiled

__all__ = ["call"]


@pytest.mark.parametrize("seed", range(1000, 1120))
def test_damaged_bundle_never_crashes(seed: int, call: Call, tmp_path: Path) -> None:
    ends_well(seed, call, tmp_path)


@cache
def side(number: int) -> tuple[Compilation, dict[str, Any]]:
    """The intent with that change, compiled, and its bundle without comments."""
    found = compiled(changed(*CHANGES[number]))
    return found, bare(found)


@pytest.mark.parametrize("seed", range(120))
def test_comparison_is_empty_only_if_the_bundles_are_equal(seed: int) -> None:
    rng = Random(seed)
    (old, former), (new, latter) = (side(rng.randrange(len(CHANGES))) for _ in range(2))
    assert comparison(old, new).is_empty == (former == latter)
