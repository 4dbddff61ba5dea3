"""What a GitOps tool does with a new bundle, and what a person must: objects that are deleted, files to apply again. Pure.

A tool deletes an object that leaves the repository, and with it what it installed: so every node is released.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, Files, parsed
from gpushare.intent.gitops import TOOLS, ToolFacts


def of_gitops(old: Files, new: Files, changed: tuple[FileDiff, ...]) -> Iterator[Effect]:
    """Yield the effects, those that release nodes first."""
    paths = {one.path for one in changed}
    for tool, facts in TOOLS.items():
        before, after = _installing(old, tool), _installing(new, tool)
        if before and not after:
            yield Effect(kind=EffectKind.HANDED_OVER, pool=None, subject=tool, before=sorted(before), after=_other(new, tool))
        elif after:
            gone = sorted(before - after)
            if gone:
                yield Effect(kind=EffectKind.RELEASED, pool=None, subject=tool, before=gone, after=sorted(after - before))
            for path in facts.applied:
                if path in paths and path in new:
                    yield Effect(kind=EffectKind.APPLIED, pool=None, subject=path)


def _other(files: Files, tool: str) -> str | None:
    return next((other for other in TOOLS if other != tool and _installing(files, other)), None)


def _installing(files: Files, tool: str) -> frozenset[str]:
    """Return the namespaces and names of the tool's objects that install something, and whose deletion removes it."""
    found = (parsed(path, text) for path, text in files.items() if path.startswith(f"{tool}/apps/"))
    return frozenset(
        f"{one['metadata'].get('namespace', '')}/{one['metadata'].get('name', '')}"
        for one in found
        if _cascades(one, TOOLS[tool])
    )


def _cascades(document: Any, tool: ToolFacts) -> bool:
    if not isinstance(document, Mapping) or document.get("kind") != tool.installs or "metadata" not in document:
        return False
    metadata = document["metadata"]
    kept = tool.kept in (metadata.get("annotations") or {}).values()
    return not kept and (not tool.by_finalizer or bool(metadata.get("finalizers")))
