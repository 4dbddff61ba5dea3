"""Which drivers serve a card, by its compute capability: the branches from the first to the last, and the open kernel modules.

A card of one's own has them as well. Sources: NVIDIA's announcement that R580 is the last branch for Maxwell, Pascal and Volta,
and its note that the open kernel modules need Turing's GSP (published knowledge, not looked up); the MIG User Guide for
Blackwell, whose first branches (R570, and R580 for 10.3) it states with the first drivers that have MIG.
"""

from gpushare.catalog.cards import Card
from gpushare_node.contract.struct import Struct

TURING = (7, 5)
"""The compute capability from which the open kernel modules serve a card, and after R580 every driver."""

LAST_BEFORE_TURING = 580
WRITTEN_BEFORE_TURING = "580.126.20"
"""The last driver of that branch that a release of gpu-operator installs: what to write for older cards."""

_FIRST = (((12, 0), 570), ((10, 3), 580), ((10, 0), 570))
"""Compute capability → the first branch of cards from it on, the newest first."""


class DriverRange(Struct):
    """The branches that serve a card, such as 570 for R570. None: no bound is known."""

    first: int | None
    last: int | None


def branches(card: Card) -> DriverRange:
    """Return NVIDIA's driver branches of a card. What no source tells has no bound; Thor (11.0) has drivers of its own."""
    capability = card.compute_capability
    if capability is None:
        return DriverRange(first=None, last=None)
    first = next((branch for start, branch in _FIRST if capability >= start and capability[0] == start[0]), None)
    return DriverRange(first=first, last=LAST_BEFORE_TURING if capability < TURING else None)


def has_open_modules(card: Card) -> bool:
    """Whether NVIDIA's open kernel modules serve the card."""
    return card.compute_capability is not None and card.compute_capability >= TURING
