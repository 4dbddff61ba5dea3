"""AMD's driver, in sysfs, which is read on demand."""

import os
from pathlib import Path

from gpushare_node.vendors.driver import Driver, Observe, ignore

ROOT_VARIABLE = "GPUSHARE_SYSFS"
"""The environment variable with the folder of the host's sysfs, if that is not /sys."""


def root() -> Path:
    """Return the folder of the host's sysfs."""
    return Path(os.environ.get(ROOT_VARIABLE) or "/sys")


def open_driver(observe: Observe = ignore, *, pid_max: int, reads_only: bool = False) -> Driver:  # noqa: ARG001 - it only reads
    """Open sysfs: see `driver.OpenDriver`."""
    from gpushare_node.vendors.amd.session import Session  # noqa: PLC0415 - `--help` needs none

    return Session.open(root(), observe, pid_max=pid_max)


def is_here() -> bool:
    """Whether this host has AMD's driver, with KFD, and not NVIDIA's: a processor may have an AMD GPU of its own."""
    modules = root() / "module"
    return (root() / "class/kfd/kfd").is_dir() and (modules / "amdgpu").is_dir() and not (modules / "nvidia").is_dir()
