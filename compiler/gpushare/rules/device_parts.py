"""Rules on the parts of a device that claims of NVIDIA's DRA driver ask for, and on turns: GS763, GS767, GS769 to GS771, GS775.

`consumableShares` is one value for all nodes of the driver.
"""

from collections.abc import Iterator

from gpushare.core.diagnostics import Finding, Severity
from gpushare.core.units import MIB, is_dns_label, show_bytes
from gpushare.core.wording import pluralize
from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import CapWord, Pool
from gpushare.offering import caps, modes
from gpushare.offering.shares import ShareKind
from gpushare.rules.backend import HERE, device_name, served, shares_by
from gpushare.rules.quotas import quota_path, resolved_quotas
from gpushare.rules.rule import RuleContext, a_card, pool_path, product, rule, warn_of_pool
from gpushare_node.contract.policy import DraShares

SHAPES = ("gpu", "share")
"""Claims that every pool of whole GPUs has, or would have with another mode."""


@rule("GS763")
def check_count(context: RuleContext) -> Iterator[Finding]:
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
                yield Finding(
                    code="GS763",
                    message=f"with shares: count every device has as many shares, {first[1]} as in pool {first[0].name}, not"
                    f" {kind.replicas}",
                    hints=(f"write replicas: {first[1]}, or dra: {{shares: memory}}",),
                    path=pool_path(pool, "sharing", "replicas"),
                    causes=((*HERE, "dra", "shares"), pool_path(first[0], "sharing", "replicas")),
                )
                break


@rule("GS767")
def check_quotas(context: RuleContext) -> Iterator[Finding]:
    """A number of shares of a pool whose claims have several sizes."""
    for resolved in resolved_quotas(context):
        pool, quota = resolved.pool, resolved.quota
        if pool.backend.has_claims and pool.sizes and quota.shares:
            name, size = max(pool.sizes, key=lambda one: one[1])
            yield Finding(
                code="GS767",
                severity=Severity.WARNING,
                message=f"a quota counts claims of any size: {pluralize(quota.shares, 'claim')} of size {name} of pool"
                f" {pool.name} hold {show_bytes(size * quota.shares)}",
                hints=("make a pool for each size, or accept that a namespace may hold so much",),
                path=quota_path(quota),
                causes=(pool_path(pool, "sizes"),),
            )


@rule("GS769")
def check_oversubscription(context: RuleContext) -> Iterator[Finding]:
    """Caps that may add up to more than the device, although claims of memory never do."""
    if shares_by(context) is not DraShares.MEMORY:
        return
    for pool, _, kinds in served(context):
        sized = any(kind.shared and isinstance(caps.wanted_cap(pool, kind.profile), int) for kind in kinds)
        if sized and pool.memory.oversubscribe_percent > 100:  # an even cap with it is GS508
            yield Finding(
                code="GS769",
                message=f"with shares: memory claims of pool {pool.name} never add up to more than a device has",
                hints=("leave oversubscribe out, or write dra: {shares: count}",),
                path=pool_path(pool, "memory", "oversubscribe"),
                causes=((*HERE, "dra", "shares"),),
            )


@rule("GS770")
def check_sizes(context: RuleContext) -> Iterator[Finding]:
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
        yield Finding(
            code="GS770",
            message=f"sizes are claims for a part of a GPU's memory: {why}",
            hints=(f"{hint}, or leave sizes out",),
            path=pool_path(pool, "sizes"),
            on_key=True,
        )


def _wrong_sizes(pool: Pool, card: Card, kind: ShareKind) -> Iterator[Finding]:
    name_hint = "write another name of lower-case letters, digits and inner hyphens, such as large"
    for name, size in pool.sizes:
        path = pool_path(pool, "sizes", name)
        if name in SHAPES:
            message = f"the pool has a claim named {name} already"
            yield Finding(code="GS770", message=message, hints=(name_hint,), path=path, on_key=True)
        elif not is_dns_label(name):
            message = f"invalid name of a size {name!r}"
            yield Finding(code="GS770", message=message, hints=(name_hint,), path=path, on_key=True)
        elif wrong := _wrong_size(pool, card, kind, name, size):
            yield Finding(code="GS770", message=wrong[0], hints=(wrong[1],), path=path)


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
    cap = caps.cap_mib(pool, card, kind.profile, kind.replicas)
    return -(-kind.memory_mib // (cap * kind.replicas)) if cap and kind.memory_mib else 0


@rule("GS771")
def check_cap(context: RuleContext) -> Iterator[Finding]:
    """A cap with which claims ask for other memory than they may use."""
    if shares_by(context) is not DraShares.MEMORY:
        return
    for pool, card, kinds in served(context):
        for kind in kinds:
            wanted, memory = caps.wanted_cap(pool, kind.profile), kind.memory_mib
            if not kind.shared or memory is None or wanted is CapWord.EVEN:
                continue
            even, asked = caps.even_mib(pool, card, kind.profile, kind.replicas), memory // kind.replicas
            cap = caps.cap_mib(pool, card, kind.profile, kind.replicas)
            claim = f"a claim of pool {pool.name} asks for {asked}Mi of {device_name(card, kind)}"
            if cap is None:
                message, hint = f"{claim}, and without a cap its containers may use all", "write cap: even"
            elif even is not None and cap < even:
                message = f"{claim}, and its containers may use {cap}Mi: the rest is not used"
                hint = "write cap: even, or more replicas"
            else:
                continue
            steps = (kind.profile.name,) if isinstance(pool.memory.cap, tuple) and kind.profile else ()
            yield warn_of_pool("GS771", pool, message, hint, "memory", "cap", *steps)


@rule("GS775")
def check_interval(context: RuleContext) -> Iterator[Finding]:
    """An interval that nothing sets, and GPUs that the driver cannot reset once it sets intervals."""
    setting = [pool for pool, _, _ in served(context) if modes.of(pool).interval]
    for pool, card in context.pools_with_card():
        path = pool_path(pool, "sharing", "interval")
        if not context.writes(path):
            if setting and pool.backend.has_claims and not card.has_intervals:
                yield Finding(
                    code="GS775",
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
        yield Finding(code="GS775", message=f"pool {pool.name}: {why}", hints=(hint,), path=path, on_key=True)
