"""Rules on what pools of NVIDIA's DRA driver need of it, of the cluster and of its cloud: GS760 to GS762, GS768, GS772.

What the driver does is that of kubernetes-sigs/dra-driver-nvidia-gpu 0.5, here and in `device_classes`.
"""

import re
from collections.abc import Iterator, Mapping

from gpushare import vendors
from gpushare.core.diagnostics import Path, Severity
from gpushare.core.wording import join_words
from gpushare.facts.catalog.cards import Card, MigProfile
from gpushare.facts.nodes.clouds import CLOUDS
from gpushare.facts.nodes.selectors import region_of
from gpushare.intent.types import Autoscaler, NvidiaStack, Pool, Requests, SharePlacement
from gpushare.offering import claims, modes
from gpushare.offering.shares import ShareKind
from gpushare.rules.rule import Problem, RuleContext, a_card, of_pool, pool_path, product, rule
from gpushare_node.contract.policy import DraShares, Partitioner

HERE = ("spec", "platform")

CLAIMING, DIVIDING = (1, 34), (1, 36)
"""The releases of Kubernetes in which claims are stable, and from which a device may have several claims or parts and a class a
name for limits (KEP-5075, KEP-4815 and KEP-5004, on by default)."""

FIRST_CHART = (0, 5, 0)
"""The first release of the driver with `consumableShares`."""


def _pools(context: RuleContext) -> Iterator[tuple[Pool, Card]]:
    return ((pool, card) for pool, card in context.pools_with_card() if pool.backend.has_claims)


def served(context: RuleContext) -> Iterator[tuple[Pool, Card, tuple[ShareKind, ...]]]:
    """Yield the pools whose mode and card DRA has, with their devices; GS760 reports the others."""
    for pool, card in _pools(context):
        if modes.of(pool).takes_claims and vendors.of(card).dra_driver:
            yield pool, card, context.kinds(pool) or ()


def _where(context: RuleContext, pool: Pool) -> Path:
    """Return where the pool's back end is written."""
    own = pool_path(pool, "backend")
    return own if context.writes(own) else (*HERE, "backend")


def shares_by(context: RuleContext) -> DraShares:
    """Return by what claims share a device."""
    return context.intent.platform.of_dra.shares


def device_name(card: Card, kind: ShareKind) -> str:
    """Return what a device of the card is called."""
    return kind.profile.name if kind.profile else product(card)


@rule("GS760")
def check_served(context: RuleContext) -> Iterator[Problem]:
    """A card, a mode or a setting that NVIDIA's DRA driver does not have."""
    plugin = "write backend: device-plugin in this pool"
    for pool, card in _pools(context):
        where = _where(context, pool)
        if not vendors.of(card).dra_driver:
            message, path = f"NVIDIA's DRA driver does not serve {a_card(card)} of pool {pool.name}", where
        elif not modes.of(pool).takes_claims:
            message = f"there is no {modes.of(pool).mode.value} with DRA"
            path = pool_path(pool, "sharing", "mode")
        elif unknown := _unknown(context, pool, card):
            message, path = unknown, pool_path(pool, "card")
        else:
            continue
        yield Problem(message=message, hints=(plugin,), path=path, causes=(where,))
    for pool, _, _ in served(context):
        spread = pool_path(pool, "sharing", "placement")
        if context.writes(spread) and pool.sharing.placement is SharePlacement.SPREAD:
            message = "the scheduler gives claims one GPU after the other, and spreads none"
            yield Problem(message=message, hints=(f"leave placement out, or {plugin}",), path=spread)
    first = next(served(context), None)
    if first is not None and context.intent.platform.partitioner is Partitioner.MIG_MANAGER:
        yield Problem(
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
        if kind.profile is None and kind.memory_mib is None and shares_by(context) is DraShares.MEMORY:
            return f"claims ask for a part of the memory, and that of {product(card)} is not known"
    return ""


@rule("GS761")
def check_kubernetes(context: RuleContext) -> Iterator[Problem]:
    """A Kubernetes version that lacks what the pool's claims need."""
    version = context.intent.kubernetes
    needs = [(*_needed(pool, kinds), pool) for pool, _, kinds in served(context)]
    if version is None or not needs:
        return
    needed, what, pool = max(needs, key=lambda need: need[0])
    if version >= needed:
        return
    written, dotted = ("spec", "kubernetes"), f"{needed[0]}.{needed[1]}"
    yield Problem(
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


@rule("GS762")
def check_driver(context: RuleContext) -> Iterator[Problem]:
    """No settings of NVIDIA's DRA driver, or some with which it does not run."""
    platform, first = context.intent.platform, next(_pools(context), None)
    if first is None:
        return
    if platform.dra is None:
        yield Problem(
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
            yield Problem(message=message, hints=("write it as the chart does: 0.5.0",), path=path)
    root = _operator_root(context)
    if root and platform.dra.driver_root == "/":
        yield Problem(
            message=f"the operator installs the GPU driver into {root}, and NVIDIA's DRA driver would look for it in /",
            hints=(f"write dra: {{driverRoot: {root}}}",),
            path=(*HERE, "dra"),
            causes=((*HERE, "driver"),),
        )


def _operator_root(context: RuleContext) -> str:
    """Return where the operator installs the GPU driver; empty if it installs none."""
    platform = context.intent.platform
    if platform.driver is None or platform.stack is not NvidiaStack.GPU_OPERATOR:
        return ""
    paths = platform.values.get("hostPaths")
    own = paths.get("driverInstallDir") if isinstance(paths, Mapping) else None
    return own if isinstance(own, str) and own else "/run/nvidia/driver"


@rule("GS768")
def check_autoscaled(context: RuleContext) -> Iterator[Problem]:
    """Nodes that no autoscaler adds for claims."""
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
        yield Problem(message=message, hints=(hint,), path=path, causes=(_where(context, pool),))


@rule("GS772", Severity.WARNING)
def check_clouds(context: RuleContext) -> Iterator[Problem]:
    """Nodes of a cloud that does not support what the pool does."""
    for pool, _, kinds in served(context):
        required = region_of(pool.nodes) or {}
        is_divided = any(kind.shared or kind.profile for kind in kinds)
        for limit in (limit for cloud in CLOUDS for limit in cloud.dra_limits):
            values = [required[key] for key in required if key.startswith(limit.label) and not required[key].absent]
            is_meant = any(limit.value is None or (not one.others and one.listed == {limit.value}) for one in values)
            if is_meant and (is_divided or not limit.only_divided):
                hint = "try it on a node, or write backend: device-plugin in this pool"
                yield of_pool(pool, f"pool {pool.name}: {limit.why}", hint, "nodes")
                break
