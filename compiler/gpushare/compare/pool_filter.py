"""A comparison of some pools alone: their changes, and what holds for the whole cluster. Pure."""

from collections.abc import Iterable

from gpushare.compare.bundles import POLICIES
from gpushare.compare.capacity import refusing
from gpushare.compare.changes import Amount, Comparison, PoolChange
from gpushare.core.units import total
from gpushare_node.contract.struct import replace


def only(comparison: Comparison, names: Iterable[str]) -> Comparison:
    """Return the comparison with the named pools alone.

    Capacity is that of these pools, quotas are those on their resources, files and settings those that are theirs alone.
    Effects on the whole cluster stay, because they concern every pool.
    """
    chosen = frozenset(names)
    pools = tuple(pool for pool in comparison.pools if pool.name in chosen)
    capacity = _capacity(pools)
    offered = {name for name, _ in capacity}
    quotas = tuple(one for one in comparison.quotas if one.resource in offered)
    foreign = list(refusing(one for one in comparison.quotas if one.resource not in offered))
    paths = {f"{POLICIES}{name}.yaml" for name in chosen}
    return replace(
        comparison,
        pools=pools,
        capacity=capacity,
        moves=tuple(one for one in comparison.moves if one.source in chosen or one.target in chosen),
        quotas=quotas,
        files=tuple(one for one in comparison.files if one.path in paths),
        effects=tuple(one for one in comparison.effects if one.pool in {None, *chosen} and one not in foreign),
        outages=tuple(one for one in comparison.outages if one.pool in chosen),
        costs=comparison.costs
        and replace(comparison.costs, pools=tuple(one for one in comparison.costs.pools if one.pool in chosen)),
        intent=tuple(one for one in comparison.intent if one.path[:2] == ("spec", "pools") and one.path[2] in chosen),
    )


def _capacity(pools: Iterable[PoolChange]) -> tuple[tuple[str, Amount], ...]:
    """Return what the pools offer together, sorted by resource."""
    totals: dict[str, list[Amount]] = {}
    for resource in (one for pool in pools for one in pool.resources):
        totals.setdefault(resource.name, []).append(resource.total)
    return tuple(
        (name, Amount(before=total(one.before for one in each), after=total(one.after for one in each)))
        for name, each in sorted(totals.items())
    )
