"""The GPUs of vendors: `driver` has the interface of every driver, a folder each vendor's own code.

What acts for a pool asks `of(policy.vendor)`; what only recognises what it finds on a node knows the names of all vendors.
"""

from gpushare_node.core.policy import Vendor
from gpushare_node.vendors.nvidia.names import NVIDIA
from gpushare_node.vendors.vendor import GpuVendor

_VENDORS = {Vendor.NVIDIA: NVIDIA}
_ALL = tuple(_VENDORS.values())

RESOURCES = tuple(one.resources for one in _ALL)
UUIDS = tuple(prefix for one in _ALL for prefix in one.uuids)
DEPLOY_LABELS = tuple(one.deploy_labels for one in _ALL)
CLIENT_LABELS = tuple(one.deploy_labels + client for one in _ALL for client in one.clients)
CLIENT_APPS = frozenset(app for one in _ALL for app in one.client_apps)
PARTITIONER_APPS = frozenset(one.partitioner_app for one in _ALL)
DEVICE_MAJORS = frozenset(one.device_major for one in _ALL)
DEVICE_FILES = tuple(one.device_files for one in _ALL)
_GPU_RESOURCES = tuple(prefix for one in _ALL for prefix in one.gpu_resources)


def of(vendor: Vendor) -> GpuVendor:
    """Return the vendor's names and driver."""
    if vendor not in _VENDORS:
        raise NotImplementedError(f"GPUs of the vendor {vendor} are not supported")
    return _VENDORS[vendor]


def is_gpu_resource(name: str) -> bool:
    """Whether this is the name of a GPU resource."""
    return name.startswith(_GPU_RESOURCES)
