"""MIG instances on demand: the places of each profile, and which claims the scheduler's first fit leaves without one."""

from collections import Counter
from random import Random

import pytest

from gpushare.facts import mig
from gpushare.facts.catalog.cards import Geometry
from gpushare.intent.types import Layout
from tests.compiler.facts.mig.known_cards import A100, geometry

CARDS = (A100, "a30", "h200-sxm5-141gb")


def plain(card: str) -> list[str]:
    return [profile.name for profile in geometry(card).profiles if not profile.has_attributes]


def test_an_a100_has_the_places_that_the_driver_lists() -> None:
    """NVIDIA's DRA driver 0.5 lists 25 places on an A100, seven of them for 1g.5gb+me."""
    names = [profile.name for profile in geometry(A100).profiles]
    assert Counter(one.profile.name for one in mig.places(geometry(A100), names)) == {
        "7g.40gb": 1,
        "4g.20gb": 1,
        "3g.20gb": 2,
        "2g.10gb": 3,
        "1g.10gb": 4,
        "1g.5gb": 7,
        "1g.5gb+me": 7,
    }
    assert {one.profile.name for one in mig.places(geometry(A100))} == set(plain(A100))
    assert [(one.start, one.size) for one in mig.places(geometry(A100), ["3g.20gb"])] == [(0, 4), (4, 4)]


@pytest.mark.parametrize(
    ("claims", "gpus", "left_out"),
    [
        ({"1g.5gb": 5, "3g.20gb": 2}, 1, 2),
        ({"1g.5gb": 4, "3g.20gb": 2}, 1, 1),
        ({"3g.20gb": 2, "1g.5gb": 5}, 1, 5),
        ({"3g.20gb": 1, "1g.5gb": 4}, 1, 1),
        ({"1g.5gb": 8, "3g.20gb": 1}, 2, 0),
        ({"1g.5gb": 9, "7g.40gb": 1}, 2, 1),
        ({"7g.40gb": 3}, 2, 1),
    ],
)
def test_claims_take_the_first_place_and_keep_none_for_larger_ones(claims: dict[str, int], gpus: int, left_out: int) -> None:
    """Five 1g.5gb on an A100 shut out both 3g.20gb: seen with the scheduler of Kubernetes 1.36."""
    assert mig.unplaced(geometry(A100), tuple(claims.items()), gpus) == left_out


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("seed", range(8))
def test_as_many_are_left_out_as_one_claim_after_the_other_would_be(card: str, seed: int) -> None:
    random, board = Random(seed), geometry(card)
    names = random.sample(plain(card), 3)
    claims, gpus = tuple((name, random.randint(1, 12)) for name in names), random.randint(1, 6)
    assert mig.unplaced(board, claims, gpus) == one_by_one(board, claims, gpus)


def one_by_one(board: Geometry, claims: Layout, gpus: int) -> int:
    """Give each claim the first free slices of the first GPU. Plain profiles compete for slices alone, and for compute."""
    free = [set(range(board.units)) for _ in range(gpus)]
    compute = [max(profile.compute_slices for profile in board.profiles)] * gpus
    left_out = 0
    for name, count in claims:
        profile = next(one for one in board.profiles if one.name == name)
        starts = sorted((place.start, place.size) for place in profile.placements)
        for _ in range(count):
            fitting = (
                (gpu, set(range(start, start + size)))
                for gpu in range(gpus)
                for start, size in starts
                if free[gpu] >= set(range(start, start + size)) and compute[gpu] >= profile.compute_slices
            )
            gpu, slices = next(fitting, (None, set[int]()))
            if gpu is None:
                left_out += 1
            else:
                free[gpu] -= slices
                compute[gpu] -= profile.compute_slices
    return left_out


@pytest.mark.parametrize("card", CARDS)
def test_at_once_is_all_that_fits_of_the_profiles_and_no_more(card: str) -> None:
    board, (first, second) = geometry(card), plain(card)[:2]
    numbers = range(board.units + 1)
    legal = {(one, two) for one in numbers for two in numbers if one + two and mig.fits(board, ((first, one), (second, two)))}
    full = {(one, two) for one, two in legal if not {(one + 1, two), (one, two + 1)} & legal}
    found = [dict(layout) for layout in mig.at_once(board, [first, second])]
    assert {(layout.get(first, 0), layout.get(second, 0)) for layout in found} == full
    assert len(found) == len(full)
