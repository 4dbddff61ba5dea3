"""Rules on MIG layouts and goals: the card has MIG, layouts fit and cover a node.

GS401, GS402, GS404 to GS406 and GS408. The rules on profile names are in `mig_profiles`; this module skips a layout
with a name that the card lacks.
"""

from collections.abc import Iterator
from typing import assert_never

from gpushare import mig, modes
from gpushare.catalog.cards import Card, Geometry
from gpushare.catalog.device_memory import usable_bytes
from gpushare.core.diagnostics import Finding, Path
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import join_words, layout_text
from gpushare.intent.types import Balanced, Goal, Instances, Layout, MemoryEach, MigStrategy, MostInstances, Pool
from gpushare.rules.card_names import a_card, product
from gpushare.rules.rule import Rule, RuleContext, pool_path
from gpushare.rules.written_layouts import layout_groups, mig_pools, written_layouts


def check_support(context: RuleContext) -> Iterator[Finding]:
    """GS401: a card without MIG, or one for which the catalogue does not know whether it has MIG."""
    for pool, card in context.pools_with_mode():
        if not modes.of(pool).is_partitioned or card.mig:
            continue
        known = card.mig_supported is False
        own = f"if yours has it, describe its profiles under spec.cards.{card.id}-mig and name that card"
        yield Finding(
            code="GS401",
            message=f"{a_card(card)} has no MIG" if known else f"no source confirms that {a_card(card)} has MIG",
            hints=(
                "write mode: time-slicing or mode: mps to share whole GPUs",
                *(() if known else (own,)),
            ),
            path=pool_path(pool, "sharing", "mode"),
            causes=(pool_path(pool, "card"),),
        )


def check_fit(context: RuleContext) -> Iterator[Finding]:
    """GS402: a layout for which no placement exists."""
    judged: dict[tuple[str, Layout], bool] = {}
    for pool, card, geometry in mig_pools(context):
        for path, layout in written_layouts(pool):
            if not layout or any(name not in card.profiles for name, _ in layout):
                continue
            if (card.id, layout) not in judged:
                judged[card.id, layout] = mig.fits(geometry, layout)
            if not judged[card.id, layout]:
                yield _misfit(card, geometry, layout, path)


def _misfit(card: Card, geometry: Geometry, layout: Layout, path: Path) -> Finding:
    nearest = ", ".join(layout_text(near) for near in mig.nearest(geometry, layout))
    return Finding(
        code="GS402",
        message=f"layout {layout_text(layout)} does not fit {a_card(card)}",
        hints=(mig.why_not(geometry, layout), *((f"nearest valid: {nearest}",) if nearest else ())),
        path=path,
    )


def check_coverage(context: RuleContext) -> Iterator[Finding]:
    """GS404: GPU indexes of `layouts` that are out of range, repeated or missing."""
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
            yield Finding(
                code="GS404",
                message=f"GPU{many} {join_words(missing)} of {pool.gpus_per_node} {'have' if many else 'has'} no layout",
                hints=(
                    f"add - {{gpus: {missing}, {entry}}}" + (f" to leave {'them' if many else 'it'} whole" if whole else ""),
                ),
                path=pool_path(pool, "sharing", "layouts"),
                on_key=True,
            )


def _twice(gpu: int, entry: int, path: Path) -> Finding:
    return Finding(
        code="GS404",
        message=f"GPU {gpu} already has a layout, in entry {entry}",
        hints=("name each index once",),
        path=path,
    )


def _no_such_gpu(gpu: int, pool: Pool, path: Path) -> Finding:
    last = pool.gpus_per_node - 1
    return Finding(
        code="GS404",
        message=f"there is no GPU {gpu} in a node with gpusPerNode: {pool.gpus_per_node}",
        hints=(f"indexes run from 0 to {last}" if last else "the only index is 0",),
        path=path,
    )


def check_single(context: RuleContext) -> Iterator[Finding]:
    """GS405: strategy `single` with more than one kind of device: the device plugin exits."""
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


def _goal_of_single(context: RuleContext, pool: Pool) -> Iterator[Finding]:
    layouts = context.layouts(pool)
    if layouts and len(layouts[0]) > 1:
        yield _not_single(f"the goal gives {layout_text(layouts[0])}", pool_path(pool, "sharing", "goal"))


def _not_single(reason: str, path: Path) -> Finding:
    return Finding(
        code="GS405",
        message=f"{reason}, but strategy: single requires the same layout of one profile on all GPUs of a node",
        hints=("write strategy: mixed, where each profile is a resource of its own, or use one profile",),
        path=path,
    )


def check_goals(context: RuleContext) -> Iterator[Finding]:
    """GS406: a goal that the card cannot reach."""
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
        yield Finding(
            code="GS406",
            message=message,
            hints=(hint,),
            path=pool_path(pool, "sharing", "goal"),
        )


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


def check_some_mig(context: RuleContext) -> Iterator[Finding]:
    """GS408: a MIG pool that leaves every GPU whole."""
    for pool in context.intent.pools:
        written = written_layouts(pool)
        if written and not any(layout for _, layout in written):
            grouped = bool(layout_groups(pool))
            yield Finding(
                code="GS408",
                message=f"every GPU of pool {pool.name} stays whole, so this is not MIG",
                hints=("write sharing: {mode: exclusive}",),
                path=pool_path(pool, "sharing", "layouts" if grouped else "layout"),
                on_key=grouped,
            )


RULES = (
    Rule(code="GS401", check=check_support),
    Rule(code="GS402", check=check_fit),
    Rule(code="GS404", check=check_coverage),
    Rule(code="GS405", check=check_single),
    Rule(code="GS406", check=check_goals),
    Rule(code="GS408", check=check_some_mig),
)
