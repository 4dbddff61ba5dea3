"""AMD, whose names are those of ROCm k8s-device-plugin v1.31.0.10, gpu-operator v1.5.1 and device-config-manager v1.3.1."""

from gpushare.facts.vendors.vendor import Vendor

MANAGER_TAINT = "amd-dcm"
"""The taint, with value `up` and effect NoExecute, while the config manager divides the GPUs of a node."""

MANAGER_MODES = frozenset({"SPX", "DPX", "QPX", "CPX"})
"""The compute modes that the config manager sets: TPX is not among them."""

AMD = Vendor(
    name="AMD",
    domain="amd.com",
    whole_gpu="amd.com/gpu",
    partitions=("amd.com/spx_", "amd.com/dpx_", "amd.com/tpx_", "amd.com/qpx_", "amd.com/cpx_"),
    exported="amd_com_(gpu|[sdtqc]px_).*",
    plugin_label=None,
    layout_label="dcm.amd.com/gpu-config-profile",
    sharing_label=None,
    deploy_labels=None,
    charts={"amd-gpu-operator": "gpu-operator-charts", "amd-device-plugin": "amd-gpu"},
    cluster_kinds=("DeviceConfig",),
    catalogue="amd",
    tool="amd-smi",
    shown_by=("ls", "/dev/kfd", "/dev/dri"),
    has_shares=False,
    is_made_whole=False,
    change_seconds=3120,
    layout_taint=MANAGER_TAINT,
)
