"""Who is affected by other values of NVIDIA's charts, by other images, and by another namespace of the stack. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.compare import bundles
from gpushare.compare.bundles import nvidia_stack
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, Files, parsed
from gpushare.vendors.nvidia import NVIDIA

_OPERATOR = "gpu-operator/values.yaml"
_UPSTREAM = (_OPERATOR, "device-plugin/values.yaml")
_OF_DRIVER = ("driver", "daemonsets")
"""The sections of the values that the driver's DaemonSet is rendered from."""
_CHART = re.compile(r"^# The chart: .* --version (\S+)$", re.MULTILINE)


def of_upstream(old: Files, new: Files, changed: tuple[FileDiff, ...]) -> Iterator[Effect]:
    """Yield the effects of other values and images of NVIDIA's components. A chart added or removed is `REINSTALLED` alone."""
    if {path for path in _UPSTREAM if path in old} != {path for path in _UPSTREAM if path in new}:
        return
    runs = _runs_driver(old), _runs_driver(new)
    if runs == (True, False):
        yield Effect(kind=EffectKind.DRIVERLESS, pool=None, subject="driver.enabled", before=True, after=False)
    versions = [_version(side) for side in (old, new)]
    if all(runs) and None not in versions and versions[0] != versions[1]:  # each release has another driver by default
        yield Effect(kind=EffectKind.DRIVER, pool=None, subject="version", before=versions[0], after=versions[1])
    for change in changed:
        if change.path in _UPSTREAM:
            for one in change.settings:
                kind = EffectKind.DRIVER if runs[1] and one.path[0] in _OF_DRIVER else EffectKind.UPSTREAM
                if runs == (True, False) and one.path == ("driver", "enabled"):
                    continue
                yield Effect(kind=kind, pool=None, subject=".".join(one.path), before=one.before, after=one.after)
        elif change.path == bundles.IMAGES:
            yield from of_images(EffectKind.UPSTREAM, *(bundles.images(side).nvidia for side in (old, new)))


def of_images(kind: EffectKind, before: frozenset[str], after: frozenset[str]) -> Iterator[Effect]:
    """Yield the effect of other images of one chart's programs."""
    if before != after:
        yield Effect(kind=kind, pool=None, subject="images", before=sorted(before - after), after=sorted(after - before))


def _runs_driver(files: Files) -> bool:
    """Whether gpu-operator runs the driver, which is the default of its chart."""
    found = parsed(_OPERATOR, files[_OPERATOR]) if _OPERATOR in files else None
    return isinstance(found, dict) and (found.get("driver") or {}).get("enabled") is not False


def _version(files: Files) -> str | None:
    """Return the version of the operator's chart; None if the bundle does not say it."""
    found = _CHART.search(files.get(bundles.IMAGES, ""))
    return found[1] if found else None


def of_namespace(old: Files, new: Files) -> Iterator[Effect]:
    """Yield the effect of another namespace, which means another release: Helm cannot move one."""
    ours, theirs = zip(*map(_namespaces, (old, new)), strict=True)
    for subject, (before, after) in (("namespace", ours), ("namespace of the device plugin", theirs)):
        if before and after and before != after:
            yield Effect(kind=EffectKind.REINSTALLED, pool=None, subject=subject, before=before, after=after)


def _namespaces(files: Files) -> tuple[str, str]:
    """Return the namespace of our chart, and that of NVIDIA's device plugin; empty where no file says it."""
    path, values = "namespace.yaml", bundles.values(files)
    own = (parsed(path, files.get(path, "")) or {}).get("metadata", {}).get("name", "")
    return own, values.get("pluginNamespace") or own if bundles.nvidia_stack(values) is not None else ""


_TENANCY = frozenset({"enforce", "scope", "tenants", "platformNamespaces"})
"""Keys that define who is a tenant: the runtime reads them as it runs; on a GPU not allocated to it, a tenant's cap is 0."""

_STRICTNESS = ("none", "audit", "warn", "deny")


def of_values(old: Mapping[str, Any], new: Mapping[str, Any], successors: Mapping[str, str]) -> Iterator[Effect]:
    """Yield the effects of other values, adoption and pools first. `successors`: removed pool → its nodes' new pool."""
    adoption = [side.get("adoption", "enforce") for side in (old, new)]
    if adoption[0] != adoption[1]:
        yield Effect(kind=EffectKind.ADOPTED, pool=None, subject="adoption", before=adoption[0], after=adoption[1])
    yield from _pools(old.get("pools") or {}, new.get("pools") or {}, successors, _mutates(old) or _mutates(new))
    yield from _cluster(old, new)


def _pools(old: Mapping[str, Any], new: Mapping[str, Any], successors: Mapping[str, str], mutates: bool) -> Iterator[Effect]:
    """Yield the effects of the pools' values, other than their policies."""
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
    """Whether pods that name no pool are sent to the default pool."""
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
    for key in ("image", "imagePullSecrets", "runtimeClassName", "kubeletRoot", "hasClaims", "releaseAfter", "gpuClientLabel"):
        if (old.get(key) or "") != (new.get(key) or ""):
            yield Effect(kind=EffectKind.RESTARTS, pool=None, subject=key, before=old.get(key), after=new.get(key))
    yield from _of_stack(nvidia_stack(old), nvidia_stack(new))
    for key in ("partitioner", "cluster"):
        if old.get(key) != new.get(key):
            yield Effect(kind=EffectKind.RESTARTS, pool=None, subject=key, before=old.get(key), after=new.get(key))


def _of_stack(before: str | None, after: str | None) -> Iterator[Effect]:
    """Yield the effect of another stack of NVIDIA's; of the first one none, because nothing of it runs yet."""
    if after is None:
        if before in NVIDIA.charts:
            yield Effect(kind=EffectKind.UNINSTALLED, pool=None, subject="stack", before=before)
    elif before is not None and before != after:
        yield Effect(kind=EffectKind.REINSTALLED, pool=None, subject="stack", before=before, after=after)


def _refuses(key: str, before: Any, after: Any) -> bool:
    """Whether a changed setting of admission rejects pods that were admitted before."""
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
