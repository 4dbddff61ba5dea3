"""Who is affected by other values of our chart: admission, default pools, tolerations, the runtime's pods. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.compare.bundles import nvidia_stack
from gpushare.compare.effects import Effect, EffectKind
from gpushare.facts.vendors.nvidia import NVIDIA

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
