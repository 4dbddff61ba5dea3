"""The same users on several cards: each card's best way to share, and which of them is the best. Prices are not known here."""

from gpushare.core.record import Record
from gpushare.sizing.answer import Sizing
from gpushare.sizing.sizing import rank


class Comparison(Record):
    """The sizings of several cards for one demand, the best card first; `best` is None if the users fit on none."""

    sizings: tuple[Sizing, ...]
    best: Sizing | None


def compare(sizings: tuple[Sizing, ...]) -> Comparison:
    """Order the cards as the ways to share one card are ordered: what suffices, nodes, isolation, and then memory left over."""
    ordered = sorted(sizings, key=lambda one: (one.best is None, rank(one.demand, one.best) if one.best else ()))
    return Comparison(sizings=tuple(ordered), best=next((one for one in ordered if one.best is not None), None))
