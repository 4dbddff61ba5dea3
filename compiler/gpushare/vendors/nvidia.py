"""NVIDIA, and how its device plugin, GPU feature discovery and gpu-operator are installed."""

from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract import vendors
from gpushare_node.contract.struct import content_of

NVIDIA = GpuVendor(
    **content_of(vendors.NVIDIA),
    name="NVIDIA",
    exported="nvidia_com_(gpu|mig).*",
    asked_for="name.startsWith('nvidia.com/gpu') || name.startsWith('nvidia.com/mig-')",
    charts={"gpu-operator": "gpu-operator", "device-plugin": "nvidia-device-plugin"},
    cluster_kinds=("ClusterPolicy", "NVIDIADriver"),
    catalogue="cards",
    tool="nvidia-smi",
    shown_by=("nvidia-smi", "-L"),
    has_shares=True,
    workload_label="nvidia.com/gpu.workload.config",
    vgpu_label="nvidia.com/vgpu.config",
)
