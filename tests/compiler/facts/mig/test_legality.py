"""Which layouts are legal: the solver against a plain recursion over placements, and against published counts."""

import itertools

import pytest
from hypothesis import given, settings

from gpushare.facts import mig
from gpushare.facts.catalog.cards import Geometry
from gpushare.facts.mig.grid import grid
from tests.compiler.facts.mig import known_cards, reference_solver
from tests.compiler.facts.mig.random_cards import geometries
from tests.support import scale

SEVEN = ((19, 14, 12), (78, 38, 28), (239, 64, 44))
TWO = (2, 2, 2)
FOUR = (5, 4, 4)
NOT_PUBLISHED = (None, None, None)
COUNTS = {
    "a30": (FOUR, FOUR, (17, 8, 8)),
    "rtx-pro-6000-server": (FOUR, FOUR, (302, 64, 64)),
    "rtx-pro-6000-workstation": (FOUR, FOUR, (302, 64, 64)),
    "rtx-pro-6000-maxq": (FOUR, FOUR, (302, 64, 64)),
    "rtx-pro-5000-48gb": (TWO, TWO, (19, 12, 12)),
    "rtx-pro-4500-32gb": (TWO, TWO, (13, 9, 9)),
    "rtx-pro-4500-server-32gb": (TWO, TWO, (13, 9, 9)),
    "rtx-6000d-84gb": (TWO, TWO, TWO),
    "thor-igpu": ((3, 3, 3), (3, 3, 3), (5, 5, 5)),
}
"""Maximal placed layouts, different layouts among them, those not part of another: base, with 1g of double memory, all.

Cards with seven slices have those of SEVEN. Any other card is compared with plain recursion alone.
"""


def multisets(geometry: Geometry):
    """Every combination of counts that no single profile forbids."""
    names = [profile.name for profile in geometry.profiles]
    for counts in itertools.product(*(range(profile.max_count + 1) for profile in geometry.profiles)):
        yield tuple((name, count) for name, count in zip(names, counts, strict=True) if count)


@pytest.mark.parametrize("card", known_cards.distinct())
def test_legality_on_every_card_equals_plain_recursion(card):
    geometry = known_cards.geometry(card)
    legal = {reference_solver.multiset(placed) for placed in reference_solver.placed_sets(geometry)}
    judged = {frozenset(layout) for layout in multisets(geometry) if mig.fits(geometry, layout)}
    assert judged == legal


@pytest.mark.parametrize("card", scale.part(known_cards.with_mig(), 4))
def test_every_card_has_the_published_number_of_layouts(card):
    geometry = known_cards.geometry(card)
    published = COUNTS.get(card, SEVEN if geometry.units == 8 else NOT_PUBLISHED)
    for is_wanted, expected in zip((known_cards.is_base, known_cards.is_plain, lambda _: True), published, strict=True):
        placed = reference_solver.maximal(reference_solver.placed_sets(geometry, is_wanted))
        different = {reference_solver.multiset(one) for one in placed}
        largest = mig.maximal_layouts(known_cards.only(geometry, is_wanted))
        assert expected is None or (len(placed), len(different), len(largest)) == expected
        assert {frozenset(layout) for layout in largest} == reference_solver.uncontained(different)


def test_127_of_the_3839_combinations_of_an_a100_are_legal():
    geometry = known_cards.geometry(known_cards.A100)
    everything = [layout for layout in multisets(geometry) if layout]
    assert len(everything) == 3839
    assert sum(mig.fits(geometry, layout) for layout in everything) == 127


def test_overflowing_count_is_not_mistaken_for_another_shape():
    anywhere, first = tuple((start, 1) for start in range(3)), ((0, 1),)
    row = grid(3, (anywhere, first))
    assert 3 * row.steps[0] in row.multisets
    assert 4 * row.steps[0] not in row.multisets


def test_maximal_layouts_without_attributes_use_only_plain_profiles():
    geometry = known_cards.geometry(known_cards.A100)
    plain = mig.maximal_layouts(geometry, attributes=False)
    assert plain == mig.maximal_layouts(known_cards.only(geometry, known_cards.is_plain))
    assert len(plain) == 28


def test_maximal_layouts_come_with_the_largest_profiles_first():
    layouts = mig.maximal_layouts(known_cards.geometry("a30"), attributes=False)
    assert layouts == ((("4g.24gb", 1),), (("2g.12gb", 2),), (("2g.12gb", 1), ("1g.6gb", 2)), (("1g.6gb", 4),))


@pytest.mark.parametrize("layout", [{"1g.5gb": 10**30}, {"1g.5gb": 8}, {"1g.5gb": 7, "1g.5gb+me": 1}, {"9g.80gb": 1}])
def test_too_many_and_unknown_profiles_do_not_fit(layout):
    assert not mig.fits(known_cards.geometry(known_cards.A100), tuple(layout.items()))


def test_the_order_in_which_a_layout_is_written_does_not_matter():
    geometry = known_cards.geometry(known_cards.A100)
    assert mig.fits(geometry, (("1g.5gb", 2), ("3g.20gb", 1), ("2g.10gb", 1)))
    assert mig.fits(geometry, (("3g.20gb", 1), ("2g.10gb", 1), ("1g.5gb", 2)))
    assert mig.fits(geometry, ())


@settings(max_examples=scale.examples(150))
@given(geometries())
def test_legality_on_random_cards_equals_plain_recursion(geometry):
    placed = reference_solver.placed_sets(geometry)
    legal = {reference_solver.multiset(one) for one in placed}
    assert {frozenset(layout) for layout in multisets(geometry) if mig.fits(geometry, layout)} == legal
    maximal = {frozenset(layout) for layout in mig.maximal_layouts(geometry)}
    assert maximal == reference_solver.uncontained(legal) - {frozenset()}
    for layout in multisets(geometry):
        instances = mig.place(geometry, layout)
        assert (instances is None) == (frozenset(layout) not in legal)
        assert (mig.why_not(geometry, layout) == "") == (instances is not None)
        assert instances is None or frozenset((i.profile.name, i.start, i.size) for i in instances) in placed
        assert all(frozenset(near) in legal for near in mig.nearest(geometry, layout))
