"""NVIDIA's device plugin: each node has one of its configs, and pods request extended resources.

Configs contain nothing specific to one pool, so pools that share in the same way get equal configs and equal names. The
upstream parsers are lenient or fail late, so what they need is ensured here: one sharing strategy, no empty maps, each resource
once and in its sanitised form, MIG strategy `none` with MPS. Names follow k8s-device-plugin v0.20 (internal/rm/rm.go): `+`
becomes `.`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpushare.bundle.artifact import content_hash
from gpushare.facts.catalog.cards import DeviceProfile
from gpushare.intent.types import MigStrategy, Pool, SharePlacement
from gpushare.offering import modes
from gpushare.offering.backends.requests import ExtendedResources
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.contract.names import PROFILE_LABEL

SHARED_SUFFIX = ".shared"

MPS_ROOT = "/run/nvidia/mps"
"""Where both upstream charts keep the MPS pipes. Their MPS_ROOT overrides this; a plugin without it needs this value."""

_POLICY = {SharePlacement.SPREAD: "distributed", SharePlacement.PACK: "packed"}


class DevicePlugin(ExtendedResources):
    """The back end of one pool."""

    needs_runtime_class = True
    """Whether only the runtime class gives a container the devices that it was allocated."""

    def __init__(self, pool: Pool) -> None:
        self._mode, self._sharing = modes.of(pool), pool.sharing

    def names(self, profile: DeviceProfile | None, *, is_shared: bool) -> tuple[str, str]:
        """Return the name of a device's resource before sharing renames it, as in configs, and the one that pods request."""
        by_profile = profile and self._mode.mig_strategy != MigStrategy.SINGLE
        base = f"{NVIDIA.partitions[0]}{profile.resource_suffix}" if profile and by_profile else NVIDIA.whole_gpu
        return base, base + SHARED_SUFFIX if is_shared and self._sharing.rename else base

    def profile(self, replicated: Mapping[str, int]) -> tuple[str, dict[str, Any]]:
        """Return the key and the config v1 of nodes; `replicated`: names before renaming → shares of a device, if it is shared.

        The key is `<mode>-<8 hex>`: a legal ConfigMap key, label value and unquoted YAML string.
        """
        mode = self._mode
        flags: dict[str, Any] = {"migStrategy": mode.mig_strategy or "none"}
        if mode.has_daemon:
            flags["mpsRoot"] = MPS_ROOT
        if mode.replication_key:
            flags["plugin"] = {"sharedDevicesAllocationPolicy": _POLICY[self._sharing.placement]}
        config: dict[str, Any] = {"version": "v1", "flags": flags}
        if replicated:
            how = {
                "renameByDefault": self._sharing.rename,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": name, "replicas": replicas} for name, replicas in sorted(replicated.items())],
            }
            config["sharing"] = {mode.replication_key: how}
        return f"{mode.mode.value}-{content_hash(config)}", config

    def labels(self, key: str) -> dict[str, list[str]]:
        """Return the labels by which a node gets the profile of that key, each with every value that it may have."""
        return {PROFILE_LABEL: [key], NVIDIA.plugin_label: [f"{key}-a", f"{key}-b"]}


def mig_strategy_of_config(config: Mapping[str, Any]) -> str | None:
    """Return the MIG strategy that nodes with this config need, None if any works: a lock has configs of former modes."""
    if "mps" in config.get("sharing", {}):
        return "none"
    strategy: str = config.get("flags", {}).get("migStrategy", "none")
    return None if strategy == "none" else strategy


def one_mig_strategy(needed: Iterable[str | None]) -> str | None:
    """Return the MIG strategy that suits all nodes, for the operator's single setting; None if none does.

    MPS rejects `mixed`, even on nodes without MIG. `single` together with MPS is legal, because a node of an MPS pool has no
    MIG device.
    """
    wanted = {strategy for strategy in needed if strategy}
    if wanted >= {"mixed", "none"} or wanted >= {"mixed", "single"}:
        return None
    return next((strategy for strategy in ("single", "none") if strategy in wanted), "mixed")
