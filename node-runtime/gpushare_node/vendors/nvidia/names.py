"""NVIDIA: the names of its resources, and of the labels and programs on nodes; its driver is opened on demand."""

from gpushare_node.contract.policy import Vendor
from gpushare_node.vendors.driver import Driver, Observe, ignore
from gpushare_node.vendors.vendor import GpuVendor


def _open_driver(observe: Observe = ignore, *, pid_max: int, reads_only: bool = False) -> Driver:
    from gpushare_node.vendors.nvidia.session import Session  # noqa: PLC0415 - `--help` needs none

    return Session.open(observe, pid_max=pid_max, reads_only=reads_only)


NVIDIA = GpuVendor(
    open_driver=_open_driver,
    resources=Vendor.NVIDIA.resources,
    whole_gpu="nvidia.com/gpu",
    gpu_resources=("nvidia.com/gpu", "nvidia.com/mig-"),
    dra_driver="gpu.nvidia.com",
    uuids=("GPU-", "MIG-"),
    plugin_label="nvidia.com/device-plugin.config",
    layout_label="nvidia.com/mig.config",
    layout_state_label="nvidia.com/mig.config.state",
    layout_done="success",
    layout_failed="failed",
    # The sum of its own waits: four times five minutes for clients.
    layout_seconds=1200.0,
    # Five minutes each for MPS servers and GPU clients.
    leave_seconds=600.0,
    # mig-manager's own waits add up to it: four times five minutes. Resets and instances of sixteen GPUs take minutes, and the
    # plugin's restart up to five.
    change_seconds=1200.0,
    layout_taint=None,
    sharing_label="nvidia.com/gpu.sharing-strategy",
    deploy_labels="nvidia.com/gpu.deploy.",
    dra_component="dra-driver-nvidia-gpu-component",
    # gpu-operator's DaemonSet, and the plugin's own chart.
    plugin_apps=frozenset({"nvidia-device-plugin-daemonset", "nvidia-device-plugin"}),
    restarted="",
    clients=("device-plugin", "gpu-feature-discovery", "dcgm", "dcgm-exporter", "nvsm"),
    client_apps=frozenset(
        {
            "nvidia-device-plugin-daemonset",
            "nvidia-device-plugin-mps-control-daemon",
            "gpu-feature-discovery",
            "nvidia-dcgm",
            "nvidia-dcgm-exporter",
        }
    ),
    partitioner_app="nvidia-mig-manager",
    partitioner_stops=frozenset(),
    # Fixed: /proc/devices, and Linux's list of allocated devices.
    device_major=195,
    device_files=b"/dev/nvidia",
    reset_command=("nvidia-smi", "--gpu-reset", "-i"),
    # Without arguments it lists the GPUs and opens each instance; as root, NVML creates the nodes for it.
    nodes_command=("nvidia-smi",),
)
