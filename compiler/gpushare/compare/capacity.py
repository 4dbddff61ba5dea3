"""What pools and the cluster offer before and after, and the quotas on it."""

from collections.abc import Iterable, Iterator, Mapping

from gpushare.compare.changes import Amount, Problem, QuotaChange, ResourceChange
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.snapshots import Pools, PoolSide
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
