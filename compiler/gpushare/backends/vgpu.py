"""The configs of NVIDIA's vGPU device manager, and the names by which KubeVirt offers what it creates.

The manager rejects a file with one wrong entry as a whole, waits forever for a GPU that no entry names, and lets the last of
several entries win. So each config has one entry, which names the card and all GPUs of a node.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.bundle.artifact import content_hash
from gpushare.catalog.cards import Card, VgpuType
from gpushare.core.record import Record
from gpushare.vendors.nvidia import NVIDIA

OPERATOR_CONFIG_MAP = "gpushare-vgpu"
"""The ConfigMap with every config, in the operator's namespace."""

NONE = "none"
"""The config of a node whose label names none: no vGPU."""

WORKLOAD = "vm-vgpu"
"""What the operator calls nodes for virtual machines with vGPUs."""


class VgpuConfig(Record):
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


def labels(name: str) -> dict[str, str]:
    """Return the labels by which a node gets the config of that name."""
    return {NVIDIA.workload_label: WORKLOAD, NVIDIA.vgpu_label: name}


def device_name(kind: VgpuType) -> str:
    """Return the name of the type as the driver writes it; of some types it has more words in the middle."""
    return f"{NVIDIA.name} {kind.name}"


def resource(kind: VgpuType) -> str:
    """Return the resource that a virtual machine requests: the driver's name of the type with `_` for spaces."""
    return f"{NVIDIA.prefix}{device_name(kind).replace(' ', '_')}"
