"""ResourceQuotas to the intent's quotas: a resource's quota becomes one of a pool that offers the resource.

Facts: Kubernetes has quotas of extended resources only as `requests.<resource>`; the bare name and `limits.` have no effect. It
counts devices that were claimed by their class, as `<class>.deviceclass.resource.k8s.io/devices`.

The compiler adds up the quotas of all pools with one resource, so that a budget given to one of them is the same as before.
"""

from collections.abc import Iterable, Iterator

from gpushare.cluster.importing import moving
from gpushare.cluster.importing.accounting import shown
from gpushare.cluster.importing.documents import described
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import ImportedQuota
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import join_first, shorten
from gpushare.offering.backends.requests import QUOTA, QUOTA_OF_CLASS, quota_resource
from gpushare.vendors import VENDORS

_HAMI = ("gpumem", "gpucores", "gpumem-percentage", "vgpu")
_SCOPES = ("scopes", "scopeSelector")


def is_of_gpus(key: str) -> bool:
    """Whether a key of a quota is about resources of a vendor of GPUs, or about devices of a DeviceClass."""
    return key.endswith(QUOTA_OF_CLASS) or any(vendor.prefix in key for vendor in VENDORS.values())


def read(part: Part, notes: Notes) -> Iterator[ImportedQuota]:
    """Yield the lines on such resources."""
    namespace = part.at("metadata", "namespace").text
    if _is_scoped(part, notes):
        return
    for key, value in part.at("spec", "hard").items():
        if not is_of_gpus(key):
            continue
        resource = quota_resource(key)
        if key.rpartition("/")[2] in _HAMI:
            problem = f"the quota {shorten(key)}: {shown(value.whole)} is HAMi's, which shares by its own scheduler: left out"
            hint = "write a quota of the pool: {memory: 8Gi} limits memory, a number limits shares"
            notes.warn("GS863", value, problem, hint, on_key=True)
        elif not key.startswith(QUOTA) and resource == key:
            hint = f"write requests.{key.removeprefix('limits.')}, if a quota is wanted"
            problem = f"the quota {shorten(key)}: {shown(value.whole)} has no effect: only requests.* counts"
            notes.warn("GS863", value, problem, hint, on_key=True)
        elif (count := value.devices) is None or count < 0:
            notes.error("GS850", value, f"{shorten(value.value)} is not a number of devices", "write a whole number in quotes")
        elif not namespace:
            notes.warn("GS863", value, "the ResourceQuota has no namespace: left out", "write metadata.namespace", on_key=True)
        else:
            yield ImportedQuota(namespace=namespace, resource=resource, count=count, origin=described(part), part=value)


def _is_scoped(part: Part, notes: Notes) -> bool:
    """Report a ResourceQuota that counts some pods only: an intent's counts all, so that the limits would be others."""
    hard = [value for key, value in part.at("spec", "hard").items() if is_of_gpus(key)]
    scopes = [part.at("spec", field) for field in _SCOPES if part.at("spec", field).value]
    if not hard or not scopes:
        return False
    scopes_shown = "; ".join(f"{one.path[-1]}: {shown(one.whole)}" for one in (*hard, *scopes))
    notes.warn(
        "GS863",
        scopes[0],
        f"{described(part)} counts only pods of a scope, which no quota of an intent does: {scopes_shown}",
        "keep this ResourceQuota beside the bundle's",
        on_key=True,
    )
    return True


def add(quotas: Iterable[ImportedQuota], draft: Draft, notes: Notes) -> None:
    """Add the quotas; several on one resource of a namespace count as the smallest, as in Kubernetes."""
    least: dict[tuple[str, str], ImportedQuota] = {}
    for quota in quotas:
        known = least.setdefault((quota.namespace, quota.resource), quota)
        if known is quota:
            continue
        smaller, larger = sorted((known, quota), key=lambda one: one.count)
        least[quota.namespace, quota.resource] = smaller
        notes.warn(
            "GS863",
            larger.part,
            f"{larger.origin} allows {larger.count} {shorten(larger.resource)}, and "
            f"{smaller.origin} {smaller.count}: the smaller one holds",
            "keep one of them",
            on_key=True,
        )
    of_dra = moving.of_dra(draft)
    for (namespace, resource), quota in sorted(least.items()):
        offers = sorted(draft.resources.get(resource, ()), key=lambda offer: (offer[0], offer[1] or ""))
        if not offers:
            notes.warn(
                "GS863",
                quota.part,
                f"no pool offers {shorten(resource)}: the quota of {shorten(namespace)}, {quota.count}, is left out",
                "give the Nodes and configs that offer it",
                on_key=True,
            )
            continue
        pool, profile = offers[0]
        others = join_first([name for name, _ in offers[1:]])
        if others and any(name in of_dra for name, _ in offers):
            notes.warn(
                "GS863",
                quota.part,
                f"the quota of {quota.count} {shorten(resource)} holds in pools {pool} and {others} together: with DRA each has"
                f" a quota of its own, and it is written for {pool} alone",
                "write quotas for the other pools",
                on_key=True,
            )
        elif others:
            notes.warn(
                "GS860",
                quota.part,
                f"assumed: the quota is written for pool {pool}; it holds in {others} as well",
                "the pools offer the same resource, and Kubernetes has one quota for it",
                on_key=True,
            )
        path = ("quotas", namespace, pool)
        known_number = draft.spec.get("quotas", {}).get(namespace, {}).get(pool, quota.count)
        number = min(quota.count, known_number) if isinstance(known_number, int) else quota.count
        if profile is None:
            draft.put(path, number, quota.part, f"from {quota.origin}")
        else:
            draft.put((*path, profile), quota.count, quota.part)
            draft.note(path, quota.part, f"from {quota.origin}")
