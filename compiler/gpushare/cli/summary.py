"""What a compile did, or would do, in a few lines for people."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpushare.bundle.writer import ChangeKind, FileChange
from gpushare.catalog import image_registry
from gpushare.cli.inputs import LoadedIntent
from gpushare.core.printable import visible
from gpushare.core.wording import layout_text, pluralize
from gpushare.intent import gitops
from gpushare.intent.types import Operator, Stack
from gpushare.nodes import clouds
from gpushare.resolved.plan import Plan, PoolPlan

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
    steps = (*_preparation(read.plan, directory), *_next_steps(read, directory))
    return shown + goals + "".join(f"{step}\n" for step in steps)


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


def _preparation(plan: Plan, directory: Path) -> Iterator[str]:
    """Yield what the nodes lack unless a person provides it, as far as the intent shows."""
    platform = plan.intent.platform
    if image_registry.is_unpublished(platform) or image_registry.is_example(platform):
        readme = f"{visible(str(directory))}/README.md"
        yield f"first: push the node runtime's image and set platform.image, as {readme} says"
    if gitops.installs_upstream(plan.intent) and platform.stack is Stack.GPU_OPERATOR and not _has_driver(plan):
        yield "first: nodes need NVIDIA's driver; `driver: {}` in platform makes the operator install it"


def _has_driver(plan: Plan) -> bool:
    """Return whether the operator installs the driver, or the intent shows that every pool's nodes have one."""
    platform = plan.intent.platform
    is_located = "driverInstallDir" in platform.values.get("hostPaths", {})
    return platform.driver is not None or is_located or all(clouds.have_driver(_keys(pool)) for pool in plan.pools)


def _keys(pool: PoolPlan) -> Iterator[str]:
    nodes = pool.pool.nodes
    yield from (key for key, _ in nodes.match_labels)
    yield from (
        expression.key for expression in nodes.match_expressions if expression.operator in (Operator.IN, Operator.EXISTS)
    )


def _next_steps(read: LoadedIntent, directory: Path) -> Iterator[str]:
    """Yield what begins the installation: of each tool that syncs the bundle, else of Helm."""
    intent, where = read.plan.intent, visible(str(directory))
    written = {artifact.path for artifact in read.artifacts}
    for key in intent.gitops:
        tool, settings = gitops.TOOLS[key], gitops.settings(intent, key)
        files = [file for file in tool.applied if file in written and file not in tool.merged]
        path, repository = visible(settings["path"]), visible(settings[tool.repository])
        yield f"next: commit {where} as {path} of {repository}; {where}/README.md says the rest. Once, for {tool.title}:"
        yield "  kubectl apply" + "".join(f" -f {_argument(directory / file)}" for file in files)
    if not intent.gitops:
        yield f"next: {where}/README.md says what to install in which order; our chart is"
        yield "  kubectl apply" + "".join(f" -f {_argument(directory / file)}" for file in gitops.namespaces(intent))
        wait = " --wait" if intent.observes else ""
        chart = _argument(directory / "chart")
        yield f"  helm upgrade --install gpushare {chart} --namespace {intent.namespace}{wait} --timeout 5m"


def _argument(path: Path) -> str:
    """Return the path as a shell and a program read it: no option, although the path may begin with a hyphen."""
    text = str(path)
    return visible(shlex.quote(f"./{text}" if text.startswith("-") else text))
