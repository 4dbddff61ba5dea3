"""How a pod requests an extended resource, and what a ResourceQuota calls what pods request: the same for all vendors."""

from collections.abc import Mapping
from typing import Any

QUOTA = "requests."

QUOTA_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
"""With which the key ends that counts the devices of a DeviceClass."""


def limited(container: Mapping[str, Any], resource: str) -> dict[str, Any]:
    """Return the part of a pod's spec with the container, which gets one of the resource."""
    return {"containers": [{**container, "resources": {"limits": {resource: 1}}}]}


def quota_resource(key: str) -> str:
    """Return the resource or the DeviceClass that a ResourceQuota calls so."""
    return key.removesuffix(QUOTA_OF_CLASS) if key.endswith(QUOTA_OF_CLASS) else key.removeprefix(QUOTA)
