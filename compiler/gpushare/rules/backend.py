"""Rules on pools that NVIDIA's DRA driver serves: GS760 to GS775.

What the driver does is that of kubernetes-sigs/dra-driver-nvidia-gpu 0.5: `consumableShares` is one value for all its nodes, a
claim that names no capacity takes the default of the device, and one of `limits` can name none.
"""

import re
from collections.abc import Iterator, Mapping

from gpushare import modes, vendors
from gpushare.backends.dra import DRIVER
from gpushare.bundle.admission import MUTATING_KUBERNETES
from gpushare.catalog.cards import Card, MigProfile
from gpushare.core.diagnostics import Finding, Path, Severity
from gpushare.core.units import MIB, is_dns_label, show_bytes
from gpushare.core.wording import join_words, pluralize
from gpushare.intent.types import (
    AdmissionMode,
    Autoscaler,
    Backend,
    CapWord,
    DraShares,
    Partitioner,
    Pool,
    Requests,
    SharePlacement,
    Stack,
)
from gpushare.nodes.clouds import CLOUDS
from gpushare.nodes.selectors import region
from gpushare.rules.card_names import a_card, product
from gpushare.rules.quotas import quota_path, resolved_quotas
from gpushare.rules.rule import Rule, RuleContext, pool_path, warn_of_pool
from gpushare.sharing import caps, claims, shares
from gpushare.sharing.shares import ShareKind

HERE = ("spec", "platform")

CLAIMING, DIVIDING = (1, 34), (1, 36)
"""The releases of Kubernetes in which claims are stable, and from which a device may have several claims or parts and a class a
name for limits (KEP-5075, KEP-4815 and KEP-5004, on by default)."""

SIZED_LIMITS = "1.38"
"""The release of Kubernetes that is to let limits ask for a part of a device (KEP-6406)."""

FIRST_CHART = (0, 5, 0)
"""The first release of the driver with `consumableShares`."""

CLASS_LENGTH = 63
"""A pod without a claim asks for `deviceclass.resource.kubernetes.io/<class>`: what follows the slash is no longer."""

SHAPES = ("gpu", "share")
"""Claims that every pool of whole GPUs has, or would have with another mode."""


def _pools(context: RuleContext) -> Iterator[tuple[Pool, Card]]:
    return ((pool, card) for pool, card in context.pools_with_card() if pool.backend is Backend.DRA)


def _served(context: RuleContext) -> Iterator[tuple[Pool, Card, tuple[ShareKind, ...]]]:
    """Yield the pools whose mode and card DRA has, with their devices; GS760 reports the others."""
    for pool, card in _pools(context):
        if Backend.DRA in modes.of(pool).backends and vendors.of(card).dra_driver:
            yield pool, card, context.kinds(pool) or ()


def _shares(context: RuleContext) -> DraShares:
    return context.intent.platform.of_dra.shares


def _where(context: RuleContext, pool: Pool) -> Path:
    """Return where the pool's back end is written."""
    own = pool_path(pool, "backend")
    return own if context.writes(own) else (*HERE, "backend")


def _device(card: Card, kind: ShareKind) -> str:
    return kind.profile.name if kind.profile else product(card)


def check_served(context: RuleContext) -> Iterator[Finding]:
    """GS760: a card, a mode or a setting that NVIDIA's DRA driver does not have."""
    plugin = "write backend: device-plugin in this pool"
    for pool, card in _pools(context):
        where = _where(context, pool)
        if not vendors.of(card).dra_driver:
            message, path = f"NVIDIA's DRA driver does not serve {a_card(card)} of pool {pool.name}", where
        elif Backend.DRA not in modes.of(pool).backends:
            message = f"there is no {modes.of(pool).mode.value} with DRA"
            path = pool_path(pool, "sharing", "mode")
        elif unknown := _unknown(context, pool, card):
            message, path = unknown, pool_path(pool, "card")
        else:
            continue
        yield Finding(code="GS760", message=message, hints=(plugin,), path=path, causes=(where,))
    for pool, _, _ in _served(context):
        spread = pool_path(pool, "sharing", "placement")
        if context.writes(spread) and pool.sharing.placement is SharePlacement.SPREAD:
            message = "the scheduler gives claims one GPU after the other, and spreads none"
            yield Finding(code="GS760", message=message, hints=(f"leave placement out, or {plugin}",), path=spread)
    first = next(_served(context), None)
    if first is not None and context.intent.platform.partitioner is Partitioner.MIG_MANAGER:
        yield Finding(
            code="GS760",
            message="mig-manager does not stop NVIDIA's DRA driver while it divides GPUs: pods would run on other instances",
            hints=(f"write partitioner: gpushare, or backend: device-plugin in pool {first[0].name}",),
            path=(*HERE, "partitioner"),
            causes=(_where(context, first[0]),),
        )


def _unknown(context: RuleContext, pool: Pool, card: Card) -> str:
    """Return what claims of the pool's shares must name and the catalogue lacks; empty if it lacks nothing."""
    for kind in context.kinds(pool) or ():
        if not kind.shared:
            continue
        if isinstance(kind.profile, MigProfile) and (lacks := claims.missing(kind.profile)):
            parts = join_words(lacks)
            return f"claims ask for a part of all that an instance has, and of {kind.profile.name} the {parts} are not known"
        if kind.profile is None and kind.memory_mib is None and _shares(context) is DraShares.MEMORY:
            return f"claims ask for a part of the memory, and that of {product(card)} is not known"
    return ""


def check_kubernetes(context: RuleContext) -> Iterator[Finding]:
    """GS761: a Kubernetes version that lacks what the pool's claims need."""
    version = context.intent.kubernetes
    needs = [(*_needed(pool, kinds), pool) for pool, _, kinds in _served(context)]
    if version is None or not needs:
        return
    needed, what, pool = max(needs, key=lambda need: need[0])
    if version >= needed:
        return
    written, dotted = ("spec", "kubernetes"), f"{needed[0]}.{needed[1]}"
    yield Finding(
        code="GS761",
        message=f"{what} of pool {pool.name} need Kubernetes {dotted}, and the bundle must install on"
        f" {version[0]}.{version[1]}",
        hints=(f'write kubernetes: "{dotted}" once every API server has it, or backend: device-plugin',),
        path=written if context.writes(written) else _where(context, pool),
        causes=(written, _where(context, pool)),
    )


def _needed(pool: Pool, kinds: tuple[ShareKind, ...]) -> tuple[tuple[int, int], str]:
    if modes.of(pool).is_on_demand:
        return DIVIDING, "instances on demand"
    if any(kind.shared for kind in kinds):
        return DIVIDING, "shares"
    return (CLAIMING, "claims") if pool.requests is Requests.CLAIMS else (DIVIDING, "the limits")


def check_driver(context: RuleContext) -> Iterator[Finding]:
    """GS762: no settings of NVIDIA's DRA driver, or some with which it does not run."""
    platform, first = context.intent.platform, next(_pools(context), None)
    if first is None:
        return
    if platform.dra is None:
        yield Finding(
            code="GS762",
            message=f"pool {first[0].name} needs NVIDIA's DRA driver, and the intent does not say who installs it",
            hints=("write platform: {dra: {via: chart}}, or via: existing if it runs already",),
            path=_where(context, first[0]),
            causes=((*HERE, "dra"),),
        )
        return
    version = platform.dra.version
    if version is not None:
        found = re.match(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(-[0-9A-Za-z.-]+)?\Z", version)
        message = f"invalid version {version!r} of dra-driver-nvidia-gpu"
        if found and tuple(map(int, found.groups()[:3])) < FIRST_CHART:
            message = f"dra-driver-nvidia-gpu {version} is too old: gpushare needs 0.5.0 or newer"
        elif found:
            message = ""
        if message:
            path = (*HERE, "dra", "version")
            yield Finding(code="GS762", message=message, hints=("write it as the chart does: 0.5.0",), path=path)
    root = _operator_root(context)
    if root and platform.dra.driver_root == "/":
        yield Finding(
            code="GS762",
            message=f"the operator installs the GPU driver into {root}, and NVIDIA's DRA driver would look for it in /",
            hints=(f"write dra: {{driverRoot: {root}}}",),
            path=(*HERE, "dra"),
            causes=((*HERE, "driver"),),
        )


def _operator_root(context: RuleContext) -> str:
    """Return where the operator installs the GPU driver; empty if it installs none."""
    platform = context.intent.platform
    if platform.driver is None or platform.stack is not Stack.GPU_OPERATOR:
        return ""
    paths = platform.values.get("hostPaths")
    own = paths.get("driverInstallDir") if isinstance(paths, Mapping) else None
    return own if isinstance(own, str) and own else "/run/nvidia/driver"


def check_count(context: RuleContext) -> Iterator[Finding]:
    """GS763: different numbers of shares, although the driver counts to one for all nodes."""
    if _shares(context) is not DraShares.COUNT:
        return
    first: tuple[Pool, int] | None = None
    for pool, _, kinds in _served(context):
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


def check_limits(context: RuleContext) -> Iterator[Finding]:
    """GS764: limits that get another part of a device than the pool offers."""
    served, by_count = list(_served(context)), _shares(context) is DraShares.COUNT
    number = claims.division(context.intent).shares
    for pool, card, kinds in served:
        if pool.requests is Requests.CLAIMS:
            continue
        for kind in kinds:
            message, hint = _other_part(card, kind, number, by_count=by_count), "write requests: claims"
            if not message and kind.shared and (whole := _unshared(served, card)):
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


def _unshared(served: list[tuple[Pool, Card, tuple[ShareKind, ...]]], card: Card) -> Pool | None:
    """Return a pool with whole GPUs, for one container each, that a class for this card selects as well."""
    for pool, other, kinds in served:
        if _names(card) & _names(other) and any(kind.profile is None and not kind.shared for kind in kinds):
            return pool
    return None


def _names(card: Card) -> set[str]:
    """Return what NVML calls the card, by which a class selects it."""
    return {card.name, *card.name_aliases}


def check_same_devices(context: RuleContext) -> Iterator[Finding]:
    """GS765: pools whose classes select each other's devices."""
    seen: list[tuple[Pool, Card, ShareKind]] = []
    for pool, card, kinds in _served(context):
        for kind in kinds:
            other = next((one for one in seen if _is_taken(one, (pool, card, kind))), None)
            if other is not None:
                message = f"claims of pool {other[0].name} fit devices of pool {pool.name} too: both have {_device(card, kind)}"
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


def check_names(context: RuleContext) -> Iterator[Finding]:
    """GS766: a name for limits that two classes would have, or a class with a name that is too long."""
    first: dict[str, Pool] = {}
    of_class: dict[str, Pool] = {}
    for pool, _, kinds in _served(context):
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


def check_quotas(context: RuleContext) -> Iterator[Finding]:
    """GS767: a number of shares of a pool whose claims have several sizes."""
    for resolved in resolved_quotas(context):
        pool, quota = resolved.pool, resolved.quota
        if pool.backend is Backend.DRA and pool.sizes and quota.shares:
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


def check_autoscaled(context: RuleContext) -> Iterator[Finding]:
    """GS768: nodes that no autoscaler adds for claims."""
    for pool, _ in _pools(context):
        path = pool_path(pool, "nodes", "autoscaler")
        if pool.autoscaler is Autoscaler.KARPENTER:
            message = "Karpenter adds no node for pods with claims"
            hint = "leave autoscaler out, or write backend: device-plugin in this pool"
        elif pool.autoscaler is not None and pool.nodes.count == 0:
            message = "Cluster Autoscaler does not know which devices a node of an empty group would have, and adds none"
            hint = "keep a node: write expected: 1 or more; or write backend: device-plugin in this pool"
            path = pool_path(pool, "nodes", "expected")
        else:
            continue
        yield Finding(code="GS768", message=message, hints=(hint,), path=path, causes=(_where(context, pool),))


def check_oversubscription(context: RuleContext) -> Iterator[Finding]:
    """GS769: caps that may add up to more than the device, although claims of memory never do."""
    if _shares(context) is not DraShares.MEMORY:
        return
    for pool, _, kinds in _served(context):
        sized = any(kind.shared and isinstance(caps.wanted_cap(pool, kind.profile), int) for kind in kinds)
        if sized and pool.memory.oversubscribe_percent > 100:  # an even cap with it is GS508
            yield Finding(
                code="GS769",
                message=f"with shares: memory claims of pool {pool.name} never add up to more than a device has",
                hints=("leave oversubscribe out, or write dra: {shares: count}",),
                path=pool_path(pool, "memory", "oversubscribe"),
                causes=((*HERE, "dra", "shares"),),
            )


def check_sizes(context: RuleContext) -> Iterator[Finding]:
    """GS770: sizes that the pool cannot have."""
    for pool, card in context.pools_with_card():
        kinds = context.kinds(pool)
        if not pool.sizes or kinds is None:
            continue
        shared = next((kind for kind in kinds if kind.shared and kind.profile is None), None)
        if pool.backend is not Backend.DRA:
            why, hint = f"pool {pool.name} has the device plugin, which offers shares of one size", "write backend: dra"
        elif Backend.DRA not in modes.of(pool).backends:
            continue
        elif shared is None:
            why, hint = f"pool {pool.name} does not share whole GPUs", "write mode: time-slicing"
        elif _shares(context) is DraShares.COUNT:
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


def check_cap(context: RuleContext) -> Iterator[Finding]:
    """GS771: a cap with which claims ask for other memory than they may use."""
    if _shares(context) is not DraShares.MEMORY:
        return
    for pool, card, kinds in _served(context):
        for kind in kinds:
            wanted, memory = caps.wanted_cap(pool, kind.profile), kind.memory_mib
            if not kind.shared or memory is None or wanted is CapWord.EVEN:
                continue
            even, asked = caps.even_mib(pool, card, kind.profile, kind.replicas), memory // kind.replicas
            cap = caps.cap_mib(pool, card, kind.profile, kind.replicas)
            claim = f"a claim of pool {pool.name} asks for {asked}Mi of {_device(card, kind)}"
            if cap is None:
                message, hint = f"{claim}, and without a cap its containers may use all", "write cap: even"
            elif even is not None and cap < even:
                message = f"{claim}, and its containers may use {cap}Mi: the rest is not used"
                hint = "write cap: even, or more replicas"
            else:
                continue
            steps = (kind.profile.name,) if isinstance(pool.memory.cap, tuple) and kind.profile else ()
            yield warn_of_pool("GS771", pool, message, hint, "memory", "cap", *steps)


def check_clouds(context: RuleContext) -> Iterator[Finding]:
    """GS772: nodes of a cloud that does not support what the pool does."""
    for pool, _, kinds in _served(context):
        required = region(pool.nodes) or {}
        is_divided = any(kind.shared or kind.profile for kind in kinds)
        for limit in (limit for cloud in CLOUDS for limit in cloud.dra_limits):
            values = [required[key] for key in required if key.startswith(limit.label) and not required[key].absent]
            is_meant = any(limit.value is None or (not one.others and one.listed == {limit.value}) for one in values)
            if is_meant and (is_divided or not limit.only_divided):
                hint = "try it on a node, or write backend: device-plugin in this pool"
                yield warn_of_pool("GS772", pool, f"pool {pool.name}: {limit.why}", hint, "nodes")
                break


def check_former(context: RuleContext) -> Iterator[Finding]:
    """GS773: limits on nodes that may have offered the same name through the device plugin."""
    for pool, _, kinds in _served(context):
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


def check_whole_name(context: RuleContext) -> Iterator[Finding]:
    """GS774: a name for limits that a class of the driver's own chart has too."""
    for pool, card, kinds in _served(context):
        name = vendors.of(card).whole_gpu
        if name in {context.named(pool, kind) for kind in kinds}:
            yield Finding(
                code="GS774",
                severity=Severity.WARNING,
                message=f"device class {DRIVER}, which NVIDIA's chart makes, has the name {name} too: limits get a whole GPU by"
                " the newer of two classes, and by neither once one is deleted",
                hints=("write requests: claims", f"or delete device class {DRIVER} before this bundle is installed"),
                path=pool_path(pool, "requests"),
            )


def check_interval(context: RuleContext) -> Iterator[Finding]:
    """GS775: an interval that nothing sets, and GPUs that the driver cannot reset once it sets intervals."""
    setting = [pool for pool, _, _ in _served(context) if modes.of(pool).interval]
    for pool, card in context.pools_with_card():
        path = pool_path(pool, "sharing", "interval")
        if not context.writes(path):
            if setting and pool.backend is Backend.DRA and not card.has_intervals:
                yield Finding(
                    code="GS775",
                    message=f"with the interval of pool {setting[0].name} no claim on {a_card(card)} of pool {pool.name} ends:"
                    " the driver then resets the interval of every GPU, and this one has none",
                    hints=(f"leave interval out in pool {setting[0].name}, or write backend: device-plugin in this pool",),
                    path=pool_path(pool, "card"),
                    causes=(pool_path(setting[0], "sharing", "interval"),),
                )
            continue
        if pool.backend is not Backend.DRA:
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


RULES = (
    Rule(code="GS760", check=check_served),
    Rule(code="GS761", check=check_kubernetes),
    Rule(code="GS762", check=check_driver),
    Rule(code="GS763", check=check_count),
    Rule(code="GS764", check=check_limits),
    Rule(code="GS765", check=check_same_devices),
    Rule(code="GS766", check=check_names),
    Rule(code="GS767", check=check_quotas),
    Rule(code="GS768", check=check_autoscaled),
    Rule(code="GS769", check=check_oversubscription),
    Rule(code="GS770", check=check_sizes),
    Rule(code="GS771", check=check_cap),
    Rule(code="GS772", check=check_clouds),
    Rule(code="GS773", check=check_former),
    Rule(code="GS774", check=check_whole_name),
    Rule(code="GS775", check=check_interval),
)
