"""Who is affected by differences of two bundles other than layouts: caps, actions, admission, namespaces, the stack. Pure.

No effects are reported for a part that one of the bundles does not have.
"""

from collections.abc import Iterator, Mapping

from gpushare.compare.amd_effects import of_amd
from gpushare.compare.bundles import POLICIES, VALUES, policy, values
from gpushare.compare.dra_effects import of_dra
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, Files
from gpushare.compare.gitops_effects import of_gitops
from gpushare.compare.policy_effects import of_policy
from gpushare.compare.stack_effects import of_namespace, of_upstream
from gpushare.compare.value_effects import of_values
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.struct import NOTHING

_OF_STACKS = (of_amd,)
"""What a change of the stack of another vendor than NVIDIA does."""


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
        for of_stack in _OF_STACKS:
            found += of_stack(old, new, changed, successors, left)
    return tuple(found)


def _gone(pool: str, successor: str | None, old: Files, new: Files, denies: bool) -> Iterator[Effect]:
    """Yield the effects of a removed pool: on pods that name it, and those of its nodes' new policy."""
    yield Effect(kind=EffectKind.UNPLACED, pool=pool, subject=POOL_LABEL, before=pool, after=successor)
    if successor is not None:
        yield from of_policy(successor, policy(old, pool), policy(new, successor), denies)
