"""Rules on which pods admission rejects, and to which pools it sends pods: GS620 to GS625."""

from collections.abc import Iterator

from gpushare.bundle.admission import MUTATING_KUBERNETES
from gpushare.core.diagnostics import Severity
from gpushare.core.wording import join_first
from gpushare.intent.types import NvidiaStack, Pool
from gpushare.offering import shares
from gpushare.offering.shares import Offer
from gpushare.rules.rule import Problem, RuleContext, of_pool, pool_path, rule
from gpushare.vendors import VENDORS
from gpushare_node.contract.tenancy import AdmissionMode, AdmissionScope

_NAMESPACES = ("spec", "platform", "namespaces")
_SCOPE = ("spec", "admission", "scope")


@rule("GS620", Severity.WARNING)
def check_open(context: RuleContext) -> Iterator[Problem]:
    """A pool for some namespaces, while pods elsewhere can reach its devices without requesting them."""
    admission = context.intent.admission
    if admission.mode is AdmissionMode.DENY and admission.scope is AdmissionScope.TENANTS:
        for pool in [pool for pool in context.intent.pools if pool.namespaces][:1]:
            yield Problem(
                message=f"pool {pool.name} can be reached past its namespaces: pods elsewhere that ask for no GPU, but are"
                " privileged or mount the host, are warned about and audited, not refused",
                hints=(
                    "write admission: {scope: cluster}, with the namespaces of your agents under platform.namespaces",
                    "or write accept: {GS620: the reason} where no user may create such pods",
                ),
                path=pool_path(pool, "namespaces"),
            )


@rule("GS621", Severity.WARNING)
def check_shut(context: RuleContext) -> Iterator[Problem]:
    """Admission covers the whole cluster, agents of other vendors included."""
    intent = context.intent
    if intent.admission.mode is AdmissionMode.DENY and intent.admission.scope is AdmissionScope.CLUSTER:
        yield Problem(
            message="new pods that are privileged or mount the host are refused in every namespace but"
            f" {join_first(list(intent.platform_namespaces), 5)}: network, storage and monitoring agents among them",
            hints=(
                "list their namespaces under platform.namespaces, or label them gpushare.dev/admission: exempt",
                "if all are listed, write accept: {GS621: the reason}",
            ),
            path=_SCOPE,
        )


@rule("GS622", Severity.WARNING)
def check_foreign(context: RuleContext) -> Iterator[Problem]:
    """An existing plugin, in a namespace that the intent does not list."""
    intent = context.intent
    if intent.platform.namespaces:
        return
    for vendor, one in intent.platform.others.items():
        if one.installs_chart or context.writes(context.stack_path(vendor, "namespace")):
            continue
        at, usual = context.stack_path(vendor, "stack"), VENDORS[vendor].namespace
        written = f"{{{vendor}: {{stack: existing, namespace: {usual}}}}}" if vendor in at else f"{{namespace: {usual}}}"
        whose = VENDORS[vendor].name
        yield Problem(
            message=f"the intent does not name the namespace of {whose}'s programs, so they are expected in {one.namespace}",
            hints=(f"write platform: {written}, with the namespace that kubectl get daemonsets -A shows",),
            path=at,
        )
    if intent.platform.stack is NvidiaStack.EXISTING and intent.platform.namespace is None:
        yield Problem(
            message="the intent does not name the namespace of the installed device plugin, so the node runtime does not know"
            " the programs there, such as a mig-manager that divides GPUs too; admission may refuse their pods",
            hints=("write platform: {namespace: gpu-operator}, with the namespace that kubectl get daemonsets -A shows",),
            path=("spec", "platform", "stack"),
        )


@rule("GS623")
def check_defaults(context: RuleContext) -> Iterator[Problem]:
    """Two default pools for one resource."""
    first: dict[str, Pool] = {}
    for pool in context.intent.pools:
        names = (context.named(pool, kind) for kind in context.kinds(pool) or () if pool.is_default)
        for resource in dict.fromkeys(name for name in names if name):
            other = first.setdefault(resource, pool)
            if other is not pool:
                yield Problem(
                    message=f"pools {other.name} and {pool.name} are both the default for {resource}",
                    hints=("leave default: true in one of them",),
                    path=pool_path(pool, "default"),
                )
                break


@rule("GS624", Severity.WARNING)
def check_default_unused(context: RuleContext) -> Iterator[Problem]:
    """A default pool, although no policy sends pods there."""
    intent = context.intent
    if intent.admission.mode is AdmissionMode.NONE:
        why, hint = "admission.enforce: none creates no policies", "leave default out"
    elif intent.kubernetes is not None and intent.kubernetes < MUTATING_KUBERNETES:
        why = f"Kubernetes {intent.kubernetes[0]}.{intent.kubernetes[1]} has no mutating admission policies, 1.36 has"
        hint = 'write kubernetes: "1.36" once every API server has it; until then pods must choose their pool'
    else:
        yield from _unambiguous(context)
        return
    for pool in intent.pools:
        if pool.is_default:
            yield _default(pool, why, hint)


def _unambiguous(context: RuleContext) -> Iterator[Problem]:
    """Default pools whose resources mean the same in every pool that offers them: admission sends no pod to a pool."""
    offers: dict[str, Offer] = {}
    for pool in context.intent.pools if any(pool.is_default for pool in context.intent.pools) else ():
        card, kinds = context.card(pool), context.kinds(pool)
        if card is None or kinds is None:
            return
        named = ((context.named(pool, kind), kind) for kind in kinds)
        offers[pool.name] = frozenset((name, shares.identity(pool, card, kind)) for name, kind in named if name)
    ambiguous = shares.ambiguous(filter(None, offers.values()))
    for pool in context.intent.pools:
        if pool.is_default and not offers[pool.name]:
            yield _default(pool, "its pods have claims, which name their pool", "leave default out")
        elif pool.is_default and ambiguous.isdisjoint(resource for resource, _ in offers[pool.name]):
            why = "its resources mean the same in every pool, so pods that select no pool may run in any"
            yield _default(pool, why, "leave default out: only pods that ask for an ambiguous resource are sent to a pool")


def _default(pool: Pool, why: str, hint: str) -> Problem:
    return of_pool(pool, f"default of pool {pool.name} has no effect: {why}", hint, "default")


@rule("GS625")
def check_both(context: RuleContext) -> Iterator[Problem]:
    """A namespace that is listed both as the platform's and as a tenant's."""
    intent = context.intent
    for number, namespace in enumerate(intent.platform.namespaces):
        if namespace in intent.tenant_namespaces:
            yield Problem(
                message=f"namespace {namespace} is both the platform's and a tenant's: admission policies would skip its pods",
                hints=("leave it out here, or out of the pools' namespaces and of quotas",),
                path=(*_NAMESPACES, number),
            )
    always = set(intent.platform_namespaces).difference(intent.platform.namespaces)
    for pool in intent.pools:
        for number, namespace in enumerate(pool.namespaces):
            if namespace in always:
                yield Problem(
                    message=f"namespace {namespace} is always the platform's: admission policies would skip its pods",
                    hints=(f"leave it out: run the users of pool {pool.name} in a namespace of their own",),
                    path=pool_path(pool, "namespaces", number),
                )
