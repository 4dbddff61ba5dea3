"""The plan held against plain enumeration: every state of a card against everything that can be desired of it."""

import pytest

from gpushare_node.partition import plan
from gpushare_node.partition.operations import DestroyInstance
from tests.compiler.facts.mig import known_cards
from tests.node.partition.layout_pairs import Deck, as_wanted
from tests.node.partition.simulator import simulate
from tests.support import scale

A100_PAIRS = 723 * 77
"""Ways in which instances without attributes can stand on an A100, 1g.10gb included, and layouts to be desired of it."""


def assert_right(deck: Deck, every: int = 1) -> int:
    number = 0
    for number, pair in enumerate(deck.pairs(every), 1):
        (planned,) = plan(pair.state, pair.policy).gpus
        assert planned.is_final
        assert sum(isinstance(operation, DestroyInstance) for operation in planned.operations) == pair.fewest
        state = pair.state
        for operation in planned.operations:
            state = simulate(state, operation)
            # A card has limits of which the driver's table says nothing: engines, instances of a profile.
            assert deck.stands(state.gpus[0]) in deck.placed
        assert as_wanted(state, pair.policy)
        if number % 10 == 0:
            assert plan(state, pair.policy).operations == ()
    return number


def test_plan_is_minimal_for_every_thirtieth_pair_of_an_a100() -> None:
    assert assert_right(Deck(known_cards.A100), every=30) == A100_PAIRS // 30


@pytest.mark.failure_case(23)
@pytest.mark.parametrize(("card", "every"), [("h100-sxm5-80gb", 20), ("rtx-pro-6000-server", 5), ("a30", 1)])
def test_plan_is_minimal_with_attributes_limited_by_engines(card: str, every: int) -> None:
    """The plan does not ask for NVML's own count of instances, which an A30 reports wrongly."""
    times = 1 if scale.is_long else 20
    assert assert_right(Deck(card, lambda profile: True), every * times) > 500 / times


@pytest.mark.parametrize("card", ["a30", "rtx-pro-6000-server"])
def test_plan_is_minimal_for_all_pairs_of_cards_with_four_slices(card: str) -> None:
    assert assert_right(Deck(card)) == 26 * 9
