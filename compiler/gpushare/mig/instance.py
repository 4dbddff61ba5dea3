"""Instance: a MIG instance at its place."""

from gpushare.catalog.cards import MigProfile
from gpushare_node.contract.struct import Struct


class Instance(Struct):
    """One MIG instance of one GPU at its placement, in the card's placement units."""

    profile: MigProfile
    start: int
    size: int
