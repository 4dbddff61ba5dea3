"""The rule on an intent's own cards: GS903 for a grid that allows more layouts than the compiler can compare.

Runs before the registry, because every rule on MIG needs those layouts.
"""

from collections.abc import Iterator, Mapping

from gpushare import mig
from gpushare.catalog.cards import Card
from gpushare.core.diagnostics import Finding


def check_cards(own: Mapping[str, Card]) -> Iterator[Finding]:
    """Yield the findings of an intent's own cards, in their order."""
    for card_id, card in own.items():
        if card.mig and not mig.is_manageable(card.mig):
            yield Finding(
                code="GS903",
                message=f"card {card_id} allows more than {mig.MAX_LAYOUTS} layouts: gpushare compares them one by one",
                hints=("leave out profiles, or placements, that no pool uses; no known card has more than 128 layouts",),
                path=("spec", "cards", card_id, "mig"),
            )
