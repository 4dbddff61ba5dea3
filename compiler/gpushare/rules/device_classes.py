"""Rules on what claims of NVIDIA's DRA driver ask for: GS763 to GS767, GS769 to GS771, GS773 to GS775.

They are on the device classes of pools and their names in `limits`, on the parts of a device, and on turns. A claim that
Kubernetes makes for a name in `limits` names no capacity, and takes the default of the device. `consumableShares` is one value
for all nodes of the driver.
"""

from collections.abc import Iterator

from gpushare import vendors
from gpushare.bundle.admission import MUTATING_KUBERNETES
from gpushare.core.diagnostics import Severity
from gpushare.core.units import MIB, is_dns_label, show_bytes
from gpushare.core.wording import join_words, pluralize
from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import CapWord, Pool, Requests
from gpushare.offering import claims, modes, shares
from gpushare.offering.shares import ShareKind
from gpushare.rules.backend import DIVIDING, HERE, device_name, served, shares_by
from gpushare.rules.quotas import quota_path, resolved_quotas
from gpushare.rules.rule import Problem, RuleContext, a_card, of_pool, pool_path, product, rule
from gpushare_node.contract.policy import DraShares
from gpushare_node.contract.tenancy import AdmissionMode

SIZED_LIMITS = "1.38"
"""The release of Kubernetes that is to let limits ask for a part of a device (KEP-6406)."""

CLASS_LENGTH = 63
"""A pod without a claim asks for `deviceclass.resource.kubernetes.io/<class>`: what follows the slash is no longer."""


@rule("GS764")
def check_limits(context: RuleContext) -> Iterator[Problem]:
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
                yield Problem(message=message, hints=(hint,), path=path, causes=((*HERE, "dra", "shares"),))
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


@rule("GS765", Severity.WARNING)
def check_same_devices(context: RuleContext) -> Iterator[Problem]:
    """Pools whose classes select each other's devices."""
    seen: list[tuple[Pool, Card, ShareKind]] = []
    for pool, card, kinds in served(context):
        for kind in kinds:
            other = next((one for one in seen if _is_taken(one, (pool, card, kind))), None)
            if other is not None:
                message = (
                    f"claims of pool {other[0].name} fit devices of pool {pool.name} too: both have {device_name(card, kind)}"
                )
                yield of_pool(pool, message, _steered(context, pool), "card")
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
def check_names(context: RuleContext) -> Iterator[Problem]:
    """A name for limits that two classes would have, or a class with a name that is too long."""
    first: dict[str, Pool] = {}
    of_class: dict[str, Pool] = {}
    for pool, _, kinds in served(context):
        alike: dict[str, str] = {}
        for kind in kinds:
            own = kind.resource
            holder = of_class.setdefault(own, pool)
            if holder is not pool:
                yield Problem(
                    message=f"pools {holder.name} and {pool.name} would both have the device class {own}",
                    hints=("write another name for one of the pools",),
                    path=pool_path(pool),
                    on_key=True,
                    causes=(pool_path(holder),),
                )
            if other_profile := alike.get(own):
                yield Problem(
                    message=f"{_profile(kind)} and {other_profile} would both have the device class {own}",
                    hints=("make a pool for each of them",),
                    path=pool_path(pool, "sharing"),
                )
            alike[own] = _profile(kind)
            if len(own) > CLASS_LENGTH:
                most = CLASS_LENGTH - len(own) + len(pool.name)
                yield Problem(
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
                yield Problem(
                    message=f"device classes of pools {other.name} and {pool.name} would both have the name {name}, which"
                    " Kubernetes then forgets when either is deleted",
                    hints=("write requests: claims in one of the pools",),
                    path=pool_path(pool, "requests"),
                    causes=(pool_path(other, "requests"),),
                )
                break


@rule("GS773", Severity.WARNING)
def check_former(context: RuleContext) -> Iterator[Problem]:
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
            yield Problem(message=message, hints=hints, path=path)


@rule("GS774", Severity.WARNING)
def check_whole_name(context: RuleContext) -> Iterator[Problem]:
    """A name for limits that a class of the driver's own chart has too."""
    for pool, card, kinds in served(context):
        name, driver = vendors.of(card).whole_gpu, vendors.of(card).dra_driver
        if name in {context.named(pool, kind) for kind in kinds}:
            yield Problem(
                message=f"device class {driver}, which NVIDIA's chart makes, has the name {name} too: limits get a whole GPU by"
                " the newer of two classes, and by neither once one is deleted",
                hints=("write requests: claims", f"or delete device class {driver} before this bundle is installed"),
                path=pool_path(pool, "requests"),
            )


SHAPES = ("gpu", "share")
"""Claims that every pool of whole GPUs has, or would have with another mode."""


@rule("GS763")
def check_count(context: RuleContext) -> Iterator[Problem]:
    """Different numbers of shares, although the driver counts to one for all nodes."""
    if shares_by(context) is not DraShares.COUNT:
        return
    first: tuple[Pool, int] | None = None
    for pool, _, kinds in served(context):
        for kind in kinds:
            if not kind.shared:
                continue
            first = first or (pool, kind.replicas)
            if kind.replicas != first[1]:
                yield Problem(
                    message=f"with shares: count every device has as many shares, {first[1]} as in pool {first[0].name}, not"
                    f" {kind.replicas}",
                    hints=(f"write replicas: {first[1]}, or dra: {{shares: memory}}",),
                    path=pool_path(pool, "sharing", "replicas"),
                    causes=((*HERE, "dra", "shares"), pool_path(first[0], "sharing", "replicas")),
                )
                break


@rule("GS767", Severity.WARNING)
def check_quotas(context: RuleContext) -> Iterator[Problem]:
    """A number of shares of a pool whose claims have several sizes."""
    for resolved in resolved_quotas(context):
        pool, quota = resolved.pool, resolved.quota
        if pool.backend.has_claims and pool.sizes and quota.shares:
            name, size = max(pool.sizes, key=lambda one: one[1])
            yield Problem(
                message=f"a quota counts claims of any size: {pluralize(quota.shares, 'claim')} of size {name} of pool"
                f" {pool.name} hold {show_bytes(size * quota.shares)}",
                hints=("make a pool for each size, or accept that a namespace may hold so much",),
                path=quota_path(quota),
                causes=(pool_path(pool, "sizes"),),
            )


@rule("GS769")
def check_oversubscription(context: RuleContext) -> Iterator[Problem]:
    """Caps that may add up to more than the device, although claims of memory never do."""
    if shares_by(context) is not DraShares.MEMORY:
        return
    for pool, _, kinds in served(context):
        sized = any(kind.shared and isinstance(shares.wanted_cap(pool, kind.profile), int) for kind in kinds)
        if sized and pool.memory.oversubscribe_percent > 100:  # an even cap with it is GS508
            yield Problem(
                message=f"with shares: memory claims of pool {pool.name} never add up to more than a device has",
                hints=("leave oversubscribe out, or write dra: {shares: count}",),
                path=pool_path(pool, "memory", "oversubscribe"),
                causes=((*HERE, "dra", "shares"),),
            )


@rule("GS770")
def check_sizes(context: RuleContext) -> Iterator[Problem]:
    """Sizes that the pool cannot have."""
    for pool, card in context.pools_with_card():
        kinds = context.kinds(pool)
        if not pool.sizes or kinds is None:
            continue
        shared = next((kind for kind in kinds if kind.shared and kind.profile is None), None)
        if not pool.backend.has_claims:
            why, hint = f"pool {pool.name} has the device plugin, which offers shares of one size", "write backend: dra"
        elif not modes.of(pool).takes_claims:
            continue
        elif shared is None:
            why, hint = f"pool {pool.name} does not share whole GPUs", "write mode: time-slicing"
        elif shares_by(context) is DraShares.COUNT:
            why, hint = "with shares: count claims do not ask for memory", "write dra: {shares: memory}"
        else:
            yield from _wrong_sizes(pool, card, shared)
            continue
        yield Problem(
            message=f"sizes are claims for a part of a GPU's memory: {why}",
            hints=(f"{hint}, or leave sizes out",),
            path=pool_path(pool, "sizes"),
            on_key=True,
        )


def _wrong_sizes(pool: Pool, card: Card, kind: ShareKind) -> Iterator[Problem]:
    name_hint = "write another name of lower-case letters, digits and inner hyphens, such as large"
    for name, size in pool.sizes:
        path = pool_path(pool, "sizes", name)
        if name in SHAPES:
            message = f"the pool has a claim named {name} already"
            yield Problem(message=message, hints=(name_hint,), path=path, on_key=True)
        elif not is_dns_label(name):
            message = f"invalid name of a size {name!r}"
            yield Problem(message=message, hints=(name_hint,), path=path, on_key=True)
        elif wrong := _wrong_size(pool, card, kind, name, size):
            yield Problem(message=wrong[0], hints=(wrong[1],), path=path)


def _wrong_size(pool: Pool, card: Card, kind: ShareKind, name: str, size: int) -> tuple[str, str] | None:
    """Return what is wrong with a size and what to write; None if nothing is."""
    least = _least_mib(pool, card, kind)
    if size < MIB:
        return f"a size of {size} bytes is less than 1Mi", f"a bare number counts bytes; for MiB write {size}Mi"
    if kind.memory_mib and size > kind.memory_mib * MIB:
        return f"size {name} is more than the {kind.memory_mib}Mi of {product(card)}", f"write {kind.memory_mib}Mi or less"
    if size < least * MIB:
        return f"a claim of size {name} would have no usable memory", f"write {least}Mi or more"
    return None


def _least_mib(pool: Pool, card: Card, kind: ShareKind) -> int:
    """Return the smallest claim that may use one MiB; 0 without a cap. A claim of all memory may use the cap of every share."""
    cap = shares.cap_mib(pool, card, kind.profile, kind.replicas)
    return -(-kind.memory_mib // (cap * kind.replicas)) if cap and kind.memory_mib else 0


@rule("GS771", Severity.WARNING)
def check_cap(context: RuleContext) -> Iterator[Problem]:
    """A cap with which claims ask for other memory than they may use."""
    if shares_by(context) is not DraShares.MEMORY:
        return
    for pool, card, kinds in served(context):
        for kind in kinds:
            wanted, memory = shares.wanted_cap(pool, kind.profile), kind.memory_mib
            if not kind.shared or memory is None or wanted is CapWord.EVEN:
                continue
            even, asked = shares.even_mib(pool, card, kind.profile, kind.replicas), memory // kind.replicas
            cap = shares.cap_mib(pool, card, kind.profile, kind.replicas)
            claim = f"a claim of pool {pool.name} asks for {asked}Mi of {device_name(card, kind)}"
            if cap is None:
                message, hint = f"{claim}, and without a cap its containers may use all", "write cap: even"
            elif even is not None and cap < even:
                message = f"{claim}, and its containers may use {cap}Mi: the rest is not used"
                hint = "write cap: even, or more replicas"
            else:
                continue
            steps = (kind.profile.name,) if isinstance(pool.memory.cap, tuple) and kind.profile else ()
            yield of_pool(pool, message, hint, "memory", "cap", *steps)


@rule("GS775")
def check_interval(context: RuleContext) -> Iterator[Problem]:
    """An interval that nothing sets, and GPUs that the driver cannot reset once it sets intervals."""
    setting = [pool for pool, _, _ in served(context) if modes.of(pool).interval]
    for pool, card in context.pools_with_card():
        path = pool_path(pool, "sharing", "interval")
        if not context.writes(path):
            if setting and pool.backend.has_claims and not card.has_intervals:
                yield Problem(
                    message=f"with the interval of pool {setting[0].name} no claim on {a_card(card)} of pool {pool.name} ends:"
                    " the driver then resets the interval of every GPU, and this one has none",
                    hints=(
                        f"leave interval out in pool {setting[0].name}",
                        "or write backend: device-plugin in this pool, and the interval when its last node has left the driver",
                    ),
                    path=pool_path(pool, "card"),
                    causes=(pool_path(setting[0], "sharing", "interval"),),
                )
            continue
        if not pool.backend.has_claims:
            why, hint = "the device plugin sets no interval", "write backend: dra, or leave interval out"
        elif modes.of(pool).is_partitioned:
            why, hint = (
                "an interval is set on whole GPUs, not on MIG instances",
                "write mode: time-slicing, or leave interval out",
            )
        elif not card.has_intervals:
            why, hint = f"the interval of {a_card(card)} cannot be set", "leave interval out"
        else:
            continue
        yield Problem(message=f"pool {pool.name}: {why}", hints=(hint,), path=path, on_key=True)
