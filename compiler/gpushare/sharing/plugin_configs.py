"""The two upstream configs of a pool as plain data: the device plugin's and mig-parted's, named after a hash of their content.

Contains nothing specific to one pool, so pools that share in the same way get equal configs and equal names. The upstream
parsers are lenient or fail late, so what they need is ensured here: one sharing strategy, no empty maps, each resource once and
in its sanitised form, MIG strategy `none` with MPS, mig-parted profiles with `+` and every GPU covered once.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpushare.bundle.artifact import hexdigest
from gpushare.catalog.cards import Card
from gpushare.core import emit
from gpushare.intent.types import Exclusive, Layout, Mig, Mode, Mps, SharePlacement, Sharing
from gpushare.sharing.shares import DeviceClass

MPS_ROOT = "/run/nvidia/mps"
"""Where both upstream charts keep the MPS pipes. Their MPS_ROOT overrides this; a plugin without it needs this value."""

ALL_DISABLED = "all-disabled"
"""The mig-parted config of GPUs without MIG: the name that the operator itself sets on nodes without a label."""

NamedEntries = tuple[str, tuple[dict[str, Any], ...]]
"""A mig-parted config: its name and its entries."""

_POLICY = {SharePlacement.SPREAD: "distributed", SharePlacement.PACK: "packed"}


def content_hash(content: Any) -> str:
    """Return eight hex digits of the digest of a document's canonical JSON: its identity in labels and keys."""
    return hexdigest(emit.canonical_json(content).encode())[:8]


def plugin_config(sharing: Sharing, kinds: Iterable[DeviceClass]) -> dict[str, Any]:
    """Return the device plugin's config v1 for a node that offers `kinds`; without `sharing` if nothing is replicated."""
    flags: dict[str, Any] = {"migStrategy": sharing.strategy.value if isinstance(sharing, Mig) else "none"}
    if isinstance(sharing, Mps):
        flags["mpsRoot"] = MPS_ROOT
    if not isinstance(sharing, Exclusive):
        flags["plugin"] = {"sharedDevicesAllocationPolicy": _POLICY[sharing.placement]}
    config: dict[str, Any] = {"version": "v1", "flags": flags}
    replicated = {kind.base: kind.replicas for kind in kinds if kind.shared}
    if replicated and not isinstance(sharing, Exclusive):
        how = {
            "renameByDefault": sharing.rename,
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": name, "replicas": replicas} for name, replicas in sorted(replicated.items())],
        }
        config["sharing"] = {"mps" if isinstance(sharing, Mps) else "timeSlicing": how}
    return config


def profile_key(mode: Mode, config: Mapping[str, Any]) -> str:
    """Return the config's key: `<mode>-<8 hex>`, a legal ConfigMap key, label value and unquoted YAML string."""
    return f"{mode.value}-{content_hash(config)}"


def mig_parted_config(sharing: Sharing, card: Card, layouts: tuple[Layout, ...]) -> NamedEntries | None:
    """Return a node's mig-parted config; None if the card does not support MIG, or is not known to.

    Entries have no device filter: a filter that matches nothing is a silent success (mig-parted 0.15), and a node has one
    card model.
    """
    if card.mig is None and card.mig_supported is not True:
        return None
    if not isinstance(sharing, Mig):
        return ALL_DISABLED, ({"devices": "all", "mig-enabled": False},)
    gpus: dict[Layout, list[int]] = {}
    for index, layout in enumerate(layouts):
        gpus.setdefault(layout, []).append(index)
    entries = tuple(_mig_parted_entry("all" if len(gpus) == 1 else indexes, layout) for layout, indexes in gpus.items())
    return f"mig-{content_hash(entries)}", entries


def _mig_parted_entry(devices: str | list[int], layout: Layout) -> dict[str, Any]:
    entry: dict[str, Any] = {"devices": devices, "mig-enabled": bool(layout)}
    return entry | {"mig-devices": dict(layout)} if layout else entry


def needed_mig_strategy(sharing: Sharing) -> str | None:
    """Return the MIG strategy that nodes shared in this way need; None if any works."""
    match sharing:
        case Mig(strategy=strategy):
            return strategy.value
        case Mps():
            return "none"
        case _:
            return None


def mig_strategy_of_config(config: Mapping[str, Any]) -> str | None:
    """Return the same for nodes with a device-plugin config, as a lock has them."""
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
