"""What the tests of MIG's geometry share."""

import pytest

from gpushare.facts.catalog.cards import Geometry
from tests.compiler.facts.mig import known_cards


@pytest.fixture(scope="session")
def a100() -> Geometry:
    return known_cards.geometry(known_cards.A100)
