"""Where instances come to stand: always legal, as little moved as can be, the most choice left."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.facts import mig
from gpushare.facts.catalog.cards import Engines, Geometry, MigProfile, Placement
from tests.compiler.facts.mig import known_cards, reference_solver
from tests.compiler.facts.mig.random_cards import geometries
from tests.support import scale


def ways_of(every) -> dict[reference_solver.Multiset, list[reference_solver.Placed]]:
    """Every layout → every way to place it."""
    found = defaultdict(list)
    for placed in sorted(every, key=sorted):
        found[reference_solver.multiset(placed)].append(placed)
    return found


@pytest.fixture(scope="module")
def ways(a100):
    return ways_of(reference_solver.placed_sets(a100, known_cards.is_plain))


def must_place(geometry: Geometry, layout, keep=()) -> tuple[mig.PlacedInstance, ...]:
    found = mig.place(geometry, layout, keep)
    assert found is not None
    return found


def placed_as(instances) -> reference_solver.Placed:
    return frozenset((instance.profile.name, instance.start, instance.size) for instance in instances)


@pytest.mark.parametrize("card", known_cards.distinct())
def test_every_legal_layout_is_placed_on_valid_placements(card):
    geometry = known_cards.geometry(card)
    for layout in {reference_solver.multiset(placed) for placed in reference_solver.placed_sets(geometry)}:
        instances = must_place(geometry, tuple(layout))
        assert Counter(instance.profile.name for instance in instances) == dict(layout)
        taken = [unit for instance in instances for unit in range(instance.start, instance.start + instance.size)]
        assert len(taken) == len(set(taken))
        assert set(taken) <= set(range(geometry.units))
        for instance in instances:
            assert instance.profile in geometry.profiles
            assert (instance.start, instance.size) in {(place.start, place.size) for place in instance.profile.placements}
        assert [instance.start for instance in instances] == sorted(instance.start for instance in instances)


@pytest.mark.parametrize("card", [known_cards.A100, "rtx-pro-6000-server"])
def test_placement_keeps_the_most_between_any_two_layouts(card):
    geometry = known_cards.geometry(card)
    ways = ways_of(reference_solver.placed_sets(geometry))
    for old in scale.some(list(ways.values()), 12):
        keep = tuple((name, start) for name, start, _ in old[-1])
        for new, possible in ways.items():
            stayed = placed_as(mig.place(geometry, tuple(new), keep)) & old[-1]
            assert len(stayed) == max(len(placed & old[-1]) for placed in possible)


@settings(max_examples=scale.examples(100))
@given(geometries(), st.data())
def test_placement_keeps_the_most_on_random_cards(geometry, data):
    every = reference_solver.placed_sets(geometry)
    old = data.draw(st.sampled_from(sorted(every, key=sorted)))
    keep = {(name, start) for name, start, _ in old}
    most: defaultdict[reference_solver.Multiset, int] = defaultdict(int)
    for placed in every:
        stayed = len({(name, start) for name, start, _ in placed} & keep)
        most[reference_solver.multiset(placed)] = max(most[reference_solver.multiset(placed)], stayed)
    for layout, stayed in most.items():
        instances = must_place(geometry, tuple(layout), tuple(sorted(keep)))
        assert len({(instance.profile.name, instance.start) for instance in instances} & keep) == stayed


def test_instances_with_attributes_are_kept_where_they_stand():
    geometry = known_cards.geometry("rtx-pro-6000-server")
    layout = (("1g.24gb+me", 1), ("1g.24gb", 2), ("1g.24gb-me", 1))
    keep = (("1g.24gb-me", 0), ("1g.24gb+me", 6), ("1g.24gb", 9))
    found = {(instance.profile.name, instance.start) for instance in must_place(geometry, layout, keep)}
    assert found == {*keep, ("1g.24gb", 3)}


def test_placement_keeps_no_more_instances_than_the_layout_has(a100):
    keep = tuple(("1g.5gb", start) for start in range(7))
    found = must_place(a100, (("1g.5gb", 2), ("3g.20gb", 1)), keep)
    assert [(instance.profile.name, instance.start) for instance in found] == [("1g.5gb", 0), ("1g.5gb", 1), ("3g.20gb", 4)]


def test_kept_instances_unknown_to_layout_or_card_are_ignored(a100):
    layout = (("2g.10gb", 1), ("1g.5gb", 3))
    assert mig.place(a100, layout, (("9g.80gb", 0), ("7g.40gb", 0), ("2g.10gb", 5))) == mig.place(a100, layout)


def test_placement_leaves_the_most_room_for_additions(a100, ways):
    grown = defaultdict(set)
    every = [placed for possible in ways.values() for placed in possible]
    for bigger in every:
        for placed in every:
            if placed <= bigger:
                grown[placed].add(reference_solver.multiset(bigger - placed))
    for layout, possible in ways.items():
        chosen = placed_as(mig.place(a100, tuple(layout)))
        assert len(grown[chosen]) == max(len(grown[placed]) for placed in possible)


@pytest.mark.parametrize(
    ("layout", "starts"),
    [
        ((("3g.20gb", 1),), {"3g.20gb": [4]}),
        ((("1g.5gb", 2), ("2g.10gb", 1), ("3g.20gb", 1)), {"2g.10gb": [0], "1g.5gb": [2, 3], "3g.20gb": [4]}),
        ((("1g.5gb", 7),), {"1g.5gb": [0, 1, 2, 3, 4, 5, 6]}),
        ((("2g.10gb", 2), ("1g.5gb", 3)), {"2g.10gb": [0, 2], "1g.5gb": [4, 5, 6]}),
        ((), {}),
    ],
)
def test_a100_layout_has_the_documented_placement(a100, layout, starts):
    found = defaultdict(list)
    for instance in must_place(a100, layout):
        found[instance.profile.name].append(instance.start)
    assert found == starts


def test_placement_is_independent_of_the_layout_order(a100):
    layout = (("1g.5gb", 2), ("2g.10gb", 1), ("3g.20gb", 1))
    assert mig.place(a100, layout) == mig.place(a100, layout[::-1])


def test_card_with_very_many_slices_is_placed():
    places = tuple(Placement(start=start, size=1) for start in range(40))
    row = MigProfile(
        name="1g.1gb",
        nvml_enum=0,
        profile_id=0,
        compute_slices=1,
        memory_mib=None,
        max_count=40,
        placements=places,
        engines=Engines(),
    )
    geometry = Geometry(units=40, max_instances=0, profiles=(row,), engine_totals=Engines())
    starts = [instance.start for instance in must_place(geometry, (("1g.1gb", 20),))]
    assert len(starts) == len(set(starts)) == 20


def test_illegal_layout_is_not_placed(a100):
    assert mig.place(a100, (("3g.20gb", 2), ("1g.5gb", 1))) is None
    assert mig.place(a100, (("9g.80gb", 1),)) is None
