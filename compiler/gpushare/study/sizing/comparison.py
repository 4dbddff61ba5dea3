"""The same users on several cards: each card's best way to share, and which of them is the best."""

from gpushare.study.sizing.answer import Sizing
from gpushare.study.sizing.sizing import rank
from gpushare_node.contract.struct import Struct


class Comparison(Struct):
    """The sizings of several cards for one demand, the best card first; `best` is None if the users fit on none.

    `is_by_cost`: the price of every card that serves is known, so that they are compared by cost, not by their number of nodes.
    """

    sizings: tuple[Sizing, ...]
    best: Sizing | None
    is_by_cost: bool = False


def compare(sizings: tuple[Sizing, ...]) -> Comparison:
    """Order the cards as the ways to share one card are ordered: what suffices, cost, isolation, and then memory left over."""
    serving = [one for one in sizings if one.best is not None]
    by_cost = bool(serving) and all(one.demand.price is not None for one in serving)
    ordered = sorted(
        sizings, key=lambda one: (one.best is None, rank(one.demand, one.best, by_cost=by_cost) if one.best else ())
    )
    return Comparison(
        sizings=tuple(ordered), best=next((one for one in ordered if one.best is not None), None), is_by_cost=by_cost
    )
