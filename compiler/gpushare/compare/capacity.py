"""What pools and the cluster offer before and after, what it costs, and the quotas on it. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from gpushare.compare.changes import Amount, CostChange, CostChanges, Problem, QuotaChange, ResourceChange
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.sides import Side
from gpushare.compare.snapshots import Pools, PoolSide
from gpushare.core import prices
from gpushare.core.prices import Price
from gpushare.core.units import total

Quotas = Mapping[tuple[str, str], int]
"""(namespace, resource) → number."""


def resources(old: PoolSide | None, new: PoolSide | None) -> tuple[ResourceChange, ...]:
    """Return what one pool offers; a side that is None offers nothing."""
    names = sorted({name for side in (old, new) if side is not None for name in side.resources})
    return tuple(
        ResourceChange(
            name=name,
            per_node=Amount(
                before=old.resources.get(name, 0) if old else 0,
                after=new.resources.get(name, 0) if new else 0,
            ),
            total=Amount(before=old.total_of(name) if old else 0, after=new.total_of(name) if new else 0),
        )
        for name in names
    )


def capacity(before: Pools, after: Pools) -> tuple[tuple[str, Amount], ...]:
    """Return what the whole cluster offers, sorted by resource."""
    names = sorted({name for pools in (before, after) for pool in pools.values() for name in pool.resources})
    return tuple((name, Amount(before=_in_cluster(before, name), after=_in_cluster(after, name))) for name in names)


def _in_cluster(pools: Pools, resource: str) -> int | None:
    return total(pool.total_of(resource) for pool in pools.values())


def quotas(old: Quotas, new: Quotas, before: Pools, after: Pools) -> tuple[QuotaChange, ...]:
    """Return the quotas that change, and those that the changed pools can no longer satisfy."""
    holds, offered = dict(capacity(before, after)), {name for pool in after.values() for name in pool.resources}
    found = []
    for namespace, resource in sorted(old.keys() | new.keys()):
        quota = Amount(before=old.get((namespace, resource)), after=new.get((namespace, resource)))
        limit = holds.get(resource, Amount(before=0, after=0))
        problem = _problem(quota, limit) if resource in offered else Problem.VANISHED
        if quota.before != quota.after or problem:
            both = {"before": quota.before, "after": quota.after, "capacity": limit.after}
            found.append(QuotaChange(namespace=namespace, resource=resource, problem=problem, **both))
    return tuple(found)


def refusing(changes: Iterable[QuotaChange]) -> Iterator[Effect]:
    """Yield the effects of new and of reduced quotas: pods that were admitted before may now be rejected."""
    for one in changes:
        if one.after is not None and (one.before is None or one.after < one.before):
            subject = f"quota {one.namespace} {one.resource}"
            yield Effect(kind=EffectKind.REFUSED, pool=None, subject=subject, before=one.before, after=one.after)


def _problem(quota: Amount, limit: Amount) -> Problem | None:
    """Return EXCEEDS if the quota is more than there will be, unless it already was and neither of the two changed."""
    is_old_news = quota.before == quota.after and _exceeds(quota.before, limit.before)
    return Problem.EXCEEDS if _exceeds(quota.after, limit.after) and not is_old_news else None


def _exceeds(quota: int | None, limit: int | None) -> bool:
    return quota is not None and limit is not None and quota > limit


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
