"""The configs of NVIDIA's vGPU device manager, and the names by which KubeVirt offers what it creates.

The manager rejects a file with one wrong entry as a whole, waits forever for a GPU that no entry names, and lets the last of
several entries win. So each config has one entry, which names the card and all GPUs of a node.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.bundle.artifact import content_hash
from gpushare.facts.catalog.cards import Card, VgpuType
from gpushare.vendors import VENDORS
from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract.struct import Struct

OPERATOR_CONFIG_MAP = "gpushare-vgpu"
"""The ConfigMap with every config, in the operator's namespace."""

FILE = "chart/files/vgpu/config.yaml"
"""Its text in a bundle."""

NONE = "none"
"""The config of a node whose label names none: no vGPU."""

WORKLOAD = "vm-vgpu"
"""What the operator calls nodes for virtual machines with vGPUs."""


DONE = "success"
"""The manager's state of a node that has its vGPUs."""


class VgpuConfig(Struct):
    """One config: its name (a label value) and its entries."""

    name: str
    entries: tuple[Mapping[str, Any], ...]


def config(card: Card, kind: VgpuType) -> VgpuConfig:
    """Return the config of nodes with this card, each of whose GPUs is divided into as many vGPUs of the type as it can have.

    Cards that share a PCI id are told apart by their subsystem.
    """
    filters = list(card.device_filters or card.pci_device_ids)
    named = {"device-filter": filters[0] if len(filters) == 1 else filters} if filters else {}
    entries = ({**named, "devices": "all", "vgpu-devices": {kind.name: kind.max_count}},)
    return VgpuConfig(name=f"vgpu-{content_hash(entries)}", entries=entries)


def document(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manager's file."""
    none = {NONE: [{"devices": "all", "vgpu-devices": {}}]}
    return {"version": "v1", "vgpu-configs": none | dict(sorted(configs.items()))}


def labels(vendor: GpuVendor, name: str) -> dict[str, str]:
    """Return the labels by which a node gets the config of that name."""
    return {vendor.workload_label: WORKLOAD, vendor.vgpu_label: name}


def state(labels: Mapping[str, str]) -> str:
    """Return what the manager says of a node with these labels; empty if it has said nothing."""
    return next((found for vendor in VENDORS.values() if (found := labels.get(f"{vendor.vgpu_label}.state"))), "")


def config_of(labels: Mapping[str, str]) -> str | None:
    """Return the config that a node for virtual machines with vGPUs has; None for other nodes, empty for the default one."""
    for vendor in VENDORS.values():
        if vendor.workload_label and labels.get(vendor.workload_label) == WORKLOAD:
            return labels.get(vendor.vgpu_label, "")
    return None


def device_name(vendor: GpuVendor, kind: VgpuType) -> str:
    """Return the name of the type as the driver writes it; of some types it has more words in the middle."""
    return f"{vendor.name} {kind.name}"


def resource(vendor: GpuVendor, kind: VgpuType) -> str:
    """Return the resource that a virtual machine requests: the driver's name of the type with `_` for spaces."""
    return f"{vendor.prefix}{device_name(vendor, kind).replace(' ', '_')}"
