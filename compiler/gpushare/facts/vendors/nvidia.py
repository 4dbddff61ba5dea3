"""NVIDIA, whose names are those of k8s-device-plugin v0.20.0, GPU feature discovery (in it) and gpu-operator."""

from gpushare.facts.vendors.vendor import Vendor

NVIDIA = Vendor(
    name="NVIDIA",
    domain="nvidia.com",
    whole_gpu="nvidia.com/gpu",
    partitions=("nvidia.com/mig-",),
    exported="nvidia_com_(gpu|mig).*",
    plugin_label="nvidia.com/device-plugin.config",
    layout_label="nvidia.com/mig.config",
    sharing_label="nvidia.com/gpu.sharing-strategy",
    deploy_labels="nvidia.com/gpu.deploy.",
    charts={"gpu-operator": "gpu-operator", "device-plugin": "nvidia-device-plugin"},
    cluster_kinds=("ClusterPolicy", "NVIDIADriver"),
    catalogue="cards",
    tool="nvidia-smi",
    shown_by=("nvidia-smi", "-L"),
    has_shares=True,
    is_made_whole=True,
    change_seconds=1800,
    workload_label="nvidia.com/gpu.workload.config",
    vgpu_label="nvidia.com/vgpu.config",
    dra_driver="gpu.nvidia.com",
)
