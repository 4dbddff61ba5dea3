"""What a pool's shares become for users and nodes. A back end is one module with these functions; today there is one."""

from collections.abc import Mapping
from typing import Any, Protocol

from gpushare.backends import device_plugin
from gpushare.catalog.cards import MigProfile
from gpushare.intent.types import Pool


class Backend(Protocol):
    """What the plan and the renderers ask of a back end."""

    def names(self, pool: Pool, profile: MigProfile | None, *, is_shared: bool) -> tuple[str, str]:
        """Return the name of a kind of device before sharing renames it, and the one that users request."""

    def profile(self, pool: Pool, replicated: Mapping[str, int]) -> tuple[str, dict[str, Any]]:
        """Return the key and the content of what nodes are configured with; `replicated`: names before renaming → shares."""

    def labels(self, key: str) -> dict[str, list[str]]:
        """Return the labels by which a node gets the profile of that key, each with every value that it may have."""

    def quota_key(self, resource: str) -> str:
        """Return what a ResourceQuota calls the resource."""

    def requesting(self, container: Mapping[str, Any], resource: str) -> dict[str, Any]:
        """Return the part of a pod's spec with the container, which gets one share of the resource."""


def of(pool: Pool) -> Backend:  # noqa: ARG001 - every pool has the same today
    """Return the pool's back end."""
    return device_plugin
