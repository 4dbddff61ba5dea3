"""What MIG can make of a card: placements, layouts, nearest layouts and goals. Pure geometry, exact, no card names here."""

from dataclasses import dataclass

from gpushare.catalog import MigProfile


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One MIG instance of one GPU at its placement, in the card's placement units."""

    profile: MigProfile
    start: int
    size: int
