"""Rules on quotas, and on which namespaces are kept out of which pools: GS601 to GS613."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property, lru_cache

from gpushare.core.diagnostics import Path, Severity
from gpushare.core.units import is_dns_label, show_bytes
from gpushare.core.wording import join_first, join_words, nearest
from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import CapWord, Pool, Quota
from gpushare.offering import shares
from gpushare.offering.shares import ShareKind
from gpushare.rules.rule import Problem, RuleContext, pool_path, rule
from gpushare_node.contract.struct import Struct
from gpushare_node.contract.tenancy import AdmissionMode


class ResolvedQuota(Struct):
    """A quota with its pool and what that pool's nodes offer."""

    quota: Quota
    pool: Pool
    card: Card
    kinds: tuple[ShareKind, ...]
    shares_path: Path

    @property
    def resources(self) -> dict[str, ShareKind]:
        """One device class for each resource name of the pool."""
        return {kind.resource: kind for kind in reversed(self.kinds)}

    @property
    def sole(self) -> ShareKind | None:
        """The pool's only resource; None if it has several."""
        return self.kinds[0] if len(self.resources) == 1 else None

    @cached_property
    def limits(self) -> tuple[tuple[ShareKind, int, Path], ...]:
        """What each value of it allows: device class, number of shares, and path. Empty if another rule reports the quota."""
        quota, sole, here = self.quota, self.sole, quota_path(self.quota)
        if quota.per_resource:
            found = ((shares.find(self.kinds, name), count, (*here, name)) for name, count in quota.per_resource)
            return tuple((kind, count, path) for kind, count, path in found if kind)
        if sole is None:
            return ()
        given = () if quota.shares is None else ((sole, quota.shares, self.shares_path),)
        cap = shares.cap_mib(self.pool, self.card, sole.profile, sole.replicas)
        if cap and quota.memory_bytes:
            return (*given, (sole, shares.shares_for(quota.memory_bytes, cap), (*here, "memory")))
        return given

    @property
    def counts(self) -> tuple[tuple[ShareKind, int, Path], ...]:
        """What the quota amounts to: `limits`, of shares and memory the smaller."""
        if self.quota.per_resource:
            return self.limits
        return (min(self.limits, key=lambda limit: limit[1]),) if self.limits else ()


def quota_path(quota: Quota) -> Path:
    """Return the path of a quota in the intent."""
    return ("spec", "quotas", quota.namespace, quota.pool)


@lru_cache(maxsize=1)
def resolved_quotas(context: RuleContext) -> tuple[ResolvedQuota, ...]:
    """Return the quotas on pools that exist and could be resolved; computed once for all rules."""
    return tuple(_resolved(context))


def _resolved(context: RuleContext) -> Iterator[ResolvedQuota]:
    pools = {pool.name: pool for pool in context.intent.pools}
    for quota in context.intent.quotas:
        pool = pools.get(quota.pool)
        if pool is None:
            continue
        card, kinds = context.card(pool), context.kinds(pool)
        if card is not None and kinds:
            written = context.document["spec"]["quotas"][quota.namespace][quota.pool]
            path = (*quota_path(quota), "shares") if isinstance(written, dict) else quota_path(quota)
            yield ResolvedQuota(quota=quota, pool=pool, card=card, kinds=kinds, shares_path=path)


@rule("GS601")
def check_pool(context: RuleContext) -> Iterator[Problem]:
    """A quota on a pool that the intent lacks."""
    names = {pool.name for pool in context.intent.pools}
    for quota in context.intent.quotas:
        if quota.pool not in names:
            near = nearest(quota.pool, names)
            hint = f"nearest: {join_words(near, 'or')}" if near else f"the pools are {join_first(sorted(names), 5)}"
            yield Problem(
                message=f"there is no pool {quota.pool}",
                hints=(hint,),
                path=quota_path(quota),
                on_key=True,
                causes=(("spec", "pools", quota.pool),),
            )


@rule("GS602")
def check_one_resource(context: RuleContext) -> Iterator[Problem]:
    """A bare count or a memory size for a pool that has several resources."""
    for resolved in resolved_quotas(context):
        quota = resolved.quota
        if quota.per_resource or resolved.sole:
            continue
        what, count = ("memory", 1) if quota.shares is None else ("a number of shares", quota.shares)
        yield Problem(
            message=f"{what} does not name a resource: pool {quota.pool} has {join_words(_names(resolved))}",
            hints=("write one number for each: {" + ", ".join(f"{name}: {count}" for name in _names(resolved)) + "}",),
            path=(*quota_path(quota), "memory") if quota.shares is None else resolved.shares_path,
        )


def _names(resolved: ResolvedQuota) -> list[str]:
    return [kind.profile.name if kind.profile else kind.resource for kind in resolved.kinds]


_SHARES = frozenset({"replicas", "count"})
"""What other programs call the number of shares."""


@rule("GS603")
def check_offered(context: RuleContext) -> Iterator[Problem]:
    """A profile or resource that the pool does not offer."""
    for resolved in resolved_quotas(context):
        for name, count in resolved.quota.per_resource:
            if shares.find(resolved.kinds, name) is None:
                meant = f"the number of shares is called shares: {{shares: {count}}}" if name in _SHARES else ""
                yield Problem(
                    message=f"pool {resolved.pool.name} does not offer {name}",
                    hints=(meant or f"it offers {join_words(_names(resolved))}",),
                    path=(*quota_path(resolved.quota), name),
                    on_key=True,
                )


@rule("GS604")
def check_memory(context: RuleContext) -> Iterator[Problem]:
    """A memory quota that no number of shares corresponds to."""
    for resolved in resolved_quotas(context):
        quota, kind = resolved.quota, resolved.sole
        if quota.memory_bytes is None or kind is None:
            continue
        if not kind.shared:
            message, hint = (
                f"pool {quota.pool} offers whole devices without caps, so memory cannot be counted in shares",
                "write a number",
            )
        elif resolved.pool.sizes:
            message, hint = (
                f"claims of pool {quota.pool} have several sizes, so memory cannot be counted in shares",
                "write a number of claims, or make a pool for each size",
            )
        elif shares.wanted_cap(resolved.pool, kind.profile) is CapWord.NONE:
            message, hint = f"pool {quota.pool} has no cap, so memory cannot be counted in shares", "write a number of shares"
        else:
            continue
        yield Problem(message=message, hints=(hint,), path=(*quota_path(quota), "memory"))


@rule("GS610", Severity.WARNING)
def check_floor(context: RuleContext) -> Iterator[Problem]:
    """A memory quota that is smaller than one share."""
    for resolved in resolved_quotas(context):
        size = resolved.quota.memory_bytes
        for kind, count, path in resolved.limits:
            if size is not None and path[-1] == "memory" and not count:
                cap = shares.cap_mib(resolved.pool, resolved.card, kind.profile, kind.replicas)
                yield Problem(
                    message=f"{show_bytes(size)} is less than one share of pool {resolved.pool.name}, so it allows none",
                    hints=(f"a share is {cap}Mi: write memory: {cap}Mi or more, or 0 in place of the mapping for none",),
                    path=path,
                )


@rule("GS605")
def check_access(context: RuleContext) -> Iterator[Problem]:
    """A quota for a namespace that may not use the pool."""
    pools = {pool.name: pool for pool in context.intent.pools}
    for quota in context.intent.quotas:
        pool = pools.get(quota.pool)
        if pool and pool.namespaces and quota.namespace not in pool.namespaces:
            yield Problem(
                message=f"namespace {quota.namespace} may not use pool {pool.name}, which is for {join_first(pool.namespaces)}",
                hints=(f"add {quota.namespace} to the pool's namespaces, or remove this quota",),
                path=quota_path(quota),
                on_key=True,
            )


@rule("GS606", Severity.WARNING)
def check_total(context: RuleContext) -> Iterator[Problem]:
    """A quota larger than the whole pool."""
    for resolved in resolved_quotas(context):
        nodes = resolved.pool.nodes.count
        for kind, count, path in resolved.counts:
            per_node = sum(other.per_node for other in resolved.kinds if other.resource == kind.resource)
            if nodes is not None and count > per_node * nodes:
                most = str(per_node * nodes)
                if path[-1] == "memory":
                    cap = shares.cap_mib(resolved.pool, resolved.card, kind.profile, kind.replicas) or 0
                    most = f"{per_node * nodes * cap}Mi"
                yield Problem(
                    message=f"{count} {kind.resource} exceed pool {resolved.pool.name}: {per_node} on each of {nodes} nodes",
                    hints=(f"write {most} or less: the rest can never be used",),
                    path=path,
                )


@rule("GS607", Severity.WARNING)
def check_shared_budget(context: RuleContext) -> Iterator[Problem]:
    """Pools that share a resource name share one budget, because Kubernetes counts by name."""
    offering: dict[str, list[Pool]] = {}
    for pool in context.intent.pools:
        for resource in dict.fromkeys(name for kind in context.kinds(pool) or () for name in _counted(context, pool, kind)):
            offering.setdefault(resource, []).append(pool)
    budgets: dict[tuple[str, str], list[tuple[Pool, int, Path]]] = {}
    for resolved in resolved_quotas(context):
        for kind, count, _ in resolved.counts:
            entry = (resolved.pool, count, quota_path(resolved.quota))
            for resource in _counted(context, resolved.pool, kind):
                budgets.setdefault((resolved.quota.namespace, resource), []).append(entry)
    for (namespace, resource), entries in budgets.items():
        usable = [pool.name for pool in offering[resource] if not pool.namespaces or namespace in pool.namespaces]
        if len(usable) > 1:
            total = sum(count for _, count, _ in entries)
            yield Problem(
                message=f"{namespace} gets one budget of {total} {resource} for pools {join_first(usable)} together",
                hints=("Kubernetes counts by resource name: only resources of other names have budgets of their own",),
                path=entries[-1][2],
            )


def _counted(context: RuleContext, pool: Pool, kind: ShareKind) -> Iterator[str]:
    """Yield the names by which a quota counts such a device: a claim counts as the name in `limits` that its class has, too."""
    yield from dict.fromkeys(filter(None, (kind.resource, context.named(pool, kind))))


@rule("GS608")
def check_namespace(context: RuleContext) -> Iterator[Problem]:
    """A quota for a name that is not a valid namespace name."""
    for namespace in {quota.namespace: None for quota in context.intent.quotas}:
        if not is_dns_label(namespace):
            yield Problem(
                message=f"invalid namespace name {namespace!r}",
                hints=("write lower-case letters, digits and inner hyphens, at most 63 of them",),
                path=("spec", "quotas", namespace),
                on_key=True,
            )


@rule("GS609")
def check_repeated(context: RuleContext) -> Iterator[Problem]:
    """One resource under two names in one quota."""
    for resolved in resolved_quotas(context):
        seen: dict[str, str] = {}
        for name, _ in resolved.quota.per_resource:
            kind = shares.find(resolved.kinds, name)
            if kind is None:
                continue
            if kind.resource in seen:
                yield Problem(
                    message=f"{name} and {seen[kind.resource]} are the same resource, {kind.resource}",
                    hints=("write it once",),
                    path=(*quota_path(resolved.quota), name),
                )
            seen.setdefault(kind.resource, name)


_UNKEPT = {
    AdmissionMode.AUDIT: "admission.enforce: audit only writes to the audit log",
    AdmissionMode.NONE: "admission.enforce: none creates no policies",
}


@rule("GS611", Severity.WARNING)
def check_kept(context: RuleContext) -> Iterator[Problem]:
    """A pool for some namespaces, without a policy that keeps others out."""
    why = _UNKEPT.get(context.intent.admission.mode)
    for pool in context.intent.pools if why else ():
        if pool.namespaces:
            yield Problem(
                message=f"pool {pool.name} is open to every namespace: {why}",
                hints=("write admission.enforce: deny, or leave the pool's namespaces out",),
                path=pool_path(pool, "namespaces"),
            )


@rule("GS612", Severity.WARNING)
def check_sum_of_namespaces(context: RuleContext) -> Iterator[Problem]:
    """Quotas of several namespaces that add up to more than all pools with the resource have."""
    capacity = _capacity(context)
    budgets: dict[str, Counter[str]] = {}
    last: dict[str, tuple[ResolvedQuota, Path]] = {}
    for resolved in resolved_quotas(context):
        for kind, count, path in resolved.counts:
            budgets.setdefault(kind.resource, Counter())[resolved.quota.namespace] += count
            last[kind.resource] = (resolved, path)
    for resource, by_namespace in budgets.items():
        most, together = capacity.get(resource), by_namespace.total()
        # A single quota that is too large is GS606.
        if most is not None and max(by_namespace.values()) <= most < together:
            namespaces = join_first(list(by_namespace))
            yield Problem(
                message=f"the quotas of {namespaces} add up to {together} {resource}, but the pools have {most}",
                hints=("make them smaller, or accept that a namespace may get less than its quota",),
                path=last[resource][1],
            )


def _capacity(context: RuleContext) -> dict[str, int | None]:
    """Return resource → how many of it all pools have; None if the number of nodes is unknown."""
    capacity: dict[str, int | None] = {}
    for pool in context.intent.pools:
        for kind in context.kinds(pool) or ():
            before, nodes = capacity.get(kind.resource, 0), pool.nodes.count
            capacity[kind.resource] = None if before is None or nodes is None else before + kind.per_node * nodes
    return capacity


@rule("GS613", Severity.WARNING)
def check_platform_namespace(context: RuleContext) -> Iterator[Problem]:
    """A quota on a namespace of the platform, whose own pods request GPUs."""
    first: dict[str, Quota] = {}
    for quota in context.intent.quotas:
        first.setdefault(quota.namespace, quota)
    for namespace, quota in first.items():
        if namespace in context.intent.platform_namespaces:
            yield Problem(
                message=f"{namespace} is a namespace of the platform: the quota also holds its test and validator pods",
                hints=("run tenants in namespaces of their own, and give those the quota",),
                path=quota_path(quota)[:-1],
                on_key=True,
            )
