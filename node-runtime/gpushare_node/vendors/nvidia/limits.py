"""Limits: the memory limits of cgroups that the driver itself enforces, from R615 on and not under MIG.

Owns the two calls and their structures. Does not know which container has which limit.
"""

import ctypes

from gpushare_node.vendors.driver import Code, DriverError
from gpushare_node.vendors.nvidia.library import Handle, Library

_SET, _GET = "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"
_NO_LIMIT = (1 << 64) - 1
"""`NVML_DEVICE_MEMORY_LIMIT_MAX`."""


def has_limits(library: Library) -> bool:
    """Whether pynvml and the driver have both calls."""
    return library.has(_SET) and library.has(_GET)


def read_limit(library: Library, handle: Handle, cgroup: str) -> int | None:
    """Return the hard limit in bytes; None if none is set, which some drivers report as an error."""
    limits = library.names.c_nvmlGetMemoryLimits_v1_t(nameSpace=_encode(cgroup))
    try:
        library.call(_GET, handle, limits)
    except DriverError as problem:
        if problem.code in (Code.NOT_FOUND, Code.NOT_SUPPORTED):
            return None
        raise
    return None if limits.hardLimit == _NO_LIMIT else int(limits.hardLimit)


def set_limit(library: Library, handle: Handle, cgroup: str, limit_bytes: int | None) -> None:
    """Set the hard limit, or with None remove it.

    The soft limit stays 0: it guarantees memory, which is more than a cap promises, and it would have to be removed before the
    cgroup disappears.
    """
    hard = _NO_LIMIT if limit_bytes is None else limit_bytes
    library.call(_SET, handle, library.names.c_nvmlSetMemoryLimits_v1_t(nameSpace=_encode(cgroup), softLimit=0, hardLimit=hard))


def _encode(cgroup: str) -> ctypes.c_char_p:
    return ctypes.c_char_p(cgroup.encode())
