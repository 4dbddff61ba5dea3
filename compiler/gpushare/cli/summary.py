"""What a compile did, or would do, in a few lines for people."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gpushare.bundle.writer import ChangeKind, FileChange
from gpushare.cli.inputs import LoadedIntent
from gpushare.core.printable import visible
from gpushare.core.wording import layout_text, pluralize
from gpushare.resolved.plan import Plan

LISTED = 20
"""How many stale files are listed by name."""


def written(read: LoadedIntent, changes: Sequence[FileChange], directory: Path) -> str:
    """Return what was written, what goals were resolved to, and what to do next; one line if nothing changed."""
    goals = _goals(read.plan)
    if not changes:
        return f"{visible(str(directory))}: compiled, no changes\n" + goals
    kinds = Counter(change.kind for change in changes)
    fresh = kinds[ChangeKind.MISSING] + kinds[ChangeKind.DIFFERENT]
    same, removed = len(read.artifacts) - fresh, kinds[ChangeKind.STALE]
    shown = f"{visible(str(directory))}: {pluralize(fresh, 'file')} written, {same} unchanged, {removed} removed\n"
    kept = [change.path for change in changes if change.kind is ChangeKind.EDITED]
    shown += "".join(f"kept, since it was edited after gpushare wrote it: {visible(path)}\n" for path in kept)
    return shown + goals + _next_steps(read.plan, directory)


def checked(changes: Sequence[FileChange], directory: Path) -> str:
    """Return which files are not current."""
    if not changes:
        return f"{visible(str(directory))} is current\n"
    lines = [f"  {change.kind.value:<9} {visible(change.path)}" for change in changes[:LISTED]]
    if len(changes) > LISTED:
        lines.append(f"  and {len(changes) - LISTED} more")
    return "\n".join([f"{visible(str(directory))} is stale, `gpushare compile` updates it:", *lines]) + "\n"


def _goals(plan: Plan) -> str:
    return "".join(
        f"goal of pool {pool.name}: layout {layout_text(pool.layout_of_goal)}, kept until the intent changes\n"
        for pool in plan.pools
        if pool.layout_of_goal is not None
    )


def _next_steps(plan: Plan, directory: Path) -> str:
    chart = str(directory / "chart")
    chart = visible(shlex.quote(f"./{chart}" if chart.startswith("-") else chart))  # helm would take it for a flag
    where = visible(str(directory))
    return (
        f"next: {where}/README.md says what to install in which order; our chart is\n"
        f"  helm upgrade --install gpushare {chart} --namespace {plan.intent.namespace}\n"
    )
