"""The fewest instances destroyed, for all pairs of layouts of an A100."""

import pytest

from tests.compiler.facts.mig import known_cards
from tests.node.partition.layout_pairs import Deck
from tests.node.partition.test_is_minimal import A100_PAIRS, assert_right


@pytest.mark.failure_case(3, 4, 5, 7)
def test_on_an_a100_no_choice_destroys_fewer_and_every_step_is_legal_for_all_pairs() -> None:
    assert assert_right(Deck(known_cards.A100)) == A100_PAIRS
