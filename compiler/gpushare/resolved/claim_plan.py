"""What each claim of a pool of DRA gets: how much of a device it asks for, how many fit, and what its containers may use."""

from collections.abc import Iterator

from gpushare.core.units import MIB
from gpushare.offering import claims, shares
from gpushare.offering.shares import ShareKind
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare_node.contract.policy import DraShares
from gpushare_node.contract.struct import Struct


class ClaimPlan(Struct):
    """One template of claims. `per_device` of them fit on one device of the class.

    `memory_mib` is what a claim asks for: None if it asks for no memory but a number of shares, or the memory is not known.
    `cap_mib` is what its containers may use together: None for no cap, as on a device of its own.
    """

    template: str
    device_class: str
    memory_mib: int | None
    per_device: int
    cap_mib: int | None


def of_pool(plan: Plan, pool: PoolPlan) -> tuple[ClaimPlan, ...]:
    """Return the claims of a pool; none if the device plugin serves it."""
    if not pool.pool.backend.has_claims:
        return ()
    shapes = claims.shapes(pool.pool, pool.card, pool.kinds, plan.division)
    return tuple(
        ClaimPlan(template=shape.template, device_class=shape.device_class, memory_mib=asked, per_device=fit, cap_mib=cap)
        for shape, (asked, fit, cap) in zip(shapes, _gets(plan, pool), strict=True)
    )


def _gets(plan: Plan, pool: PoolPlan) -> Iterator[tuple[int | None, int, int | None]]:
    """Yield for each shape, in the order of `claims.shapes`, the memory that is asked for, how many fit, and the cap."""
    for kind in pool.kinds:
        if kind.shared and plan.division.by is DraShares.COUNT:
            yield None, kind.replicas, shares.cap_mib(pool.pool, pool.card, kind.profile, kind.replicas)
        else:
            asked = kind.memory_mib and kind.memory_mib // kind.replicas
            yield asked, kind.replicas, _cap(pool, kind, asked)
    for kind in pool.kinds:
        for _, size in sorted(pool.pool.sizes) if kind.profile is None else ():
            asked = size // MIB
            yield asked, (kind.memory_mib or asked) // asked, _cap(pool, kind, asked)


def _cap(pool: PoolPlan, kind: ShareKind, asked_mib: int | None) -> int | None:
    cap = shares.cap_mib(pool.pool, pool.card, kind.profile, kind.replicas)
    if cap is None or asked_mib is None or kind.memory_mib is None:
        return cap
    return shares.claim_cap_mib(cap, kind.replicas, asked_mib, kind.memory_mib)
