"""Who is affected by another policy of a pool: caps, how they are enforced, rollouts, and the pool's namespaces. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.compare.effects import Effect, EffectKind

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
