"""Rules on MIG instances that NVIDIA's DRA driver makes for claims: GS777 to GS779.

They are its feature gate DynamicMIG, one for all its nodes. With it the driver starts by removing every MIG instance that no
claim has, and offers places for instances on every GPU whose MIG mode is on or can be switched (dra-driver-nvidia-gpu 0.5).
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice, permutations

from gpushare.core.diagnostics import Finding, Severity
from gpushare.core.wording import join_words, pluralize
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Geometry
from gpushare.intent.types import Layout
from gpushare.offering import modes
from gpushare.rules.mig import mig_pools
from gpushare.rules.quotas import ResolvedQuota, quota_path, resolved_quotas
from gpushare.rules.rule import RuleContext, a_card, pool_path, product, rule

MAX_ORDERS = 720
"""How many orders of claims are tried: all of those of six profiles. No known card has more plain ones."""


@rule("GS777")
def check_possible(context: RuleContext) -> Iterator[Finding]:
    """Instances on demand without NVIDIA's DRA driver, or of no profile."""
    for pool, card, geometry in mig_pools(context):
        if not modes.of(pool).is_on_demand:
            continue
        path = pool_path(pool, "sharing", "layout")
        if not pool.backend.has_claims:
            yield Finding(
                code="GS777",
                message=f"the device plugin makes no MIG instances on demand, and pool {pool.name} has no other back end",
                hints=("write backend: dra, or a layout",),
                path=path,
                causes=(pool_path(pool, "backend"),),
            )
        elif not modes.of(pool).profiles and not mig.places(geometry):
            yield Finding(
                code="GS777",
                message=f"all MIG profiles of {a_card(card)} have attributes in their names, and pool {pool.name} names none",
                hints=(f"write profiles: [{', '.join(card.profiles)}], or those of them that users may ask for",),
                path=path,
            )


@rule("GS778")
def check_beside(context: RuleContext) -> Iterator[Finding]:
    """Pools of the same driver that cannot be beside instances on demand."""
    makers = [pool for pool in context.intent.pools if modes.of(pool).is_on_demand and pool.backend.has_claims]
    for pool, card in context.pools_with_card():
        mode = modes.of(pool)
        if not makers or mode.is_on_demand or not pool.backend.has_claims or not mode.takes_claims:
            continue
        if mode.is_partitioned:
            what = f"removes the MIG instances of pool {pool.name} whenever it starts"
            hint = "write layout: on-demand here too, or backend: device-plugin"
        elif card.mig and card.switches_mig:
            what = f"offers the GPUs of pool {pool.name} as MIG instances too, because {product(card)} switches MIG mode"
            hint = "write backend: device-plugin here"
        else:
            continue
        yield Finding(
            code="GS778",
            message=f"with the instances on demand of pool {makers[0].name} NVIDIA's DRA driver {what}",
            hints=(f"{hint}, or a layout in pool {makers[0].name}",),
            path=pool_path(pool, "sharing", "mode"),
            causes=(pool_path(makers[0], "sharing", "layout"),),
        )


@rule("GS779")
def check_quotas(context: RuleContext) -> Iterator[Finding]:
    """A quota whose claims do not all find a place if they come in an unlucky order."""
    for resolved in resolved_quotas(context):
        pool, geometry = resolved.pool, resolved.card.mig
        if not modes.of(pool).is_on_demand or geometry is None or not pool.nodes.count or _is_too_large(resolved):
            continue
        gpus = pool.nodes.count * pool.gpus_per_node
        left_out, order = _worst(geometry, _claims(resolved), gpus)
        if left_out:
            names = [name for name, _ in order]
            when = f"if {join_words(names, 'then')} come in this order, " if len(names) > 1 else ""
            yield Finding(
                code="GS779",
                severity=Severity.WARNING,
                message=f"{when}{pluralize(left_out, 'claim')} of namespace {resolved.quota.namespace} find no place on the"
                f" {pluralize(gpus, 'GPU')} of pool {pool.name}",
                hints=(
                    "the scheduler takes the first free place, and keeps none for larger instances",
                    "write less, or accept that pods may wait; a pool with a layout has a fixed number of each profile",
                ),
                path=quota_path(resolved.quota),
                causes=(pool_path(pool, "sharing", "layout"),),
            )


def _is_too_large(resolved: ResolvedQuota) -> bool:
    """Whether GS606 reports the quota: more of a profile than there are places."""
    nodes = resolved.pool.nodes.count or 0
    return any(count > kind.per_node * nodes for kind, count, _ in resolved.counts)


def _claims(resolved: ResolvedQuota) -> Layout:
    counts = Counter[str]()
    for kind, count, _ in resolved.counts:
        counts[kind.profile.name if kind.profile else ""] += count
    return tuple((name, count) for name, count in counts.items() if count)


def _worst(geometry: Geometry, claims: Layout, gpus: int) -> tuple[int, Layout]:
    """Return how many claims find no place in the order in which most do not, and that order."""
    orders = islice(permutations(claims), MAX_ORDERS)
    return max(((mig.unplaced(geometry, order, gpus), order) for order in orders), key=lambda one: one[0])
