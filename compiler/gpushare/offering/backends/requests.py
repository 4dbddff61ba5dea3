"""How a pod requests an extended resource, and what a ResourceQuota calls what pods request: the same for all vendors."""

from collections.abc import Mapping
from typing import Any

QUOTA = "requests."

QUOTA_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
"""With which the key ends that counts the devices of a DeviceClass."""

OUR_CLASSES = "gpushare-"
"""With which the name of every DeviceClass of ours begins."""


def limited(container: Mapping[str, Any], resource: str) -> dict[str, Any]:
    """Return the part of a pod's spec with the container, which gets one of the resource."""
    return {"containers": [{**container, "resources": {"limits": {resource: 1}}}]}


def quota_resource(key: str) -> str:
    """Return the resource or the DeviceClass that a ResourceQuota calls so."""
    return key.removesuffix(QUOTA_OF_CLASS) if key.endswith(QUOTA_OF_CLASS) else key.removeprefix(QUOTA)


class ExtendedResources:
    """The part of a back end whose devices pods request as extended resources."""

    handover_seconds = 15
    """From the taint to the new allocatable of a node that gets this back end: 10.5 s on the test cluster, rounded up; 7.7 s
    with DRA."""

    def quota_key(self, resource: str) -> str:
        """Return what a ResourceQuota calls the resource."""
        return f"{QUOTA}{resource}"

    def quota_keys(self, resource: str) -> tuple[str, ...]:
        """Return every key that limits it."""
        return (self.quota_key(resource),)

    def extended_name(self, resource: str) -> str:
        """Return the name of the resource in `limits`, of which there is one."""
        return resource

    def limits(self, resource: str) -> tuple[str, ...]:
        """Return the names of the resource in `limits`."""
        return (resource,)

    def requesting(self, container: Mapping[str, Any], resource: str) -> dict[str, Any]:
        """Return the part of a pod's spec with the container, which gets one of the resource."""
        return limited(container, resource)
