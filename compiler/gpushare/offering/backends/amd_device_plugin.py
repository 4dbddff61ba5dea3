"""AMD's device plugin: its flag `resource_naming_strategy` decides the names of the resources, for all GPUs of a node.

`single` names every device amd.com/gpu; `mixed` names it by its mode, which whole GPUs of a card with partitions have too
(spx_nps1). So whole GPUs are offered with `single` (ROCm k8s-device-plugin v1.31.0.10).
"""

from collections.abc import Mapping
from typing import Any

from gpushare.bundle.artifact import content_hash
from gpushare.facts.catalog.cards import DeviceProfile
from gpushare.intent.types import MigStrategy, Pool
from gpushare.offering import modes
from gpushare.offering.backends.requests import ExtendedResources
from gpushare.vendors.amd import AMD


class AmdDevicePlugin(ExtendedResources):
    """The back end of one pool of AMD's GPUs."""

    needs_runtime_class = False

    def __init__(self, pool: Pool) -> None:
        self._mode = pool.mode
        self.strategy = MigStrategy.MIXED if modes.of(pool).is_named_by_mode else MigStrategy.SINGLE

    def names(self, profile: DeviceProfile | None, *, is_shared: bool) -> tuple[str, str]:  # noqa: ARG002 - none is shared
        """Return the name of a device's resource, twice: nothing renames it."""
        is_named = profile is not None and self.strategy is MigStrategy.MIXED
        name = f"{AMD.prefix}{profile.resource_suffix}" if is_named and profile else AMD.whole_gpu
        return name, name

    def profile(self, replicated: Mapping[str, int]) -> tuple[str, dict[str, Any]]:  # noqa: ARG002 - none is replicated
        """Return the key of what nodes offer, `<mode>-<8 hex>`, and the arguments of the plugin."""
        config = {"resource_naming_strategy": self.strategy.value}
        return f"{self._mode.value}-{content_hash(config)}", config

    def labels(self, key: str) -> dict[str, list[str]]:  # noqa: ARG002 - a DeviceConfig selects nodes by their pool
        """Return no label: the plugin follows none."""
        return {}
