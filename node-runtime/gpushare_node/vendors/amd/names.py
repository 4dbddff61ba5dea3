"""AMD: the names of its resources, and of the labels and programs on nodes; sysfs is read on demand.

Of ROCm k8s-device-plugin v1.31.0.10, gpu-operator v1.5.1 and device-config-manager v1.3.1.
"""

import os
from pathlib import Path

from gpushare_node.contract.policy import Vendor
from gpushare_node.vendors.driver import Driver, Observe, ignore
from gpushare_node.vendors.vendor import GpuVendor, NoExecuteTaint

ROOT_VARIABLE = "GPUSHARE_SYSFS"
"""The environment variable with the folder of the host's sysfs, if that is not /sys."""


def root() -> Path:
    """Return the folder of the host's sysfs."""
    return Path(os.environ.get(ROOT_VARIABLE) or "/sys")


def _open_driver(observe: Observe = ignore, *, pid_max: int, reads_only: bool = False) -> Driver:  # noqa: ARG001 - it only reads
    from gpushare_node.vendors.amd.session import Session  # noqa: PLC0415 - `--help` needs none

    return Session.open(root(), observe, pid_max=pid_max)


def is_here() -> bool:
    """Whether this host has AMD's driver, with KFD, and not NVIDIA's: a processor may have an AMD GPU of its own."""
    modules = root() / "module"
    return (root() / "class/kfd/kfd").is_dir() and (modules / "amdgpu").is_dir() and not (modules / "nvidia").is_dir()


AMD = GpuVendor(
    open_driver=_open_driver,
    resources=Vendor.AMD.resources,
    whole_gpu="amd.com/gpu",
    gpu_resources=("amd.com/gpu", "amd.com/spx_", "amd.com/dpx_", "amd.com/tpx_", "amd.com/qpx_", "amd.com/cpx_"),
    # Its plugin's ids are PCI addresses and names of platform devices, which other GPUs get after a change or a reboot.
    dra_driver="",
    uuids=(),
    plugin_label="",
    layout_label="dcm.amd.com/gpu-config-profile",
    layout_state_label="dcm.amd.com/gpu-config-profile-state",
    layout_done="success",
    layout_failed="failure",
    # It tries again every minute, for half an hour, and its answer to the request before may come first.
    layout_seconds=1900.0,
    # On one node of AMD's own tests eviction took ten and a half minutes.
    leave_seconds=900.0,
    # The plugin's restart takes up to five minutes.
    change_seconds=2220.0,
    layout_taint=NoExecuteTaint(key="amd-dcm", value="up"),
    sharing_label="",
    deploy_labels="",
    dra_component="",
    plugin_apps=frozenset(),
    # gpu-operator's, with the name of their DeviceConfig.
    restarted="daemonset-name",
    clients=(),
    client_apps=frozenset(),
    partitioner_app="device-config-manager",
    # As its file names them.
    partitioner_stops=frozenset({"amd-metrics-exporter.service", "gpuagent.service"}),
    device_major=None,
    device_files=b"/dev/kfd",
    reset_command=(),
    nodes_command=(),
)
