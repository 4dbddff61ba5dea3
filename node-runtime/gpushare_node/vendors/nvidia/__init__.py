"""NVIDIA's driver, NVML, which is opened on demand."""

from gpushare_node.vendors.driver import Driver, Observe, ignore


def open_driver(observe: Observe = ignore, *, pid_max: int, reads_only: bool = False) -> Driver:
    """Open NVML: see `driver.OpenDriver`."""
    from gpushare_node.vendors.nvidia.session import Session  # noqa: PLC0415 - `--help` needs none

    return Session.open(observe, pid_max=pid_max, reads_only=reads_only)
