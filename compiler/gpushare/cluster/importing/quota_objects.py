"""ResourceQuota objects: what they say about resources of vendors of GPUs.

Facts: Kubernetes has quotas of extended resources only as `requests.<resource>`; the bare name and `limits.` have no effect. It
counts devices that were claimed by their class, as `<class>.deviceclass.resource.k8s.io/devices`.
"""

from collections.abc import Iterator

from gpushare.cluster.importing.accounting import shown
from gpushare.cluster.importing.documents import described
from gpushare.cluster.importing.facts import ImportedQuota
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import shorten
from gpushare.facts.vendors import VENDORS
from gpushare.offering.backends.requests import QUOTA, QUOTA_OF_CLASS, quota_resource

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
