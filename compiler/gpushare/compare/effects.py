"""Who is hurt by what differs between two bundles besides layouts: caps, actions, admission, namespaces, the stack. Pure.

Reads the policies and the chart's values of both sides; says nothing where a side has none.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from gpushare.compare.files import FileChange, Files, parsed
from gpushare.record import Record

_POLICIES = "chart/files/policies/"
_VALUES = "chart/values.yaml"
_ENDING = ("kill", "evict")
_TENANCY = frozenset({"enforce", "scope", "tenants", "platformNamespaces"})
"""What says who is a tenant: the runtime reads it while it runs, and a tenant's cap is 0 on a GPU that it was not given."""

_STRICTNESS = ("none", "audit", "warn", "deny")


class EffectKind(StrEnum):
    """What happens to whom.

    KEEPS_CAP: running containers keep the cap of before, later ones get the other. ENDED: running containers over their cap
    are ended from now on; without a pool, those of tenants on GPUs that they were not given. SPARED: they no longer are.
    ENFORCED: how caps are held changes otherwise. REFUSED, ADMITTED: pods that are created from now on. RESTARTS: the runtime's
    pods start anew, tenants go on. REINSTALLED: the release that is installed must be uninstalled first. ROLLOUT: how changes
    pace themselves.
    """

    KEEPS_CAP = "keeps-cap"
    ENDED = "ended"
    SPARED = "spared"
    ENFORCED = "enforced"
    REFUSED = "refused"
    ADMITTED = "admitted"
    RESTARTS = "restarts"
    REINSTALLED = "reinstalled"
    ROLLOUT = "rollout"


class Effect(Record):
    """One effect. `pool` None: the whole cluster. `subject` is the setting or resource; before and after are its values."""

    kind: EffectKind
    pool: str | None
    subject: str
    before: Any = None
    after: Any = None


def effects(old: Files, new: Files, changed: tuple[FileChange, ...]) -> tuple[Effect, ...]:
    """Every effect of the files that differ, those of pools first."""
    paths = {change.path for change in changed}
    found: list[Effect] = []
    for path in sorted(paths):
        if path.startswith(_POLICIES) and path in old and path in new:
            pool = path.removeprefix(_POLICIES).removesuffix(".yaml")
            found += _pool(pool, policy(old, pool), policy(new, pool))
    if _VALUES in paths and _VALUES in old and _VALUES in new:
        found += _cluster(parsed(_VALUES, old[_VALUES]) or {}, parsed(_VALUES, new[_VALUES]) or {})
    found += _namespace(old, new)
    return tuple(found)


def policy(files: Files, pool: str) -> Mapping[str, Any]:
    """The spec of a pool's policy; empty where the bundle has none."""
    path = f"{_POLICIES}{pool}.yaml"
    document = parsed(path, files[path]) if path in files else None
    spec = document.get("spec") if isinstance(document, dict) else None
    return spec if isinstance(spec, dict) else {}


def _pool(pool: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Effect]:
    yield Effect(kind=EffectKind.RESTARTS, pool=pool, subject="policy")
    before, after = _caps(old), _caps(new)
    for share in sorted(before.keys() & after.keys()):
        for key, kind in (("capMiB", EffectKind.KEEPS_CAP), ("toleranceMiB", EffectKind.ENFORCED)):
            if before[share][key] != after[share][key]:
                yield Effect(
                    kind=kind, pool=pool, subject=f"{share} {key}", before=before[share][key], after=after[share][key]
                )
    yield from _enforcement(pool, old.get("enforcement") or {}, new.get("enforcement") or {})
    yield from _differing(EffectKind.ROLLOUT, pool, "rollout", old, new)
    yield from _namespaces(pool, set(old.get("namespaces") or ()), set(new.get("namespaces") or ()))


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


def _differing(
    kind: EffectKind, pool: str, field: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[Effect]:
    before, after = old.get(field) or {}, new.get(field) or {}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield Effect(kind=kind, pool=pool, subject=f"{field}.{key}", before=before.get(key), after=after.get(key))


def _namespaces(pool: str, old: set[str], new: set[str]) -> Iterator[Effect]:
    """An empty list admits every namespace."""
    if old == new:
        return
    shrinks = bool(new) and (not old or bool(old - new))
    kind = EffectKind.REFUSED if shrinks else EffectKind.ADMITTED
    yield Effect(kind=kind, pool=pool, subject="namespaces", before=sorted(old), after=sorted(new))


def _cluster(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Effect]:
    before, after = old.get("admission") or {}, new.get("admission") or {}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            kind = EffectKind.REFUSED if _refuses(key, before.get(key), after.get(key)) else EffectKind.ADMITTED
            yield Effect(kind=kind, pool=None, subject=f"admission.{key}", before=before.get(key), after=after.get(key))
            if kind is EffectKind.REFUSED and key in _TENANCY and after.get("enforce") == "deny":
                yield Effect(
                    kind=EffectKind.ENDED, pool=None, subject=f"admission.{key}", before=before.get(key), after=after.get(key)
                )
    for key in ("image", "imagePullSecrets", "runtimeClassName", "kubeletRoot"):
        if old.get(key) != new.get(key):
            yield Effect(kind=EffectKind.RESTARTS, pool=None, subject=key, before=old.get(key), after=new.get(key))
    for key in ("stack", "partitioner", "cluster"):
        if old.get(key) != new.get(key):
            kind = EffectKind.REINSTALLED if key == "stack" else EffectKind.RESTARTS
            yield Effect(kind=kind, pool=None, subject=key, before=old.get(key), after=new.get(key))


def _refuses(key: str, before: Any, after: Any) -> bool:
    """Whether a changed setting of admission refuses pods that were taken before."""
    match key:
        case "enforce":
            return _rank(after) > _rank(before)
        case "scope":
            return bool(after == "cluster")
        case "platformNamespaces" | "localhostProfiles":
            return bool(set(before or ()) - set(after or ()))
        case _:
            return bool(set(map(str, after or ())) - set(map(str, before or ())))


def _rank(word: Any) -> int:
    return _STRICTNESS.index(word) if word in _STRICTNESS else -1


def _namespace(old: Files, new: Files) -> Iterator[Effect]:
    path = "namespace.yaml"
    if old.get(path) == new.get(path) or path not in old or path not in new:
        return
    names = [(parsed(path, side[path]) or {}).get("metadata", {}).get("name") for side in (old, new)]
    if names[0] != names[1]:
        yield Effect(kind=EffectKind.REINSTALLED, pool=None, subject="namespace", before=names[0], after=names[1])
