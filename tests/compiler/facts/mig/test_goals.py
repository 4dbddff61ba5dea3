"""Goals: each answer is the best of all legal layouts without attributes, by the order that the goal states."""

import re

import pytest

from gpushare.facts import mig
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import MigProfile
from gpushare.intent.types import Balanced, Instances, MemoryEach, MostInstances
from tests.compiler.facts.mig import known_cards, reference_solver

GIB = 1 << 30


def usable(profile: MigProfile) -> int | None:
    if profile.memory_mib is None:
        return None
    return (profile.memory_mib << 20) - max(256 << 20, (profile.memory_mib << 20) * 3 // 100)


def resolved(card, goal):
    found = mig.resolve_goal(known_cards.geometry(card), goal, usable)
    return None if found is None else dict(found)


def candidates(card) -> list[list[MigProfile]]:
    """Every legal layout without attributes as a list of its instances' profiles."""
    rows = {profile.name: profile for profile in known_cards.geometry(card).profiles}
    legal = reference_solver.placed_sets(known_cards.geometry(card), known_cards.is_plain)
    layouts = {reference_solver.multiset(placed) for placed in legal}
    return [[rows[name] for name, count in layout for _ in range(count)] for layout in layouts if layout]


def by_name(instances) -> list[list[int]]:
    """Names with their numbers as numbers, sorted."""
    return sorted([int(digits) for digits in re.findall(r"\d+", profile.name)] for profile in instances)


def as_dict(instances) -> dict[str, int]:
    return {profile.name: instances.count(profile) for profile in instances}


@pytest.mark.parametrize("card", known_cards.with_mig())
def test_most_instances_is_the_layout_with_the_most(card):
    best = min(candidates(card), key=lambda instances: (-len(instances), by_name(instances)))
    assert resolved(card, MostInstances()) == as_dict(best)


@pytest.mark.parametrize("card", known_cards.with_mig())
def test_instances_goal_maximises_the_smallest_instance(card):
    every = candidates(card)
    plain = [profile for profile in known_cards.geometry(card).profiles if known_cards.is_plain(profile)]
    is_known = all(profile.memory_mib is not None for profile in plain)

    def size(profile):
        return profile.compute_slices, profile.placements[0].size

    def order(instances):
        smallest = min(map(size, instances))
        total = sum(profile.memory_mib if is_known else size(profile)[1] for profile in instances)
        return -smallest[0], -smallest[1], -total, by_name(instances)

    numbers = {len(instances) for instances in every}
    assert mig.instance_counts(known_cards.geometry(card)) == tuple(sorted(numbers))
    for number in numbers:
        best = min((instances for instances in every if len(instances) == number), key=order)
        assert resolved(card, Instances(count=number)) == as_dict(best)
    assert resolved(card, Instances(count=max(numbers) + 1)) is None


@pytest.mark.parametrize("card", known_cards.with_mig())
def test_memory_is_the_most_instances_that_each_have_enough(card):
    every = candidates(card)
    sizes = {size for instances in every for profile in instances if (size := usable(profile)) is not None}
    for size in {one + more for one in sizes for more in (-1, 0, 1)} | {1, 1 << 50}:
        enough = [one for one in every if all((usable(profile) or 0) >= size for profile in one)]
        best = min(enough, key=lambda instances: (-len(instances), by_name(instances)), default=None)
        assert resolved(card, MemoryEach(size_bytes=size)) == (None if best is None else as_dict(best))


@pytest.mark.parametrize("card", known_cards.with_mig())
def test_balanced_is_the_fixed_mix_of_the_commonest_profile_of_each_size(card):
    plain = [profile for profile in known_cards.geometry(card).profiles if known_cards.is_plain(profile)]
    mix = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}.get(max(profile.compute_slices for profile in plain))
    expected: dict[str, int] = {}
    for slices, count in (mix or {}).items():
        of_size = [profile for profile in plain if profile.compute_slices == slices]
        most = max(profile.max_count for profile in of_size)
        (only,) = (profile.name for profile in of_size if profile.max_count == most)
        expected[only] = count
    assert resolved(card, Balanced()) == (expected if mix else None)


@pytest.mark.parametrize(
    ("card", "goal", "layout"),
    [
        (known_cards.A100, MostInstances(), {"1g.5gb": 7}),
        (known_cards.A100, Balanced(), {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}),
        (known_cards.A100, Instances(count=1), {"7g.40gb": 1}),
        (known_cards.A100, Instances(count=2), {"3g.20gb": 2}),
        (known_cards.A100, Instances(count=3), {"3g.20gb": 1, "2g.10gb": 2}),
        (known_cards.A100, Instances(count=5), {"3g.20gb": 1, "1g.5gb": 4}),
        (known_cards.A100, Instances(count=8), None),
        (known_cards.A100, MemoryEach(size_bytes=9 * GIB), {"1g.10gb": 4}),
        (known_cards.A100, MemoryEach(size_bytes=18 * GIB), {"3g.20gb": 2}),
        (known_cards.A100, MemoryEach(size_bytes=40 * GIB), None),
        ("a30", Balanced(), {"2g.12gb": 1, "1g.6gb": 2}),
        ("rtx-pro-6000-server", Balanced(), {"2g.48gb": 1, "1g.24gb": 2}),
        ("rtx-pro-5000-48gb", Balanced(), None),
        ("thor-igpu", Balanced(), None),
        ("thor-igpu", MostInstances(), {"1g.0gb": 1}),
        ("thor-igpu", Instances(count=2), None),
        ("b300-269gb", MemoryEach(size_bytes=GIB), None),
    ],
)
def test_a_goal_becomes_this_layout(card, goal, layout):
    assert resolved(card, goal) == layout


def test_a_resolved_layout_is_in_canonical_order():
    found = mig.resolve_goal(known_cards.geometry(known_cards.A100), Balanced(), usable)
    assert found == (("3g.20gb", 1), ("2g.10gb", 1), ("1g.5gb", 2))


def test_a_card_without_a_suitable_profile_has_no_goal_layouts():
    only_attributes = known_cards.only(known_cards.geometry(known_cards.A100), lambda profile: profile.has_attributes)
    for goal in (MostInstances(), Balanced(), Instances(count=1), MemoryEach(size_bytes=1)):
        assert mig.resolve_goal(only_attributes, goal, usable) is None
    assert mig.instance_counts(only_attributes) == ()
    assert cards.load("t4").mig is None
