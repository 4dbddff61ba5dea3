"""AMD, and how its device plugin and gpu-operator are installed."""

from gpushare.vendors.vendor import GpuVendor, NodeLabels, OperatorObjects
from gpushare_node.contract import vendors
from gpushare_node.contract.struct import content_of

MANAGER_TAINT = "amd-dcm"
"""The taint, with value `up` and effect NoExecute, while the config manager divides the GPUs of a node."""

CONFIG_MANAGER = "configManager"
"""What the operator's chart calls its config manager."""

MANAGER_MODES = frozenset({"SPX", "DPX", "QPX", "CPX"})
"""The compute modes that the config manager sets: TPX is not among them."""

OBJECTS = OperatorObjects(
    folder="chart/files/amd/",
    file="config.json",
    specs="chart/files/amd/device-configs/",
    config_map="gpushare-dcm",
    kind="DeviceConfig",
    plural="deviceconfigs",
    version="v1alpha1",
    open_fields=frozenset({"selector", "devicePluginArguments"}),
    naming=("devicePlugin", "devicePluginArguments", "resource_naming_strategy"),
)
"""DeviceConfigs of gpu-operator, and the ConfigMap with the config manager's file."""

AMD = GpuVendor(
    **content_of(vendors.AMD),
    name="AMD",
    exported="amd_com_(gpu|[sdtqc]px_).*",
    asked_for="name.startsWith('amd.com/gpu') || (name.startsWith('amd.com/') && name.contains('px_'))",
    charts={"amd-gpu-operator": "gpu-operator-charts", "amd-device-plugin": "amd-gpu"},
    cluster_kinds=(OBJECTS.kind,),
    catalogue="amd",
    tool="amd-smi",
    shown_by=("ls", "/dev/kfd", "/dev/dri"),
    has_shares=False,
    compute_modes=MANAGER_MODES,
    known_as=r"amd|instinct|radeon|mi[0-9]+|w7[0-9]{3}|v710|r9700",
    other_domains=("beta.amd.com", "dcm.amd.com"),
    operator_objects=OBJECTS,
    node_labels=NodeLabels(
        device=("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id"),
        product=("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
        mode=("amd.com/gpu.compute-memory-partition", "amd.com/compute-memory-partition"),
        memory=("amd.com/gpu.vram", "beta.amd.com/gpu.vram"),
        units=("amd.com/gpu.cu-count", "beta.amd.com/gpu.cu-count"),
    ),
    pci_vendor="1002",
    driver="ROCm",
    operator_stack="amd-gpu-operator",
    namespace="kube-amd-gpu",
    # The operator names the Service of its exporter `gpushare-<pool>-metrics-exporter`, of at most 63 characters. Where that is
    # refused, it starts no config manager (gpu-operator v1.5.1, handleMetricsExporter).
    longest_pool_name=37,
    host_paths={"sys": "/sys"},
    is_privileged=True,
)
