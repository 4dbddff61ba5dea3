"""Rules on which namespaces are kept out of which pools: GS611 to GS613."""

from collections import Counter
from collections.abc import Iterator

from gpushare.core.diagnostics import Finding, Path, Severity
from gpushare.core.wording import join_first
from gpushare.intent.types import AdmissionMode, Quota
from gpushare.rules.quotas import ResolvedQuota, quota_path, resolved_quotas
from gpushare.rules.rule import Rule, RuleContext, pool_path

_UNKEPT = {
    AdmissionMode.AUDIT: "admission.enforce: audit only writes to the audit log",
    AdmissionMode.NONE: "admission.enforce: none creates no policies",
}


def check_kept(context: RuleContext) -> Iterator[Finding]:
    """GS611: a pool for some namespaces, without a policy that keeps others out."""
    why = _UNKEPT.get(context.intent.admission.mode)
    for pool in context.intent.pools if why else ():
        if pool.namespaces:
            yield Finding(
                code="GS611",
                severity=Severity.WARNING,
                message=f"pool {pool.name} is open to every namespace: {why}",
                hints=("write admission.enforce: deny, or leave the pool's namespaces out",),
                path=pool_path(pool, "namespaces"),
            )


def check_sum(context: RuleContext) -> Iterator[Finding]:
    """GS612: quotas of several namespaces that add up to more than all pools with the resource have."""
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
            yield Finding(
                code="GS612",
                severity=Severity.WARNING,
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


def check_platform(context: RuleContext) -> Iterator[Finding]:
    """GS613: a quota on a namespace of the platform, whose own pods request GPUs."""
    first: dict[str, Quota] = {}
    for quota in context.intent.quotas:
        first.setdefault(quota.namespace, quota)
    for namespace, quota in first.items():
        if namespace in context.intent.platform_namespaces:
            yield Finding(
                code="GS613",
                severity=Severity.WARNING,
                message=f"{namespace} is a namespace of the platform: the quota also holds its test and validator pods",
                hints=("run tenants in namespaces of their own, and give those the quota",),
                path=quota_path(quota)[:-1],
                on_key=True,
            )


RULES = (
    Rule(code="GS611", check=check_kept),
    Rule(code="GS612", check=check_sum),
    Rule(code="GS613", check=check_platform),
)
