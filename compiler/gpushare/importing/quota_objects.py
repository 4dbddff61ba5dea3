"""ResourceQuota objects: what they say about NVIDIA's resources.

Fact: Kubernetes has quotas of extended resources only as `requests.<resource>`; the bare name and `limits.` have no effect.
"""

from collections.abc import Iterator

from gpushare.core.wording import shorten
from gpushare.importing.documents import described
from gpushare.importing.facts import ImportedQuota
from gpushare.importing.parts import Notes, Part

_PREFIX = "requests."


def read(part: Part, notes: Notes) -> Iterator[ImportedQuota]:
    """Yield the lines on NVIDIA's resources."""
    namespace = part.at("metadata", "namespace").text
    for key, value in part.at("spec", "hard").items():
        if "nvidia.com/" not in key:
            continue
        resource = key.removeprefix(_PREFIX)
        if not key.startswith(_PREFIX):
            hint = f"write requests.{key.removeprefix('limits.')}, if a quota is wanted"
            notes.warn("GS863", value, f"the quota {shorten(key)} has no effect: only requests.* counts", hint, on_key=True)
        elif (count := value.devices) is None or count < 0:
            notes.error("GS850", value, f"{shorten(value.value)} is not a number of devices", "write a whole number in quotes")
        elif not namespace:
            notes.warn("GS863", value, "the ResourceQuota has no namespace: left out", "write metadata.namespace", on_key=True)
        else:
            yield ImportedQuota(namespace=namespace, resource=resource, count=count, origin=described(part), part=value)
