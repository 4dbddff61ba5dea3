"""Who is hurt by what differs between two bundles besides layouts: caps, actions, admission, namespaces, the stack. Pure.

Reads the policies, the chart's values and the upstream values of both sides; says nothing where a side has none.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from gpushare.compare.files import FileChange, Files, parsed
from gpushare.record import NOTHING, Record

_POLICIES = "chart/files/policies/"
_VALUES = "chart/values.yaml"
_OPERATOR = "gpu-operator/values.yaml"
_UPSTREAM = (_OPERATOR, "device-plugin/values.yaml")
_OF_DRIVER = ("driver", "daemonsets")
"""What the driver's DaemonSet is made of."""
_OURS = "gpushare/node-runtime"
_IMAGES = "images.txt"
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
    pace themselves. UPSTREAM: NVIDIA's components start anew. DRIVER: the driver does, so tenants leave its nodes. ROUTED: pods
    that name no pool, and are created from now on, go to other nodes. UNPLACED: so do not those that name a pool that is gone.
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
    UPSTREAM = "upstream"
    DRIVER = "driver"
    ROUTED = "routed"
    UNPLACED = "unplaced"


class Effect(Record):
    """One effect. `pool` None: the whole cluster. `subject` is the setting or resource; before and after are its values."""

    kind: EffectKind
    pool: str | None
    subject: str
    before: Any = None
    after: Any = None

    @property
    def is_harmless(self) -> bool:
        """Whether it neither ends a container nor refuses or moves a pod, changes ConfigMaps alone, and needs no hand."""
        return self.kind in _HARMLESS or (self.kind is EffectKind.RESTARTS and self.subject == "policy")


_HARMLESS = frozenset({EffectKind.ROLLOUT, EffectKind.KEEPS_CAP, EffectKind.SPARED, EffectKind.ADMITTED})


def effects(
    old: Files, new: Files, changed: tuple[FileChange, ...], successors: Mapping[str, str] = NOTHING
) -> tuple[Effect, ...]:
    """Every effect of the files that differ, those of pools first. `successors`: pool that is gone → its nodes' new one."""
    paths = {change.path for change in changed}
    before, after = values(old), values(new)
    denies = (after.get("admission") or {}).get("enforce", "deny") == "deny"
    found: list[Effect] = []
    for path in sorted(paths):
        pool = path.removeprefix(_POLICIES).removesuffix(".yaml")
        if not path.startswith(_POLICIES) or path not in old:
            continue
        if path in new:
            found.append(Effect(kind=EffectKind.RESTARTS, pool=pool, subject="policy"))
            found += _pool(pool, policy(old, pool), policy(new, pool), denies)
        else:
            found += _gone(pool, successors.get(pool), old, new, denies)
    if _VALUES in paths and before and after:
        found += _pools(before.get("pools") or {}, after.get("pools") or {}, successors, _mutates(before) or _mutates(after))
        found += _cluster(before, after)
    found += _namespace(old, new)
    found += _upstream(old, new, changed)
    return tuple(found)


def values(files: Files) -> Mapping[str, Any]:
    """The chart's values; empty where the bundle has none."""
    found = parsed(_VALUES, files[_VALUES]) if _VALUES in files else None
    return found if isinstance(found, dict) else {}


def terms(files: Files) -> dict[str, Any]:
    """By pool which nodes its DaemonSet selects; empty where the bundle does not say."""
    return {name: pool.get("terms") for name, pool in (values(files).get("pools") or {}).items()}


def policy(files: Files, pool: str) -> Mapping[str, Any]:
    """The spec of a pool's policy; empty where the bundle has none."""
    path = f"{_POLICIES}{pool}.yaml"
    document = parsed(path, files[path]) if path in files else None
    spec = document.get("spec") if isinstance(document, dict) else None
    return spec if isinstance(spec, dict) else {}


def _gone(pool: str, successor: str | None, old: Files, new: Files, denies: bool) -> Iterator[Effect]:
    """A pool that is gone: those who name it, and what its nodes' new policy changes."""
    yield Effect(kind=EffectKind.UNPLACED, pool=pool, subject="gpushare.dev/pool", before=pool, after=successor)
    if successor is not None:
        yield from _pool(successor, policy(old, pool), policy(new, successor), denies)


def _pool(pool: str, old: Mapping[str, Any], new: Mapping[str, Any], denies: bool) -> Iterator[Effect]:
    before, after = _caps(old), _caps(new)
    for share in sorted(before.keys() & after.keys()):
        for key, kind in (("capMiB", EffectKind.KEEPS_CAP), ("toleranceMiB", EffectKind.ENFORCED)):
            if before[share][key] != after[share][key]:
                yield Effect(
                    kind=kind, pool=pool, subject=f"{share} {key}", before=before[share][key], after=after[share][key]
                )
    yield from _enforcement(pool, old.get("enforcement") or {}, new.get("enforcement") or {})
    yield from _differing(EffectKind.ROLLOUT, pool, "rollout", old, new)
    yield from _namespaces(pool, set(old.get("namespaces") or ()), set(new.get("namespaces") or ()), denies)


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


def _namespaces(pool: str, old: set[str], new: set[str], denies: bool) -> Iterator[Effect]:
    """An empty list admits every namespace; so does an admission that does not deny."""
    if old == new:
        return
    shrinks = denies and bool(new) and (not old or bool(old - new))
    kind = EffectKind.REFUSED if shrinks else EffectKind.ADMITTED
    yield Effect(kind=kind, pool=pool, subject="namespaces", before=sorted(old), after=sorted(new))


def _pools(
    old: Mapping[str, Any], new: Mapping[str, Any], successors: Mapping[str, str], mutates: bool
) -> Iterator[Effect]:
    """What the chart says of pools besides their policies."""
    for name in sorted(old):
        pool = successors.get(name, name)
        before, after = old[name], new.get(pool) or {}
        if after and before.get("tolerations") != after.get("tolerations"):
            both = {"before": before.get("tolerations"), "after": after.get("tolerations")}
            yield Effect(kind=EffectKind.RESTARTS, pool=pool, subject="tolerations", **both)
    for pool in sorted(old.keys() | new.keys()):
        before, after = (bool((side.get(pool) or {}).get("default")) for side in (old, new))
        if before != after and mutates:
            yield Effect(kind=EffectKind.ROUTED, pool=pool, subject="default", before=before, after=after)


def _mutates(values: Mapping[str, Any]) -> bool:
    """Whether pods that name no pool are sent to the default one."""
    admission = values.get("admission") or {}
    return bool(admission.get("mutate")) and admission.get("enforce") != "none"


def _cluster(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Effect]:
    before, after = old.get("admission") or {}, new.get("admission") or {}
    denies = after.get("enforce", "deny") == "deny"
    routed = _mutates(old), _mutates(new)
    if routed[0] != routed[1]:
        yield Effect(kind=EffectKind.ROUTED, pool=None, subject="admission.mutate", before=routed[0], after=routed[1])
    for key in sorted((before.keys() | after.keys()) - {"mutate"}):
        if before.get(key) != after.get(key):
            refuses = denies and _refuses(key, before.get(key), after.get(key))
            kind = EffectKind.REFUSED if refuses else EffectKind.ADMITTED
            yield Effect(kind=kind, pool=None, subject=f"admission.{key}", before=before.get(key), after=after.get(key))
            if refuses and key in _TENANCY:
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
        case "ambiguous" | "tenants":
            return bool(set(after or ()) - set(before or ()))
        case _:
            return True


def _rank(word: Any) -> int:
    return _STRICTNESS.index(word) if word in _STRICTNESS else -1


def _upstream(old: Files, new: Files, changed: tuple[FileChange, ...]) -> Iterator[Effect]:
    """What NVIDIA's components get told, and their images."""
    driver = _runs_driver(old) or _runs_driver(new)
    for change in changed:
        if change.path in _UPSTREAM:
            for one in change.settings:
                kind = EffectKind.DRIVER if driver and one.path[0] in _OF_DRIVER else EffectKind.UPSTREAM
                yield Effect(kind=kind, pool=None, subject=".".join(one.path), before=one.before, after=one.after)
        elif change.path == _IMAGES:
            before, after = (set(_images(side.get(_IMAGES, ""))) for side in (old, new))
            if before != after:
                both = {"before": sorted(before - after), "after": sorted(after - before)}
                yield Effect(kind=EffectKind.DRIVER if driver else EffectKind.UPSTREAM, pool=None, subject="images", **both)


def _runs_driver(files: Files) -> bool:
    """Whether gpu-operator runs the driver, which its chart does unless it is told otherwise."""
    found = parsed(_OPERATOR, files[_OPERATOR]) if _OPERATOR in files else None
    return isinstance(found, dict) and (found.get("driver") or {}).get("enabled") is not False


def _images(text: str) -> Iterator[str]:
    """NVIDIA's; ours is a value of the chart too."""
    return (line for line in text.splitlines() if line and not line.startswith("#") and _OURS not in line)


def _namespace(old: Files, new: Files) -> Iterator[Effect]:
    path = "namespace.yaml"
    if old.get(path) == new.get(path) or path not in old or path not in new:
        return
    names = [(parsed(path, side[path]) or {}).get("metadata", {}).get("name") for side in (old, new)]
    if names[0] != names[1]:
        yield Effect(kind=EffectKind.REINSTALLED, pool=None, subject="namespace", before=names[0], after=names[1])
