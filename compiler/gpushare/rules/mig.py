"""Rules on MIG: the card has it, layouts fit and cover a node, goals, names of profiles (GS401 to GS408, GS777 to GS779).

A layout with a name that the card lacks is reported for that name alone. `check_own_grids` (GS903) runs before all rules,
because every rule on MIG needs the layouts of the intent's own cards.

Instances that NVIDIA's DRA driver makes for claims are its feature gate DynamicMIG, one for all its nodes. With it the driver
starts by removing every MIG instance that no claim has, and offers places for instances on every GPU whose MIG mode is on or
can be switched (dra-driver-nvidia-gpu 0.5).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice, permutations
from typing import assert_never

from gpushare import vendors
from gpushare.core.diagnostics import Finding, Path, Severity
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import join_words, layout_text, pluralize
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, Geometry, MigProfile, usable_bytes
from gpushare.intent.types import Balanced, Goal, Instances, Layout, LayoutGroup, MemoryEach, MigStrategy, MostInstances, Pool
from gpushare.offering import modes
from gpushare.rules.quotas import ResolvedQuota, quota_path, resolved_quotas
from gpushare.rules.rule import Problem, RuleContext, a_card, pool_path, product, rule


@rule("GS401")
def check_support(context: RuleContext) -> Iterator[Problem]:
    """A card without MIG, or one for which the catalogue does not know whether it has MIG."""
    for pool, card in context.pools_with_mode():
        if not modes.of(pool).is_partitioned or card.mig:
            continue
        known = card.mig_supported is False
        own = f"if yours has it, describe its profiles under spec.cards.{card.id}-mig and name that card"
        yield Problem(
            message=f"{a_card(card)} has no MIG" if known else f"no source confirms that {a_card(card)} has MIG",
            hints=(
                "write mode: time-slicing or mode: mps to share whole GPUs",
                *(() if known else (own,)),
            ),
            path=pool_path(pool, "sharing", "mode"),
            causes=(pool_path(pool, "card"),),
        )


@rule("GS402")
def check_fit(context: RuleContext) -> Iterator[Problem]:
    """A layout for which no placement exists."""
    judged: dict[tuple[str, Layout], bool] = {}
    for pool, card, geometry in mig_pools(context):
        for path, layout in written_layouts(pool):
            if not layout or any(name not in card.profiles for name, _ in layout):
                continue
            if (card.id, layout) not in judged:
                judged[card.id, layout] = mig.fits(geometry, layout)
            if not judged[card.id, layout]:
                yield _misfit(card, geometry, layout, path)


def _misfit(card: Card, geometry: Geometry, layout: Layout, path: Path) -> Problem:
    nearest = ", ".join(layout_text(near) for near in mig.nearest(geometry, layout))
    return Problem(
        message=f"layout {layout_text(layout)} does not fit {a_card(card)}",
        hints=(mig.why_not(geometry, layout), *((f"nearest valid: {nearest}",) if nearest else ())),
        path=path,
    )


@rule("GS404")
def check_coverage(context: RuleContext) -> Iterator[Problem]:
    """GPU indexes of `layouts` that are out of range, repeated or missing."""
    for pool in context.intent.pools:
        groups = modes.of(pool).groups
        seen: dict[int, int] = {}
        for at, group in enumerate(groups):
            for position, gpu in enumerate(group):
                path = pool_path(pool, "sharing", "layouts", at, "gpus", position)
                if not 0 <= gpu < pool.gpus_per_node:
                    yield _no_such_gpu(gpu, pool, path)
                elif gpu in seen:
                    yield _twice(gpu, seen[gpu] + 1, path)
                else:
                    seen[gpu] = at
        missing = [gpu for gpu in range(pool.gpus_per_node) if gpu not in seen] if groups else []
        # A wrong index is usually a typo for the one that is missing: that is one mistake.
        if len(missing) > sum(map(len, groups)) - len(seen):
            many = "s" if len(missing) > 1 else ""
            entry, whole = modes.of(pool).leftover, modes.of(pool).is_partitioned
            yield Problem(
                message=f"GPU{many} {join_words(missing)} of {pool.gpus_per_node} {'have' if many else 'has'} no layout",
                hints=(
                    f"add - {{gpus: {missing}, {entry}}}" + (f" to leave {'them' if many else 'it'} whole" if whole else ""),
                ),
                path=pool_path(pool, "sharing", "layouts"),
                on_key=True,
            )


def _twice(gpu: int, entry: int, path: Path) -> Problem:
    return Problem(message=f"GPU {gpu} already has a layout, in entry {entry}", hints=("name each index once",), path=path)


def _no_such_gpu(gpu: int, pool: Pool, path: Path) -> Problem:
    last = pool.gpus_per_node - 1
    return Problem(
        message=f"there is no GPU {gpu} in a node with gpusPerNode: {pool.gpus_per_node}",
        hints=(f"indexes run from 0 to {last}" if last else "the only index is 0",),
        path=path,
    )


@rule("GS405")
def check_single(context: RuleContext) -> Iterator[Problem]:
    """Strategy `single` with more than one kind of device: the device plugin exits."""
    for pool in context.intent.pools:
        if modes.of(pool).mig_strategy != MigStrategy.SINGLE:
            continue
        written = written_layouts(pool)
        if not written:
            yield from _goal_of_single(context, pool)
            continue
        first = written[0][1]
        for path, layout in written:
            reason = _unlike(layout, first)
            if reason:
                yield _not_single(reason, path)


def _unlike(layout: Layout, first: Layout) -> str:
    """Return why `single` does not allow a layout beside the first one; empty if it does."""
    if len(layout) > 1:
        return f"layout {layout_text(layout)} has {len(layout)} profiles"
    if not layout and first:
        return "layout none leaves whole GPUs beside MIG"
    return f"layout {layout_text(layout)} differs from {layout_text(first)}" if dict(layout) != dict(first) else ""


def _goal_of_single(context: RuleContext, pool: Pool) -> Iterator[Problem]:
    layouts = context.layouts(pool)
    if layouts and len(layouts[0]) > 1:
        yield _not_single(f"the goal gives {layout_text(layouts[0])}", pool_path(pool, "sharing", "goal"))


def _not_single(reason: str, path: Path) -> Problem:
    return Problem(
        message=f"{reason}, but strategy: single requires the same layout of one profile on all GPUs of a node",
        hints=("write strategy: mixed, where each profile is a resource of its own, or use one profile",),
        path=path,
    )


@rule("GS406")
def check_goals(context: RuleContext) -> Iterator[Problem]:
    """A goal that the card cannot reach."""
    for pool, card, geometry in mig_pools(context):
        goal = modes.of(pool).goal
        if goal is None or context.layouts(pool):
            continue
        what, hint = _out_of_reach(goal, pool, card, geometry)
        message = f"{a_card(card)} cannot be divided into {what}"
        if isinstance(goal, MemoryEach) and (unknown := _unmeasured(geometry)):
            message = (
                f"the memory of {join_words(unknown)} of {a_card(card)} has not been measured, so {what} cannot be guaranteed"
            )
        yield Problem(message=message, hints=(hint,), path=pool_path(pool, "sharing", "goal"))


def _out_of_reach(goal: Goal, pool: Pool, card: Card, geometry: Geometry) -> tuple[str, str]:
    """Return a goal in words, and what to write instead."""
    match goal:
        case MostInstances():
            return "as many instances as possible", "write a layout of its profiles"
        case Balanced():
            return "a balanced layout", "balanced is defined for cards with four or seven slices; write a layout"
        case Instances(count=count):
            possible = join_words(mig.instance_counts(geometry), last="or")
            return f"{count} instances", f"{a_card(card)} can have {possible}"
        case MemoryEach(size_bytes=size):
            return f"instances with {show_bytes(size)} usable each", _largest_usable(pool, card, geometry)
        case _:
            assert_never(goal)


def _unmeasured(geometry: Geometry) -> list[str]:
    """Return the profiles that a goal may use and whose memory is not known."""
    return [profile.name for profile in geometry.profiles if not profile.has_attributes and not profile.memory_mib]


def _largest_usable(pool: Pool, card: Card, geometry: Geometry) -> str:
    plain = [profile for profile in geometry.profiles if not profile.has_attributes]
    sizes = {profile.name: usable_bytes(profile.memory_mib, pool.memory.reserve) for profile in plain}
    known = [(size, name) for name, size in sizes.items() if size]
    if not known:
        return "write a layout, or a goal that asks for a number: {instances: 2}"
    size, name = max(known)
    return f"the largest instance of known memory is {name}, with {size // MIB}Mi usable of the {product(card)}"


@rule("GS408")
def check_some_mig(context: RuleContext) -> Iterator[Problem]:
    """A MIG pool that leaves every GPU whole."""
    for pool in context.intent.pools:
        written = written_layouts(pool)
        if written and not any(layout for _, layout in written):
            grouped = bool(layout_groups(pool))
            yield Problem(
                message=f"every GPU of pool {pool.name} stays whole, so this is not MIG",
                hints=("write sharing: {mode: exclusive}",),
                path=pool_path(pool, "sharing", "layouts" if grouped else "layout"),
                on_key=grouped,
            )


def mig_pools(context: RuleContext) -> Iterator[tuple[Pool, Card, Geometry]]:
    """Yield the MIG pools whose card has MIG; another rule reports the others."""
    for pool, card in context.pools_with_card():
        if modes.of(pool).is_partitioned and card.mig:
            yield pool, card, card.mig


def layout_groups(pool: Pool) -> tuple[LayoutGroup, ...]:
    """Return the entries of the pool's `layouts`; empty for `layout`, goals and other modes."""
    return modes.of(pool).written[0]


def written_layouts(pool: Pool) -> tuple[tuple[Path, Layout], ...]:
    """Return every layout that the user wrote for the pool, with its path; empty for goals, on demand and other modes."""
    mode = modes.of(pool)
    groups, alike = mode.written
    if groups:
        return tuple((pool_path(pool, "sharing", "layouts", at, "layout"), group.layout) for at, group in enumerate(groups))
    is_written = mode.is_partitioned and mode.goal is None and not mode.is_on_demand
    return ((pool_path(pool, "sharing", "layout"), alike),) if is_written else ()


_COMPUTE_INSTANCE = r"[0-9]+c\.(?=[0-9]+g\.)"
_SLICES = r"([0-9]+)g\b"


@rule("GS403")
def check_profile_names(context: RuleContext) -> Iterator[Problem]:
    """A profile that the card does not have, in any field that names profiles."""
    for pool, card, _ in mig_pools(context):
        known = card.profiles
        for path, name in _named(pool):
            if name not in known:
                yield Problem(
                    message=f"{a_card(card)} has no MIG profile {name}",
                    hints=tuple(_instead(name, card, known)),
                    path=path,
                    on_key=path[-1] == name,
                )


def _named(pool: Pool) -> Iterator[tuple[Path, str]]:
    """Yield every path at which the pool names a profile."""
    for path, layout in written_layouts(pool):
        for name, _ in layout:
            yield (*path, name), name
    for at, name in enumerate(modes.of(pool).profiles):
        yield pool_path(pool, "sharing", "profiles", at), name
    for name in _replicated(pool):
        yield pool_path(pool, "sharing", "replicas", name), name
    if isinstance(pool.memory.cap, tuple):
        for name, _ in pool.memory.cap:
            yield pool_path(pool, "memory", "cap", name), name


def _replicated(pool: Pool) -> tuple[str, ...]:
    replicas = getattr(pool.sharing, "replicas", ())
    return tuple(name for name, _ in replicas) if isinstance(replicas, tuple) else ()


def _instead(name: str, card: Card, known: Mapping[str, MigProfile]) -> Iterator[str]:
    """Yield hints with the card's nearest names: the same name in NVML's spelling, the same slices, then all profiles."""
    if re.search(_COMPUTE_INSTANCE, name):
        yield "compute instances inside a GPU instance cannot be offered by the device plugin; name the whole instance"
    if name in ("gpu", vendors.of(card).whole_gpu):
        yield "whole GPUs beside MIG are never shared: name a profile, or write a number for all of them, such as replicas: 2"
        return
    meant = _respell(name)
    if meant in known:
        yield f"write {meant}"
        return
    plain = [profile.name for profile in known.values() if not profile.has_attributes]
    slices = re.match(_SLICES, meant)
    alike = [other for other in known if slices and other.startswith(slices[0] + ".")]
    if alike:
        yield f"with as many slices it has {join_words(alike)}"
    else:
        yield f"it has {join_words(plain or known)}; gpushare cards {card.id} shows every layout"


def _respell(name: str) -> str:
    """Return the name in NVML's spelling, from spellings that tools and people use: `MIG-1g.5gb.me`, `all-1G.5GB`."""
    short = vendors.short(name.strip().lower())
    short = re.sub(r"^(mig|all)[-. ]", "", short).removesuffix(".shared")
    short = re.sub(_COMPUTE_INSTANCE, "", short)
    return re.sub(r"gb[.+ ]+(?=[a-z])", "gb+", short)


@rule("GS407")
def check_replicas(context: RuleContext) -> Iterator[Problem]:
    """Replicas for a profile that no GPU of the pool has; the device plugin would silently ignore them."""
    for pool, card, _ in mig_pools(context):
        present = _present(context, pool)
        for name in _replicated(pool):
            if name in card.profiles and present is not None and name not in present:
                yield Problem(
                    message=f"replicas names {name}, which no GPU of pool {pool.name} has",
                    hints=(
                        f"its GPUs have {join_words(present)}" if present else "all its GPUs are whole: leave replicas out",
                    ),
                    path=pool_path(pool, "sharing", "replicas", name),
                    on_key=True,
                )


def _present(context: RuleContext, pool: Pool) -> tuple[str, ...] | None:
    """Return the profiles on the pool's GPUs, in the user's order; None for a goal that cannot be reached."""
    written = [layout for _, layout in written_layouts(pool)] or context.layouts(pool)
    return None if written is None else tuple(dict.fromkeys(name for layout in written for name, _ in layout))


def check_own_grids(own: Mapping[str, Card]) -> Iterator[Finding]:
    """Yield the findings of an intent's own cards, in their order."""
    for card_id, card in own.items():
        if card.mig and not mig.is_manageable(card.mig):
            yield Finding(
                code="GS903",
                message=f"card {card_id} allows more than {mig.MAX_LAYOUTS} layouts: gpushare compares them one by one",
                hints=("leave out profiles, or placements, that no pool uses; no known card has more than 128 layouts",),
                path=("spec", "cards", card_id, "mig"),
            )


MAX_ORDERS = 720
"""How many orders of claims are tried: all of those of six profiles. No known card has more plain ones."""


@rule("GS777")
def check_possible(context: RuleContext) -> Iterator[Problem]:
    """Instances on demand without NVIDIA's DRA driver, or of no profile."""
    for pool, card, geometry in mig_pools(context):
        if not modes.of(pool).is_on_demand:
            continue
        path = pool_path(pool, "sharing", "layout")
        if not pool.backend.has_claims:
            yield Problem(
                message=f"the device plugin makes no MIG instances on demand, and pool {pool.name} has no other back end",
                hints=("write backend: dra, or a layout",),
                path=path,
                causes=(pool_path(pool, "backend"),),
            )
        elif not modes.of(pool).profiles and not mig.places(geometry):
            yield Problem(
                message=f"all MIG profiles of {a_card(card)} have attributes in their names, and pool {pool.name} names none",
                hints=(f"write profiles: [{', '.join(card.profiles)}], or those of them that users may ask for",),
                path=path,
            )


def _makers(context: RuleContext) -> list[Pool]:
    return [pool for pool in context.intent.pools if modes.of(pool).is_on_demand and pool.backend.has_claims]


@rule("GS778")
def check_beside(context: RuleContext) -> Iterator[Problem]:
    """Pools of the same driver that cannot be beside instances on demand."""
    makers = _makers(context)
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
        yield Problem(
            message=f"with the instances on demand of pool {makers[0].name} NVIDIA's DRA driver {what}",
            hints=(f"{hint}, or a layout in pool {makers[0].name}",),
            path=pool_path(pool, "sharing", "mode"),
            causes=(pool_path(makers[0], "sharing", "layout"),),
        )


@rule("GS779", Severity.WARNING)
def check_quotas(context: RuleContext) -> Iterator[Problem]:
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
            yield Problem(
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
