"""ResourceQuotas to the intent's quotas: a resource's quota becomes one of a pool that offers the resource.

The compiler adds up the quotas of all pools with one resource, so that a budget given to one of them is the same as before.
"""

from collections.abc import Iterable

from gpushare.cluster.importing import dra_platform
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import ImportedQuota
from gpushare.cluster.importing.parts import Notes
from gpushare.core.wording import join_first, shorten


def add(quotas: Iterable[ImportedQuota], draft: Draft, notes: Notes) -> None:
    """Add the quotas; several on one resource of a namespace count as the smallest, as in Kubernetes."""
    least: dict[tuple[str, str], ImportedQuota] = {}
    for quota in quotas:
        known = least.setdefault((quota.namespace, quota.resource), quota)
        if known is quota:
            continue
        smaller, larger = sorted((known, quota), key=lambda one: one.count)
        least[quota.namespace, quota.resource] = smaller
        notes.warn(
            "GS863",
            larger.part,
            f"{larger.origin} allows {larger.count} {shorten(larger.resource)}, and "
            f"{smaller.origin} {smaller.count}: the smaller one holds",
            "keep one of them",
            on_key=True,
        )
    of_dra = dra_platform.of_dra(draft)
    for (namespace, resource), quota in sorted(least.items()):
        offers = sorted(draft.resources.get(resource, ()), key=lambda offer: (offer[0], offer[1] or ""))
        if not offers:
            notes.warn(
                "GS863",
                quota.part,
                f"no pool offers {shorten(resource)}: the quota of {shorten(namespace)}, {quota.count}, is left out",
                "give the Nodes and configs that offer it",
                on_key=True,
            )
            continue
        pool, profile = offers[0]
        others = join_first([name for name, _ in offers[1:]])
        if others and any(name in of_dra for name, _ in offers):
            notes.warn(
                "GS863",
                quota.part,
                f"the quota of {quota.count} {shorten(resource)} holds in pools {pool} and {others} together: with DRA each has"
                f" a quota of its own, and it is written for {pool} alone",
                "write quotas for the other pools",
                on_key=True,
            )
        elif others:
            notes.warn(
                "GS860",
                quota.part,
                f"assumed: the quota is written for pool {pool}; it holds in {others} as well",
                "the pools offer the same resource, and Kubernetes has one quota for it",
                on_key=True,
            )
        path = ("quotas", namespace, pool)
        known_number = draft.spec.get("quotas", {}).get(namespace, {}).get(pool, quota.count)
        number = min(quota.count, known_number) if isinstance(known_number, int) else quota.count
        if profile is None:
            draft.put(path, number, quota.part, f"from {quota.origin}")
        else:
            draft.put((*path, profile), quota.count, quota.part)
            draft.note(path, quota.part, f"from {quota.origin}")
