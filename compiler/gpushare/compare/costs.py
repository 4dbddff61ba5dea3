"""What an hour of the GPUs costs before and after, where prices and numbers of nodes are known. Pure."""

from collections.abc import Mapping

from gpushare.compare.changes import CostChange, CostChanges
from gpushare.compare.sides import Side
from gpushare.core import prices
from gpushare.core.prices import Price


def costs(old: Side, new: Side) -> CostChanges | None:
    """Return the costs of both sides; None without prices, or if they have several currencies.

    A side without prices has those of the other: then the costs differ by the GPUs alone.
    """
    known = [old.prices or new.prices, new.prices or old.prices]
    every = [price for side in known for price in side.values()]
    if not every or prices.disagreement(every):
        return None
    before, after = (_costs(side, each) for side, each in zip((old, new), known, strict=True))
    names = sorted(before.keys() | after.keys())
    pools = tuple(CostChange(pool=name, before=before.get(name, 0.0), after=after.get(name, 0.0)) for name in names)
    return CostChanges(currency=every[0].currency, pools=pools)


def _costs(side: Side, known: Mapping[str, Price]) -> dict[str, float | None]:
    """Return what an hour of each pool costs; None if its price or its number of nodes is not known."""
    sizes = {name: (pool.card, pool.count, len(pool.gpus)) for name, pool in side.pools.items()}
    sizes |= {name: (one.card.id, one.nodes, one.pool.gpus_per_node) for name, one in side.vm_pools.items()}
    each = prices.of_pools(known, {name: card for name, (card, _, _) in sizes.items()})
    return {
        name: nodes * gpus * each[name].per_hour if name in each and nodes is not None else None
        for name, (_, nodes, gpus) in sizes.items()
    }
