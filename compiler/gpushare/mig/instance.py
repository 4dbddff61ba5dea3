"""Instance: a MIG instance at its place."""

from gpushare.catalog.cards import MigProfile
from gpushare.core.record import Record


class Instance(Record):
    """One MIG instance of one GPU at its placement, in the card's placement units."""

    profile: MigProfile
    start: int
    size: int
