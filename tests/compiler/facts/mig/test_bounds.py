"""Cards that nobody makes: the solver says that it cannot weigh them all, instead of trying."""

import pytest

from gpushare.facts import mig
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Engines, Geometry, MigProfile, Placement
from gpushare_node.contract.struct import replace

REAL = cards.load("h100-sxm5-80gb").mig


def wide(units: int, sizes: int) -> Geometry:
    """A row of that many slices, with a profile of every size up to `sizes` at every start."""
    assert REAL is not None
    profiles = tuple(
        replace(
            REAL.profiles[0],
            name=f"{size}g.{size}gb",
            compute_slices=size,
            max_count=units // size,
            engines=Engines(),
            placements=tuple(Placement(start=start, size=size) for start in range(units - size + 1)),
        )
        for size in range(1, sizes + 1)
    )
    return replace(
        REAL,
        units=units,
        max_instances=units,
        max_compute_instances=None,
        max_gfx_instances=None,
        engine_totals=Engines(),
        profiles=profiles,
    )


@pytest.mark.parametrize("card_id", [card_id for card_id in cards.ids() if cards.load(card_id).mig])
def test_every_known_card_is_well_below_the_layout_limit(card_id: str) -> None:
    geometry = cards.load(card_id).mig
    assert geometry is not None
    assert mig.is_manageable(geometry)
    assert len(mig.maximal_layouts(geometry)) * 10 < mig.MAX_LAYOUTS


@pytest.mark.parametrize(("units", "sizes", "manageable"), [(8, 8, True), (16, 4, True), (40, 6, False), (64, 9, False)])
def test_number_of_possible_layouts_decides_manageability(units: int, sizes: int, manageable: bool) -> None:
    assert mig.is_manageable(wide(units, sizes)) is manageable


def test_profiles_of_equal_shape_count_towards_the_limit() -> None:
    geometry = wide(16, 1)
    alike: tuple[MigProfile, ...] = tuple(replace(geometry.profiles[0], name=f"1g.{number}gb") for number in range(30))
    assert not mig.is_manageable(replace(geometry, profiles=alike))
