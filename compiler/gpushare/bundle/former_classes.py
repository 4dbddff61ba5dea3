"""The DeviceClasses that no pool of the intent has any more, as the lock remembers them, and what else their nodes need.

A node is changed when its turn comes, and until then its GPUs are offered by its former class. Pure.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gpushare_node.contract.struct import NOTHING, Struct

_OF_POOL = ("limited.", "namespace.")
"""With which the lookups begin that a pool of the intent has itself."""


class FormerClasses(Struct):
    """`classes` are entries of the lock by the name of the class; `driver_namespace`: where the driver's pods run, if known."""

    driver_namespace: str = ""
    classes: Mapping[str, Any] = NOTHING

    def specs(self) -> dict[str, Any]:
        """Return what the chart makes of each class."""
        return {name: {"pool": entry["pool"], "spec": entry["spec"]} for name, entry in sorted(self.classes.items())}

    def lookups(self, pools: Collection[str]) -> dict[str, str]:
        """Return what the admission policies look up of the classes. `pools` are those of the intent."""
        found: dict[str, str] = {}
        for key, text in self._lookups(pools):
            is_list = key.startswith("namespace.") and text not in found.get(key, "").split()
            found[key] = f"{found.get(key, '')} {text}".strip() if is_list else found.get(key, text)
        return dict(sorted(found.items()))

    def _lookups(self, pools: Collection[str]) -> Iterator[tuple[str, str]]:
        for _, entry in sorted(self.classes.items()):
            for key, text in entry["lookups"].items():
                if entry["pool"] not in pools or not key.startswith(_OF_POOL):
                    yield key, text

    def quotas(self, namespace: str, key: str) -> dict[str, int]:
        """Return of how many devices a namespace may have claims. `key` is what a ResourceQuota adds to the name of a class."""
        numbers = {name: entry["quotas"].get(namespace) for name, entry in self.classes.items()}
        return {f"{name}{key}": number for name, number in numbers.items() if number is not None}


def former(dra: Mapping[str, Any], current: Collection[str]) -> FormerClasses:
    """Return the classes of a lock's `dra` that are not among those that the pools of the intent have."""
    classes = {name: entry for name, entry in dra.get("classes", {}).items() if name not in current}
    return FormerClasses(driver_namespace=dra.get("driverNamespace", ""), classes=classes)
