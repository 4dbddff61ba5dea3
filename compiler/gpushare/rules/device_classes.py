"""Rules on the device classes of pools of NVIDIA's DRA driver, and their names in `limits`: GS764 to GS766, GS773, GS774.

A claim that Kubernetes makes for a name in `limits` names no capacity, and takes the default of the device.
"""

from collections.abc import Iterator

from gpushare import vendors
from gpushare.bundle.admission import MUTATING_KUBERNETES
from gpushare.core.diagnostics import Finding, Severity
from gpushare.core.wording import join_words
from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import Pool, Requests
from gpushare.offering import claims, modes, shares
from gpushare.offering.shares import ShareKind
from gpushare.rules.backend import DIVIDING, HERE, device_name, served, shares_by
from gpushare.rules.rule import RuleContext, pool_path, product, rule, warn_of_pool
from gpushare_node.contract.policy import DraShares
from gpushare_node.contract.tenancy import AdmissionMode

SIZED_LIMITS = "1.38"
"""The release of Kubernetes that is to let limits ask for a part of a device (KEP-6406)."""

CLASS_LENGTH = 63
"""A pod without a claim asks for `deviceclass.resource.kubernetes.io/<class>`: what follows the slash is no longer."""


@rule("GS764")
def check_limits(context: RuleContext) -> Iterator[Finding]:
    """Limits that get another part of a device than the pool offers."""
    pools, by_count = list(served(context)), shares_by(context) is DraShares.COUNT
    number = claims.division(context.intent).shares
    for pool, card, kinds in pools:
        if pool.requests is Requests.CLAIMS:
            continue
        for kind in kinds:
            message, hint = _other_part(card, kind, number, by_count=by_count), "write requests: claims"
            if not message and kind.shared and (whole := _unshared(pools, card)):
                name, message = context.named(pool, kind), f"also get the GPUs of pool {whole.name}, which are not shared"
                message = f"pods with {name} in their limits {message}"
            if message:
                hint += ", or dra: {shares: memory}" if by_count and not kind.shared else ""
                hint += ", or dra: {shares: count}" if not by_count and kind.profile is None else ""
                path = pool_path(pool, "requests")
                yield Finding(code="GS764", message=message, hints=(hint,), path=path, causes=((*HERE, "dra", "shares"),))
                break


def _other_part(card: Card, kind: ShareKind, number: int, *, by_count: bool) -> str:
    """Return which part limits get in place of the pool's share or device; empty if it is the right one."""
    if kind.shared and (kind.profile or not by_count):
        device = f"instance of {kind.profile.name}" if kind.profile else f"{product(card)}"
        later = f"Kubernetes {SIZED_LIMITS} is to let them ask for a part"
        return f"limits get a whole {device}, which {kind.replicas} pods shall share: {later}"
    if not kind.shared and kind.profile is None and number > 1:
        return f"with shares: count limits get one of {number} shares of a GPU, not a whole {product(card)}"
    return ""


def _unshared(pools: list[tuple[Pool, Card, tuple[ShareKind, ...]]], card: Card) -> Pool | None:
    """Return a pool with whole GPUs, for one container each, that a class for this card selects as well."""
    for pool, other, kinds in pools:
        if _names(card) & _names(other) and any(kind.profile is None and not kind.shared for kind in kinds):
            return pool
    return None


def _names(card: Card) -> set[str]:
    """Return what NVML calls the card, by which a class selects it."""
    return {card.name, *card.name_aliases}


@rule("GS765")
def check_same_devices(context: RuleContext) -> Iterator[Finding]:
    """Pools whose classes select each other's devices."""
    seen: list[tuple[Pool, Card, ShareKind]] = []
    for pool, card, kinds in served(context):
        for kind in kinds:
            other = next((one for one in seen if _is_taken(one, (pool, card, kind))), None)
            if other is not None:
                message = (
                    f"claims of pool {other[0].name} fit devices of pool {pool.name} too: both have {device_name(card, kind)}"
                )
                yield warn_of_pool("GS765", pool, message, _steered(context, pool), "card")
                break
        seen += [(pool, card, kind) for kind in kinds]


def _is_taken(one: tuple[Pool, Card, ShareKind], two: tuple[Pool, Card, ShareKind]) -> bool:
    """Whether claims of one pool fit the other's devices, and are not meant for them."""
    (pool, card, kind), (other, other_card, other_kind) = one, two
    alike = _names(card) & _names(other_card) and _profile(kind) == _profile(other_kind)
    same = shares.identity(*one)[1:] == shares.identity(*two)[1:] and pool.namespaces == other.namespaces
    same = same and modes.of(pool).interval is modes.of(other).interval
    return pool is not other and bool(alike) and not same


def _profile(kind: ShareKind) -> str:
    return kind.profile.name if kind.profile else ""


def _steered(context: RuleContext, pool: Pool) -> str:
    intent, selector = context.intent, f"nodeSelector {{gpushare.dev/pool: {pool.name}}}"
    if intent.admission.mode is AdmissionMode.NONE or (intent.kubernetes or DIVIDING) < MUTATING_KUBERNETES:
        return f"pods must choose their pool, such as {selector}; with Kubernetes 1.36 admission does it for its templates"
    return f"admission sends pods with a pool's templates to its nodes: others must choose it, such as {selector}"


@rule("GS766")
def check_names(context: RuleContext) -> Iterator[Finding]:
    """A name for limits that two classes would have, or a class with a name that is too long."""
    first: dict[str, Pool] = {}
    of_class: dict[str, Pool] = {}
    for pool, _, kinds in served(context):
        alike: dict[str, str] = {}
        for kind in kinds:
            own = kind.resource
            holder = of_class.setdefault(own, pool)
            if holder is not pool:
                yield Finding(
                    code="GS766",
                    message=f"pools {holder.name} and {pool.name} would both have the device class {own}",
                    hints=("write another name for one of the pools",),
                    path=pool_path(pool),
                    on_key=True,
                    causes=(pool_path(holder),),
                )
            if other_profile := alike.get(own):
                yield Finding(
                    code="GS766",
                    message=f"{_profile(kind)} and {other_profile} would both have the device class {own}",
                    hints=("make a pool for each of them",),
                    path=pool_path(pool, "sharing"),
                )
            alike[own] = _profile(kind)
            if len(own) > CLASS_LENGTH:
                most = CLASS_LENGTH - len(own) + len(pool.name)
                yield Finding(
                    code="GS766",
                    message=f"device class {own} has {len(own)} characters; {CLASS_LENGTH} is the limit",
                    hints=(f"write a name of at most {most} characters for the pool",),
                    path=pool_path(pool),
                    on_key=True,
                )
                break
        for name in dict.fromkeys(context.named(pool, kind) for kind in kinds):
            if not name:
                continue
            other = first.setdefault(name, pool)
            if other is not pool:
                yield Finding(
                    code="GS766",
                    message=f"device classes of pools {other.name} and {pool.name} would both have the name {name}, which"
                    " Kubernetes then forgets when either is deleted",
                    hints=("write requests: claims in one of the pools",),
                    path=pool_path(pool, "requests"),
                    causes=(pool_path(other, "requests"),),
                )
                break


@rule("GS773")
def check_former(context: RuleContext) -> Iterator[Finding]:
    """Limits on nodes that may have offered the same name through the device plugin."""
    for pool, _, kinds in served(context):
        names = [name for kind in kinds if (name := context.named(pool, kind))]
        if names:
            message = (
                f"kubelet refuses {join_words(names)} in limits on nodes that offered the name through a device plugin, until"
                " its checkpoint is removed"
            )
            hints = (
                "write requests: claims, or take new nodes for the pool",
                "such a node reports the reason KubeletRemembersPlugin, with the command (Kubernetes issue 141426)",
            )
            path = pool_path(pool, "requests")
            yield Finding(code="GS773", severity=Severity.WARNING, message=message, hints=hints, path=path)


@rule("GS774")
def check_whole_name(context: RuleContext) -> Iterator[Finding]:
    """A name for limits that a class of the driver's own chart has too."""
    for pool, card, kinds in served(context):
        name, driver = vendors.of(card).whole_gpu, vendors.of(card).dra_driver
        if name in {context.named(pool, kind) for kind in kinds}:
            yield Finding(
                code="GS774",
                severity=Severity.WARNING,
                message=f"device class {driver}, which NVIDIA's chart makes, has the name {name} too: limits get a whole GPU by"
                " the newer of two classes, and by neither once one is deleted",
                hints=("write requests: claims", f"or delete device class {driver} before this bundle is installed"),
                path=pool_path(pool, "requests"),
            )
