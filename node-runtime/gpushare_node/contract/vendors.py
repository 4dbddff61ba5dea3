"""What is a vendor's own on nodes: the names of its resources and labels, its programs, and how long these take."""

from enum import StrEnum

from gpushare_node.contract.struct import Struct


class Vendor(StrEnum):
    """Whose GPUs a pool has, by the word of its policy."""

    NVIDIA = "nvidia"
    AMD = "amd"


class Stack(StrEnum):
    """What runs the device plugin on the cluster."""

    GPU_OPERATOR = "gpu-operator"
    DEVICE_PLUGIN = "device-plugin"
    AMD_GPU_OPERATOR = "amd-gpu-operator"
    AMD_DEVICE_PLUGIN = "amd-device-plugin"
    EXISTING = "existing"

    @property
    def labels_plugin(self) -> bool:
        """Whether it is known which labels the plugin's pods have."""
        return self not in (Stack.EXISTING, Stack.AMD_DEVICE_PLUGIN)


class NoExecuteTaint(Struct):
    """A taint with the effect NoExecute, which ends all pods that do not tolerate it."""

    key: str
    value: str


class VendorNames(Struct):
    """What compiler and node runtime must know of a vendor. A label is empty where the vendor has no such label."""

    word: Vendor
    """By which a policy names it."""
    domain: str
    """The API group of its operator's objects."""
    whole_gpu: str
    """The resource of whole GPUs."""
    partitions: tuple[str, ...]
    """With any of which the names of the resources of parts of a GPU begin."""
    dra_driver: str
    """Its DRA driver, as claims name it; empty if claims of it are not understood."""
    slices_driver: str
    """Its DRA driver, as ResourceSlices name it, whether or not its claims are understood."""
    uuids: tuple[str, ...]
    """The prefixes of device ids that identify a device for certain."""

    plugin_label: str
    """The configuration of the device plugin, which watches no other label."""
    layout_label: str
    """The layout for the vendor's own program that partitions GPUs."""
    layout_state_label: str
    """What that program says of the layout."""
    layout_done: str
    layout_failed: str
    """What it says at the end: that the GPUs have the layout, or that it has given up."""
    layout_seconds: int
    """How long that takes at most."""
    layout_taint: NoExecuteTaint | None
    """The taint by which it evicts other pods while it works; None if it ends other programs itself."""
    sharing_label: str
    """How the device plugin shares: none, time-slicing or mps."""
    leave_seconds: int
    """How long all other programs may take to leave the GPUs before a change."""
    change_seconds: int
    """A bound for the change itself, until the plugin offers the result."""
    deploy_labels: str
    """With which the labels begin that say whether a program of the vendor's operator runs on the node."""

    dra_component: str
    """The label by which pods of that driver's chart say which part of it they are."""

    plugin_apps: frozenset[str]
    """The device plugin's pods: label `app` or `app.kubernetes.io/name`."""
    restarted: str
    """The label of pods of the bundle's that read the GPUs once, when they start, so that they are deleted after a change; its
    value begins with our name. Empty if they follow a label."""
    clients: tuple[str, ...]
    """After `deploy_labels`: the operator's programs that keep GPUs open."""
    client_apps: frozenset[str]
    """Label `app` of those programs' pods."""
    partitioner_app: str
    """Label `app` or `app.kubernetes.io/name` of the vendor's own program that partitions GPUs."""

    partitioner_stops: tuple[str, ...]
    """The host's services that that program stops while it works."""
    is_made_whole: bool
    """Whether a node that is released gets whole GPUs again; elsewhere they stay as they are, and what the vendor's own program
    does not divide a person does."""

    device_major: int | None
    """The major number of its character devices; None if it is another in each boot."""
    device_files: bytes
    """With which the paths of these devices begin."""
    reset_command: tuple[str, ...]
    """The host's program that resets a GPU, and its arguments before the GPU's PCI address; empty without one."""
    nodes_command: tuple[str, ...]
    """The same that creates the device nodes of a GPU's parts."""

    @property
    def prefix(self) -> str:
        """With which its resources and labels begin: those of GPUs, and of network and virtual-machine plugins."""
        return f"{self.domain}/"

    @property
    def gpu_resources(self) -> tuple[str, ...]:
        """With which the names of resources begin that are GPUs or parts of them."""
        return self.whole_gpu, *self.partitions

    @property
    def window_seconds(self) -> int:
        """What must be left of a rollout's window in addition to the drain's time: the bound of a whole change."""
        return self.leave_seconds + self.change_seconds


# The names of k8s-device-plugin v0.20.0, GPU feature discovery (in it) and gpu-operator.
NVIDIA = VendorNames(
    word=Vendor.NVIDIA,
    domain="nvidia.com",
    whole_gpu="nvidia.com/gpu",
    partitions=("nvidia.com/mig-",),
    dra_driver="gpu.nvidia.com",
    slices_driver="gpu.nvidia.com",
    uuids=("GPU-", "MIG-"),
    plugin_label="nvidia.com/device-plugin.config",
    layout_label="nvidia.com/mig.config",
    layout_state_label="nvidia.com/mig.config.state",
    layout_done="success",
    layout_failed="failed",
    # The sum of its own waits: four times five minutes for clients.
    layout_seconds=1200,
    # Five minutes each for MPS servers and GPU clients.
    leave_seconds=600,
    # mig-manager's own waits add up to it: four times five minutes. Resets and instances of sixteen GPUs take minutes, and the
    # plugin's restart up to five.
    change_seconds=1200,
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
    partitioner_stops=(),
    is_made_whole=True,
    # Fixed: /proc/devices, and Linux's list of allocated devices.
    device_major=195,
    device_files=b"/dev/nvidia",
    reset_command=("nvidia-smi", "--gpu-reset", "-i"),
    # Without arguments it lists the GPUs and opens each instance; as root, NVML creates the nodes for it.
    nodes_command=("nvidia-smi",),
)

# The names of ROCm k8s-device-plugin v1.31.0.10, gpu-operator v1.5.1 and device-config-manager v1.3.1.
AMD = VendorNames(
    word=Vendor.AMD,
    domain="amd.com",
    whole_gpu="amd.com/gpu",
    partitions=("amd.com/spx_", "amd.com/dpx_", "amd.com/tpx_", "amd.com/qpx_", "amd.com/cpx_"),
    # Its plugin's ids are PCI addresses and names of platform devices, which other GPUs get after a change or a reboot.
    dra_driver="",
    slices_driver="gpu.amd.com",
    uuids=(),
    plugin_label="",
    layout_label="dcm.amd.com/gpu-config-profile",
    layout_state_label="dcm.amd.com/gpu-config-profile-state",
    layout_done="success",
    layout_failed="failure",
    # It tries again every minute, for half an hour, and its answer to the request before may come first.
    layout_seconds=1900,
    # On one node of AMD's own tests eviction took ten and a half minutes.
    leave_seconds=900,
    # The plugin's restart takes up to five minutes.
    change_seconds=2220,
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
    partitioner_stops=("amd-metrics-exporter", "gpuagent"),
    is_made_whole=False,
    device_major=None,
    device_files=b"/dev/kfd",
    reset_command=(),
    nodes_command=(),
)

VENDORS = {one.word: one for one in (NVIDIA, AMD)}
"""Every vendor. The first is meant where nothing names one."""
