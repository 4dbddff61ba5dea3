"""Who is affected by differences of two bundles other than layouts: caps, admission, namespaces, the stack, GitOps. Pure.

No effects are reported for a part that one of the bundles does not have.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.compare.bundles import POLICIES, VALUES, policy, values
from gpushare.compare.dra_effects import of_dra
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, Files, parsed
from gpushare.compare.stack_effects import of_namespace, of_upstream, of_values
from gpushare.compare.vendor_effects import of_vendor
from gpushare.intent.gitops import TOOLS, ToolFacts
from gpushare.vendors import OTHERS
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.struct import NOTHING

_ENDING = ("kill", "evict")


def of_policy(pool: str, old: Mapping[str, Any], new: Mapping[str, Any], denies: bool) -> Iterator[Effect]:
    """Yield the effects of another policy of the pool; `denies`: whether admission rejects what it does not allow."""
    before, after = _caps(old), _caps(new)
    for share in sorted(before.keys() & after.keys()):
        for key in ("capMiB", "toleranceMiB"):
            both = {"before": before[share][key], "after": after[share][key]}
            if both["before"] != both["after"]:
                yield Effect(kind=_for_running(**both, policy=new), pool=pool, subject=f"{share} {key}", **both)
    yield from _enforcement(pool, old.get("enforcement") or {}, new.get("enforcement") or {})
    yield from _differing(EffectKind.ROLLOUT, pool, "rollout", old, new)
    yield from _namespaces(pool, set(old.get("namespaces") or ()), set(new.get("namespaces") or ()), denies)


def _for_running(before: int | None, after: int | None, policy: Mapping[str, Any]) -> EffectKind:
    """Return what running containers get: the node runtime grants at once what allows more, and no less.

    Those that ran before there was a cap are exempt from it, for good or for the policy's notice.
    """
    if before is None:
        has_end = (policy.get("enforcement") or {}).get("noticeSeconds") is not None
        return EffectKind.NOTICED if has_end else EffectKind.FIRST_CAP
    is_more = after is None or after > before
    return EffectKind.RAISED if is_more else EffectKind.KEEPS_CAP


def _caps(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {" ".join(filter(None, (one["resource"], one["profile"]))): one for one in spec.get("shares") or ()}


def _enforcement(pool: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Effect]:
    before, after = old.get("action"), new.get("action")
    if before != after:
        ends, ended = after in _ENDING, before in _ENDING
        kind = EffectKind.ENFORCED if ends == ended else EffectKind.ENDED if ends else EffectKind.SPARED
        yield Effect(kind=kind, pool=pool, subject="enforcement.action", before=before, after=after)
    for key in sorted((old.keys() | new.keys()) - {"action"}):
        if old.get(key) != new.get(key):
            yield Effect(
                kind=EffectKind.ENFORCED, pool=pool, subject=f"enforcement.{key}", before=old.get(key), after=new.get(key)
            )


def _differing(kind: EffectKind, pool: str, field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Effect]:
    before, after = old.get(field) or {}, new.get(field) or {}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield Effect(kind=kind, pool=pool, subject=f"{field}.{key}", before=before.get(key), after=after.get(key))


def _namespaces(pool: str, old: set[str], new: set[str], denies: bool) -> Iterator[Effect]:
    """An empty list admits every namespace; so does an admission that does not deny."""
    if old == new:
        return
    shrinks = denies and bool(new) and (not old or bool(old - new))
    kind = EffectKind.REFUSED if shrinks else EffectKind.ADMITTED
    yield Effect(kind=kind, pool=pool, subject="namespaces", before=sorted(old), after=sorted(new))


def effects(
    old: Files,
    new: Files,
    changed: tuple[FileDiff, ...],
    successors: Mapping[str, str] = NOTHING,
    left: frozenset[str] = frozenset(),
) -> tuple[Effect, ...]:
    """Return every effect of the files that differ, those of pools first. `successors`: removed pool → its nodes' new pool.

    `left` are the pools of which a node leaves for no pool.
    """
    paths = {change.path for change in changed}
    before, after = values(old), values(new)
    denies = (after.get("admission") or {}).get("enforce", "deny") == "deny"
    found: list[Effect] = []
    for path in sorted(paths):
        pool = path.removeprefix(POLICIES).removesuffix(".yaml")
        if not path.startswith(POLICIES) or path not in old:
            continue
        if path in new:
            found.append(Effect(kind=EffectKind.RESTARTS, pool=pool, subject="policy"))
            found += of_policy(pool, policy(old, pool), policy(new, pool), denies)
        else:
            found += _gone(pool, successors.get(pool), old, new, denies)
    if VALUES in paths and before and after:
        found += of_values(before, after, successors)
    found += of_gitops(old, new, changed)
    found += of_namespace(old, new)
    found += of_upstream(old, new, changed)
    found += of_dra(old, new, changed)
    if before and after:
        for vendor in OTHERS.values():
            found += of_vendor(vendor, (old, new), changed, successors, left)
    return tuple(found)


def _gone(pool: str, successor: str | None, old: Files, new: Files, denies: bool) -> Iterator[Effect]:
    """Yield the effects of a removed pool: on pods that name it, and those of its nodes' new policy."""
    yield Effect(kind=EffectKind.UNPLACED, pool=pool, subject=POOL_LABEL, before=pool, after=successor)
    if successor is not None:
        yield from of_policy(successor, policy(old, pool), policy(new, successor), denies)


def of_gitops(old: Files, new: Files, changed: tuple[FileDiff, ...]) -> Iterator[Effect]:
    """Yield what a GitOps tool does, and what a person must: first what releases nodes, then files to apply again.

    A tool deletes an object that leaves the repository, and with it what it installed: so every node is released.
    """
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
