"""The GPUs of vendors: `driver` has the interface of every driver, a folder each vendor's own; `contract.vendors` the names.

What acts for a pool asks `of(policy.vendor)`; what only recognises what it finds on a node knows the names of all vendors.
"""

from collections.abc import Callable, Mapping

from gpushare_node.contract.policy import CLASS_PREFIX
from gpushare_node.contract.vendors import VENDORS, Vendor, VendorNames
from gpushare_node.vendors import amd, nvidia
from gpushare_node.vendors.driver import Driver, Observe, OpenDriver, ignore

_DRIVERS: Mapping[Vendor, OpenDriver] = {Vendor.NVIDIA: nvidia.open_driver, Vendor.AMD: amd.open_driver}
_IS_HERE: Mapping[Vendor, Callable[[], bool]] = {Vendor.AMD: amd.is_here}
_ALL = tuple(VENDORS.values())

RESOURCES = tuple(one.prefix for one in _ALL)
UUIDS = tuple(prefix for one in _ALL for prefix in one.uuids)
DEPLOY_LABELS = tuple(one.deploy_labels for one in _ALL if one.deploy_labels)
CLIENT_LABELS = tuple(one.deploy_labels + client for one in _ALL for client in one.clients)
CLIENT_APPS = frozenset(app for one in _ALL for app in one.client_apps)
PARTITIONER_APPS = frozenset(one.partitioner_app for one in _ALL)
LAYOUT_TAINTS = tuple(one.layout_taint.key for one in _ALL if one.layout_taint is not None)
DEVICE_MAJORS = frozenset(one.device_major for one in _ALL if one.device_major is not None)
DEVICE_FILES = tuple(one.device_files for one in _ALL)
_READ_ONCE = tuple(prefix for one in _ALL if one.restarted for prefix in one.gpu_resources)
DRA_DRIVERS = frozenset(one.dra_driver for one in _ALL if one.dra_driver)
_GPU_RESOURCES = (*(prefix for one in _ALL for prefix in one.gpu_resources), *(one.slices_driver for one in _ALL), CLASS_PREFIX)


def of(vendor: Vendor) -> VendorNames:
    """Return the vendor's names."""
    return VENDORS[vendor]


def open_driver(vendor: Vendor, observe: Observe = ignore, *, pid_max: int, reads_only: bool = False) -> Driver:
    """Return a new session with the vendor's driver, whose library is imported only here: see `OpenDriver`."""
    return _DRIVERS[vendor](observe, pid_max=pid_max, reads_only=reads_only)


def on_this_host() -> Vendor:
    """Return whose GPUs this host has, where no policy says it: NVIDIA's, unless only another's driver lists GPUs."""
    return next((vendor for vendor, is_here in _IS_HERE.items() if is_here()), Vendor.NVIDIA)


def is_read_once(name: str) -> bool:
    """Whether the plugin of this resource reads the GPUs once, when it starts: whatever it offers else is of before."""
    return name.startswith(_READ_ONCE)


def is_gpu_resource(name: str) -> bool:
    """Whether this is the name of a GPU resource, of a DeviceClass of the bundle's, or of a DRA driver of GPUs."""
    return name.startswith(_GPU_RESOURCES)


def names_gpus(name: str) -> bool:
    """Whether devices of this name are GPUs or parts of them, given by any program: HAMi, Volcano and others too."""
    return is_gpu_resource(name) or ("gpu" in name or "cuda" in name)


def advertised(allocatable: Mapping[str, int]) -> dict[str, int]:
    """Return the GPU resources in allocatable whose count is not zero."""
    return {name: count for name, count in allocatable.items() if count > 0 and is_gpu_resource(name)}
