"""What an hour of the GPUs costs before and after, where prices and numbers of nodes are known. Pure."""

from collections.abc import Mapping
from typing import Any

from gpushare.compare.changes import CostChange, Costs
from gpushare.core import prices
from gpushare.core.prices import Price

Document = Mapping[str, Any]


def costs(old: Document, new: Document) -> Costs | None:
    """Return the costs of both `nodes/pools.yaml` documents; None without prices, or if they have several currencies.

    A side without prices has those of the other: then the costs differ by the GPUs alone.
    """
    own = [_prices(side) for side in (old, new)]
    known = [own[0] or own[1], own[1] or own[0]]
    every = [price for side in known for price in side.values()]
    if not every or prices.disagreement(every):
        return None
    before, after = (_costs(side, each) for side, each in zip((old, new), known, strict=True))
    names = sorted(before.keys() | after.keys())
    pools = tuple(CostChange(pool=name, before=before.get(name, 0.0), after=after.get(name, 0.0)) for name in names)
    return Costs(currency=every[0].currency, pools=pools)


def _prices(side: Document) -> dict[str, Price]:
    read = {name: prices.parse(text) for name, text in side.get("prices", {}).items()}
    return {name: price for name, price in read.items() if price is not None}


def _costs(side: Document, known: Mapping[str, Price]) -> dict[str, float | None]:
    """Return what an hour of each pool costs; None if its price or its number of nodes is not known."""
    pools = {**side["pools"], **side.get("vmPools", {})}
    each = prices.of_pools(known, {name: pool["card"] for name, pool in pools.items()})
    return {
        name: pool["nodes"] * pool["gpusPerNode"] * each[name].per_hour if name in each and pool["nodes"] is not None else None
        for name, pool in pools.items()
    }
