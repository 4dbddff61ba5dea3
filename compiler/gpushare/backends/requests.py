"""How a pod requests an extended resource, and what a ResourceQuota calls it: alike for the device plugins of all vendors."""

from collections.abc import Mapping
from typing import Any

QUOTA = "requests."


def limited(container: Mapping[str, Any], resource: str) -> dict[str, Any]:
    """Return the part of a pod's spec with the container, which gets one of the resource."""
    return {"containers": [{**container, "resources": {"limits": {resource: 1}}}]}


def quota_resource(key: str) -> str:
    """Return the resource that a ResourceQuota calls so."""
    return key.removeprefix(QUOTA)
