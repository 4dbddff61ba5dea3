"""GpuVendor: what the runtime must know of a vendor: the names that its programs use on nodes, and how to open its driver."""

from typing import Protocol

from gpushare_node.contract.struct import Struct
from gpushare_node.vendors.driver import Driver, Observe, ignore


class OpenDriver(Protocol):
    """Opens a session with the driver."""

    def __call__(self, observe: Observe = ignore, *, pid_max: int, reads_only: bool = False) -> Driver:
        """Return a new session. DriverError while there is no driver.

        `observe` is told of every call. `pid_max`: the largest pid of this host; `reads_only`: no call may change a GPU.
        """
        ...


class NoExecuteTaint(Struct):
    """A taint with the effect NoExecute, which ends all pods that do not tolerate it."""

    key: str
    value: str


class GpuVendor(Struct):
    """One vendor. `open_driver` imports the driver's library only when it is called."""

    open_driver: OpenDriver

    resources: str
    """With which the names of its resources begin: GPUs, and devices of network and virtual-machine plugins."""
    whole_gpu: str
    gpu_resources: tuple[str, ...]
    """With which those of GPUs and of parts of them begin."""
    dra_driver: str
    """Its DRA driver, as claims name it; empty if claims of it are not understood."""
    uuids: tuple[str, ...]
    """The prefixes of device ids that identify a device for certain."""

    plugin_label: str
    """The configuration of the device plugin, which watches no other label; empty if it watches none."""
    layout_label: str
    """The layout for the vendor's own program that partitions GPUs."""
    layout_state_label: str
    """What that program says of the layout."""
    layout_done: str
    layout_failed: str
    """What it says at the end: that the GPUs have the layout, or that it has given up."""
    layout_seconds: float
    """How long that takes at most."""
    layout_taint: "NoExecuteTaint | None"
    """The taint by which it evicts other pods while it works; None if it ends other programs itself."""
    sharing_label: str
    """How the device plugin shares: none, time-slicing or mps."""
    leave_seconds: float
    """How long all other programs may take to leave the GPUs before a change."""
    change_seconds: float
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

    partitioner_stops: frozenset[str]
    """The host's units that that program stops while it works."""

    device_major: int | None
    """The major number of its character devices; None if it is another in each boot."""
    device_files: bytes
    """With which the paths of these devices begin."""
    reset_command: tuple[str, ...]
    """The host's program that resets a GPU, and its arguments before the GPU's PCI address; empty without one."""
    nodes_command: tuple[str, ...]
    """The same that creates the device nodes of a GPU's parts."""
